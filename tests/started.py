"""Servers of other projects as tests start them: a command, and the packages that it needs."""

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
