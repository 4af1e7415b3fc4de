"""The fields by which the clients of other caches name what to purge: each system has its own."""

from __future__ import annotations

import re
from typing import Final

from univocal.http.messages import Fields, values

# Lists of tags, with commas or blanks between them: Varnish's xkey module, Fastly, Cloudflare, API Platform,
# FOSHttpCache, Drupal.
_TAGS: Final = (
    b"xkey-purge", b"xkey-softpurge", b"xkey", b"surrogate-key", b"cache-tag", b"cache-tags", b"x-cache-tags",
    b"purge-cache-tags",
)  # fmt: skip
# Patterns for a list of tags: of Magento and API Platform; with BAN, of FOSHttpCache and Drupal.
_PATTERNS: Final = (b"x-magento-tags-pattern", b"apiplatform-ban-regex")
_BANS: Final = (b"x-cache-tags", b"cache-tags", b"purge-cache-tags")
# FOSHttpCache's patterns with BAN, for URLs, hosts and media types.
_URL, _HOST, _TYPE = b"x-url", b"x-host", b"x-content-type"
_CLEAR: Final = b"clear-cache"
SOFT_FIELDS: Final = (b"soft-purge", b"fastly-soft-purge")
_SPOKEN: Final = frozenset((*_TAGS, *_PATTERNS, *SOFT_FIELDS, _CLEAR, b"x-purge-method"))

# Words in the names of fields that purge, and of fields that have a secret.
_WORDS: Final = frozenset(
    b"ban bans invalidate invalidation invalidations key keys magento match pool purge purges purger "
    b"surrogate tag tags xkey ykey".split()
)
_SECRETS: Final = frozenset(b"auth authorization password secret signature token".split())
_ORDINARY: Final = frozenset((b"if-match", b"if-none-match", b"surrogate-capability", b"sec-websocket-key"))
_ONLY_NAMES: Final = frozenset((b"x-location-id", b"x-group-id", b"x-reg-url", b"x-ban-url"))

_ANY: Final = frozenset((b"", b".*", b"^.*", b".*$", b"^.*$"))
# The ends of a member in a pattern: "(^|,)", "($|\\,)".
_ENDS: Final = re.compile(rb"\((?:\?:)?(?:\^|\$|\\?,| |\\s|\|)*[\^$](?:\^|\$|\\?,| |\\s|\|)*\)")
_PIECE: Final = re.compile(
    rb"\\(?P<escaped>[^0-9A-Za-z])|(?P<between>\((?:\?:)?|[)|,\s^$])|(?P<plain>[^\\*+?{}\[\]])"
)


def unknown_field(method: bytes, fields: Fields) -> bytes:
    """The first field that names what to purge in a dialect that is not spoken here, or b""."""
    for name, value in fields:
        if name in {_URL, _HOST, _TYPE}:
            spoken = method == b"BAN" and (name != _TYPE or value in _ANY)
        elif name in _SPOKEN:
            pattern = name in _PATTERNS or (name in _BANS and method == b"BAN")
            spoken = not pattern or value in _ANY or _tags_in_pattern(value) is not None
        else:
            words = set(name.split(b"-"))
            secret = name in _ORDINARY or not _SECRETS.isdisjoint(words)
            spoken = name not in _ONLY_NAMES and (secret or _WORDS.isdisjoint(words))
        if not spoken:
            return name
    return b""


def named_by_tags(method: bytes, fields: Fields) -> list[bytes] | None:
    """The tags that a PURGE or BAN names, [b"*"] for everything; None if it names none in this way."""
    tags = list[bytes]()
    found = method in {b"PURGEKEYS", b"PURGETAGS"}
    for name, value in fields:
        if name == _CLEAR and value.strip().lower() == b"true":
            return [b"*"]
        pattern = name in _PATTERNS or (name in _BANS and method == b"BAN")
        if pattern and value in _ANY:
            return [b"*"]
        if pattern or name in _TAGS:
            found = True
            tags += (_tags_in_pattern(value) or []) if pattern else value.replace(b",", b" ").split()
    return list(dict.fromkeys(tags)) if found else None


def patterns_of_ban(fields: Fields) -> tuple[bytes, bytes] | None:
    """The patterns for hosts and for URLs that FOSHttpCache's X-Host and X-Url mean; None without either."""
    hosts, urls = values(fields, _HOST), values(fields, _URL)
    return (hosts[0] if hosts else b"", urls[0] if urls else b"") if hosts or urls else None


def _tags_in_pattern(value: bytes) -> list[bytes] | None:
    """The tags that a pattern of alternatives spells out; None for any other pattern."""
    return _read(_ENDS.sub(b"|", value)) if len(value) <= 65_536 else None


def _read(pattern: bytes) -> list[bytes] | None:
    pieces, at = list[bytes](), 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            return None
        pieces.append(found["escaped"] or found["plain"] or b" ")
        at = found.end()
    return b"".join(pieces).split() or None
