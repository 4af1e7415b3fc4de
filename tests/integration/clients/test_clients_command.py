"""`univocal purge` against `univocal serve`: many URLs, on a terminal and without one."""

import os
import pty
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forking
from support import origin_server, response_with

MANY = 300
NUMBERS = range(MANY)


@pytest.fixture(scope="module")
def proxy(serve):
    """The proxy with many stored responses."""

    with origin_server(lambda *_: response_with(fields=b"Cache-Control: s-maxage=3600\r\n")) as url:
        yield serve(int(url.rpartition(":")[2]), "mediawiki")


@pytest.fixture
def filled(proxy):
    for number in NUMBERS:
        proxy.front.ask(f"/wiki/Page_({number})")
    return proxy


def command(proxy, *arguments):
    via = ("--via", str(proxy.front), "--admin", str(proxy.admin))
    return [sys.executable, "-m", "univocal_app", "purge", *via, *arguments]


def environment():
    root = Path(__file__).parents[3]
    paths = os.pathsep.join(str(root / source) for source in ("app", "middleware"))
    return {**os.environ, "PYTHONPATH": paths, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}


def spelled():
    return "".join(f"http://en.example/wiki/Page_%28{number}%29\n" for number in NUMBERS)


def test_many_urls_from_standard_input(filled):
    ended = forking.run(command(filled, "-"), spelled(), env=environment())
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert len(lines) == MANY
    assert lines[7] == ("http://en.example/wiki/Page_%287%29\tpurged 1\thttp://en.example/wiki/Page_(7)")
    assert ended.stderr == f"{MANY} stored responses; {MANY} confirmed, 0 failed\n"
    assert "uri-miss" in filled.front.ask("/wiki/Page_(7)").cache


def test_one_that_fails_is_said_and_the_others_go(filled, tmp_path):
    file = tmp_path / "urls"
    file.write_text("http://elsewhere.example/\n" + spelled())
    ended = forking.run(command(filled, "--file", str(file)), env=environment())
    assert ended.returncode == 1
    assert ended.stdout.startswith("http://elsewhere.example/\tfailed: 421 unknown-host\n")
    assert ended.stderr.endswith(f"{MANY} confirmed, 1 failed\n")


@pytest.mark.parametrize("stdout", ["terminal", "pipe"])
def test_a_progress_bar_on_a_terminal(filled, tmp_path, stdout):
    file = tmp_path / "urls"
    file.write_text(spelled())
    ours, theirs = pty.openpty()
    shown = bytearray()

    def watch():
        try:
            while octets := os.read(ours, 65536):
                shown.extend(octets)
        except OSError:  # what Linux says when the other end is closed
            pass

    with subprocess.Popen(
        command(filled, "--file", str(file)),
        env=environment(),
        stdout=theirs if stdout == "terminal" else subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        watcher = threading.Thread(target=watch)
        watcher.start()
        lines = process.stdout.read().splitlines() if process.stdout else []
        assert process.wait(60) == 0
    watcher.join()
    os.close(ours)
    text = shown.decode()
    assert re.search(rf"purging .*\b\d+/{MANY}", text)
    assert f"{MANY} confirmed, 0 failed" in text
    if stdout == "pipe":
        assert len(lines) == MANY
        assert "purged 1" not in text
    else:
        assert text.count("purged 1") == MANY


def ended(*arguments, said=""):
    return forking.run([sys.executable, "-m", "univocal_app", "purge", *arguments], said, env=environment())


@pytest.mark.parametrize("said", ["", "\n# a comment alone\n"])
def test_that_nothing_has_changed_is_no_error(said):
    process = ended("-", said=said)
    assert (process.returncode, process.stderr) == (0, "0 stored responses; 0 confirmed, 0 failed\n")


def test_a_tag_with_blanks_goes_to_the_admin_listener(filled):
    process = ended("--via", str(filled.front), "--admin", str(filled.admin), "--tag", "a b ä")
    assert process.returncode == 0
    assert filled.purges[-1]["purge"] == {"by": "tag", "names": ["a b ä"], "soft": False, "count": 0}


def test_the_last_port_has_no_neighbour_and_needs_none(proxy):
    by_url = ended("--via", "http://127.0.0.1:65535", "http://en.example/")
    assert by_url.returncode == 1
    assert "http://127.0.0.1:65535 did not answer" in by_url.stdout
    by_pattern = ended("--via", "http://127.0.0.1:65535", "--pattern", "^http://en.example/")
    assert by_pattern.returncode == 1
    assert "--admin" in by_pattern.stdout


def test_a_connection_that_the_server_has_closed_is_opened_again():
    """A server that says nothing of it: after each answer it closes."""
    body = b'{"purged": 1, "key": "k"}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    asked = []

    def serve(listening):
        for _ in range(3):
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        urls = [f"http://en.example/{number}" for number in range(3)]
        process = ended("--via", f"http://127.0.0.1:{listening.getsockname()[1]}", *urls)
        thread.join(60)
    assert (process.returncode, len(asked)) == (0, 3)
