"""`workers = 2`: processes that serve one listener, and their parent, which has the admin listener."""

import fcntl
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import forking
from support import until
from tests.e2e.conftest import recording, workers_of
from tests.redis_server import RedisServer

COUNT = 2


def settings(upstream, server='access_log = "off"', store="memory", site=""):
    """Those of two workers; more of `[server]`, and of the site, as text."""
    return (
        f'workers = {COUNT}\n{server}\n[cache]\nstore = "{store}"\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{upstream}"\n{site}'
    )


BOUNDS = 'max_bytes = "64 MiB"\ndisk_bytes = "64 MiB"\n[[sites]]'


@pytest.fixture
def workers(start_with, origin):
    """Start the program with two workers; more settings as text."""
    return lambda upstream=origin.url, **more: start_with(settings(upstream, **more))


@pytest.fixture(scope="module")
def common(start_once, tmp_path_factory):
    """A program of two workers with Redis for several tests: its file, it, and its origin server."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server (Debian package redis-server)")
    folder = tmp_path_factory.mktemp("common")
    redis, file = RedisServer(folder), folder / "univocal.toml"
    redis.start()
    with recording() as origin:
        listeners = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
        file.write_text(listeners + settings(origin.url, store=redis.url))
        running = start_once("serve", "--config", str(file))
        yield file, running, origin
        running.end()
    redis.kill()


@pytest.fixture
def running(common, ask):
    """It, with nothing stored, and nothing asked of its origin server."""
    _, running, origin = common
    ask(running.admin, "/-/purge", "localhost", "POST", body='{"all": true}')
    until(lambda: told(ask, running, "univocal_memory_responses", 0))
    origin.seen.clear()
    return running


def gone(process):
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return False
    return True


def counted(text, name):
    """The sum of a metric over all its labels."""
    return sum(float(value) for value in re.findall(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", text))


def asked_of_each(ask, running, target="/wiki/A(b)"):
    """Ask each worker while the others are stopped, and return the answers."""
    found, there = [], workers_of(running.process.pid)
    assert len(there) == COUNT
    for number, process in enumerate(there, 1):
        others = [other for other in there if other != process]
        for other in others:
            os.kill(other, signal.SIGSTOP)
        found.append(ask(running.proxy, target, "en.example"))
        for other in others:
            os.kill(other, signal.SIGCONT)
        until(lambda number=number: told(ask, running, "univocal_memory_responses", number))
    return found


def metric(ask, running, name):
    """The sum of a metric."""
    return counted(ask(running.admin, "/metrics", "localhost").body.decode(), name)


def told(ask, running, name, value):
    """Compare the sum of a metric with this value."""
    return metric(ask, running, name) == value


def server_of(ask, running):
    (server,) = json.loads(ask(running.admin, "/-/origins", "localhost").body)
    return server


def test_every_worker_answers_is_counted_and_has_its_name(running, common, ask):
    origin, names = common[2], ("univocal_requests_total", "univocal_request_seconds_count")
    before = [*(metric(ask, running, name) for name in names), server_of(ask, running)["requests"]]
    if importlib.util.find_spec("setproctitle"):
        children = workers_of(running.process.pid)
        titles = {Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0") for child in children}
        assert titles == {b"univocal: worker 1", b"univocal: worker 2"}
    assert ask(running.admin, "/-/ready", "localhost").body == b"ready\n"
    said = [answer.value("cache-status") for answer in asked_of_each(ask, running)]
    assert origin.lines == [b"GET /wiki/A(b) HTTP/1.1"]
    assert said[0] == "univocal; fwd=uri-miss; stored"
    assert all("detail=shared" in each for each in said[1:])
    server = server_of(ask, running)
    assert (server["url"], server["state"], server["requests"]) == (origin.url, "up", before.pop() + 1)
    assert [metric(ask, running, name) for name in names] == [count + COUNT for count in before]
    assert told(ask, running, "univocal_store_connected", 1)
    text = ask(running.admin, "/metrics", "localhost").body.decode()
    assert text.count("# TYPE univocal_requests_total counter\n") == 1


def test_the_admin_listener_shows_figures_of_every_worker(running, ask):
    def shown(path):
        return json.loads(ask(running.admin, path, "localhost").body)

    before = shown("/-/spellings")["requests"]
    asked_of_each(ask, running)
    until(lambda: shown("/-/spellings")["requests"] == before + COUNT)
    named = json.dumps({"url": "http://en.example/wiki/A(b)"})  # by prefix, Redis counts nothing
    counted = ask(running.admin, "/-/purge/preview", "localhost", "POST", body=named)
    assert json.loads(counted.body)["would_purge"] == 1
    ask(running.proxy, "/wiki/a(b)?x", "en.example", "PURGE")
    (missed,) = until(lambda: shown("/-/purge-misses"))
    (neighbour,) = missed["neighbours"]
    assert (neighbour["url"], neighbour["stored"]) == ("http://en.example/wiki/A(b)", 1)
    assert neighbour["differs"] == ["path", "query"]


@pytest.mark.parametrize(("count", "kind"), [(2, "memory"), (1, "file"), (2, "redis"), (1, "redis")])
def test_the_figures_show_what_all_store_together(
    start_with, inside, ask, origin, tmp_path, request, count, kind
):
    store = f"file://{tmp_path / 'store'}" if kind == "file" else kind
    store = request.getfixturevalue("redis").url if kind == "redis" else store
    text = settings(origin.url, store=store).replace("[[sites]]", BOUNDS)
    running = inside(text.replace("workers = 2", "")) if count == 1 else start_with(text)
    for number in range(40):
        assert ask(running.proxy, f"/p{number}", "en.example").status == 200

    def stats():
        return json.loads(ask(running.admin, "/-/stats", "127.0.0.1").body)

    until(lambda: stats()["totals"]["stored"]["responses"] == 40)
    document = stats()
    told = document["totals"]["stored"]
    assert told["shared"] == {name: told[name] for name in ("responses", "bytes", "max_bytes", "evictions")}
    assert document["series"][-1]["stored"] == told["shared"]
    assert told["evictions"] == 0
    if kind != "redis":  # which has bounds of its own
        assert told["max_bytes"] == 64 << 20
    metrics = ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    assert counted(metrics, "univocal_stored_responses") == 40
    assert counted(metrics, "univocal_stored_bytes") == pytest.approx(told["bytes"], rel=0.1)
    assert counted(metrics, "univocal_memory_responses") == told["memory"]["responses"]
    assert counted(metrics, "univocal_memory_bytes") == told["memory"]["bytes"]
    assert 0 < told["bytes"] <= told["max_bytes"]
    assert 0 < told["memory"]["responses"] <= 40


FULL = """
mount -t tmpfs -o size={memory} none /dev/shm || exit 77
mount -t tmpfs -o size={temporary} none /mnt || exit 77
TMPDIR=/mnt exec {python} {program}
"""
IN_MEMORY = "-c 'from univocal.store.file.directory import new_in_memory; new_in_memory()'"
SERVE = "-m univocal_app serve --config {file}"


@pytest.mark.parametrize(
    ("memory", "temporary", "program", "status", "said"),
    [
        ("64k", "64m", IN_MEMORY, 0, "/dev/shm is nearly full: /mnt/univocal-store-"),
        ("1m", "64k", SERVE, 1, "univocal: /dev/shm/univocal-store-"),
    ],
    ids=["memory alone", "both"],
)
def test_full_memory_is_said_and_another_directory_used(tmp_path, memory, temporary, program, status, said):
    file = tmp_path / "univocal.toml"
    listeners = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nworkers = 2\n'
    file.write_text(listeners + '[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:9"\n')
    program = program.format(file=file)
    script = FULL.format(memory=memory, temporary=temporary, python=sys.executable, program=program)
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    lines = ended.stderr.splitlines()
    if ended.returncode == 77 or any(line.startswith("unshare:") for line in lines):
        pytest.skip("needs the right to mount")
    assert ended.returncode == status
    assert any(line.startswith(said) for line in lines)
    assert not any("Traceback" in line for line in lines)


def test_hits_of_all_workers_are_in_the_figures_at_once(running, ask):
    (first, *_) = asked_of_each(ask, running)  # from now on each has it in memory
    before = metric(ask, running, "univocal_requests_total")
    kept = [http.client.HTTPConnection(*running.proxy, timeout=60) for _ in range(4)]
    for rounds in (1, 2, 3):
        for number in range(200):
            client = kept[number % len(kept)]
            client.request("GET", "/wiki/A(b)", headers={"Host": "en.example"})
            assert client.getresponse().read() == first.body
        stats = json.loads(ask(running.admin, "/-/stats", "localhost").body)
        metrics = ask(running.admin, "/metrics", "localhost").body.decode()
        requests = 200 * rounds + before
        assert stats["totals"]["requests"] == requests
        assert sum(second["requests"] for second in stats["series"]) == requests
        assert counted(metrics, "univocal_requests_total") == requests
        assert counted(metrics, "univocal_request_seconds_count") == requests
    for client in kept:
        client.close()


def test_a_purge_by_either_listener_reaches_every_worker(running, ask):
    named = json.dumps({"url": "http://en.example/wiki/A%28b)"})
    by_listener = {
        "admin": lambda: ask(running.admin, "/-/purge", "localhost", "POST", body=named),
        "http": lambda: ask(running.proxy, "/wiki/./A%28b%29", "en.example", "PURGE"),
    }
    assert {answer.body for answer in asked_of_each(ask, running)} == {b"answer 1"}
    for number, (listener, purge) in enumerate(by_listener.items(), 2):
        assert json.loads(purge().body) == {"purged": 1, "key": "http://en.example/wiki/A(b)"}, listener
        until(lambda: told(ask, running, "univocal_memory_responses", 0))
        bodies = {answer.body for answer in asked_of_each(ask, running)}
        assert bodies == {b"answer %d" % number}, listener


def test_no_worker_serves_what_was_purged_before(running, ask):
    kept = [http.client.HTTPConnection(*running.proxy, timeout=60) for _ in range(12)]

    def get(client):
        client.request("GET", "/wiki/A", headers={"Host": "en.example"})
        return int(client.getresponse().read().removeprefix(b"answer "))

    def purge(listener):
        if listener == "http":
            answer = ask(running.proxy, "/wiki/A", "en.example", "PURGE")
        else:
            named = json.dumps({"url": "http://en.example/wiki/A"})
            answer = ask(running.admin, "/-/purge", "localhost", "POST", body=named)
        assert answer.status == 200

    asked_of_each(ask, running)
    with ThreadPoolExecutor(12) as clients:
        for number in range(40):
            newest = max(clients.map(get, kept))
            purge("http" if number % 2 else "admin")
            assert min(clients.map(get, kept)) > newest
    for client in kept:
        client.close()


@pytest.fixture
def under_way(workers):
    """The program while the origin has a request and no answer: it, the client's end, the origin's."""
    with socket.create_server(("127.0.0.1", 0)) as origin:
        origin.settimeout(20)
        running = workers(f"http://127.0.0.1:{origin.getsockname()[1]}")
        with socket.create_connection(running.proxy, timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: en.example\r\n\r\n")
            accepted, _ = origin.accept()
            with accepted:
                assert accepted.recv(65536).startswith(b"GET / ")
                yield running, client, accepted


def answered(client, accepted):
    """Send a late answer from the origin server, and tell whether it reaches the client."""
    accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
    return b"".join(iter(lambda: client.recv(65536), b"")).endswith(b"\r\n\r\nlate")


def test_a_worker_that_is_terminated_ends_what_is_under_way(under_way):
    running, client, accepted = under_way
    for process in workers_of(running.process.pid):
        os.kill(process, signal.SIGTERM)
    assert answered(client, accepted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_to_all_processes_ends_what_is_under_way(under_way, number):
    running, client, accepted = under_way
    there = workers_of(running.process.pid)
    for process in (*there, running.process.pid):
        os.kill(process, number)
    assert answered(client, accepted)
    assert running.end(0) == 0
    assert all(map(gone, there))


def test_a_second_signal_ends_all_at_once(under_way):
    running, _, _ = under_way
    there = workers_of(running.process.pid)
    running.process.send_signal(signal.SIGTERM)
    until(lambda: not listening(running.proxy))
    assert running.process.poll() is None
    began = time.monotonic()
    assert running.end() == 0
    assert time.monotonic() - began < 9  # the grace is ten seconds
    assert all(map(gone, there))


def listening(address):
    with suppress(ConnectionRefusedError), socket.create_connection(address):
        return True
    return False


def test_lines_of_the_log_stay_whole(workers, ask):
    """On a pipe that takes less than a line at a time."""
    running = workers(server='access_log = "stdout"')
    fcntl.fcntl(running.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    target = "/wiki/" + "a" * 7_000
    reading = ThreadPoolExecutor(1).submit(running.process.communicate)
    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(lambda _: ask(running.proxy, target, "en.example").status, range(200)))
    assert set(statuses) == {200}
    running.process.send_signal(signal.SIGTERM)
    written, _ = reading.result(15)
    assert running.process.returncode == 0
    assert [json.loads(line)["target"] for line in written.splitlines()] == [target] * 200


def test_a_log_that_is_moved_away_is_opened_anew(workers, ask, tmp_path):
    """logrotate does this: it renames the file, and signals the parent alone."""
    log, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    running = workers(server=f'access_log = "{log}"')
    asked_of_each(ask, running, "/wiki/before")
    log.rename(moved)
    running.process.send_signal(signal.SIGUSR1)
    until(log.exists)
    until(lambda: all(str(log) in opened(process) for process in workers_of(running.process.pid)))
    ask(running.admin, "/-/purge", "localhost", "POST", body='{"all": true}')
    until(lambda: told(ask, running, "univocal_memory_responses", 0))
    asked_of_each(ask, running, "/wiki/after")
    assert running.end() == 0
    for file, target in ((moved, "/wiki/before"), (log, "/wiki/after")):
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert [line["target"] for line in lines if "purge" not in line] == [target] * COUNT


def test_a_reload_reaches_every_worker_and_those_that_come_later(running, common, ask):
    file, _, _ = common
    before = file.read_text()

    def reload(text):
        file.write_text(text)
        answer = ask(running.admin, "/-/reload", "localhost", "POST")
        return answer.status, json.loads(answer.body)

    def said():
        ask(running.admin, "/-/purge", "localhost", "POST", body='{"all": true}')
        until(lambda: told(ask, running, "univocal_memory_responses", 0))
        return [answer.value("cache-status") for answer in asked_of_each(ask, running)]

    assert None not in said()
    changed = reload(before.replace("[server]", '[server]\ncache_status = "off"'))
    assert changed == (200, {"reloaded": True, "changed": ["server.cache_status"]})
    assert said() == [None] * COUNT
    status, refused = reload(before.replace("[server]", "[server]\nnonsense = 1"))
    assert (status, refused["errors"][0]["key"]) == (422, "server.nonsense")
    assert said() == [None] * COUNT
    (first, *_) = workers_of(running.process.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: first not in workers_of(running.process.pid))
    until(lambda: len(workers_of(running.process.pid)) == COUNT)
    until(lambda: all(listens(process) for process in workers_of(running.process.pid)))
    assert said() == [None] * COUNT
    assert reload(before) == (200, {"reloaded": True, "changed": ["server.cache_status"]})
    assert None not in said()


@pytest.fixture
def limited(workers, ask):
    """The program with a rate, and the statuses of so many requests of a client, over as many connections."""
    running = workers(site='[sites.access]\nrate = "1/h burst 20"\n')

    def statuses(client, count):
        def asked(_):
            fields = f"X-Forwarded-For: {client}\r\n"
            return ask(running.proxy, "/wiki/A", "en.example", fields=fields).status

        with ThreadPoolExecutor(8) as connections:
            return Counter(connections.map(asked, range(count)))

    return running, statuses


def test_a_rate_is_one_limit_for_old_and_new_workers(limited, ask):
    running, statuses = limited
    assert statuses("192.0.2.1", 80) == {200: 20, 429: 60}
    first, second = workers_of(running.process.pid)
    for stopped, expected in ((first, {200: 12}), (second, {200: 8, 429: 4})):
        os.kill(stopped, signal.SIGSTOP)
        assert statuses("192.0.2.2", 12) == expected
        os.kill(stopped, signal.SIGCONT)
    # Reloads and new workers in the place of killed ones keep all that was counted.
    assert statuses("192.0.2.3", 15) == {200: 15}
    assert ask(running.admin, "/-/reload", "localhost", "POST").status == 200
    requests = metric(ask, running, "univocal_requests_total")
    for process in (first, second):
        os.kill(process, signal.SIGKILL)
    until(lambda: ask(running.admin, "/-/ready", "localhost").status == 503)
    until(lambda: ask(running.admin, "/-/ready", "localhost").status == 200)
    until(lambda: len(workers_of(running.process.pid)) == COUNT)
    assert not {first, second} & set(workers_of(running.process.pid))
    assert statuses("192.0.2.3", 15) == {200: 5, 429: 10}
    assert told(ask, running, "univocal_requests_total", requests + 15)
    assert running.end() == 0
    assert running.err.count("was killed by SIGKILL: a new worker replaces it") == COUNT


def listens(process):
    """Tell whether a worker has an event loop: its epoll is among the open files."""
    return "anon_inode:[eventpoll]" in opened(process)


def opened(process):
    """The names of the files that a process has open."""
    names = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed meanwhile
            names.add(os.readlink(link))
    return names


def test_a_signal_during_a_slow_start_ends_without_a_traceback(origin, tmp_path):
    """The store does not answer, so that the start waits for it."""
    file = tmp_path / "univocal.toml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nworkers = {COUNT}\n'
            f'[cache]\nstore = "redis://127.0.0.1:{silent.getsockname()[1]}/0"\n'
            f'[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n'
        )
        command = [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)]
        process = forking.Program(command, stderr=subprocess.PIPE, text=True)
        silent.settimeout(20)
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in said


def test_no_worker_confirms_a_purge_once_the_directory_is_gone(workers, ask, tmp_path):
    """A worker in a killed one's place does not make it anew: no other would hear of its purges."""
    store = tmp_path / "store"
    running = workers(store=f"file://{store}")
    asked_of_each(ask, running)
    assert ask(running.proxy, "/wiki/A(b)", "en.example", "PURGE").status == 200
    shutil.rmtree(store)
    before = workers_of(running.process.pid)
    os.kill(before[0], signal.SIGKILL)
    until(
        lambda: (
            len(workers_of(running.process.pid)) == COUNT and before[0] not in workers_of(running.process.pid)
        )
    )
    until(lambda: ask(running.admin, "/-/ready", "localhost").status == 200)
    answers = {ask(running.proxy, "/wiki/A(b)", "en.example", "PURGE").status for _ in range(20)}
    named = json.dumps({"url": "http://en.example/wiki/A(b)"})
    answers.add(ask(running.admin, "/-/purge", "localhost", "POST", body=named).status)
    assert answers == {503}
    assert ask(running.proxy, "/wiki/A(b)", "en.example").status == 200
    assert not store.exists()


@pytest.mark.parametrize("store", ["memory", "file"])
def test_nothing_of_a_killed_program_stays_in_memory(start_with, origin, tmp_path, store):
    """The program writes no temporary files of the system: a container's root may be read-only."""
    (tmp_path / "none").mkdir()
    memory = Path("/dev/shm")
    text = settings(origin.url, store="memory" if store == "memory" else f"file://{tmp_path}/store")
    before = set(memory.glob("univocal-*"))
    running = start_with(text, TMPDIR=str(tmp_path / "none"))
    theirs = {each for each in memory.glob("univocal-*") if holds(each, running.process.pid)} - before
    assert theirs
    assert list((tmp_path / "none").iterdir()) == []
    there = workers_of(running.process.pid)
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: all(map(gone, there)))  # without their parent
    assert not listening(running.proxy)
    start_with(text, TMPDIR=str(tmp_path / "none"))
    assert [each for each in theirs if each.exists()] == []


def holds(directory, process):
    """Tell whether a process has a file of a directory open."""
    return any(name.startswith(f"{directory}/") for name in opened(process))
