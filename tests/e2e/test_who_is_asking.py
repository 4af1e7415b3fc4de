"""`univocal serve` finds out the client: tests play the proxy in front, and strangers behind it."""

import itertools
import json
import re
import socket

import http_sf
import pytest

STRANGER = "198.51.100.7"
TRUSTS_NOBODY = "trusted_proxies = []"
BY_FORWARDED = 'forwarded = "forwarded"'


@pytest.fixture
def serve(tmp_path, inside, origin):
    """serve(server, profile): `univocal serve` with these settings under [server], before the origin."""

    def serve(server="", profile="rfc3986", cache="", admin="127.0.0.1"):
        (tmp_path / "profiles").mkdir()
        (tmp_path / "profiles" / "quotes.toml").write_text(
            'summary = "they stay"\n[path]\ndecode = "22 5C"\nloose = []\n'
        )
        site = f'[[sites]]\nhosts = ["*"]\nprofile = "{profile}"\nupstream = "{origin.url}"'
        return inside(f"{server}\n[cache]\n{cache}\n{site}\n", "profiles = ['profiles']", f"{admin}:0")

    return serve


def fields_at(origin):
    """The fields of the last request that the origin server was sent."""
    lines = origin.seen[-1].decode("latin-1").split("\r\n")[1:-2]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


# Rights


RIGHTS = {
    "": [
        ("", 200),
        (f"X-Forwarded-For: {STRANGER}\r\n", 403),
        ("X-Forwarded-For: 127.0.0.1\r\n", 200),
        (f"Forwarded: for={STRANGER}\r\n", 403),
    ],
    BY_FORWARDED: [
        ("", 200),
        (f"Forwarded: for={STRANGER}\r\n", 403),
        ("Forwarded: for=127.0.0.1;proto=https\r\nX-Forwarded-Proto: http\r\n", 200),
        ("X-Forwarded-For: 127.0.0.1\r\n", 403),
    ],
    TRUSTS_NOBODY: [("", 200), ("X-Forwarded-For: 127.0.0.1\r\n", 403)],
}


@pytest.mark.parametrize("server", RIGHTS)
def test_purge_rights_follow_the_address_that_trusted_proxies_tell(serve, ask, server):
    running = serve(server)
    body = json.dumps({"url": "http://en.example/a"})
    for fields, status in RIGHTS[server]:
        assert ask(running.proxy, "/a", "en.example", "PURGE", fields).status == status, fields
        assert ask(running.admin, "/-/purge", "localhost", "POST", fields, body).status == status, fields


def test_the_origin_server_gets_the_forwarding_fields(serve, ask, origin):
    proxy = serve(BY_FORWARDED).proxy
    said = f"Forwarded: for=127.0.0.1;host=evil.example, for={STRANGER};host=shown.example;proto=https\r\n"
    said += "X-Forwarded-Host: evil.example\r\nX-Forwarded-For: 192.0.2.66\r\nX-Forwarded-Port: 1\r\n"
    assert ask(proxy, "/a", "en.example", fields=said).status == 200
    told = fields_at(origin)
    assert told["host"] == told["x-forwarded-host"] == "shown.example"
    assert told["x-forwarded-for"] == f"{STRANGER}, 127.0.0.1"
    assert told["x-forwarded-proto"] == "https"
    assert told["forwarded"] == f"for={STRANGER}, for=127.0.0.1;host=shown.example;proto=https"
    assert "x-forwarded-port" not in told


# Logs


def test_hits_alone_tell_of_it_too(serve, ask):
    running = serve(TRUSTS_NOBODY)
    for fields in ("", *[f"X-Forwarded-For: {STRANGER}\r\n"] * 4):
        ask(running.proxy, "/a", "en.example", fields=fields)
    running.end()
    assert running.err.count("forwarded fields") == 1


def cached(running, ask):
    """Ask once; return Cache-Status and the log line."""
    answer = ask(running.proxy, "/a", "en.example")
    return answer.value("cache-status"), json.loads(running.line())


def test_responses_too_large_to_store_are_not_logged_as_stored(serve, ask, monkeypatch, origin):
    piece = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n"
    running = serve(cache='max_object_bytes = "64 KiB"')
    monkeypatch.setattr(origin, "answer", lambda _: head + piece * 8 + b"0\r\n\r\n")
    _, line = cached(running, ask)
    assert (line["bytes"], line["stored"]) == (0x8000 * 8, False)
    assert "hit" not in cached(running, ask)[0]
    monkeypatch.setattr(origin, "answer", lambda _: head + piece + b"0\r\n\r\n")
    ask(running.proxy, "/b", "en.example")
    line = json.loads(running.line())
    assert (line["bytes"], line["stored"]) == (0x8000, True)


def test_a_key_is_a_string_in_cache_status(serve, ask):
    running = serve('cache_status = "key"', profile="quotes")
    for cache in ("fwd", "hit"):
        answer = ask(running.proxy, "/%22%5c%22b", "en.example")
        ((_, parameters),) = http_sf.parse(answer.value("cache-status").encode(), tltype="list")
        assert parameters["key"] == r'http://en.example/"\"b'
        assert cache in parameters


# The admin listener's host

PATHS = ["/-/config", "/metrics", "/", "/-/purge"]


ELSEWHERE = "evil.example evil.example:8081 127.0.0.1.evil.example localhost.example 192.0.2.1 127.1 [::2]"


def test_no_page_reaches_the_admin_listener_by_its_name(serve, ask):
    admin = serve().admin
    for host in ELSEWHERE.split():
        for path in PATHS:
            method, body = ("POST", '{"all": true}') if path == "/-/purge" else ("GET", "")
            answer = ask(admin, path, host, method, body=body)
            assert (answer.status, json.loads(answer.body)["reason"]) == (421, "unknown-host")
        assert ask(admin, f"http://{host}/metrics", "localhost").status == 421
        assert ask(admin, "/-/health", host).status == ask(admin, "/-/ready", host).status == 200
        assert ask(admin, "/a", host, "PURGE").status == 200  # its host is the one that is purged


NAMED_HOSTS = 'admin_hosts = ["Univocal.internal", "192.0.2.1", "bücher.example", "2001:db8::1"]'
HOSTS = [
    (
        ("", "127.0.0.1"),
        "localhost LOCALHOST:9 127.0.0.1 127.0.0.1:9000 [::ffff:127.0.0.1]",
        "127.9.9.9 [::1]:80 0.0.0.0",
    ),
    (
        ("", "0.0.0.0"),
        "localhost 127.0.0.1 127.9.9.9:80 [::1] 0.0.0.0",
        "198.51.100.7 [2001:db8::1] evil.example",
    ),
    (
        (NAMED_HOSTS, "127.0.0.1"),
        "univocal.internal:8081 192.0.2.1 xn--bcher-kva.example [2001:DB8::1] 127.0.0.1",
        "localhost",
    ),
]


@pytest.mark.parametrize(("settings", "own", "others"), HOSTS)
def test_the_admin_listener_answers_by_its_own_names_alone(serve, ask, settings, own, others):
    server, address = settings
    admin = "127.0.0.1", serve(server, admin=address).admin[1]
    for hosts, status in ((own, 200), (others, 421)):
        for host in hosts.split():
            assert ask(admin, "/metrics", host).status == status
            assert ask(admin, "/-/purge", host, "POST", body='{"all": true}').status == status


def test_a_purge_under_another_name_is_told_of(serve, ask):
    running = serve()
    ask(running.admin, "/-/purge", "evil.example", "POST", body='{"all": true}')
    told = json.loads(running.line())
    assert (told["target"], told["status"], told["reasons"]) == ("/-/purge", 421, ["unknown-host"])


def test_a_request_without_a_host_is_not_the_admin_listeners(serve):
    admin = serve().admin
    for path, status in (("/metrics", b"421"), ("/-/health", b"200")):
        with socket.create_connection(admin, timeout=20) as connection:
            connection.sendall(b"GET %b HTTP/1.0\r\n\r\n" % path.encode())
            assert connection.makefile("rb").readline().split()[1] == status


# Names of requests


NAMED = "X-Request-Id: front-7\r\n"
NEW = re.compile(r"[0-9a-f]{32}")


def lines_of(running):
    running.end()
    return [json.loads(line) for line in running.out.splitlines()]


@pytest.mark.parametrize(
    ("server", "is_kept"),
    [("", True), (TRUSTS_NOBODY, False), ('request_id = "X-Trace"', False), ('request_id = ""', None)],
)
def test_log_and_origin_server_have_one_name_for_a_request(serve, ask, origin, server, is_kept):
    running = serve(server)
    sent = [ask(running.proxy, "/a", "a.example", fields=NAMED) and fields_at(origin)]
    for target, fields in (("/a", NAMED), ("/b", ""), ("/a", "")):
        ask(running.proxy, target, "a.example", fields=fields)
        sent.append(fields_at(origin))
    miss, hit, other, again = lines_of(running)
    name = "x-trace" if "X-Trace" in server else "x-request-id"
    if is_kept is None:
        assert "request_id" not in miss
        assert sent[0]["x-request-id"] == "front-7"
        assert "x-request-id" not in sent[2]
        return
    assert (miss["request_id"] == "front-7") is is_kept
    assert (hit["request_id"] == "front-7") is is_kept
    assert hit["cache"] == again["cache"] == "hit"
    assert (sent[0][name], sent[2][name]) == (miss["request_id"], other["request_id"])
    assert NEW.fullmatch(other["request_id"])
    assert NEW.fullmatch(again["request_id"])


def test_a_refusal_tells_the_name_of_its_request(serve, ask):
    running = serve(TRUSTS_NOBODY)
    refused = (("/a", "bad host", 400), ("/%zz%00", "a.example", 400), ("/" + "a" * 9000, "a.example", 414))
    for (target, host, status), accept in itertools.product(refused, ("*/*", "text/html")):
        answer = ask(running.proxy, target, host, fields=f"Accept: {accept}\r\n{NAMED}")
        assert answer.status == status
        assert answer.value("content-length") == str(len(answer.body))
        name = json.loads(running.line())["request_id"]
        assert NEW.fullmatch(name)
        if answer.value("content-type") == "application/problem+json":
            assert json.loads(answer.body)["request_id"] == name
        else:
            assert f"<code>{name}</code>".encode() in answer.body


def test_a_page_of_ones_own_tells_the_requests_name(serve, ask, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "4xx.html").write_text("<h1>Tell us {request_id}</h1>")
    running = serve('error_pages = "pages"')
    answer = ask(running.proxy, "/%zz%00", "a.example", fields=f"Accept: text/html\r\n{NAMED}")
    assert answer.body == b"<h1>Tell us front-7</h1>"
    assert answer.value("content-length") == str(len(answer.body))


def test_a_response_that_varies_by_name_is_not_shared(serve, ask, origin):
    origin.fields = "Cache-Control: max-age=60\r\nVary: X-Request-Id"
    running = serve(TRUSTS_NOBODY)
    answers = [ask(running.proxy, "/a", "a.example", fields=NAMED).body for _ in range(3)]
    assert len(set(answers)) == 3


def test_a_name_by_another_field_leaves_responses_shared(serve, ask, origin):
    origin.fields = "Server: o"
    running = serve('request_id = "X-Trace"', cache="ttl = 60")
    answers = [ask(running.proxy, "/a", "a.example").body for _ in range(2)]
    assert len(set(answers)) == 1
