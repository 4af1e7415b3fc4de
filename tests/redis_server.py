"""A Redis of a test's own, or a Valkey."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import free_port


class RedisServer:
    """A server that can be killed and started again."""

    def __init__(self, directory: Path, engine: str = "redis-server") -> None:
        self.engine = engine
        self.port, self.tls_port = free_port(), free_port()
        self.directory = directory
        self.url = f"redis://127.0.0.1:{self.port}/0"
        retry = Retry(NoBackoff(), 0)
        self.client = redis.Redis(port=self.port, decode_responses=False, retry=retry)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [self.engine, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *options]
        log = (self.directory / "redis.log").open("ab")
        with log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        for _ in range(1500):
            assert self.process.poll() is None, (self.directory / "redis.log").read_text()
            try:
                self.client.ping()
            except redis.ConnectionError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError(f"{self.engine} does not start")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop it, and let it go on in the end."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.client.close()
