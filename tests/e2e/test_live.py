"""`univocal log` and `univocal top` beside a running program: on a terminal, in a pipe, at the end."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys

import pytest

import forking
from support import until


class Command:
    """A started command; `read` gives what it has written until something is in it."""

    def __init__(self, root, arguments, terminal, **variables):
        paths = os.pathsep.join(str(root / source) for source in ("app", "middleware"))
        environment = {**os.environ, "PYTHONPATH": paths, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
        environment.pop("NO_COLOR", None)
        self.end, theirs = pty.openpty() if terminal else os.pipe()
        self.process = forking.Program(
            [sys.executable, "-m", "univocal_app", *arguments],
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(theirs)
        self.out = ""

    def more(self):
        """The output so far, and more of it if there is some within 0.2 s."""
        if select.select([self.end], [], [], 0.2)[0]:
            self.out += os.read(self.end, 65536).decode()
        return self.out

    def read(self, *wanted):
        until(lambda: all(each in self.out for each in wanted) or (self.more() and False))
        return self.out

    def ended(self):
        """Status and what it wrote to standard error."""
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture
def command(root):
    started = []

    def command(*arguments, terminal=False, **variables):
        started.append(Command(root, arguments, terminal, **variables))
        return started[-1]

    yield command
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.fixture
def program(plain):
    return plain


def admin(program):
    return "--admin", program.page


AGENT = "User-Agent: \x9b31m\r\n"


def until_told(ask, program, command, target="/warm"):
    """Ask until the command has begun to follow."""
    until(lambda: ask(program.proxy, target, "en.example", fields=AGENT) and target in command.more())


def test_log_follows_and_ends_at_ctrl_c(program, ask, command):
    log = command("log", *admin(program))
    until_told(ask, program, log)
    ask(program.proxy, "/a/%7Eb", "en.example", fields=AGENT)
    ask(program.proxy, "/%00", "en.example")
    text = log.read("http://en.example/a/~b <- /a/%7Eb", "/%00")
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert r'"Â\x9b31m"' in text or r'"\x9b31m"' in text
    log.process.send_signal(signal.SIGINT)
    assert log.ended() == (0, "")


def test_log_filters(program, ask, command):
    log = command("log", *admin(program), "--status", "4xx", "--json")
    until_told(ask, program, log, "/%00")
    ask(program.proxy, "/a", "en.example")
    ask(program.proxy, "/%01", "en.example")
    log.read("/%01")
    assert {json.loads(line)["status"] for line in log.out.splitlines()} == {400}


def test_colours_are_for_a_terminal_that_wants_them(program, ask, command):
    coloured = command("log", *admin(program), terminal=True)
    plain = command("log", *admin(program), terminal=True, NO_COLOR="1")
    for each in (coloured, plain):
        until_told(ask, program, each)
    assert "\x1b[3" in coloured.out
    assert "\x1b[3" not in plain.out
    for each in (coloured, plain):  # of what is left, all is of ours: colours and weights
        assert "\x9b" not in each.out
        assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", each.out)


def test_log_ends_when_nobody_reads_it(program, ask, command):
    log = command("log", *admin(program))
    until_told(ask, program, log)
    os.close(log.end)
    until(lambda: ask(program.proxy, "/more", "en.example") and log.process.poll() is not None)
    assert log.ended() == (0, "")


def test_log_tells_when_the_program_has_ended(program, ask, command):
    log = command("log", *admin(program))
    until_told(ask, program, log)
    assert program.end() == 0
    status, told = log.ended()
    assert status == 1
    assert told.startswith("univocal: the admin listener at http://127.0.0.1:")


@pytest.mark.parametrize("place", ["{directory}/access.log", "access.log", "logs/../access.log"])
def test_since_begins_with_the_log_of_the_proxy(inside, origin, ask, command, tmp_path, place):
    (tmp_path / "logs").mkdir()
    program = inside(
        f'access_log = "{place.format(directory=tmp_path)}"\n'
        f'[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n'
    )
    for target in ("/one", "/two"):
        ask(program.proxy, target, "en.example")
    log = command("log", *admin(program), "--since", "1h")
    log.read("/one", "/two")
    for target in ("/three", "/four"):
        ask(program.proxy, target, "en.example")
    text = log.read("/three", "/four")
    assert [text.count(f"en.example{target} ") for target in ("/one", "/two", "/three", "/four")] == [1] * 4


def test_since_without_a_log_to_read_says_so(program, univocal_inside):
    ended = univocal_inside("log", *admin(program), "--since", "1h")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "--since needs a FILE: the proxy's access log (stdout, json)" in ended.stderr


def test_top_prints_once_for_programs(program, ask, univocal_inside):
    for target in ("/a/~b", "/a/%7Eb", "/a/%7Eb", "/%00"):
        ask(program.proxy, target, "en.example")
    ended = univocal_inside("top", *admin(program), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    told = json.loads(ended.stdout)
    assert (told["totals"]["requests"], told["totals"]["hits"]) == (4, 2)
    assert told["top"]["requests"] == [{"key": "http://en.example/a/~b", "count": 3}]
    assert told["top"]["spellings"][0]["saved"] == 1
    assert told["top"]["refused"][0]["example"] == "/%00"
    assert told["origins"][0]["site"] == "*"
    assert told["rates"]["requests"] >= 0
    text = univocal_inside("top", *admin(program)).stdout
    assert "http://en.example/a/~b  " in text
    assert "control-character  en.example  /%00" in text or "control-character    /%00" in text


def test_top_is_live_and_ends_at_ctrl_c(program, ask, command):
    top = command("top", *admin(program), terminal=True)
    top.read("spellings that became one")
    ask(program.proxy, "/later", "en.example")
    top.read("http://en.example/later")
    top.process.send_signal(signal.SIGINT)
    text = top.read("\x1b[?1049l", "\x1b[?25h")  # the screen as it was, and its cursor
    assert top.ended() == (0, "")
    assert "Traceback" not in text


def test_top_survives_a_restart_and_reports_the_gap(program, start, origin, ask, command):
    top = command("top", *admin(program), "--interval", "0.2", terminal=True)
    top.read("spellings that became one")
    program.end()
    top.read("does not answer: Connection refused")
    places = [f"{host}:{port}" for host, port in (program.proxy, program.admin)]
    start("serve", "--upstream", origin.url, "--listen", places[0], "--admin", places[1])
    ask(program.proxy, "/after", "en.example")
    top.read("http://en.example/after")
    top.process.send_signal(signal.SIGINT)
    top.read("\x1b[?1049l")
    assert top.ended() == (0, "")


@pytest.mark.parametrize("name", ["log", "top"])
def test_a_stranger_is_told_what_is_missing(start_with, origin, univocal_inside, name):
    program = start_with(
        f'access_log = "off"\n[purge]\nallow = []\n[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n',
        UNIVOCAL_PURGE_TOKEN="s3cret",
    )
    ended = univocal_inside(name, *admin(program))
    assert ended.returncode == 1
    assert "answers 403 purge-forbidden" in ended.stderr
    assert "UNIVOCAL_PURGE_TOKEN holds no valid token" in ended.stderr
    assert "s3cret" not in ended.stderr
    if name == "top":
        assert univocal_inside(name, *admin(program), "--json", UNIVOCAL_PURGE_TOKEN="s3cret").returncode == 0
        named = univocal_inside(name, *admin(program), "--token-env", "OTHER", OTHER="s3cret")
        assert named.returncode == 0
