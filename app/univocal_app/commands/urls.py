"""URLs that a command names, and the requests for them."""

from __future__ import annotations

import re
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final

from univocal.http.grammar import DEFAULT_PORTS, parse_authority
from univocal_app.commands.settings import Texts, argument, option
from univocal_app.observe.explain import Url

VIA: Final = "http://127.0.0.1:8080"
_UNSENDABLE: Final = re.compile(rb"[^!-~]")

Urls = Annotated[Texts, argument("URL", "Any spelling; - reads URLs from standard input.")]
Files = Annotated[Texts, option("FILE", "A file of URLs, one a line. Repeatable.")]
Via = Annotated[
    str | None,
    option("ADDRESS", f"The proxy. Default: the URL's own address if it is a loopback one, else {VIA}."),
]
Rate = Annotated[float, option("N", "Requests a second, at most.", min=0.001)]


def read_urls(named: Texts, files: Texts) -> list[str]:
    """The URLs that a command names, and those in files, one a line; "-" is standard input.

    Blank lines and those with # are skipped. Raises ValueError for a file that cannot be read.
    """
    urls, lines = [url for url in named or [] if url != "-"], list[str]()
    for name in [*(files or []), *(url for url in named or [] if url == "-")]:
        try:
            octets = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            lines += octets.decode("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read URLs from {name!r}: {error}") from None
    return [*urls, *(url for url in map(str.strip, lines) if url and not url.startswith("#"))]


def loopback(text: str) -> str | None:
    """The address that a URL names, if it is one of this machine alone (RFC 6761 §6.3)."""
    url = Url.parse(text)
    parsed = parse_authority(url.authority)
    if parsed is None:
        return None
    host, port = parsed
    name = host.decode("ascii").removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        name = "localhost"  # not every system resolves the names below it
    else:
        try:
            is_loopback = ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return None
        if not is_loopback:
            return None
    return f"{url.scheme.decode()}://{name}:{DEFAULT_PORTS[url.scheme] if port is None else port}"


def request_of(text: str) -> tuple[str, dict[str, str]]:
    """The target of a request for a URL, and its Host field. Raises ValueError for one without a host."""
    url = Url.parse(sendable(text))
    if not url.authority or _UNSENDABLE.search(url.authority):
        raise ValueError(f"{text!r} names no host: write http://HOST/PATH")
    return url.origin_form.decode("ascii"), {"Host": url.authority.decode("ascii")}


def sendable(text: str) -> str:
    """The URL with what no request line can hold percent-encoded, as every client does."""
    url = Url.parse(text)
    target = _UNSENDABLE.sub(lambda octet: b"%%%02X" % octet[0][0], url.target)
    return Url(url.scheme, url.authority, target).absolute.decode("latin-1")
