"""The cookie that keeps a client at one of several origin servers (session affinity).

It is between the client and univocal: it is taken from requests before anything is decided, and given to
responses after all of that. So it is in no cache key, in no stored response, and no origin server sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from univocal.http.messages import Field, Fields, values

COOKIE: Final = b"univocal-origin"  # all cookies whose names begin so are ours

_TAG: Final = re.compile(rb"[0-9a-f]{4}")


def affinity_name(path: bytes) -> bytes:
    """The name of the cookie for the origin servers of a route's `path`; b"" is that of a whole site.

    Each has its own: a client may have another origin server there.
    """
    return b"%b-%b" % (COOKIE, blake2b(path, digest_size=4).hexdigest().encode()) if path else COOKIE


def take_affinity(fields: Fields, name: bytes) -> tuple[Fields, bytes]:
    """The fields of a request without our cookies, and the value of that called `name`; b"" if it is none."""
    if not any(field == b"cookie" and COOKIE in value for field, value in fields):
        return fields, b""
    kept, tag = list[Field](), b""
    for field, value in fields:
        if field != b"cookie" or COOKIE not in value:
            kept.append((field, value))
            continue
        others = list[bytes]()
        for pair in value.split(b";"):
            cookie, _, given = pair.strip(b" \t").partition(b"=")
            if not cookie.startswith(COOKIE):
                others.append(pair)
            elif cookie == name and _TAG.fullmatch(given):
                tag = given
        if others:
            kept.append((field, b";".join(others).strip(b" \t")))
    return kept, tag


def affinity_cookie(name: bytes, tag: bytes, *, is_secure: bool) -> Field:
    """The field of a response that keeps its client at the origin server with this tag (RFC 6265 §4.1)."""
    secure = b"; Secure" if is_secure else b""
    return b"set-cookie", b"%b=%b; Path=/; HttpOnly; SameSite=Lax%b" % (name, tag, secure)


def sets_cookie(fields: Iterable[Field], name: bytes) -> bool:
    """Tell whether a response sets a cookie of this name."""
    return any(line.partition(b"=")[0].strip(b" \t") == name for line in values(fields, b"set-cookie"))
