"""`univocal serve` from the outside: what a client sends, what the origin server receives, what is said."""

import json
import signal
import socket

import pytest

from tests.ports import free_port

PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
SPELLINGS = [
    "/wiki/A/B(c)",
    "/wiki/A%2fB%28c%29",
    "/wiki/A%2FB(c%29",
    "/x/../wiki/%41/B(c)",
    "/wiki/./A/B%28c)",
]


def test_every_spelling_is_one_resource(start, origin, ask):
    running = start("serve", "--upstream", origin.url, "--profile", "mediawiki", *PORTS)
    answers = [ask(running.proxy, spelling, "en.example") for spelling in (*SPELLINGS, "/wiki/%00")]
    assert [answer.body for answer in answers[:-1]] == [b"answer 1"] * len(SPELLINGS)
    assert origin.lines == [b"GET /wiki/A/B(c) HTTP/1.1"]
    assert answers[0].value("cache-status") == "univocal; fwd=uri-miss; stored"
    assert all((answer.value("cache-status") or "").startswith("univocal; hit") for answer in answers[1:-1])
    assert running.end() == 0
    lines = [json.loads(line) for line in running.out.splitlines()]
    assert [line["target"] for line in lines] == [*SPELLINGS, "/wiki/%00"]
    assert [(line["status"], line["cache"]) for line in lines] == [
        *((200, cache) for cache in ("uri-miss", *["hit"] * 4)),
        (400, None),
    ]
    assert {line["url"] for line in lines[:-1]} == {"http://en.example/wiki/A/B(c)"}
    assert lines[-1]["reasons"] == ["control-character"]


SITES = """
[[sites]]
hosts = ["en.example", "*.wiki.example"]
aliases = ["www.en.example"]
profile = "mediawiki"
upstream = "{origin}"
[[sites.routes]]
path = "/api/rest_v1/"
profile = "restbase"
upstream = "{origin}/v1/"
[[sites]]
hosts = ["old.example"]
aliases = ["older.example"]
alias_answer = 308
origin_host = "upstream"
upstream = "{origin}"
[sites.cache]
ttl = 60
"""


def test_sites_routes_and_aliases(inside, origin, ask):
    proxy = inside(SITES.format(origin=origin.url)).proxy
    own = origin.url.removeprefix("http://")
    table = [  # host and target as received, target and host as the origin gets them
        ("en.example", "/wiki/A%2FB", "/wiki/A/B", "en.example"),
        ("www.en.example", "/wiki/C%2FD", "/wiki/C/D", "en.example"),
        ("de.wiki.example", "/x", "/x", "de.wiki.example"),
        ("en.example", "/api/rest_v1/page/A%2fB%28", "/v1/page/A%2FB(", "en.example"),
        ("old.example", "/a%28b", "/a%28b", own),
    ]
    for host, target, sent, sent_host in table:
        assert ask(proxy, target, host).status == 200
        assert origin.lines[-1] == b"GET %b HTTP/1.1" % sent.encode()
        assert f"\r\nhost: {sent_host}\r\n".encode() in origin.seen[-1].lower()
    assert len(origin.seen) == len(table)
    ask(proxy, "/wiki/A/B", "www.en.example")
    assert len(origin.seen) == len(table)


def test_requests_beyond_the_limits_are_refused(inside, origin, ask):
    site = f'[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"'
    limits = 'max_target = 100\nmax_segments = 3\nmax_fields = 5\nmax_body = "10 B"'
    proxy = inside(f"{limits}\n{site}").proxy
    assert ask(proxy, "/" + "a" * 99, "en.example").status == 200
    assert ask(proxy, "/" + "a" * 100, "en.example").status == 414
    assert ask(proxy, "/a/b/c", "en.example").status == 200
    assert b"target-too-long" in ask(proxy, "/a/b/c/", "en.example").body
    assert ask(proxy, "/", "en.example", "TRACE").status == 405
    assert ask(proxy, "/", "en.example", fields="X: y\r\n" * 10).status == 431
    assert ask(proxy, "/", "en.example", "POST", body="0123456789").status == 200
    assert ask(proxy, "/", "en.example", "POST", body="0123456789x").status == 413


def test_sites_and_routes_have_largest_bodies_of_their_own(inside, origin, ask):
    site = f"""[[sites]]
hosts = ["a.example"]
upstream = "{origin.url}"
max_body = 5
routes = [{{ path = "/up/", max_body = 20 }}, {{ path = "/any/", max_body = 0 }}]
[[sites]]
hosts = ["b.example"]
upstream = "{origin.url}"
"""
    proxy = inside(f"max_body = 10\n{site}").proxy
    chunked = "Transfer-Encoding: chunked\r\n"
    for host, target, most in (("a.example", "/", 5), ("a.example", "/up/a", 20), ("b.example", "/", 10)):
        for size, status in ((most, 200), (most + 1, 413)):
            assert ask(proxy, target, host, "POST", body="x" * size).status == status
            sent = f"{chunked}\r\n{size:x}\r\n{'x' * size}\r\n0\r\n"
            assert ask(proxy, target, host, "POST", fields=sent).status == status
    assert ask(proxy, "/any/a", "a.example", "POST", body="x" * 5000).status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(start, origin, ask, number):
    running = start("serve", "--upstream", origin.url, *PORTS)
    with socket.create_connection(running.proxy, timeout=20) as idle:
        assert ask(running.proxy, "/", "en.example").status == 200
        assert running.end(number) == 0
        assert idle.recv(1) == b""


def test_a_port_in_use_is_one_clear_message(univocal_inside):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = univocal_inside(
            "serve", "--upstream", "http://127.0.0.1:1", "--listen", address, "--admin", "127.0.0.1:0"
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"univocal: command line: --listen: found '{address}'; allowed: ")
    assert ended.stderr.count("\n") == 1


def test_several_upstreams_share_the_requests(inside, ask, origin):
    dead = f"http://127.0.0.1:{free_port()}"
    running = inside(f'[[sites]]\nhosts = ["*"]\nupstream = ["{dead}", "{origin.url}"]\n')
    assert [ask(running.proxy, f"/{number}", "en.example").status for number in range(6)] == [200] * 6
    told = json.loads(ask(running.admin, "/-/origins", "localhost").body)
    assert [(each["site"], each["url"], each["under_way"]) for each in told] == [
        ("*", dead, 0),
        ("*", origin.url, 0),
    ]
    assert [each["requests"] for each in told] == [3, 6]
    assert [(each["state"], each["failures"]) for each in told] == [("ejected", 3), ("up", 0)]


def test_an_invalid_list_of_upstreams_is_one_clear_message(univocal_inside):
    ended = univocal_inside(
        "serve", "--upstream", "http://127.0.0.1:1", "--upstream", "http://127.0.0.1:2/x", *PORTS
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "univocal: command line: --upstream: found 'http://127.0.0.1:2/x'; allowed"
    )


@pytest.mark.parametrize(
    "server", ["access_log_format = '{clinet}'", "tls_cert = 'none.pem'", "[cache]\nstore = 'redis://a:b/'"]
)
def test_serve_refuses_what_check_refuses(univocal_inside, tmp_path, server):
    file = tmp_path / "univocal.toml"
    site = '[[sites]]\nhosts = ["a.example"]\nupstream = "http://127.0.0.1:9"\n'
    file.write_text(f"[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n{server}\n{site}")
    for command in ("check", "serve"):
        assert univocal_inside(command, "--config", str(file)).returncode == 2
