"""The URLs by which origin servers are named: http, https, or unix and the path of a socket."""

from __future__ import annotations

import contextlib
import re
from typing import Final, NamedTuple

from univocal.origin.client_library import httpx

__all__ = ["ORIGIN_URLS", "OriginUrl", "origin_url", "unix_socket"]

ORIGIN_URLS: Final = (
    'an http or https URL without user, query and fragment, such as "http://127.0.0.1:9000"; '
    "or unix:///PATH of a socket, of at most 107 octets, with nothing behind it"
)

# Scheme, authority and path; nothing that a request line could not hold (RFC 9112 §3).
_URL: Final = re.compile(r"(https?://[^/?#@\s]+)((?:/[^?#\x00-\x20\x7F-\U0010FFFF]*)?)")

# The path is taken letter by letter: it is a file's name, not a URL's path, and nothing of it is decoded.
_SOCKET: Final = re.compile(r"unix://(/[^?#\x00-\x20\x7F]*[^/?#\x00-\x20\x7F])")
_LONGEST: Final = 107  # bytes that a socket's address has room for (unix(7))


class OriginUrl(NamedTuple):
    """The parts of an origin server's URL; before the path of a socket stands http://localhost."""

    root: httpx.URL  # scheme and authority
    path: str  # as it was written; it stands before every target
    socket: str  # the path of a socket, "" for none


def origin_url(url: str) -> OriginUrl:
    """The parts of a URL that can be an origin server's. Raises ValueError, which says what is allowed."""
    socket = unix_socket(url)
    written = _URL.fullmatch(url if socket is None else "http://localhost")
    with contextlib.suppress(httpx.InvalidURL, UnicodeError):  # no address, or no A-label
        root = httpx.URL(f"{written[1]}/" if written is not None else "")
        port = 80 if root.port is None else root.port
        if written is not None and root.host and 0 < port < 65536:
            return OriginUrl(root, written[2], socket or "")
    raise ValueError(ORIGIN_URLS)


def unix_socket(url: str) -> str | None:
    """The path of the socket that `url` names; None for any other text.

    nginx writes a path for requests behind a colon: that is none here, and is refused.
    """
    match = _SOCKET.fullmatch(url)
    if match is None or len(match[1].encode()) > _LONGEST or ":/" in match[1]:
        return None
    return match[1]
