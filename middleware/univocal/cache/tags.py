"""Names by which responses are purged together: Surrogate-Key, xkey, Cache-Tag, Cache-Groups (RFC 9875)."""

from __future__ import annotations

from typing import Final

import http_sf

from univocal.http.fields import combined
from univocal.http.messages import Fields

# The fields of a response that name it for purges: of Fastly, Varnish, Cloudflare, FOSHttpCache, Magento,
# API Platform and Drupal.
_LISTS: Final = frozenset(
    b"cache-tag cache-tags purge-cache-tags surrogate-key x-cache-tags x-magento-tags xkey".split()
)
TAGGING: Final = _LISTS | {b"cache-groups"}

# A response with more tags than this is not stored: leaving some out would let it outlive its purge.
MAX_TAGS: Final = 1_024
# Bytes of a field of groups that is read (§2 asks for 32 groups of 32 characters).
_LONGEST: Final = 4096


def tags(fields: Fields) -> frozenset[bytes]:
    """The names a response can be purged by: of Surrogate-Key, xkey, Cache-Tag and Cache-Groups (§2)."""
    names = set[bytes]()
    for name, value in fields:
        if name in _LISTS:  # every system's own clients and documents mix commas and blanks
            names.update(value.replace(b",", b" ").split())
    return frozenset(names | groups(fields, b"cache-groups"))


def excessive(fields: Fields, names: frozenset[bytes]) -> bool:
    """A response has more tags than are kept, or more groups than are read."""
    return len(names) > MAX_TAGS or _are_too_long(combined(fields, b"cache-groups"))


def _are_too_long(groups: bytes | None) -> bool:
    return groups is not None and len(groups) > _LONGEST


def groups(fields: Fields, name: bytes) -> frozenset[bytes]:
    """The members of a List of Strings (RFC 9875 §2, §3); none if it is malformed or too long to be read."""
    value = combined(fields, name)
    if value is None or _are_too_long(value):
        return frozenset()
    try:
        parsed = http_sf.parse(value, tltype="list")
    except (http_sf.StructuredFieldError, ValueError):
        return frozenset()
    items = parsed if isinstance(parsed, list) else []
    return frozenset(item[0].encode() for item in items if isinstance(item, tuple) and type(item[0]) is str)
