"""The program in a process of its own."""

import itertools
import json
import re
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import forking
from support import response_with, until

MIB = 2**20
PROGRAM = f"{sys.executable} -m univocal_app"


def ended(root, *command):
    """Run a command to its end, in an interpreter of its own."""
    cwd = root / "app"
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def test_a_reader_that_leaves_is_no_traceback(root):
    assert "Traceback" not in ended(root, "sh", "-c", f"{PROGRAM} profiles | true").stderr


def test_a_log_on_a_closed_standard_output_is_refused(root):
    serve = "serve --upstream http://127.0.0.1:9 --listen 127.0.0.1:0 --admin 127.0.0.1:0"
    refused = ended(root, "sh", "-c", f"{PROGRAM} {serve} >&-")
    assert refused.returncode == 2
    assert "server.access_log: found 'stdout'" in refused.stderr.splitlines()[-1]
    assert all("univocal: " in line for line in refused.stderr.splitlines())


PRINTING = ["profiles", "explain http://a/", "explain http://a/ --json", "--version"]


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_full_standard_output_is_no_traceback(arguments):
    command = [sys.executable, "-m", "univocal_app", *arguments.split()]
    with open("/dev/full", "w") as full:
        process = forking.Program(command, stdout=full, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (1, "univocal: No space left on device\n")


IN_TURN = """
import sys
from univocal_app.__main__ import main

*others, last = sys.argv[1:]
for arguments in others:
    sys.argv = ["univocal", *arguments.split()]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
    sys.stdout = None
sys.argv = ["univocal", *last.split()]
main()
"""


def test_a_closed_standard_output_is_no_traceback(root):
    """Of each command alone: its output is closed as that of the interpreter's first was."""
    closed = ended(root, "sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", IN_TURN, *PRINTING)
    assert (closed.returncode, closed.stderr) == (1, "univocal: Bad file descriptor\n" * len(PRINTING))


def test_urls_for_a_closed_standard_output_are_no_traceback(root):
    closed = ended(root, "sh", "-c", f"echo http://a/ | {PROGRAM} canonicalize >&-")
    assert (closed.returncode, closed.stderr) == (1, "univocal: Bad file descriptor\n")


def test_workers_are_interpreters_of_their_own(root, origin, ask, tmp_path):
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
        # One worker has answered: the other one finds what that has stored.
        until(lambda: "detail=shared" in ask(proxy, "/a", "en.example").value("cache-status"))
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in process.communicate(timeout=20)[1]
    assert process.returncode == 0
    assert origin.lines == [b"GET /a HTTP/1.1"]


def test_the_library_runs_the_program(root):
    told = forking.run([sys.executable, "-m", "univocal", "--version"], cwd=root / "app")
    # (a wheel may be compiled)
    assert told.stdout in {"univocal 0.2.0 (pure)\n", "univocal 0.2.0 (compiled)\n"}
    assert told.returncode == 0


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


def test_an_interrupt_while_loading_shows_no_traceback(root):
    told = ended(root, sys.executable, "-c", INTERRUPTED, "profiles")
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "")


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process's memory")
@pytest.mark.parametrize(
    ("megabytes", "clients", "workers", "room"), [(1, 1, 1, 48), (15, 6, 1, 96), (7, 8, 2, 60)]
)
def test_with_too_little_memory_less_is_stored(
    start_with, ask, origin, tmp_path, megabytes, clients, workers, room
):
    size, count, log = megabytes * MIB, 80 // megabytes * clients, tmp_path / "access.log"
    large = response_with(bytes(size), b"Cache-Control: max-age=600\r\n")
    origin.answer = lambda _: large
    server = f'access_log = "{log}"\nworkers = {workers}\n'
    site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
    running = start_with(f'{server}[cache]\nmax_bytes = "4 GiB"\n{site}')
    for process in family(running.process.pid):
        used = re.findall(r"VmSize:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        limit = (int(used[0]) << 10) + room * MIB
        resource.prlimit(process, resource.RLIMIT_AS, (limit, limit))
    with ThreadPoolExecutor(clients) as pool:
        answers = [*pool.map(lambda number: ask(running.proxy, f"/{number}", "en.example"), range(count))]
    failed = {f"/{number}" for number, answer in enumerate(answers) if len(answer.body) < size}
    assert {answer.status for answer in answers} <= {200, 503}
    assert len(failed) < count // 4
    limit = time.monotonic() + 30
    for number in itertools.count():  # it recovers once what is under way has ended
        again = [ask(running.proxy, f"/again/{number}/{each}", "en.example") for each in range(10)]
        if all(len(answer.body) == size for answer in again):
            break
        assert time.monotonic() < limit
    last = ask(running.proxy, f"/again/{number}/9", "en.example")
    assert "hit" in (last.value("cache-status") or "") or megabytes > 1
    for path in ("/metrics", "/-/stats", "/-/top", "/-/spellings"):
        assert ask(running.admin, path, "127.0.0.1").status == 200
    assert running.end() == 0
    assert "memory has run out" in running.err
    assert "Traceback" not in running.err
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert failed <= {line["target"] for line in lines if line["detail"] == "overloaded"}


def family(process):
    """A process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, children)]
