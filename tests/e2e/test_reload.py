"""A configuration that is read again while clients are served: by SIGHUP, by name, at the admin listener."""

import contextlib
import http.client
import json
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import origin_server, response_with, until
from tests.ports import free_port
from univocal.http.errors import ConfigurationError
from univocal_app.run.reading import read

Fixture = Callable[..., Any]

SITE = '[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{}"\n'


@dataclass
class Served:
    """A started program and its file, of which all but the addresses is written anew."""

    running: Any
    file: Path
    ask: Fixture

    def write(self, text, server='access_log = "off"', top=""):
        listeners = 'listen = "127.0.0.1:0"\nadmin = "127.0.0.1:0"'
        self.file.write_text(f"{top}\n[server]\n{listeners}\n{server}\n{text}", "utf-8")

    def reload(self, *text, fields=""):
        """Write the file, and have it read: status and content."""
        if text:
            self.write(*text)
        answer = self.ask(self.running.admin, "/-/reload", "localhost", "POST", fields)
        return answer.status, json.loads(answer.body)

    def get(self, target="/", host="en.example", **named):
        return self.ask(self.running.proxy, target, host, **named)


@pytest.fixture
def serve(start, ask, tmp_path):
    """Start the program with this file."""

    def started(*text, **variables):
        served = Served(None, tmp_path / "univocal.toml", ask)
        served.write(*text)
        served.running = start("serve", "--config", str(served.file), **variables)
        return served

    return started


@pytest.fixture(scope="module")
def shared(start_once, ask, tmp_path_factory):
    served = Served(None, tmp_path_factory.mktemp("shared") / "univocal.toml", ask)
    served.write(SITE.format("http://127.0.0.1:9"))
    served.running = start_once("serve", "--config", str(served.file))
    return served


@pytest.fixture
def have(shared):
    """Have one program, which stores nothing yet, serve this file: it has read those of other tests."""

    def read_anew(*text):
        status, told = shared.reload(*text)
        assert status == 200, told
        assert (
            shared.ask(shared.running.admin, "/-/purge", "localhost", "POST", body='{"all": true}').status
            == 200
        )
        return shared

    return read_anew


@pytest.fixture
def origins():
    """Two origin servers that answer each request with their own name."""
    with contextlib.ExitStack() as stack:
        named = [Named(name) for name in ("one", "two")]
        for each in named:
            each.url = stack.enter_context(origin_server(each.answer, connected=each.open))
            stack.callback(each.gate.set)
        yield named


class Named:
    """An origin server whose answers are its name and the target, on connections that are kept."""

    def __init__(self, name):
        self.name, self.requests = name, 0
        self.open = set[socket.socket]()
        self.gate = threading.Event()  # until it is set, what is asked for "/slow" waits

    def answer(self, head, _):
        target = head.split(b" ")[1]
        self.requests += 1
        if target == b"/slow":
            self.gate.wait(30)
        kept = b"max-age=60" if target.startswith(b"/kept") else b"no-store"
        return response_with(b"%b %b" % (self.name.encode(), target), b"Cache-Control: %b\r\n" % kept)


class Client(threading.Thread):
    """Asks without pause over one connection, until it is told to stop; `wrong` is what failed."""

    def __init__(self, address, over):
        super().__init__(daemon=True)
        self.address, self.over, self.answered, self.wrong = address, over, 0, list[str]()

    def run(self):
        with contextlib.closing(http.client.HTTPConnection(*self.address, timeout=30)) as connection:
            while not self.over.is_set() and not self.wrong:
                target = f"/kept/{self.answered % 7}" if self.answered % 2 else f"/{self.answered}"
                try:
                    connection.request("GET", target, headers={"Host": "en.example"})
                    answer = connection.getresponse()
                    body = answer.read().decode()
                except (OSError, http.client.HTTPException) as error:
                    self.wrong.append(repr(error))
                    return
                if answer.status != 200 or not body.endswith(f" {target}") or answer.getheader("Connection"):
                    self.wrong.append(f"{answer.status} {answer.headers} {body!r}")
                self.answered += 1


def test_no_request_fails_while_the_configuration_is_read_fifty_times(serve, origins):
    reloaded_under_load(serve(SITE.format(origins[0].url)), origins, 50, "")


def test_nor_where_several_processes_serve(serve, origins, redis):
    store = f'[cache]\nstore = "{redis.url}"\n'
    served = serve(store + SITE.format(origins[0].url), "workers = 2\naccess_log = 'off'")
    reloaded_under_load(served, origins, 10, store, "workers = 2\naccess_log = 'off'")


def reloaded_under_load(served, origins, times, before, *server):
    """Reload again and again, each time with another origin server, while clients ask without pause."""
    over = threading.Event()
    clients = [Client(served.running.proxy, over) for _ in range(3)]
    for client in clients:
        client.start()
    for number in range(1, times + 1):
        answered = [client.answered for client in clients]
        told = served.reload(before + SITE.format(origins[number % 2].url), *server)
        assert told == (200, {"reloaded": True, "changed": ["sites[0].upstream"]})
        until(lambda answered=answered: all(map(more, clients, answered)))
    over.set()
    for client in clients:
        client.join(30)
    assert [client.wrong for client in clients] == [[]] * 3
    assert all(origin.requests for origin in origins)


def more(client, before):
    return client.answered > before or bool(client.wrong)


def test_a_request_under_way_keeps_its_configuration_and_its_connection(have, origins):
    one, two = origins
    served = have(SITE.format(one.url))
    assert served.get("/kept").body == b"one /kept"
    with socket.create_connection(served.running.proxy, timeout=30) as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: en.example\r\n\r\n")
        until(lambda: one.requests == 2)
        assert served.reload(SITE.format(two.url))[0] == 200
        assert served.get("/a").body == b"two /a"
        assert served.get("/kept").body == b"one /kept"  # what is stored stays
        assert one.open
        one.gate.set()
        assert slow.recv(65536).endswith(b"one /slow")
        until(lambda: not one.open)  # the last request has ended, and nobody else is to ask
        slow.sendall(b"GET /b HTTP/1.1\r\nHost: en.example\r\n\r\n")
        assert slow.recv(65536).endswith(b"two /b")


def test_connections_to_an_origin_that_stays_are_kept(have, origins):
    one, two = origins
    other = SITE.replace("en.example", "de.example").format(two.url)
    served = have(SITE.format(one.url) + other)
    served.get("/a")
    assert served.get("/a", "de.example").body == b"two /a"
    (kept,), (gone,) = one.open, two.open
    # The site is no longer the second, and its neighbour has another origin server.
    status, told = served.reload(other.replace(two.url, one.url) + SITE.format(one.url))
    assert (status, told["changed"]) == (200, ["sites[0].hosts", "sites[1].hosts", "sites[1].upstream"])
    assert served.get("/b").body == b"one /b"
    assert served.get("/b", "de.example").body == b"one /b"
    assert kept in one.open
    until(lambda: gone not in two.open)


def states(served):
    """The state of each origin server, and how many requests it had, by its URL."""
    listed = json.loads(served.ask(served.running.admin, "/-/origins", "localhost").body)
    return {each["url"]: (each["state"], each["requests"]) for each in listed}


@pytest.mark.parametrize("transport", ["own", "httpx"])
def test_a_list_that_changes_keeps_who_stays(have, origins, transport):
    """Connections, health and numbers; who is gone ends with its last request."""
    one, two = origins
    nobody = f"http://127.0.0.1:{free_port()}"

    def site(*urls, more=""):
        written = SITE.replace('"{}"', "{}").format(json.dumps(urls))
        # The one that fails is asked first, and stays ejected for the time of a test.
        balancing = f'choice = "round-robin"\nfails = 1\neject = 600\ntransport = "{transport}"'
        return f"{written}[sites.origin]\n{balancing}\n{more}"

    served = have(site(nobody, one.url))
    assert [served.get(f"/{number}").body for number in range(3)] == [b"one /%d" % each for each in range(3)]
    assert states(served) == {nobody: ("ejected", 1), one.url: ("up", 3)}
    (kept,) = one.open
    # Another comes, to the front, and how they are chosen is another.
    status, told = served.reload(site(two.url, one.url, nobody, more="retries = 2"))
    assert (status, told["changed"]) == (200, ["sites[0].upstream", "sites[0].origin.retries"])
    assert states(served) == {two.url: ("up", 0), one.url: ("up", 3), nobody: ("ejected", 1)}
    assert {served.get(f"/{number}").body[:3] for number in range(4)} == {b"one", b"two"}
    assert one.open == {kept}
    # It goes, while it is asked, and the others stay.
    (stays,) = two.open
    asking = threading.Thread(target=served.get, args=("/slow",), daemon=True)
    before = one.requests + two.requests
    asking.start()
    until(lambda: one.requests + two.requests == before + 1)
    status, told = served.reload(site(nobody, two.url))
    assert (status, told["changed"]) == (200, ["sites[0].upstream", "sites[0].origin.retries"])
    one.gate.set()
    two.gate.set()
    asking.join(20)
    until(lambda: not one.open)
    assert served.get("/last").body == b"two /last"
    assert two.open == {stays}
    assert states(served)[nobody] == ("ejected", 1)
    # With other settings, the same server begins anew.
    assert served.reload(site(nobody, two.url, more="read_timeout = 7"))[0] == 200
    assert states(served) == {nobody: ("up", 0), two.url: ("up", 0)}


def test_sites_come_and_go(have, origins):
    one, two = origins
    served = have(SITE.format(one.url))
    other = SITE.replace("en.example", "de.example").format(two.url)
    assert served.get("/a", "de.example").status == 421
    assert served.reload(SITE.format(one.url) + other) == (200, {"reloaded": True, "changed": ["sites[1]"]})
    assert served.get("/a", "de.example").body == b"two /a"
    assert served.reload(SITE.format(one.url)) == (200, {"reloaded": True, "changed": ["sites[1]"]})
    assert served.get("/a", "de.example").status == 421
    assert served.reload() == (200, {"reloaded": True, "changed": []})


def test_a_changed_profile_uses_nothing_that_the_old_one_keyed(serve, origins, tmp_path):
    profile = tmp_path / "profiles" / "own.toml"
    profile.parent.mkdir()
    profile.write_text('[path]\ndecode = "( )"\n')
    site = SITE.replace("mediawiki", "own").format(origins[0].url)
    served = serve(site, "", 'profiles = ["profiles"]')
    fresh, hit = "univocal; fwd=uri-miss; stored", "univocal; hit"
    said = [served.get(target).value("cache-status") for target in ("/kept/(", "/kept/%28")]
    assert said[0] == fresh
    assert said[1].startswith(hit)
    profile.write_text('[path]\ndecode = ")"\n')
    assert served.reload() == (200, {"reloaded": True, "changed": ["sites[0].profile"]})
    for target in ("/kept/(", "/kept/%28"):
        assert served.get(target).value("cache-status") == fresh
        assert served.get(target).value("cache-status").startswith(hit)
    # Back again: a purge has not reached what was stored by it.
    served.get("/kept/(", method="PURGE")
    profile.write_text('[path]\ndecode = "( )"\n')
    assert served.reload()[1]["changed"] == ["sites[0].profile"]
    assert served.get("/kept/(").value("cache-status") == fresh
    profile.write_text('[path]\ndecode = "? )"\n')
    status, told = served.reload()
    assert (status, told["errors"][0]["file"]) == (422, str(profile))
    assert served.get("/kept/(").value("cache-status").startswith(hit)


def test_a_reload_changes_the_purge_token(serve, origins):
    text = '[purge]\nallow = []\ntoken_env = "{}"\n' + SITE.format(origins[0].url)
    served = serve(text.format("BEFORE"), BEFORE="b", AFTER="a")
    old, new = ("Authorization: Bearer b\r\n", "Authorization: Bearer a\r\n")
    served.write(text.format("AFTER"))
    assert [served.reload(fields=fields)[0] for fields in ("", new)] == [403, 403]
    assert served.get(fields=new, method="PURGE").status == 403
    assert served.reload(fields=old) == (200, {"reloaded": True, "changed": ["purge.token_env"]})
    assert [served.get(fields=each, method="PURGE").status for each in (old, new)] == [403, 200]
    assert [served.reload(fields=fields)[0] for fields in (old, new)] == [403, 200]


def test_the_log_changes_its_file_and_its_form(serve, origins, tmp_path):
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    site = SITE.format(origins[0].url)
    served = serve(site, f'access_log = "{first}"')
    served.get("/a")
    status, told = served.reload(site, f'access_log = "{second}"\naccess_log_format = "combined"')
    assert (status, told["changed"]) == (200, ["server.access_log", "server.access_log_format"])
    served.get("/b")
    assert served.running.end() == 0
    assert [json.loads(line)["target"] for line in first.read_text().splitlines()] == ["/a"]
    assert [line.split('"')[1] for line in second.read_text().splitlines()] == ["GET /b HTTP/1.1"]


def test_bounds_hold_for_kept_connections_too(have, origins):
    site = SITE.format(origins[0].url)
    served = have(site)
    with (
        socket.create_connection(served.running.proxy, timeout=30) as kept,
        socket.create_connection(served.running.proxy, timeout=30) as unused,
    ):
        kept.sendall(b"GET /" + b"a" * 200 + b" HTTP/1.1\r\nHost: en.example\r\n\r\n")
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
        status, told = served.reload(site, "max_target = 100\nmax_fields = 5\nmax_body = 10")
        assert (status, told["changed"]) == (
            200,
            ["server.access_log", "server.max_body", "server.max_target", "server.max_fields"],
        )
        for connection in (kept, unused):
            connection.sendall(b"GET /" + b"a" * 200 + b" HTTP/1.1\r\nHost: en.example\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 414 ")
    assert served.get(fields="X: y\r\n" * 10).status == 431
    assert served.get(method="POST", body="0123456789x").status == 413
    assert served.get(method="POST", body="0123456789").status == 200


def test_cache_rules_change_for_new_requests(have, origin):
    origin.fields = "X-Nothing: of freshness"
    site = SITE.format(origin.url)
    served = have(site)
    assert [served.get().body for _ in range(2)] == [b"answer 1", b"answer 2"]
    status, told = served.reload(site + "[sites.cache]\nttl = 60\n", "cache_status = 'off'")
    assert (status, told["changed"]) == (
        200,
        ["server.cache_status", "server.access_log", "sites[0].cache.ttl"],
    )
    assert [served.get().body for _ in range(2)] == [b"answer 3", b"answer 3"]
    assert served.get().value("cache-status") is None


def test_a_smaller_store_lets_go(serve, origins):
    site = SITE.format(origins[0].url)
    served = serve(site)
    for number in range(100):
        served.get(f"/kept/{number}")
    status, told = served.reload('[cache]\nmax_bytes = "20 KiB"\n' + site)
    assert (status, told["changed"]) == (200, ["cache.max_bytes"])
    stats = json.loads(served.ask(served.running.admin, "/-/stats", "localhost").body)["totals"]["stored"]
    assert 0 < stats["bytes"] <= stats["max_bytes"] == 20 * 1024
    assert 0 < stats["responses"] < 100


def test_the_admin_listener_shows_the_configuration_in_force(serve, origins):
    one, two = origins
    served = serve(SITE.format(one.url))
    admin = served.running.admin
    assert served.ask(admin, "/-/config", "admin.example").status == 421
    status, _ = served.reload(SITE.format(two.url), 'admin_hosts = ["admin.example"]')
    assert status == 200
    shown = json.loads(served.ask(admin, "/-/config", "admin.example").body)
    assert shown["sites"][0]["upstream"] == two.url
    assert shown["server"]["admin_hosts"] == ["admin.example"]
    assert served.ask(admin, "/-/config", "localhost").status == 421


FIXED = [
    ('listen = "127.0.0.1:1"', "", ["server.listen"]),
    ('admin = "127.0.0.1:1"', "", ["server.admin"]),
    ('listen = [{ address = "127.0.0.1:0", proxy_protocol = true }]', "", ["server.listen"]),
    ("workers = 2", 'store = "redis://:secret@127.0.0.1:1/0"', ["server.workers", "cache.store"]),
    ("", 'store = "redis://:secret@127.0.0.1:1/0"', ["cache.store"]),
]


def test_a_reload_refuses_settings_that_need_a_restart(have, origins):
    one, two = origins
    served = have(SITE.format(one.url))
    for server, cache, keys in FIXED:
        served.write(f"[cache]\n{cache}\n" + SITE.format(two.url), server)
        if server[:6] in {"listen", "admin "}:  # which stand in the file already
            lines = served.file.read_text().splitlines()
            lines.remove(f'{keys[0].partition(".")[2]} = "127.0.0.1:0"')
            served.file.write_text("\n".join(lines))
        status, told = served.reload()
        assert (status, told["status"], [error["key"] for error in told["errors"]]) == (422, 422, keys)
        assert "secret" not in json.dumps(told)
        for error in told["errors"]:
            line = served.file.read_text().splitlines()[error["line"] - 1]
            assert line.startswith(error["key"].partition(".")[2] + " = ")
            found, _, allowed = error["detail"].partition("found ")[2].partition("; allowed: ")
            assert found.strip("'") != allowed.partition(" until a restart: ")[0]
        assert served.get("/a").body == b"one /a"


BROKEN = [
    ("[[sites", [""]),
    ("max_bodies = 1\n[cache]\nttl = -1\n" + SITE.format("x"), None),
    (SITE.format("nothing://"), ["sites[0].upstream"]),
    (SITE.format("http://127.0.0.1:1").replace("mediawiki", "nowhere"), ["sites[0].profile"]),
    (SITE.format("http://127.0.0.1:1") * 2, ["sites[1].hosts"]),
    (SITE.format("https://127.0.0.1:1") + '[sites.origin]\ntls_ca = "none.pem"', ["sites[0].origin.tls_ca"]),
]


def test_an_invalid_file_leaves_the_old_one_in_force(have, origins):
    """All that is wrong is said, as `univocal check` says it."""
    served = have(SITE.format(origins[0].url))
    before = served.ask(served.running.admin, "/-/config", "localhost").body
    for text, keys in BROKEN:
        served.write(text)
        status, told = served.reload()
        with pytest.raises(ConfigurationError) as checked:
            read(served.file)
        said = [str(each) for each in (checked.value, *checked.value.beside)]
        assert (status, told["detail"].splitlines()) == (422, said)
        assert len(said) == 3 if keys is None else [error["key"] for error in told["errors"]] == keys
        assert served.ask(served.running.admin, "/-/config", "localhost").body == before
        assert served.get("/a").body == b"one /a"


def test_all_that_is_wrong_is_said_at_once(have, origins, tmp_path):
    """One answer names changes that need a restart, missing paths and invalid settings, each once."""
    served = have(SITE.format(origins[0].url))
    served.write(
        SITE.format("nothing://") + SITE.format("http://127.0.0.1:1").replace("mediawiki", "nowhere"),
        f'access_log = "{tmp_path}/none/log"\nhttp2 = true\nmax_target = "x"\ntls_key = "none.key"',
    )
    served.file.write_text(served.file.read_text().replace('admin = "127.0.0.1:0"', 'admin = "127.0.0.1:1"'))
    status, told = served.reload()
    assert status == 422
    assert [error["key"] for error in told["errors"]] == [
        "server.admin",
        "server.access_log",
        "server.http2",
        "server.max_target",
        "server.tls_key",
        "sites[0].upstream",
        "sites[1].hosts",
        "sites[1].profile",
    ]
    assert served.get("/a").body == b"one /a"


def test_a_signal_and_the_command_do_the_same(serve, univocal, origins):
    one, two = origins
    served = serve(SITE.format(one.url))
    served.write(SITE.format(two.url))
    asked = univocal("reload", "--admin", served.running.page)
    assert (asked.returncode, asked.stdout) == (0, "sites[0].upstream\n")
    assert served.get("/a").body == b"two /a"
    served.write(SITE.format(one.url))
    served.running.process.send_signal(signal.SIGHUP)
    until(lambda: served.get("/a").body == b"one /a")
    served.file.write_text("nonsense")
    served.running.process.send_signal(signal.SIGHUP)
    asked = univocal("reload", "--admin", served.running.page)
    said = f"univocal: {served.file}:1:9: invalid TOML: "
    assert (asked.returncode, asked.stdout, asked.stderr[: len(said)]) == (2, "", said)
    assert served.get("/a").body == b"one /a"
    assert served.running.end() == 0
    assert served.running.err.count("univocal: reloaded: sites[0].upstream\n") == 2
    assert served.running.err.count("univocal: not reloaded: ") == 2


def test_the_command_reports_a_missing_or_forbidding_proxy(serve, univocal, origins):
    served = serve("[purge]\nallow = []\n" + SITE.format(origins[0].url), UNIVOCAL_PURGE_TOKEN="s3cret")
    address = served.running.page
    assert univocal("reload", "--admin", address).returncode == 1
    assert (
        univocal("reload", "--admin", address, UNIVOCAL_PURGE_TOKEN="s3cret").stdout
        == "nothing has changed\n"
    )
    assert univocal("reload", "--admin", "nowhere").returncode == 2
    assert served.running.end() == 0
    ended = univocal("reload", "--admin", address)
    assert (ended.returncode, ended.stderr.count("did not answer")) == (1, 1)


def test_an_included_file_is_read_again(serve, origins, tmp_path):
    (tmp_path / "sites").mkdir()
    included = tmp_path / "sites" / "de.toml"
    included.write_text(SITE.format(origins[0].url).replace("en.", "de."))
    served = serve(SITE.format(origins[0].url))
    text = SITE.format(origins[0].url)
    served.write(text, top='include = ["sites/*.toml"]')
    assert served.reload() == (200, {"reloaded": True, "changed": ["include", "sites[1]"]})
    assert served.get(host="de.example").status == 200
    included.write_text(SITE.format("${NEXT_UPSTREAM}").replace("en.", "de."))
    status, problem = served.reload()
    assert status == 422
    assert problem["errors"][0]["file"] == str(included)
    assert problem["errors"][0]["line"] == 4
    included.write_text(SITE.format(origins[1].url).replace("en.", "de."))
    assert served.reload() == (200, {"reloaded": True, "changed": ["sites[1].upstream"]})
    assert b"two" in served.get("/fresh", host="de.example").body


SECRETIVE = """
[request]
set = {{ "X-Key" = "plain-s3cret", "X-Other" = "${{TOKEN}}" }}
[[sites]]
hosts = ["en.example"]
upstream = ["{0}/${{TOKEN}}/"]
[sites.response]
set = {{ "X-Answer" = "plain-s3cret" }}
[sites.origin]
health = {{ path = "/up?key=${{TOKEN}}", interval = 5 }}
[[sites.routes]]
path = "/api/"
upstream = "{0}/${{TOKEN}}/"
[sites.routes.request]
set = {{ "X-Route" = "plain-s3cret" }}
[sites.routes.access]
require = {{ "header:X-Api-Key" = ["plain-s3cret", "${{TOKEN}}"] }}
[[sites.routes]]
path = "/${{TOKEN}}/"
upstream = "{0}"
"""
SECRETS = ("s3cret-of-the-environment", "plain-s3cret")


@pytest.mark.parametrize("server", ["access_log = 'off'", "workers = 2\naccess_log = 'off'"])
def test_no_answer_and_no_line_shows_a_secret(serve, origins, server):
    text = SECRETIVE.format(origins[0].url)
    served = serve(text, server, TOKEN=SECRETS[0])
    assert served.reload(text, server) == (200, {"reloaded": True, "changed": []})
    config = shown = served.ask(served.running.admin, "/-/config", "localhost").body.decode()
    shown += served.ask(served.running.admin, "/-/origins", "localhost").body.decode()
    shown += served.ask(served.running.admin, "/-/stats", "localhost").body.decode()
    shown += served.ask(served.running.admin, "/metrics", "localhost").body.decode()
    assert f'{origins[0].url}/***"' in shown
    site = json.loads(config)["sites"][0]
    assert site["upstream"] == f"{origins[0].url}/${{TOKEN}}/"
    assert site["routes"][0]["upstream"] == f"{origins[0].url}/${{TOKEN}}/"
    assert site["origin"]["health"]["path"] == "/up?key=${TOKEN}"
    assert json.loads(config)["request"]["set"] == {"X-Key": "***", "X-Other": "***"}
    assert site["routes"][0]["access"]["require"] == {"header:X-Api-Key": "***"}
    for broken in (
        text.replace("/${TOKEN}/", " ${TOKEN} "),
        text.replace("plain-s3cret", "plain-s3cret\\u0007"),
        text.replace("/up?key=", "up "),
        text.replace('"X-Route"', '"X Route"'),
        text.replace("header:X-Api", "field:X-Api"),
    ):
        status, told = served.reload(broken, server)
        assert (status, SECRETS[0] in json.dumps(told), SECRETS[1] in json.dumps(told)) == (422, False, False)
    assert [secret for secret in SECRETS if secret in shown + served.running.said] == []
