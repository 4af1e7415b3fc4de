"""Tags from paths: what a stored response can be purged by, besides its own URL."""

from __future__ import annotations

import re
from functools import lru_cache

from univocal.uri.pipeline import split
from univocal.uri.profile import Profile

__all__ = ["path_tags"]


def path_tags(target: bytes, profile: Profile) -> frozenset[bytes]:
    """The tags that the profile derives from the path of a canonical `target`."""
    if not profile.tags:
        return frozenset()
    path, _ = split(target)
    found = ((pattern.search(path), tag) for pattern, tag in _compiled(profile))
    return frozenset(match.expand(tag) for match, tag in found if match)


@lru_cache(maxsize=1024)
def _compiled(profile: Profile) -> list[tuple[re.Pattern[bytes], bytes]]:
    return [(re.compile(pattern), tag) for pattern, tag in profile.tags]
