"""URLs in an origin server's response, as its clients are to read them (RFC 9110 §7.6, §10.2.2). Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from univocal.http.grammar import without_port
from univocal.http.messages import Fields

# A scheme, an authority, a path, and what follows it (RFC 3986, appendix B).
_REFERENCE: Final = re.compile(rb"(?s)(?:([Hh][Tt][Tt][Pp][Ss]?):)?(?://([^/?#\\]*))?([^?#]*)(.*)")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:")
_REFRESH: Final = re.compile(rb"(?si)(.*?[;,]\s*url\s*=\s*[\"']?)(.*)")
_COOKIE: Final = re.compile(rb"(?i)(;[ \t]*(path|domain)[ \t]*=[ \t]*)([^;]*)")
_DEFAULT: Final = {b"http": b":80", b"https": b":443"}
_REFERENCES: Final = frozenset((b"location", b"content-location"))


class ReferenceMap:
    """Maps the origin server's own hosts and path to the scheme, the host and the path of its clients.

    The origin server has the path `before` + PATH + `after` where clients ask for `prefix` + PATH. A URL of
    another host or beyond that path stays as it is. `maps_references` is about Location, Content-Location
    and Refresh, `maps_cookies` about Path and Domain of Set-Cookie. `names` are the fields concerned.
    """

    def __init__(
        self,
        scheme: bytes,
        authority: bytes,
        prefix: bytes = b"/",
        before: bytes = b"/",
        after: bytes = b"",
        maps_references: bool = True,
        maps_cookies: bool = False,
    ) -> None:
        self.scheme = scheme
        self.authority = authority
        self.prefix = prefix
        self.before = before
        self.after = after
        self.maps_cookies = maps_cookies
        self.names: frozenset[bytes] = _NAMES[maps_references, maps_cookies]

    def mapped(self, fields: Fields, hosts: Collection[bytes], scheme: bytes, root: bytes = b"") -> Fields:
        """The `fields` for clients.

        `hosts` are the origin server's own authorities, `scheme` is that of its URL, and `root` the path in
        it, which stands before every target.
        """
        names = self.names
        return [
            (name, self._value(name, value, hosts, scheme, root)) if name in names else (name, value)
            for name, value in fields
        ]

    def _value(
        self, name: bytes, value: bytes, hosts: Collection[bytes], scheme: bytes, root: bytes
    ) -> bytes:
        if name in _REFERENCES:
            return self._reference(value, hosts, scheme, root)
        if name == b"refresh":
            told = _REFRESH.fullmatch(value)
            return value if told is None else told[1] + self._reference(told[2], hosts, scheme, root)

        def attribute(match: re.Match[bytes]) -> bytes:
            text = match[3].strip(b" \t")
            if match[2].lower() == b"path":
                return match[1] + (self._path(text, root, whole=False) or text)
            own = {without_port(host) for host in hosts}
            client = without_port(self.authority)
            return match[1] + (client if text.lower().lstrip(b".") in own else text)

        return _COOKIE.sub(attribute, value)

    def _reference(self, text: bytes, hosts: Collection[bytes], scheme: bytes, root: bytes) -> bytes:
        parts = _REFERENCE.fullmatch(text)
        if parts is None or (parts[1] is None and _SCHEME.match(text)):
            return text
        named, authority, path, rest = parts[1], parts[2], parts[3], parts[4]
        if authority is None:
            if named is not None or not path.startswith(b"/"):
                return text  # relative to a path that clients know by its own name
            mapped = self._path(path, root)
            if mapped is None:
                return text
            # A path without its prefix may look like a host to clients: "//x", and "/\\x" in browsers.
            names_host = mapped != path and mapped[1:2] in (b"/", b"\\")
            client = b"%b://%b" % (self.scheme, self.authority) if names_host else b""
            return client + mapped + rest
        said = scheme if named is None else named.lower()
        host = authority.lower().removesuffix(_DEFAULT[said])
        mapped = self._path(path or b"/", root)
        if mapped is None:
            return text
        if host == self.authority:  # a redirect to another scheme is none to the origin server's own
            return text[: parts.start(3)] + mapped + rest if path else text
        if host not in hosts or said not in (scheme, self.scheme):
            return text
        before = b"" if named is None else self.scheme + b":"
        return before + b"//" + self.authority + mapped + rest

    def _path(self, path: bytes, root: bytes, *, whole: bool = True) -> bytes | None:
        """The path by which clients know `path`; None if they know none.

        Unless it is `whole`, as the Path of a cookie is not, it may lack the slash at its end.
        """
        before, client = (root + self.before).rstrip(b"/"), self.prefix.rstrip(b"/")
        if client.startswith(before + b"/") and (path + b"/").startswith(client + b"/"):
            return path  # an application that knows of its prefix
        inner = path.removesuffix(self.after) if self.after else path
        if self.after and inner == path:
            return None
        if inner.startswith(before + b"/"):
            return client + inner[len(before) :]
        short = inner == before and not (whole and (root + self.before).endswith(b"/"))
        return client or b"/" if short else None


_NAMES: Final = {
    (True, True): frozenset((b"location", b"content-location", b"refresh", b"set-cookie")),
    (True, False): frozenset((b"location", b"content-location", b"refresh")),
    (False, True): frozenset((b"set-cookie",)),
    (False, False): frozenset[bytes](),
}
MAPPED: Final = _NAMES[True, True]
"""The names of the fields that a map may concern."""
