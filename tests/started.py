"""Servers of other projects as tests start them: a command, and the packages that it needs."""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"


@dataclass(frozen=True)
class Started:
    """A command, and the address of the socket on which its server listens."""

    command: list[str]
    address: str | tuple[str, int]


def need(package: str, *things: Path | str, php: str = "") -> None:
    """Skip the test where a program, a file or an extension of PHP is missing."""
    for thing in things:
        found = thing.exists() if isinstance(thing, Path) else shutil.which(thing, path=PATH)
        if not found:
            pytest.skip(f"needs {thing} (Debian package {package})")
    if php:
        loaded = subprocess.run(["php", "-m"], capture_output=True, text=True, check=True).stdout
        if php not in loaded.split():
            pytest.skip(f"needs PHP's {php} (Debian package {package})")


def end(process: subprocess.Popen[Any], seconds: float) -> None:
    """End a process, and kill it if it takes longer than that."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running(
    command: Sequence[str], at: int | str | None = None, log: Path | None = None, **settings: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Run a program until the block ends, from when it takes connections on, if it is told where."""
    with (log or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **settings)
    try:
        if at is not None:
            until_it_listens(process, at, log)
        yield process
    finally:
        end(process, 20)


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


def nginx(prefix: Path, servers: str) -> list[str]:
    """The command of an nginx of one process with these servers, whose files are at `prefix`."""
    need("nginx-light", "nginx")
    kinds = ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    temporary = "".join(f"{kind}_temp_path {prefix}/{kind}; " for kind in kinds)
    (prefix / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {prefix}/pid; error_log {prefix}/errors crit;\n"
        f"events {{ worker_connections 64; }}\n"
        f"http {{ access_log off; default_type text/plain; {temporary}\n{servers} }}\n"
    )
    program = shutil.which("nginx", path=PATH) or ""
    return [program, "-p", str(prefix), "-c", f"{prefix}/nginx.conf", "-e", f"{prefix}/errors"]


# Built programs, once for all runs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "univocal-tests"


def installed(name: str, packages: dict[str, str]) -> str:
    """The directory of this name in which npm has installed `packages`."""
    need("nodejs", "node")
    need("npm", "npm")
    directory = CACHE / name
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
    return str(directory)


def node(program: Path, name: str, packages: dict[str, str]) -> list[str]:
    """The command that runs a program of Node's with these packages."""
    return ["env", f"NODE_MODULES={installed(name, packages)}", "node", str(program)]


def python(program: Path, package: str) -> list[str]:
    """The command that runs a program with this interpreter, which needs a package."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the Python package {package}")
    return [sys.executable, str(program)]


@cache
def has_sinatra() -> bool:
    """Tell whether Ruby finds Sinatra."""
    finds = ["ruby", "-e", 'Gem.find_files("sinatra/base").any? or abort']
    return subprocess.run(finds, check=False, stderr=subprocess.DEVNULL).returncode == 0


def puma(program: Path) -> list[str]:
    """The command that runs a rackup file with Sinatra."""
    need("puma", "puma")
    if not has_sinatra():
        pytest.skip("needs Sinatra (Debian package ruby-sinatra)")
    return ["puma", "--quiet", "--threads", "1:1", "--environment", "production", str(program)]


def built(program: Path, toolchain: str, build: Callable[[Path], Sequence[str | Path]]) -> Path:
    """Run the command of `build(destination)` for a program with this toolchain, once for all runs."""
    digest = hashlib.sha256(f"{toolchain} {program.read_text()}".encode()).hexdigest()
    made = CACHE / f"{program.suffix[1:]}-{program.stem}-{digest[:16]}"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as directory:
            subprocess.run(build(new := Path(directory, "made")), check=True)
            with suppress(OSError):  # another process was faster
                new.rename(made)
    return made


def go(program: Path) -> list[str]:
    """The command that runs a program of Go's."""
    need("golang-go", "go")
    settings = ["env", f"GOCACHE={CACHE / 'go'}", "GO111MODULE=off"]
    version = os.path.realpath(shutil.which("go") or "")
    return [str(built(program, version, lambda made: [*settings, "go", "build", "-o", made, program]))]


def java(program: Path, package: str, *jars: str) -> list[str]:
    """The command that runs a program of Java's with the jars of a Debian package."""
    files = [Path(f"/usr/share/java/{name}.jar") for name in jars]
    need(package, *files)
    need("default-jdk-headless", "java", "javac")
    path = ":".join(map(str, files))
    version = os.path.realpath(shutil.which("javac") or "")
    classes = built(program, f"{version} {path}", lambda made: ["javac", "-cp", path, "-d", made, program])
    return ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", f"{path}:{classes}", program.stem]


def tomcat(program: Path) -> list[str]:
    """The command that runs a program of Java's with Tomcat 10.1."""
    names = (
        "annotations-api api catalina coyote el-api jaspic-api jni jsp-api juli servlet-api util util-scan"
    )
    return java(program, "libtomcat10-java", *(f"tomcat10-{name}" for name in names.split()))
