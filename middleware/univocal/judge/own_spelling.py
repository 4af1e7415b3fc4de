"""Redirects of an origin server to another spelling of the URL that was asked for.

Every spelling has one key. Such a redirect from the cache would lead clients back to itself.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Final
from urllib.parse import unquote_to_bytes

from univocal.http.grammar import split_absolute
from univocal.http.intermediary import request_has_content
from univocal.http.messages import RETRIEVAL, Response, first, values
from univocal.http.tables import remember
from univocal.judge.admission import Admission, joined, refer
from univocal.uri.query import split
from univocal.uri.target import Canonical, origin_target

logger: Final = logging.getLogger("univocal")

OWN_SPELLING: Final = "own-spelling"
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_REPEATED: Final = REDIRECTS - {303}
_SENDABLE: Final = re.compile(rb"/[\x21-\x7E]*")
_MOST: Final = 1024


def named_spelling(admission: Admission, response: Response) -> bytes | None:
    """The target that a redirect to the request's own key names; None of any other answer.

    b"" if it may not be asked for in the client's place: a cookie is set, or more differs than escapes,
    slashes and the case of hexadecimal digits in the path.
    """
    canonical, request = admission.canonical, admission.request
    location = first(response.fields, b"location")
    if canonical is None or location is None or request.method not in RETRIEVAL:
        return None
    if request.verbatim:
        return None  # each spelling has an answer of its own
    named = refer(location, canonical, admission.runtime)
    if named is None or named.key != canonical.key:
        return None
    target = joined(location, canonical)
    absolute = None if target.startswith(b"/") else split_absolute(target)
    if absolute is not None:
        if (absolute.scheme.lower(), absolute.authority.lower()) != (canonical.scheme, canonical.authority):
            return b""
        target = absolute.rest
    path, query = split(target)
    sent, sent_query = split(canonical.target)
    harmless = (
        response.status in _REPEATED
        and not values(response.fields, b"set-cookie")
        and not request_has_content(request.fields)
        and b"#" not in location
        and (path != sent and query == sent_query and _bare(path) == _bare(sent))
        and _SENDABLE.fullmatch(path)
    )
    return target if harmless else b""


def _bare(path: bytes) -> bytes:
    """A path without escapes and slashes."""
    return unquote_to_bytes(path).replace(b"/", b"")


def respelled(admission: Admission, target: bytes) -> Admission:
    """The same request, for which the origin server gets `target`, a spelling of the canonical one."""
    canonical = admission.canonical
    assert canonical is not None
    sent = origin_target(replace(canonical, target=target))
    return replace(admission, canonical=replace(canonical, verbatim=sent))


class OwnSpellings:
    """The keys of which an origin server answers one spelling after the other by a redirect to another.

    A redirect of ours to the canonical URL would lead clients in a circle. A bounded number is remembered.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, bool] = {}
        self._logged: dict[tuple[str, bytes], bool] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def clear(self) -> None:
        """Forget all keys: the origin server may be another."""
        self._keys.clear()
        self._logged.clear()

    def note(self, canonical: Canonical) -> None:
        """Report a redirect that goes on to the client; the log has it once for each route."""
        remember(self._keys, canonical.key, True, _MOST)
        place = canonical.site.name, canonical.route.prefix
        if place not in self._logged:
            remember(self._logged, place, True, _MOST)
            logger.warning(
                "the origin server of %s%s redirects from one spelling of a path to another, and from that "
                'one again, so clients may go in circles: set forward = "received" there',
                *(canonical.site.name, canonical.route.prefix.decode("latin-1")),
            )
