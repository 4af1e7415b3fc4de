"""`[origin] health`: origin servers that say they are ill get no requests until they say they are well."""

import contextlib
import json
import re
from dataclasses import dataclass, field

import pytest

from support import origin_server, response_with, until


@dataclass
class Ill:
    """An origin server whose health a test decides: `status` is that of its /healthz."""

    name: str
    url: str = ""
    status: int = 200
    checks: list[bytes] = field(default_factory=list)
    served: int = 0

    def answer(self, head):
        if head.startswith(b"GET /healthz "):
            self.checks.append(head)
            return response_with(status=b"%d x" % self.status)
        self.served += 1
        stored = b"max-age=600" if b"/stored" in head else b"no-store"
        return response_with(self.name.encode(), b"Cache-Control: %b\r\n" % stored)


@pytest.fixture
def origins(tmp_path):
    """Start an origin server, on a port or, where its name says so, on a Unix socket."""
    with contextlib.ExitStack() as stack:

        def start(name):
            origin = Ill(name)
            file = tmp_path / "app.sock" if name == "unix" else None
            origin.url = stack.enter_context(origin_server(lambda head, _: origin.answer(head), file))
            return origin

        yield start


@pytest.fixture
def serve(inside):
    """Serve en.example from these origin servers, checked ten times a second."""

    def serve(*origins, origin="", site=""):
        return inside(f"""
            [origin]
            health = {{ path = "/healthz", interval = 0.1, timeout = 15, rises = 2, falls = 3 }}
            {origin}
            [[sites]]
            hosts = ["*.wiki.example", "en.example"]
            upstream = {[each.url for each in origins]}
            {site}
        """)

    return serve


def test_an_unhealthy_server_gets_no_requests_until_it_recovers(serve, origins, ask):
    first, second = origins("first"), origins("unix")
    running = serve(first, second, origin='choice = "round-robin"')

    def bodies(number=4):
        return [ask(running.proxy, f"/{turn}", "en.example").body for turn in range(number)]

    def states():
        told = json.loads(ask(running.admin, "/-/origins", "localhost").body)
        assert [each["url"] for each in told] == [first.url, second.url]
        return [each["state"] for each in told]

    assert sorted(bodies()) == [b"first"] * 2 + [b"unix"] * 2
    assert states() == ["up", "up"]
    first.status = 500
    until(lambda: set(bodies(2)) == {b"unix"})
    assert states() == ["down", "up"]
    assert bodies() == [b"unix"] * 4
    first.status, second.status = 200, 503
    until(lambda: set(bodies(2)) == {b"first"})
    second.status = 204
    until(lambda: set(bodies(2)) == {b"first", b"unix"})
    running.end()
    assert f"{first.url} is down, as its health checks say: status 500" in running.err
    assert f"{first.url} is up, as its health checks say: status 200" in running.err


@pytest.mark.parametrize(
    ("place", "own", "is_checked"),
    [
        ("sites.origin", "", False),  # the site's check is of its own application
        ("origin", "", True),
        ("origin", "[sites.routes.origin]\nhealth = {}", False),
        ("sites.origin", "[sites.routes.origin]\nhealth = { path = '/healthz', interval = 0.1 }", True),
    ],
)
def test_an_upstream_of_a_route_is_checked_as_it_says(inside, origins, ask, place, own, is_checked):
    wiki, api = origins("wiki"), origins("api")
    api.status = 404
    health = f"[{place}]\nhealth = {{ path = '/healthz', interval = 0.1 }}\n"
    running = inside(
        (health if place == "origin" else "")
        + f'[[sites]]\nhosts = ["en.example"]\nupstream = "{wiki.url}"\n'
        + (health if place != "origin" else "")
        + f'[[sites.routes]]\npath = "/api/"\nupstream = "{api.url}"\n{own}\n'
    )
    until(lambda: len(wiki.checks) > 10)
    assert bool(api.checks) is is_checked
    until(lambda: ask(running.proxy, "/api/x", "en.example").status == (502 if is_checked else 200))
    told = json.loads(ask(running.admin, "/-/origins", "localhost").body)
    assert [each["state"] for each in told] == ["up", "down" if is_checked else "up"]


@pytest.mark.parametrize(
    ("transport", "site", "host"),
    [
        ("own", "", b"en.example"),
        ("own", 'origin_host = "upstream"', b""),
        ("httpx", 'origin_host = "a.example"', b"a.example"),
    ],
)
def test_a_health_check_names_its_host_and_is_not_logged(serve, origins, ask, transport, site, host):
    only = origins("only")
    running = serve(only, origin=f'transport = "{transport}"', site=site)
    until(lambda: len(only.checks) > 2)
    head = only.checks[-1]
    assert head.startswith(b"GET /healthz HTTP/1.1\r\n")
    assert re.findall(rb"(?i)\r\nuser-agent: ([^\r]*)\r\n", head) == [b"univocal"]
    assert re.findall(rb"(?i)\r\nhost: ([^\r]*)\r\n", head) == [
        host or only.url.removeprefix("http://").encode()
    ]
    # No check is an exchange: none is stored, counted or logged.
    before = len(only.checks)
    handled = ask(running.proxy, "/healthz", "en.example").value("cache-status") or ""
    assert handled.startswith("univocal; fwd=uri-miss")
    assert len(only.checks) > before
    running.end()
    assert len(running.out.splitlines()) == 1


def test_a_site_that_wants_no_checks(serve, origins, ask):
    only = origins("only")
    running = serve(only, site="[sites.origin]\nhealth = {}")
    assert ask(running.proxy, "/", "en.example").status == 200
    running.end()
    assert only.checks == []
