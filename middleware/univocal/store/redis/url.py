"""The address of a Redis or Valkey: the URLs that are allowed, and how they are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

__all__ = ["check", "masked"]

_FORM: Final = "the URL of a Redis or Valkey: redis://HOST:PORT/DB, rediss://…, unix:///PATH"
_OCTETS: Final = re.compile(r"[!-~]*")
_OPTIONS: Final = {"db", "username", "password"}
_TLS_FILES: Final = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_TLS_OPTIONS: Final = {*_TLS_FILES, "ssl_ca_path", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"}
_VALUES: Final = {
    "db": re.compile(r"[0-9]{1,6}"),
    "ssl_cert_reqs": re.compile(r"none|optional|required"),
    "ssl_check_hostname": re.compile(r"true|false", re.IGNORECASE),
}
_PASSWORD: Final = re.compile(r"([?&](?:ssl_)?password=)[^&]*")
_USER: Final = re.compile(r"\A([A-Za-z0-9+.-]*:/*)?.*@", re.DOTALL)


def masked(url: str) -> str:
    """A URL without the user and the password that may be in it, however badly it is written."""
    return _USER.sub(r"\1***@", _PASSWORD.sub(r"\1***", url))


def check(url: str) -> None:
    """Raise ValueError, with the URLs that are allowed, for one that leads to no Redis."""
    wrong = _wrong(url)
    if wrong:
        raise ValueError(f"{_FORM} ({wrong})")


def _wrong(url: str) -> str:
    """The fault of a URL; empty if there is none."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in {"redis", "rediss", "unix"} or not _OCTETS.fullmatch(url):
        return "in printable ASCII, the scheme in lower case"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "#" in rest or "@" in rest[len(authority) :]:
        return "in a user or a password '/', '?', '#' and '@' are written as %2F, %3F, %23 and %40"
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return "its port is a number from 1 to 65535"
    if scheme == "unix":
        if parts.hostname or len(parts.path) < 2:
            return "unix:// and the path of a socket from the root"
    elif not parts.hostname or port == 0:
        return "one host, and a port from 1 to 65535 if any"
    elif not re.fullmatch(r"(?:/[0-9]{0,6})?", parts.path):
        return "its database is a number"
    return _wrong_option(scheme, parts.query)


def _wrong_option(scheme: str, query: str) -> str:
    options = parse_qsl(query, keep_blank_values=True)
    allowed = _OPTIONS | (_TLS_OPTIONS if scheme == "rediss" else set())
    names = [name for name, _ in options]
    if not allowed.issuperset(names) or len(set(names)) < len(names):
        return f"the options {', '.join(sorted(allowed))}, each once"
    for name, value in options:
        if name in _VALUES and not _VALUES[name].fullmatch(value):
            return f"{name} is {_VALUES[name].pattern}"
        if name in _TLS_FILES and not Path(value).is_file():
            return f"{name} is a file that exists"
        if name == "ssl_ca_path" and not Path(value).is_dir():
            return "ssl_ca_path is a directory that exists"
    return ""
