"""`univocal canonicalize`: a line for each line, in order; refused ones are empty."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forking
from examples import cases

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "univocal_app", "canonicalize"]
CONFIG = """
[[sites]]
hosts = ["en.example"]
aliases = ["www.en.example"]
scheme = "https"
profile = "mediawiki"
upstream = "http://127.0.0.1:9"

[[sites.routes]]
path = "/api/"
profile = "restbase"
"""


@pytest.fixture
def run():
    """run(arguments, octets): the program with these on its standard input."""

    def run(*arguments, octets=b""):
        paths = os.pathsep.join(str(ROOT / each) for each in ("app", "middleware"))
        environment = {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1", "TERM": "dumb"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with forking.Program([*COMMAND, *arguments], **pipes, env=environment) as process:
            out, err = process.communicate(octets, timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


def test_each_line_has_its_line(run):
    octets = b"http://EN.example/%7Ea\r\nhttp://b\xc3\xbccher.example/\xc3\xa9\xff?\xff\nhttps://a:443/b%28"
    ended = run(octets=octets)
    assert ended.stdout.split(b"\n") == [
        b"http://en.example/~a",
        b"http://xn--bcher-kva.example/%C3%A9%FF?%FF",
        b"https://a/b%28",
        b"",
    ]
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_refused_url_is_an_empty_line_and_a_reason(run, tmp_path):
    (file := tmp_path / "urls").write_bytes(b"http://a/1\n\nhttp://a/%00\x1b\nhttp://a/2\nftp://a/\n")
    ended = run("--profile", "asgi", str(file), "-", octets=b"http://a/../\n")
    assert ended.stdout.split(b"\n") == [b"http://a/1", b"", b"", b"http://a/2", b"", b"", b""]
    assert ended.stderr.decode().splitlines() == [
        f"univocal: {file}:2: bad-target",
        f"univocal: {file}:3: control-character",
        f"univocal: {file}:5: bad-target",
        "univocal: standard input:1: dot-segment",
    ]
    assert ended.returncode == 1


def test_sites_and_routes_are_those_of_a_file(run, tmp_path):
    (file := tmp_path / "univocal.toml").write_text(CONFIG)
    octets = b"http://www.en.example/a%2fb\nhttps://en.example/api/a%2fb\nhttp://other.example/\n"
    ended = run("--config", str(file), "--json", octets=octets)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {tuple(row) for row in rows} == {("url", "canonical", "rejected", "reasons")}
    assert [tuple(row.values()) for row in rows] == [
        ("http://www.en.example/a%2fb", "https://en.example/a/b", None, []),
        ("https://en.example/api/a%2fb", "https://en.example/api/a%2Fb", None, []),
        ("http://other.example/", None, "unknown-host", ["unknown-host"]),
    ]
    assert ended.returncode == 1


def test_explain_says_what_a_get_of_another_spelling_gets(univocal, tmp_path):
    file = tmp_path / "univocal.toml"
    file.write_text(CONFIG.replace('scheme = "https"', "canonical = 301"))
    told = univocal("explain", "http://en.example/a%28", "--config", str(file)).stdout
    assert re.search(r"a GET gets +301 to /a\($", told, re.MULTILINE)
    assert "a GET gets" not in univocal("explain", "http://en.example/a(", "--config", str(file)).stdout


def test_a_pipe_is_answered_before_it_ends():
    """By an interpreter of its own: what tests are forked from has no buffer on its standard output."""
    paths = os.pathsep.join(str(ROOT / each) for each in ("app", "middleware"))
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b"http://a/%%7e%d\n" % number)
            process.stdin.flush()
            assert process.stdout.readline() == b"http://a/~%d\n" % number
        process.stdin.close()
        assert process.wait(60) == 0


def test_many_urls_keep_their_order(run):
    count = 4_000
    ended = run(octets=b"".join(b"http://a/%%7e%d\n" % number for number in range(count)))
    assert ended.stdout.splitlines() == [b"http://a/~%d" % number for number in range(count)]


@cases(
    "arguments, told",
    (["/nowhere/urls"], b"/nowhere/urls"),
    (["--profile", "asgi", "--config", "x"], b"either --profile or"),
    (["--profile", "none"], b"there is no profile 'none'"),
)
def test_a_wrong_command_line_is_status_2(run, arguments, told):
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert told in ended.stderr
