"""Several Redis at once: a primary with a replica and three Sentinels, a cluster of three masters."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from tests.ports import free_port

# A replica that comes is synchronized at once, not together with those that come within five seconds.
AT_ONCE = ("--repl-diskless-sync-delay", "0")


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


def replica_of(primary: Started, directory: Path) -> Started:
    """A replica that has all that the primary has, and hears at once of what comes."""
    server = started(directory, "--replicaof", "127.0.0.1", str(primary.port))
    wait(lambda: server.client.info("replication")["master_link_status"] == "up")
    wait(lambda: primary.client.info("replication")["slave0"]["state"] == "online")
    return server


class Sentinels:
    """A primary, a replica, and three Sentinels that agree within a second that the primary is down."""

    NAME = "cache"

    def __init__(self, directory: Path) -> None:
        self.primary = started(directory / "primary", *AT_ONCE)
        self.replica = replica_of(self.primary, directory / "replica")
        ports = [free_port() for _ in range(3)]
        self.sentinels = [self._sentinel(directory / f"sentinel{port}", port, ports) for port in ports]
        for each in self.sentinels:
            wait(lambda each=each: self._state(each)["num-other-sentinels"] == 2)
            wait(lambda each=each: self._state(each)["num-slaves"] == 1)
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{self.NAME}?db=0"

    def _sentinel(self, directory: Path, port: int, ports: Sequence[int]) -> Started:
        """One that knows the replica and the others: it would ask for them every ten seconds."""
        directory.mkdir()
        others = [
            f"known-sentinel {self.NAME} 127.0.0.1 {each} {each:040x}" for each in ports if each != port
        ]
        settings = [
            f"myid {port:040x}",
            f"monitor {self.NAME} 127.0.0.1 {self.primary.port} 2",
            f"down-after-milliseconds {self.NAME} 1000",
            f"failover-timeout {self.NAME} 3000",
            f"known-replica {self.NAME} 127.0.0.1 {self.replica.port}",
            *others,
        ]
        (directory / "sentinel.conf").write_text("".join(f"sentinel {each}\n" for each in settings))
        server = Started(directory, port, "sentinel.conf", sentinel=True)
        wait(server.client.ping)
        return server

    def _state(self, sentinel: Started) -> Any:
        return sentinel.client.sentinel_master(self.NAME)

    def kill(self) -> None:
        for each in (*self.sentinels, self.primary, self.replica):
            each.process.kill()
            each.kill()


class Cluster:
    """Three masters."""

    def __init__(self, directory: Path) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.nodes = [started(directory / f"node{number}", *options) for number in range(3)]
        hosts = [f"127.0.0.1:{each.port}" for each in self.nodes]
        create = ["redis-cli", "--cluster", "create", *hosts, "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True)
        for each in self.nodes:
            wait(lambda each=each: each.client.cluster("INFO")["cluster_state"] == "ok")
        self.url = f"redis+cluster://{','.join(hosts[:2])}"

    def kill(self) -> None:
        for each in self.nodes:
            each.kill()
