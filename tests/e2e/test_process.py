"""The program in a process of its own."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forking

Fixture = Callable[..., Any]

MIB = 2**20


def test_explain_prints_the_canonical_url(univocal: Fixture) -> None:
    ended = univocal("explain", "http://en.example/wiki/A%2fB%28c%29", "--profile", "mediawiki", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["canonical"] == "http://en.example/wiki/A/B(c)"


def test_a_configuration_that_cannot_be(univocal: Fixture) -> None:
    ended = univocal("serve", "--config", "/nowhere/univocal.toml")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("univocal: /nowhere/univocal.toml: ")


def test_a_reader_that_leaves_is_no_traceback(root: Path) -> None:
    program = f"{sys.executable} -m univocal_app profiles | true"
    ended = subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, timeout=20, check=False, cwd=root / "app"
    )
    assert "Traceback" not in ended.stderr


def test_a_log_on_a_closed_standard_output_is_refused(root: Path) -> None:
    serve = "serve --upstream http://127.0.0.1:9 --listen 127.0.0.1:0 --admin 127.0.0.1:0"
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m univocal_app {serve} >&-"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
        check=False,
        cwd=root / "app",
    )
    assert ended.returncode == 2
    assert "server.access_log: found 'stdout'" in ended.stderr.splitlines()[-1]
    assert all("univocal: " in line for line in ended.stderr.splitlines())


PRINTING = ["profiles", "explain http://a/", "explain http://a/ --json", "--version"]


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_full_standard_output_is_no_traceback(arguments: str) -> None:
    command = [sys.executable, "-m", "univocal_app", *arguments.split()]
    with open("/dev/full", "w") as full:
        process = forking.Program(command, stdout=full, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (1, "univocal: No space left on device\n")


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_closed_standard_output_is_no_traceback(root: Path, arguments: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m univocal_app {arguments} >&-"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
        check=False,
        cwd=root / "app",
    )
    assert (ended.returncode, ended.stderr) == (1, "univocal: Bad file descriptor\n")


def test_workers_are_interpreters_of_their_own(root: Path, origin: Any, ask: Fixture, tmp_path: Path) -> None:
    """In other tests they are forked."""
    file = tmp_path / "univocal.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nworkers = 2\naccess_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
    )
    command = [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root / "app") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if serving := re.search(r"serving http://127\.0\.0\.1:(\d+)/", line):
                break
        assert serving
        proxy = ("127.0.0.1", int(serving[1]))
        assert ask(proxy, "/a", "en.example").status == 200
        # One worker answered, perhaps before the other one found what it stores.
        limit, in_a_row = time.monotonic() + 20, 0
        while in_a_row < 20:
            assert time.monotonic() < limit
            cached = ask(proxy, "/a", "en.example", fields="Cache-Control: only-if-cached\r\n")
            in_a_row = in_a_row + 1 if cached.status == 200 else 0
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in process.communicate(timeout=20)[1]
    assert process.returncode == 0
    assert origin.lines == [b"GET /a HTTP/1.1"]


def test_the_library_runs_the_program() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "univocal", "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 0
    # (a wheel may be compiled)
    assert ended.stdout in {"univocal 0.2.0 (pure)\n", "univocal 0.2.0 (compiled)\n"}


INTERRUPTED = """
import sys

class Loading:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Loading())
from univocal_app.__main__ import main
main()
"""


def test_an_interrupt_while_loading_shows_no_traceback(root: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "profiles"],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=root / "app",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


@pytest.fixture
def roomy(start: Fixture, origin: Any, tmp_path: Path) -> Any:
    """The program before an origin server with 1 MiB an answer, with far more room than it will get."""

    def answer(head: bytes) -> bytes:
        fields = b"Cache-Control: max-age=600\r\nContent-Length: %d" % MIB
        return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, head[4:5] * MIB)

    origin.answer = answer
    file = tmp_path / "univocal.toml"
    server = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n[cache]\nmax_bytes = "4 GiB"\n'
    file.write_text(f'{server}[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n')
    return start("serve", "--config", str(file))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process's memory")
def test_with_too_little_memory_less_is_stored(roomy: Any, ask: Fixture) -> None:
    size = (
        int(re.findall(r"VmSize:\s+(\d+) kB", Path(f"/proc/{roomy.process.pid}/status").read_text())[0]) << 10
    )
    resource.prlimit(roomy.process.pid, resource.RLIMIT_AS, (size + 96 * MIB, size + 96 * MIB))
    answers = [ask(roomy.proxy, f"/{number}", "en.example") for number in range(160)]
    complete = [answer.status == 200 and len(answer.body) == MIB for answer in answers]
    assert sum(complete) > 150
    assert {answer.status for answer in answers} <= {200, 503}
    assert all(complete[-10:])
    again = ask(roomy.proxy, "/159", "en.example")
    assert "hit" in (again.value("cache-status") or "")
    assert roomy.end() == 0
    assert "memory has run out" in roomy.err
