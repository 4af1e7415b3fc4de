"""Several Redis at once: a primary with a replica and three Sentinels, a cluster of three masters."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.ports import free_port


class Started:
    """One process of Redis's, of whichever mode."""

    def __init__(self, directory: Path, port: int, *options: str, sentinel: bool = False) -> None:
        self.port = port
        self.client = redis.Redis(port=port, decode_responses=False, socket_timeout=2)
        directory.mkdir(exist_ok=True)
        command = ["redis-server", *options, "--port", str(port), "--bind", "127.0.0.1"]
        if sentinel:
            command.append("--sentinel")
        log = (directory / "log").open("ab")
        with log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.client.close()


def started(directory: Path, *options: str) -> Started:
    """A Redis that answers."""
    server = Started(directory, free_port(), "--save", "", *options)
    wait(server.client.ping)
    return server


def wait(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until a condition holds; what is refused or says that it is not ready is asked again."""
    until = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < until
        time.sleep(0.05)


class Sentinels:
    """A primary, a replica, and three Sentinels that agree within a second that the primary is down."""

    NAME = "cache"

    def __init__(self, directory: Path) -> None:
        self.primary = started(directory / "primary")
        follows = ("--replicaof", "127.0.0.1", str(self.primary.port), "--repl-diskless-sync-delay", "0")
        self.replica = started(directory / "replica", *follows)
        wait(lambda: self.replica.client.info("replication")["master_link_status"] == "up")
        self.sentinels = [self._sentinel(directory / f"sentinel{number}") for number in range(3)]
        for each in self.sentinels:
            wait(lambda each=each: self._state(each)["num-other-sentinels"] == 2)
            wait(lambda each=each: self._state(each)["num-slaves"] == 1)
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{self.NAME}?db=0"

    def _sentinel(self, directory: Path) -> Started:
        directory.mkdir()
        settings = [
            f"sentinel monitor {self.NAME} 127.0.0.1 {self.primary.port} 2",
            f"sentinel down-after-milliseconds {self.NAME} 1000",
            f"sentinel failover-timeout {self.NAME} 3000",
        ]
        (directory / "sentinel.conf").write_text("\n".join(settings) + "\n")
        server = Started(directory, free_port(), "sentinel.conf", sentinel=True)
        wait(server.client.ping)
        return server

    def _state(self, sentinel: Started) -> Any:
        return sentinel.client.sentinel_master(self.NAME)

    def kill(self) -> None:
        for each in (*self.sentinels, self.primary, self.replica):
            each.process.kill()
            each.kill()


class Cluster:
    """Three masters; with `replicas`, one of each."""

    def __init__(self, directory: Path, *, replicas: bool = False) -> None:
        count = 6 if replicas else 3
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.nodes = [started(directory / f"node{number}", *options) for number in range(count)]
        hosts = [f"127.0.0.1:{each.port}" for each in self.nodes]
        create = ["redis-cli", "--cluster", "create", *hosts, "--cluster-yes"]
        create += ["--cluster-replicas", "1"] if replicas else []
        subprocess.run(create, check=True, capture_output=True)
        for each in self.nodes:
            wait(lambda each=each: each.client.cluster("INFO")["cluster_state"] == "ok")
        self.url = f"redis+cluster://{','.join(hosts[:2])}"

    def kill(self) -> None:
        for each in self.nodes:
            each.kill()
