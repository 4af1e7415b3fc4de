"""The middleware mounted in Django, under each ASGI server, behind a TLS proxy on its machine: who is asking.

The test is that proxy: it asks from loopback, and says for whom.
"""

import contextlib
from types import SimpleNamespace

import pytest

import forking
from support import until
from tests.integration.clients.sites import COMMANDS, Site
from tests.integration.place import Place

pytest.importorskip("django", reason="needs Django (univocal[clients])")

STRANGER = "198.51.100.7"
BY_HTTPS = {"X_Forwarded_For": STRANGER, "X_Forwarded_Proto": "https"}


@pytest.fixture(scope="module", params=[server for server in COMMANDS if "h11" not in server])
def started(request, tmp_path_factory):
    """started(trusted, forwarded): the project under one of the servers."""
    pytest.importorskip(COMMANDS[request.param][0], reason="needs the server (univocal[servers])")
    directory = tmp_path_factory.mktemp("project")
    with contextlib.ExitStack() as stack:

        def start(trusted="", forwarded="x-forwarded"):
            folder, named = directory / f"{trusted}-{forwarded}", {"TRUSTED": trusted, "FORWARDED": forwarded}
            # Granian spawns its workers: they begin with nothing imported, as a user's do.
            program = forking.Ordinary if request.param == "granian" else forking.Program
            project = {"application": "secure_site:application", "framework": "django.core.handlers.asgi"}
            site = Site(request.param, folder, mounted="", program=program, **project, **named)
            stack.callback(site.end)
            ask = Place(site.port).ask
            return SimpleNamespace(server=request.param, ask=ask, site=site)

        yield start


@pytest.fixture(scope="module")
def trusting(started):
    """The project with the proxy in `trusted_proxies`."""
    return started("127.0.0.1")


@pytest.fixture(scope="module")
def unaware(started):
    """The project as README mounts it: it knows of no proxy."""
    return started()


@pytest.fixture(scope="module")
def other(started):
    """The project behind a trusted proxy that writes `Forwarded`."""
    return started("127.0.0.1", "forwarded")


STRANGERS = [
    {"X_Forwarded_For": STRANGER},
    {"X_Forwarded_For": STRANGER, "X_Forwarded_Proto": "https"},
    {"X_Forwarded_For": f"127.0.0.1, {STRANGER}"},
    {"X_Forwarded_Proto": "https"},
    {"X_Forwarded_Host": "en.example"},
    {"Forwarded": f"for={STRANGER};proto=https"},
    {"Forwarded": "for=127.0.0.1"},
    {"Forwarded": f"for={STRANGER}", "X_Forwarded_Proto": "https"},
    {"Forwarded": f"for={STRANGER}", "X_Forwarded_For": "127.0.0.1"},
    {"X_Real_IP": STRANGER},
]


@pytest.mark.parametrize("fields", STRANGERS, ids=str)
def test_a_stranger_behind_an_unnamed_proxy_may_not_purge(unaware, fields):
    refused = unaware.ask("/page", "PURGE", **fields)
    assert (refused.status, refused.told["reason"]) == (403, "purge-forbidden")
    assert unaware.ask("/page", "PURGE").status == 200  # who speaks for himself may, from loopback


def test_untrusted_forwarding_fields_do_not_reach_the_application(unaware):
    fields = {"Forwarded": f"for={STRANGER};proto=https;host=evil.example", "X_Real_IP": STRANGER}
    answer = unaware.ask("/who", X_Forwarded_Host="evil.example", **fields)
    assert answer.status == 301
    assert answer.fields["location"] == "https://en.example/who"


def test_the_log_tells_which_setting_such_a_proxy_needs(unaware):
    for _ in range(5):
        unaware.ask("/who", Forwarded=f"for={STRANGER};proto=https")
    (line,) = until(lambda: [each for each in unaware.site.log.splitlines() if "forwarded fields" in each])
    assert 'trusted_proxies = ["127.0.0.1"]' in line


def test_a_trusted_proxys_https_is_https_to_the_application(trusting):
    assert trusting.ask("/who", X_Forwarded_For=STRANGER, X_Forwarded_Proto="http").status == 301
    answer = trusting.ask("/who", **BY_HTTPS)  # where the redirect leads
    assert answer.status == 200
    assert (answer.told["secure"], answer.told["scheme"]) == (True, "https")
    assert answer.told["client"] == STRANGER


def test_a_trusted_proxys_word_travels_in_our_fields(trusting):
    answer = trusting.ask(
        "/who", **{**BY_HTTPS, "X_Forwarded_For": f"127.0.0.1, {STRANGER}"}, X_Real_IP="::1"
    )
    assert answer.told["told"] == {
        "x-forwarded-for": STRANGER,
        "x-forwarded-host": "en.example",
        "x-forwarded-proto": "https",
        "forwarded": f"for={STRANGER};host=en.example;proto=https",
    }


def test_behind_a_trusted_proxy_http_and_https_are_two_pages(trusting):
    assert [trusting.ask("/page", **BY_HTTPS).status for _ in range(2)] == [200, 200]
    assert "hit" in trusting.ask("/page", **BY_HTTPS).cache
    assert trusting.ask("/page", X_Forwarded_For=STRANGER, X_Forwarded_Proto="http").status == 301


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"X_Forwarded_For": STRANGER}, 403),
        ({"X_Forwarded_For": f"127.0.0.1, {STRANGER}"}, 403),
        ({"X_Forwarded_Proto": "https"}, 403),
        ({"Forwarded": f"for={STRANGER}"}, 403),
        ({"Forwarded": f"for={STRANGER}", "X_Forwarded_Proto": "https"}, 403),
        ({"Forwarded": f"for={STRANGER}", "X_Forwarded_For": "127.0.0.1"}, 403),
        ({"X_Forwarded_For": "127.0.0.1"}, 200),  # loopback asks, through the proxy
        ({}, 200),
    ],
    ids=str,
)
def test_purge_rights_behind_a_trusted_proxy_follow_forwarding_fields(trusting, fields, status):
    assert trusting.ask("/page", "PURGE", **fields).status == status


def test_forwarded_counts_where_it_is_set(other):
    answer = other.ask("/who", Forwarded=f"for={STRANGER};proto=https;host=en.example")
    assert (answer.status, answer.told["secure"], answer.told["client"]) == (200, True, STRANGER)
    assert other.ask("/page", "PURGE", Forwarded=f"for={STRANGER}").status == 403
    assert other.ask("/page", "PURGE", Forwarded="for=127.0.0.1").status == 200


def test_where_forwarded_counts_the_other_family_does_not(other):
    # uvicorn reads X-Forwarded-Proto before us, without --no-proxy-headers.
    assert other.ask("/who", **BY_HTTPS).status == (200 if "uvicorn" in other.server else 301)
    assert other.ask("/page", "PURGE", X_Forwarded_For="127.0.0.1").status == 403
    fields = {"Forwarded": f"for={STRANGER};proto=https", "X_Forwarded_Host": "evil.example"}
    told = other.ask("/who", **fields).told["told"]
    assert told["x-forwarded-host"] == "en.example"
    assert told["forwarded"] == f"for={STRANGER};host=en.example;proto=https"
