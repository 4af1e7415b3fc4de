"""The address of a Redis or Valkey: the URLs that are allowed, and how they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

_FORM: Final = (
    "the URL of a directory, file:///PATH, or of a Redis or Valkey: redis://HOST:PORT/DB, "
    "redis+sentinel://HOST:PORT,HOST:PORT/NAME, "
    "redis+cluster://HOST:PORT,HOST:PORT, with TLS rediss://… and so on, unix:///PATH"
)
_SCHEMES: Final = {
    "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix",
}  # fmt: skip
_OCTETS: Final = re.compile(r"[!-~]*")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,@]+)(?::([0-9]{1,5}))?")
_OPTIONS: Final = {"db", "username", "password"}
_SENTINEL_OPTIONS: Final = {"sentinel_username", "sentinel_password"}
_TLS_FILES: Final = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_TLS_OPTIONS: Final = {*_TLS_FILES, "ssl_ca_path", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"}
_VALUES: Final = {
    "db": re.compile(r"[0-9]{1,6}"),
    "ssl_cert_reqs": re.compile(r"none|optional|required"),
    "ssl_check_hostname": re.compile(r"true|false", re.IGNORECASE),
}
_PATHS: Final = {
    "": (re.compile(r"(?:/[0-9]{0,6})?"), "its database is a number"),
    "sentinel": (
        re.compile(r"/[A-Za-z0-9._-]+"),
        "its path is the name under which Sentinels know the primary",
    ),
    "cluster": (re.compile(r"/?"), "a cluster has no other database than 0, so it has no path"),
}
_PASSWORD: Final = re.compile(r"([?&](?:ssl_|sentinel_)?password=)[^&]*")
_USER: Final = re.compile(r"\A([A-Za-z0-9+.-]*:/*)?.*@", re.DOTALL)
_PORTS: Final = {"": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address that a URL is: one server, a primary by its Sentinels, a cluster by some nodes."""

    kind: str  # "", "sentinel" or "cluster"
    hosts: tuple[tuple[str, int], ...]  # empty for a socket
    path: str = ""  # of a socket
    primary: str = ""  # the name that Sentinels know it by
    tls: bool = False
    login: dict[str, Any] = field(default_factory=dict)  # for redis-py: db, username, password
    sentinel_login: dict[str, str] = field(default_factory=dict)
    tls_options: dict[str, Any] = field(default_factory=dict)


def masked(url: str) -> str:
    """A URL without the user and the password that may be in it, however badly it is written."""
    return _USER.sub(r"\1***@", _PASSWORD.sub(r"\1***", url))


def check(url: str) -> None:
    """Raise ValueError, with the URLs that are allowed, for one that leads to no Redis."""
    wrong = _wrong(url)
    if wrong:
        raise ValueError(f"{_FORM} ({wrong})")


def read(url: str) -> RedisAddress:
    """The address that a URL is. Raises ValueError, with the URLs that are allowed."""
    check(url)
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    login: dict[str, Any] = {"username": unquote(name), "password": unquote(password)}
    login |= {option: options[option] for option in ("username", "password") if option in options}
    login = {option: value for option, value in login.items() if value}
    if kind != "cluster":
        number = parts.path[1:] if not kind and scheme != "unix" else ""
        login["db"] = int(options.get("db") or number or 0)
    tls_options: dict[str, Any] = {
        option: value for option, value in options.items() if option in _TLS_OPTIONS
    }
    if "ssl_check_hostname" in tls_options:
        tls_options["ssl_check_hostname"] = tls_options["ssl_check_hostname"].lower() == "true"
    return RedisAddress(
        kind,
        () if scheme == "unix" else tuple(_host(each, _PORTS[kind]) for each in hosts.split(",")),
        path=unquote(parts.path) if scheme == "unix" else "",
        primary=parts.path[1:] if kind == "sentinel" else "",
        tls=scheme == "rediss",
        login=login,
        sentinel_login={
            option.removeprefix("sentinel_"): value
            for option, value in options.items()
            if option in _SENTINEL_OPTIONS
        },
        tls_options=tls_options,
    )


def _host(text: str, otherwise: int) -> tuple[str, int]:
    """The host and the port. Raises ValueError."""
    host = _HOST.fullmatch(text)
    port = int(host[2] or otherwise) if host is not None else 0
    if host is None or not 1 <= port <= 65_535:
        raise ValueError(text)
    return unquote(host[1].strip("[]")), port


def _wrong(url: str) -> str:
    """The fault of a URL; empty if there is none."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES or not _OCTETS.fullmatch(url):
        return "in printable ASCII, the scheme in lower case"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "#" in rest or "@" in rest[len(authority) :]:
        return "in a user or a password '/', '?', '#' and '@' are written as %2F, %3F, %23 and %40"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "one host, and a port from 1 to 65535 if any"
    hosts = authority.rpartition("@")[2]
    if scheme == "unix":
        if hosts or len(parts.path) < 2:
            return "unix:// and the path of a socket from the root"
        return _wrong_option(scheme, parts.query)
    kind = scheme.partition("+")[2]
    listed = hosts.split(",")
    try:
        for each in listed:
            _host(each, _PORTS[kind])
    except ValueError:
        return f"{'each' if kind else 'one'} host, and if any, its port is a number from 1 to 65535"
    if len(listed) > 1 and not kind:
        return "one host, and a port from 1 to 65535 if any"
    form, wrong = _PATHS[kind]
    return wrong if not form.fullmatch(parts.path) else _wrong_option(scheme, parts.query)


def _wrong_option(scheme: str, query: str) -> str:
    options = parse_qsl(query, keep_blank_values=True)
    name, _, kind = scheme.partition("+")
    allowed = _OPTIONS | (_TLS_OPTIONS if name == "rediss" else set())
    allowed |= _SENTINEL_OPTIONS if kind == "sentinel" else set()
    allowed -= {"db"} if kind == "cluster" else set()
    names = [option for option, _ in options]
    if not allowed.issuperset(names) or len(set(names)) < len(names):
        return f"the options {', '.join(sorted(allowed))}, each once"
    for option, value in options:
        if option in _VALUES and not _VALUES[option].fullmatch(value):
            return f"{option} is {_VALUES[option].pattern}"
        if option in _TLS_FILES and not Path(value).is_file():
            return f"{option} is a file that exists"
        if option == "ssl_ca_path" and not Path(value).is_dir():
            return "ssl_ca_path is a directory that exists"
    return ""


def misled(info: bytes, address: RedisAddress) -> str:
    """The objection to a server of another kind than the address names, with the URL to use; or empty."""
    mode, role = _info_field(info, b"redis_mode"), _info_field(info, b"role")
    host = ",".join(f"{name}:{port}" for name, port in address.hosts)
    if mode == b"sentinel":
        return f"this is a Sentinel, not a Redis: its URL is redis+sentinel://{host}/NAME"
    if mode == b"cluster" and address.kind != "cluster":
        return f"this Redis is a node of a cluster: its URL is redis+cluster://{host}"
    if mode == b"standalone" and address.kind == "cluster":
        return f"this Redis is no node of a cluster: its URL is redis://{address.hosts[0][0]}:{address.hosts[0][1]}"
    if role == b"slave" and not address.kind:
        primary = (_info_field(info, b"master_host") + b":" + _info_field(info, b"master_port")).decode(
            "ascii", "replace"
        )
        return f"this Redis is a replica, which takes no writes: the URL of its primary is redis://{primary}"
    return ""


def advice(info: bytes) -> Iterator[str]:
    """A line for each setting of the server that will hurt."""
    if _info_field(info, b"maxmemory") == b"0":
        yield "Redis has no maxmemory: responses that nobody asks for any longer may fill this machine"
    elif _info_field(info, b"maxmemory_policy") == b"noeviction":
        yield "Redis evicts nothing (maxmemory-policy noeviction): once it is full, it stores nothing more"


def _info_field(info: bytes, name: bytes) -> bytes:
    found = re.search(rb"^%b:(.*?)\r?$" % name, info, re.MULTILINE)
    return found[1] if found is not None else b""
