"""Pages of the operator's own in place of problem details, for clients that like HTML better. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from univocal.http.errors import REASONS, by_rank, status_of
from univocal.http.problem import ALLOWED, Problem

PAGE_NAME: Final = re.compile(r"([45](?:[0-9]{2}|xx))(?:-([a-z0-9-]+))?\.html")
"""The name of a page's file: its status or class of statuses, and perhaps the reason."""


class ErrorPages:
    """Pages by their file names: `400-encoded-slash.html` goes before `400.html`, before `4xx.html`."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files: Final = dict(files)

    def page(self, reasons: Sequence[str]) -> Problem | None:
        """The page for these reasons, with the problem's status; None if there is none."""
        reason = by_rank(reasons)[0]
        status = status_of(reason)
        for name in (f"{status}-{reason}.html", f"{status}.html", f"{status // 100}xx.html"):
            content = self.files.get(name)
            if content is not None:
                return _whole(status, content)
        return None


def page_fault(name: str) -> str:
    """The names allowed in the place of this one of a page's file; "" if it may be."""
    match = PAGE_NAME.fullmatch(name)
    if match is None:
        return "a name such as 502.html, 5xx.html or 400-encoded-slash.html"
    if match[2] is None:
        return ""
    known = sorted(reason for reason in REASONS if str(status_of(reason)) == match[1])
    allowed = ", ".join(f"{match[1]}-{reason}.html" for reason in known)
    return "" if match[2] in known else allowed or "a page of a status with reasons"


def _whole(status: int, content: bytes) -> Problem:
    fields = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
        (b"vary", b"Accept"),
        (b"x-content-type-options", b"nosniff"),
        *([(b"allow", ALLOWED)] if status == 405 else []),
    ]
    return Problem(status, fields, content)
