"""Servers of other projects as tests start them: a command, and the packages that it needs."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"


@dataclass(frozen=True)
class Started:
    """A command, and the address of the socket on which its server listens."""

    command: list[str]
    address: str | tuple[str, int]


def need(package: str, *things: Path | str) -> None:
    """Skip the test where a program or a file is missing."""
    for thing in things:
        found = thing.exists() if isinstance(thing, Path) else shutil.which(thing, path=PATH)
        if not found:
            pytest.skip(f"needs {thing} (Debian package {package})")


def end(process: subprocess.Popen[Any], seconds: float) -> None:
    """End a process, and kill it if it takes longer than that."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# A server that would outlive a test run that is killed ends with the input that the run holds open.
UNTIL_THE_INPUT_ENDS = 'exec 3<&0; "$@" & server=$!; (cat <&3; kill $server) & wait $server'


def tied(command: Sequence[str], output: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a server that `end_input` ends, and the end of this process."""
    words = ["/bin/sh", "-c", UNTIL_THE_INPUT_ENDS, "sh", *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output, stderr=output)


def end_input(process: subprocess.Popen[bytes]) -> None:
    """End a process that lives by its input."""
    assert process.stdin
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    if process.stdout:
        process.stdout.close()


def until_it_listens(process: subprocess.Popen[Any], at: int | str, log: Path | None = None) -> None:
    """Wait until somebody takes connections at a port or a path, and as long as the process runs at most."""
    address = at if isinstance(at, str) else ("127.0.0.1", at)
    limit = time.monotonic() + 60
    while True:
        with socket.socket(socket.AF_UNIX if isinstance(at, str) else socket.AF_INET) as probe:
            if probe.connect_ex(address) == 0:
                return
        if process.poll() is not None or time.monotonic() > limit:
            said = log.read_text(errors="replace") if log and log.exists() else ""
            if process.poll() is not None and process.stderr is not None:
                said += str(process.stderr.read())
            raise AssertionError(f"{process.args!r} takes no connections: {said}")
        time.sleep(0.02)


def installed(packages: dict[str, str], directory: Path) -> Path:
    """The directory in which npm has installed `packages`, once for all runs."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest = json.dumps({"private": True, "dependencies": packages})
        done = directory / "installed.json"
        if not done.exists() or done.read_text() != manifest:
            (directory / "package.json").write_text(manifest)
            options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
            npm = subprocess.run(
                ["npm", "install", *options], cwd=directory, capture_output=True, text=True, check=False
            )
            if npm.returncode:
                pytest.skip(f"npm cannot install {', '.join(packages)}: {npm.stderr[-300:]}")
            done.write_text(manifest)
    return directory
