"""`univocal demo`: every line that it prints is tried, in order, and gives what is said there to look for."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from support import until
from univocal_app.config.values import Address
from univocal_learn.demo import run
from univocal_learn.demo.tries import tries
from univocal_learn.demo.visitors import VISITS

PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")

# For each printed command: what its answer holds.
EXPECTED = [
    r"cache-status: univocal; fwd=uri-miss; stored[\s\S]*revision 1[\s\S]*number 1 ",
    r"cache-status: univocal; hit[\s\S]*number 1 ",
    r"^Steve_Fuller_\(sociologist\): revision 2\n$",
    r'"purged": 1, "key": "http://wiki\.localhost(:\d+)?/wiki/Steve_Fuller_\(sociologist\)"',
    r"revision 2",
    r"AC/DC, revision 1",
    r"Кошка, revision 1",
    r"^The administrator's page",
    r"400 Bad Request[\s\S]*dot-segment-parameter",
    r"400 Bad Request[\s\S]*encoded-dot-segment",
    r"received /shop/cart\n",
    r"x-reads: 1\b[\s\S]*<svg",
    r"x-reads: 1\b[\s\S]*cache-status: univocal; hit",
    r'"purged": 1, "by": "prefix"',
    r"^ok\n$",
    r"canonical +http://wiki\.localhost(:\d+)?/wiki/A/B\(c\)",
    r"asked for most\n[\s\S]*dot-segment-parameter  servlet\.localhost",
    r"6000 requests[\s\S]*there are 300 URLs[\s\S]*gains 18\.0 points[\s\S]*No request that the origin",
    r"/story_ → /story\?id= \(path\)[\s\S]*sort = true[\s\S]*drop = \[\"sid\", \"utm_source\"\]",
    r"ring:2F +same [\s\S]*decode = \"/ ' \( \)\"",
]


SAID = "%2F is a slash to it"  # the last of what to try


@pytest.fixture(scope="module")
def demo(start_once):
    """A demo on free ports."""
    return start_once("demo", *PORTS, until=SAID)


def test_every_printed_command_shows_what_it_says(demo, univocal):
    if shutil.which("curl") is None:
        pytest.skip("needs curl (apt-get install curl)")
    commands = [line.strip() for line in demo.said.splitlines() if re.match(r"  (curl|univocal) ", line)]
    assert len(commands) == len(EXPECTED)
    for command, expected in zip(commands, EXPECTED, strict=True):
        words = shlex.split(command)
        if words[0] == "univocal":
            said = univocal(*words[1:]).stdout
        else:
            # A proxy of the environment's is not the one that is to be asked.
            plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            ended = subprocess.run(
                ["curl", "-sS", *words[1:]], capture_output=True, text=True, timeout=20, check=True, env=plain
            )
            said = ended.stdout.replace("\r\n", "\n")
        assert re.search(expected, said, re.MULTILINE | re.IGNORECASE), f"{command}\n{said}"


def test_the_front_page_has_the_sites_addresses_and_printed_lines(demo, ask):
    host = f"127.0.0.1:{demo.proxy[1]}"
    page = ask(demo.proxy, "/", host)
    assert page.status == 200
    assert page.value("content-type") == "text/html; charset=utf-8"
    text = page.body.decode()
    for name in ("wiki", "servlet", "files"):
        assert f'href="http://{name}.localhost:{demo.proxy[1]}/' in text
    for line in re.findall(r"(?m)^  (curl .*)$", demo.said):
        assert f"<pre>{line}</pre>" in text
    admin = f"http://127.0.0.1:{demo.admin[1]}/"
    assert f'<a href="{admin}">' in text
    assert f"its page is {admin}." in demo.said.splitlines()[0]
    assert b"<title>univocal</title>" in ask(demo.admin, "/", "127.0.0.1").body


def test_a_page_written_through_the_proxy_is_invalidated(demo, ask):
    host = f"wiki.localhost:{demo.proxy[1]}"
    for number, status in ((b"1", 201), (b"2", 200)):
        assert ask(demo.proxy, "/wiki/A%2fB", host, "PUT", body="New.").status == status
        for target in ("/wiki/A/B", "/wiki/A%2FB"):
            assert b"revision " + number in ask(demo.proxy, target, host).body


def test_visitors_come_on_request_and_leave_printed_pages_alone(start, ask):
    demo = start("demo", *PORTS, "--visitors", until=SAID)
    stats = lambda: json.loads(ask(demo.admin, "/-/stats", "127.0.0.1").body)  # noqa: E731
    until(lambda: stats()["totals"]["requests"] >= len(VISITS))
    told = json.loads(ask(demo.admin, "/-/spellings", "127.0.0.1").body)
    assert told["saved"] >= 9
    refused = json.loads(ask(demo.admin, "/-/top?by=refused", "127.0.0.1").body)
    assert {"dot-segment-parameter", "encoded-dot-segment", "control-character"} == {
        each["reason"] for each in refused
    }
    host = f"wiki.localhost:{demo.proxy[1]}"
    answer = ask(demo.proxy, "/wiki/Steve_Fuller_%28sociologist)", host)
    assert answer.value("cache-status") == "univocal; fwd=uri-miss; stored"
    assert demo.end() == 0
    assert [line for line in demo.err.splitlines() if not line.endswith("SIGINT: ends in 10 s at most")] == []


@pytest.mark.parametrize(
    ("found", "named"), [(None, ".venv/bin/univocal"), ("/usr/bin/univocal", "univocal")]
)
def test_the_printed_commands_begin_as_the_readers_shell_finds_them(monkeypatch, found, named):
    monkeypatch.setattr(run.sys, "argv", [".venv/bin/univocal", "demo"])
    monkeypatch.setattr(run.shutil, "which", lambda _: found)
    address = Address("127.0.0.1", 8080)
    at = run.Ports(address, address, address, address, Path("/tmp/demo"), run._program())
    commands = [command for group in tries(at).values() for command, _ in group]
    own = [command for command in commands if not command.startswith("curl ")]
    assert len(own) == 5
    assert all(command.startswith(f"{named} ") for command in own)
