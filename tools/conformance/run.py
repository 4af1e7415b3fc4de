"""The public HTTP cache suite, http-tests/cache-tests, against `univocal serve`.

    python tools/conformance/run.py [--suite DIRECTORY | --git URL --commit COMMIT] [--settings all|default]
    python tools/conformance/run.py --published

The suite is taken from a directory that holds it, or from a git URL (or git directory) at one commit; it
needs node 20 or newer, and npm for undici, its HTTP library. It is run once with all that RFC 9111 allows to
store, and once with the default settings. Prints for each what did not pass, and the score; exits with 0 if
every required test passed (but for those that want what is ruled out on purpose), with 1 otherwise, with 2
for wrong usage. --published counts what the suite's own results say of other caches, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GIT = os.environ.get("CACHE_TESTS_GIT", "https://github.com/http-tests/cache-tests.git")
COMMIT = os.environ.get("CACHE_TESTS_COMMIT", "b55b8bda3dbb")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "univocal-conformance"
PASSED = {"pass", "yes"}
# The settings of [cache].
SETTINGS = {"all": 'errors = "explicit"\nset_cookie = "explicit"\nheuristic = true\n', "default": ""}
# The required tests that cannot pass: one wants the content of a response with an unknown transfer coding,
# which is 502 on purpose; and what the defaults do not store is never found fresh first.
CODED = {"headers-store-Transfer-Encoding"}
ERRORS = (400, 499, 500, 502, 503, 504, 599)
UNWANTED = {
    "all": CODED,
    "default": CODED
    | {
        "headers-store-Set-Cookie",
        "status-599-must-understand",
        *(f"status-{status}-stale" for status in ERRORS),
    },
}
# The suite's origin listens everywhere; a test has no business beyond the loopback address.
LOOPBACK = """
const net = require('net')
const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port) { return listen.call(this, Number(port), '127.0.0.1') }
"""


def fetched(git: str, commit: str) -> Path:
    """The suite at `commit`, unpacked with the one library that its client needs."""
    suite = CACHE / commit / "suite"
    if suite.is_dir():
        return suite
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as part:
        bare, tree = Path(part, "bare"), Path(part, "tree", "suite")
        tree.mkdir(parents=True)
        run("git", "clone", "--quiet", "--bare", git, str(bare))
        archive = Path(part, "suite.tar")
        run("git", f"--git-dir={bare}", "archive", "--format=tar", "-o", str(archive), commit)
        run("tar", "-xf", str(archive), "-C", str(tree))
        run(
            "npm",
            "install",
            "--prefix",
            str(tree.parent),
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "undici@7",
        )
        tree.parent.rename(CACHE / commit)
    return suite


def run(*command: str, **more: Any) -> str:
    """Standard output of a command that must succeed."""
    ended = subprocess.run(command, check=False, capture_output=True, text=True, **more)
    if ended.returncode != 0:
        sys.exit(
            f"conformance: {' '.join(command[:3])} ended with {ended.returncode}\n{ended.stderr[-2000:]}"
        )
    return ended.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: Sequence[str], port: int, **more: Any) -> Iterator[None]:
    """A server that accepts connections on `port` of the loopback address while the block runs."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                said = process.stderr.read() if process.stderr else ""
                sys.exit(f"conformance: {command[0]} ended at once\n{said}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


def settings(suite: Path, **values: str) -> dict[str, Any]:
    """The settings of the suite: npm's environment variables."""
    told = {f"npm_config_{name}": value for name, value in values.items()} | {"npm_package_config_id": ""}
    return {"cwd": suite, "env": {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **told}}


def measure(suite: Path, policy: str) -> list[dict[str, Any]]:
    """Every test's verdict, with these settings of [cache]."""
    origin, front, back = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as scratch:
        config, results = Path(scratch, "univocal.toml"), Path(scratch, "results.json")
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{front}"\nadmin = "127.0.0.1:{back}"\naccess_log = "off"\n'
            f"[cache]\n{policy}"
            f'[[sites]]\nhosts = ["127.0.0.1"]\nupstream = "http://127.0.0.1:{origin}"\n'
        )
        node = shutil.which("node") or sys.exit("conformance: node is needed (Debian: nodejs)")
        preload = Path(scratch, "loopback.cjs")
        preload.write_text(LOOPBACK)
        told = settings(suite, port=str(origin), protocol="http", pidfile=str(Path(scratch, "pid")))
        served = [str(node), "--no-warnings", "--require", str(preload), "test-engine/server/server.mjs"]
        proxy = [str(Path(sys.executable).with_name("univocal")), "serve", "--config", str(config)]
        with started(served, origin, **told), started(proxy, front):
            client = settings(suite, base=f"http://127.0.0.1:{front}")
            out = run(str(node), "--no-warnings", "test-engine/cli.mjs", timeout=600, **client)
        results.write_text(out[out.index("{\n") :])
        return judged(suite, results)


def judged(suite: Path, results: Path) -> list[dict[str, Any]]:
    """Every test's verdict by these results, as the suite itself judges."""
    node = shutil.which("node") or sys.exit("conformance: node is needed (Debian: nodejs)")
    return list(json.loads(run(str(node), str(HERE / "judge.mjs"), str(suite), str(results))))


def report(verdicts: list[dict[str, Any]], unwanted: set[str]) -> bool:
    """Print what did not pass and the score; whether every required test passed that is wanted."""
    failed = {each["id"] for each in verdicts if each["kind"] == "required" and each["verdict"] not in PASSED}
    for each in verdicts:
        kind, ok = each["kind"], each["verdict"] in PASSED
        if not ok and kind != "check":
            why = f"needs {', '.join(each['needs'])}" if each["verdict"] == "dependency_fail" else each["why"]
            print(f"{kind:9} {each['verdict']:16} {each['group']}/{each['id']}: {why}")
    print(score(verdicts))
    return any(each["kind"] == "required" for each in verdicts) and failed <= unwanted


def score(verdicts: list[dict[str, Any]]) -> str:
    """The number of tests of each kind that passed, and of all."""
    total = Counter(each["kind"] for each in verdicts)
    passed = Counter(each["kind"] for each in verdicts if each["verdict"] in PASSED)
    return ", ".join(f"{kind} {passed[kind]} of {total[kind]}" for kind in ("required", "optimal", "check"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--suite", type=Path, help="a directory that holds the suite, with undici where node finds it"
    )
    parser.add_argument("--git", default=GIT, help="where the suite is cloned from (CACHE_TESTS_GIT)")
    parser.add_argument("--commit", default=COMMIT, help="which commit of it (CACHE_TESTS_COMMIT)")
    parser.add_argument("--settings", choices=tuple(SETTINGS), help="with these alone")
    parser.add_argument(
        "--published", action="store_true", help="count what the suite itself has of other caches"
    )
    asked = parser.parse_args()
    suite = asked.suite.resolve() if asked.suite else fetched(asked.git, asked.commit)
    if asked.published:
        for results in sorted((suite / "results").glob("*.json")):
            print(f"{results.stem}: {score(judged(suite, results))}")
        return
    passed = True
    for name in [asked.settings] if asked.settings else SETTINGS:
        policy = SETTINGS[name]
        print(f"With {', '.join(policy.splitlines()) or 'the defaults'}:", flush=True)
        passed &= report(measure(suite, policy), UNWANTED[name])
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
