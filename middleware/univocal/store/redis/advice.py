"""A server's INFO: it shows another kind of server than the URL means, and settings that will hurt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from univocal.store.redis.url import RedisAddress


def misled(info: bytes, address: RedisAddress) -> str:
    """The objection to a server of another kind than the address names, with the URL to use; or empty."""
    mode, role = _field(info, b"redis_mode"), _field(info, b"role")
    host = ",".join(f"{name}:{port}" for name, port in address.hosts)
    if mode == b"sentinel":
        return f"this is a Sentinel, not a Redis: its URL is redis+sentinel://{host}/NAME"
    if mode == b"cluster" and address.kind != "cluster":
        return f"this Redis is a node of a cluster: its URL is redis+cluster://{host}"
    if mode == b"standalone" and address.kind == "cluster":
        return f"this Redis is no node of a cluster: its URL is redis://{address.hosts[0][0]}:{address.hosts[0][1]}"
    if role == b"slave" and not address.kind:
        primary = (_field(info, b"master_host") + b":" + _field(info, b"master_port")).decode(
            "ascii", "replace"
        )
        return f"this Redis is a replica, which takes no writes: the URL of its primary is redis://{primary}"
    return ""


def advice(info: bytes) -> Iterator[str]:
    """A line for each setting of the server that will hurt."""
    if _field(info, b"maxmemory") == b"0":
        yield "Redis has no maxmemory: responses that nobody asks for any longer may fill this machine"
    elif _field(info, b"maxmemory_policy") == b"noeviction":
        yield "Redis evicts nothing (maxmemory-policy noeviction): once it is full, it stores nothing more"


def _field(info: bytes, name: bytes) -> bytes:
    found = re.search(rb"^%b:(.*?)\r?$" % name, info, re.MULTILINE)
    return found[1] if found is not None else b""
