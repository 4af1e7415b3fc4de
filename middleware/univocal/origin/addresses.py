"""The addresses of an origin server: those of its name, or the path of a Unix socket."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["UNIX_SOCKET", "unix_socket"]

UNIX_SOCKET: Final = "unix:///PATH of a socket, of at most 107 octets, with nothing behind it"

# The path is taken letter by letter: it is a file's name, not a URL's path, and nothing of it is decoded.
_SOCKET: Final = re.compile(r"unix://(/[^?#\x00-\x20\x7F]*[^/?#\x00-\x20\x7F])")
_LONGEST: Final = 107  # octets that a socket's address has room for (unix(7))


def unix_socket(url: str) -> str | None:
    """The path of the socket that `url` names; None for any other text.

    nginx writes a path for requests behind a colon: that is none here, and is refused.
    """
    match = _SOCKET.fullmatch(url)
    if match is None or len(match[1].encode()) > _LONGEST or ":/" in match[1]:
        return None
    return match[1]
