"""`univocal purge`: what it sends, octet for octet, and how it tells what it heard."""

import json
import socket
import threading
from dataclasses import dataclass, field

import pytest

from examples import cases
from support import origin_server, response_with
from univocal_app.commands.purge import Job, Result, advice


@dataclass
class Recorder:
    """A server that answers every request with the next of `answers`."""

    url: str = ""
    answers: list[tuple[int, str]] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)


@pytest.fixture
def server():
    """A server in place of the proxy and its admin listener."""
    recorder = Recorder()

    def answer(head, content):
        recorder.seen.append(head + content)
        status, body = recorder.answers.pop(0)
        return response_with(body.encode(), status=b"%d X" % status)

    with origin_server(answer) as recorder.url:
        yield recorder


def test_urls_are_purged_one_by_one_in_any_spelling(univocal, server):
    server.answers = [
        (200, '{"purged": 2, "key": "http://en.example/A/B"}'),
        (200, '{"purged": 0, "key": "k"}'),
    ]
    ended = univocal("purge", "http://en.example:80/A%2fB/../c d?я", "https://x.example", "--via", server.url)
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        "http://en.example:80/A%2fB/../c d?я\tpurged 2\thttp://en.example/A/B",
        "https://x.example\tpurged 0\tk",
    ]
    assert ended.stderr == "2 stored responses; 2 confirmed, 0 failed\n"
    assert [head.split(b"\r\n") for head in server.seen] == [
        [b"PURGE /A%2fB/../c%20d?%D1%8F HTTP/1.1", b"Host: en.example:80", b"Content-Length: 0", b""],
        [b"PURGE / HTTP/1.1", b"Host: x.example", b"Content-Length: 0", b""],
    ]


def test_tags_prefixes_soft_and_a_token(univocal, server, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    server.answers = [
        (200, '{"softened": 3, "by": "tag", "value": "t"}'),
        (200, '{"softened": 1, "by": "prefix"}'),
    ]
    options = ("--via", server.url, "--admin", server.url, "--soft", "--token-env", "SECRET")
    ended = univocal("purge", "--tag", "t", "--prefix", "http://en.example/я/", *options)
    assert (ended.returncode, ended.stderr) == (0, "4 stored responses; 2 confirmed, 0 failed\n")
    by_tag, by_prefix = server.seen
    assert by_tag.startswith(b"PURGE / HTTP/1.1\r\n")
    for line in (b"Authorization: Bearer s3cret\r\n", b"Soft-Purge: 1\r\n", b"Surrogate-Key: t\r\n"):
        assert line in by_tag
    assert by_prefix.startswith(b"POST /-/purge HTTP/1.1\r\n")
    assert b"Authorization: Bearer s3cret\r\n" in by_prefix
    assert by_prefix.endswith(b'{"prefix": "http://en.example/%D1%8F/", "soft": true}')


def test_a_tag_is_sent_as_it_is_spelled(univocal, server):
    server.answers = [(200, '{"purged": 0, "by": "tag", "value": "t"}')]
    univocal("purge", "--tag", "a b ä", "--via", server.url, "--admin", server.url)
    (asked,) = server.seen
    assert json.loads(asked[asked.index(b"{") :]) == {"tag": "a b ä", "soft": False}


def test_a_prefix_needs_no_admin_listener(univocal, server):
    server.answers = [(200, '{"softened": 1, "by": "prefix", "value": "http://en.example:81/A"}')]
    ended = univocal("purge", "--prefix", "http://en.example:81/A я", "--soft", "--via", server.url)
    assert (ended.returncode, ended.stderr) == (0, "1 stored response; 1 confirmed, 0 failed\n")
    (asked,) = server.seen
    assert asked.startswith(b"PURGE http://en.example:81/A%20%D1%8F HTTP/1.1\r\n")
    for line in (b"Host: en.example:81\r\n", b"X-Purge-Method: prefix\r\n", b"Soft-Purge: 1\r\n"):
        assert line in asked


ADVICE = "Nothing was stored under {}. If clients name a port in Host, it is part of the key: purge {}\n"


def test_an_admin_listener_does_not_tell_the_port(univocal, server):
    server.answers = [(200, '{"purged": 0, "key": "http://[::1]/"}')]
    ended = univocal("purge", "http://[::1]/", "--admin", server.url)
    assert ended.stderr.startswith(ADVICE.format("http://[::1]/", "http://[::1]:PORT/"))


@pytest.mark.parametrize(
    ("option", "value", "answer"),
    [
        ([], "http://en.example:8080/", '"purged": 0, "key": "http://en.example:8080/"'),
        ([], "http://en.example/", '"purged": 1, "key": "http://en.example/"'),
        (["--tag"], "http://en.example/", '"purged": 0, "by": "tag", "value": "http://en.example/"'),
    ],
    ids=["with a port", "one was stored", "a tag"],
)
def test_other_purges_get_no_advice(univocal, server, option, value, answer):
    server.answers = [(200, f"{{{answer}}}")]
    assert len(univocal("purge", *option, value, "--via", server.url).stderr.splitlines()) == 1


@pytest.mark.parametrize("port", [80, 443])
def test_a_default_port_needs_no_port_in_urls(port):
    none = Result(Job("url", "http://a/"), "purged 0\thttp://a/", confirmed=True, key="http://a/")
    assert advice([none], port) == ""
    assert "http://a:8080/" in advice([none], 8080)


def test_a_prefix_reaches_the_proxy_behind_an_admin_tag(univocal, server):
    server.answers = [(200, '{"purged": 1, "by": "prefix", "value": "http://en.example/"}')]
    ended = univocal("purge", "--tag", "a b", "--prefix", "http://en.example/", "--via", server.url)
    assert ended.stderr == "1 stored response; 1 confirmed, 1 failed\n"  # nobody listens on the next port
    assert [asked.partition(b" ")[0] for asked in server.seen] == [b"PURGE"]


@cases(
    "status, body, said",
    (403, '{"reason": "purge-forbidden"}', "failed: 403 purge-forbidden"),
    (503, '{"reason": "shared-store-unavailable", "purged": 1}', "failed: 503 shared-store-unavailable"),
    (200, "<html>", "failed: 200, which is not an answer of univocal"),
    (200, "[]", "failed: 200, which is not an answer of univocal"),
    (404, "{}", "failed: 404"),
)
def test_an_unconfirmed_purge_ends_with_status_1(univocal, server, status, body, said):
    server.answers = [(status, body), (200, '{"purged": 1, "key": "k"}')]
    ended = univocal("purge", "http://a/", "http://b/", "--via", server.url)
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [f"http://a/\t{said}", "http://b/\tpurged 1\tk"]
    assert ended.stderr == "1 stored response; 1 confirmed, 1 failed\n"


def test_a_proxy_that_is_not_there(univocal):
    ended = univocal("purge", "http://a/", "--via", "http://127.0.0.1:1")
    assert (ended.returncode, ended.stderr) == (1, "0 stored responses; 0 confirmed, 1 failed\n")
    assert "http://127.0.0.1:1 did not answer" in ended.stdout


def test_urls_from_files_and_from_standard_input(univocal, server, tmp_path):
    server.answers = [(200, '{"purged": 1, "key": "k"}')] * 5
    file = tmp_path / "urls.txt"
    file.write_bytes("\ufeffhttp://a/1\r\n\n# not this\n  http://a/я \n".encode())
    urls = b"http://a/3\nhttp://a/4"
    ended = univocal("purge", "-", "http://a/0", "--file", str(file), "--via", server.url, stdin=urls)
    assert ended.returncode == 0
    assert [line.partition("\t")[0] for line in ended.stdout.splitlines()] == [
        f"http://a/{name}" for name in ("0", "1", "я", "3", "4")
    ]
    assert [head.split(b" ")[1] for head in server.seen] == [b"/0", b"/1", b"/%D1%8F", b"/3", b"/4"]
    assert ended.stderr == "5 stored responses; 5 confirmed, 0 failed\n"


@pytest.mark.parametrize("content", ["", "\n# a comment alone\n"])
def test_a_file_without_urls_is_no_error(univocal, tmp_path, content):
    (tmp_path / "none").write_text(content)
    ended = univocal("purge", "--file", str(tmp_path / "none"))
    assert (ended.returncode, ended.stderr) == (0, "0 stored responses; 0 confirmed, 0 failed\n")


@pytest.mark.parametrize("content", [None, b"http://a/\xff", b"http://a/\n/no-host\n"])
def test_a_file_that_cannot_be_is_status_2(univocal, server, tmp_path, content):
    file = tmp_path / "urls"
    if content is not None:
        file.write_bytes(content)
    assert univocal("purge", "--file", str(file), "--via", server.url).returncode == 2
    assert server.seen == []


@pytest.mark.parametrize(
    "more", [["--pattern", "x"], ["--all"], *(["--tag", tag] for tag in ("a b", "a,b", "ä", "a"))]
)
def test_all_purges_go_to_the_listener_of_the_urls(univocal, server, more):
    server.answers = [(200, '{"purged": 1, "key": "k"}')] * 2
    ended = univocal("purge", f"{server.url}/a", *more)
    is_for_admin = more[-1] != "a"
    port = int(server.url.rpartition(":")[2])
    asked = f"http://127.0.0.1:{port + 1} did not answer" if is_for_admin else "purged 1"
    assert asked in ended.stdout.splitlines()[1]
    assert len(server.seen) == 1 + (not is_for_admin)


def test_the_last_port_has_no_neighbour_and_needs_none(univocal):
    by_url = univocal("purge", "--via", "http://127.0.0.1:65535", "http://en.example/")
    assert by_url.returncode == 1
    assert "http://127.0.0.1:65535 did not answer" in by_url.stdout
    by_pattern = univocal("purge", "--via", "http://127.0.0.1:65535", "--pattern", "^http://en.example/")
    assert by_pattern.returncode == 1
    assert "--admin" in by_pattern.stdout


def test_a_connection_that_the_server_has_closed_is_opened_again(univocal):
    """A server that says nothing of it: after each answer it closes."""
    asked = []

    def serve(listening):
        for _ in range(3):
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(response_with(b'{"purged": 1, "key": "k"}'))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        urls = [f"http://en.example/{number}" for number in range(3)]
        ended = univocal("purge", "--via", f"http://127.0.0.1:{listening.getsockname()[1]}", *urls)
        thread.join(60)
    assert (ended.returncode, len(asked)) == (0, 3)


def test_urls_of_two_listeners_need_a_name_for_a_pattern(univocal, server):
    server.answers = [(200, '{"purged": 1, "key": "k"}')]
    ended = univocal("purge", f"{server.url}/a", "http://127.0.0.1:1/a", "--pattern", "x")
    assert ended.returncode == 1
    assert "name the listener with --admin" in ended.stdout.splitlines()[2]
    assert len(server.seen) == 1


def test_a_pattern_goes_to_the_admin_listener(univocal, server):
    server.answers = [(200, '{"banned": true, "by": "pattern", "value": "^http://a/.*x"}')]
    ended = univocal("purge", "--pattern", "^http://a/.*x", "--soft", "--admin", server.url)
    assert ended.returncode == 0
    assert ended.stdout == "^http://a/.*x\tbanned\t^http://a/.*x\n"
    assert server.seen[0].endswith(b'{"pattern": "^http://a/.*x", "soft": true}')
