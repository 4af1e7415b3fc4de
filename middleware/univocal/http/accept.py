"""A client's preference among media types: Accept (RFC 9110 §12.5.1)."""

from __future__ import annotations

import re
from typing import Final

from univocal.http.fields import combined, members
from univocal.http.grammar import TOKEN
from univocal.http.messages import Fields

# Bytes of an Accept; a longer one says nothing.
LONGEST: Final = 4096

_RANGE: Final = re.compile(rb"(" + TOKEN + rb")/(" + TOKEN + rb")(?:[ \t]*;(.*))?", re.DOTALL)
_WEIGHT: Final = re.compile(rb"[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.IGNORECASE)


def prefers_html(fields: Fields) -> bool:
    """Tell whether a client likes text/html better than problem details, as browsers do.

    One that takes anything, or says nothing, is a program.
    """
    accept = combined(fields, b"accept") or b""
    if len(accept) > LONGEST or b"text/" not in accept.lower():
        return False
    return quality(accept, b"text/html") > quality(accept, b"application/problem+json")


def quality(accept: bytes, media_type: bytes) -> float:
    """The weight of a media type, from 0 to 1: that of the most specific range which it is in."""
    kind = media_type.partition(b"/")[0]
    ranges = {media_type: 2, kind + b"/*": 1, b"*/*": 0}
    best = (-1, 0.0)
    for member in members(accept):
        read = _RANGE.fullmatch(member)
        if read is None or (rank := ranges.get(b"%b/%b" % (read[1].lower(), read[2].lower()))) is None:
            continue
        # With any other parameter than its weight it is a range of other types.
        weight = _WEIGHT.fullmatch(read[3] or b"q=1")
        if weight is not None:
            best = max(best, (rank, float(weight[1])))
    return best[1]
