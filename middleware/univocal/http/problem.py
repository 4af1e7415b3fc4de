"""The body of a refusal: problem details (RFC 9457), the same from either door, or a page."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

from univocal.http.errors import REASONS, by_rank, status_of
from univocal.http.messages import PHRASES, Fields, prefers_html

_JSON: Final = b"application/problem+json"
_PAGE_END: Final = b"</main>\n</body>"
ALLOWED: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""The methods that are passed on, as the `Allow` of a 405 has them (RFC 9110 §10.2.1)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A complete response to a request that univocal refuses; `fields` may be copied, never changed."""

    status: int
    fields: Fields
    body: bytes

    @property
    def status_line(self) -> bytes:
        """The status code and its phrase."""
        return b"%d %b" % (self.status, PHRASES[self.status].encode("ascii"))

    def identified(self, request_id: bytes) -> Problem:
        """The same response, which tells the name of its request, if that has one.

        In a page of the operator's the name stands in the place of each {request_id}.
        """
        if not request_id:
            return self
        if self.fields[0][1] == _JSON:
            body = b'%b, "request_id": "%b"}\n' % (self.body[:-2], request_id)
        elif (b"content-security-policy", _POLICY) in self.fields:
            body = self.body.replace(
                _PAGE_END, b"<p>Request: <code>%b</code></p>\n%b" % (request_id, _PAGE_END)
            )
        else:
            body = self.body.replace(b"{request_id}", request_id)
        length = b"content-length", b"%d" % len(body)
        return Problem(
            self.status, [length if field[0] == length[0] else field for field in self.fields], body
        )


def problem(
    reasons: Sequence[str], request_fields: Fields | None = None, field: str = "", request_id: bytes = b""
) -> Problem:
    """The response for these reasons, at least one, in any order; raises KeyError for an unknown one.

    With the fields of the request, where they are known, it is HTML for who prefers that (RFC 9110 §12.1).
    `field` is the name of one that the answer tells of, in lower case. `request_id` is the request's name.
    """
    ranked = by_rank(reasons)
    if field:
        answer = _details(REASONS[ranked[0]][0], f"{_said(ranked)} The field is {field}.", ranked)
    elif request_fields is None:
        answer = _problem(ranked)
    else:
        answer = _negotiated(ranked, html=prefers_html(request_fields))
    return answer.identified(request_id)


def fault(request_fields: Fields, request_id: bytes = b"") -> Problem:
    """The response to a request that met a fault of this program."""
    answer = _PAGE_OF_A_FAULT if prefers_html(request_fields) else _varying(FAULT)
    return answer.identified(request_id)


@lru_cache(maxsize=256)
def _problem(reasons: tuple[str, ...]) -> Problem:
    return _details(REASONS[reasons[0]][0], _said(reasons), reasons)


@lru_cache(maxsize=512)
def _negotiated(reasons: tuple[str, ...], *, html: bool) -> Problem:
    if html:
        return page(REASONS[reasons[0]][0], _said(reasons), reasons)
    return _varying(_problem(reasons))


def _said(reasons: Sequence[str]) -> str:
    return ". ".join(REASONS[reason][1] for reason in reasons) + "."


# The texts of both forms are those of two tables, which have nothing in them that JSON or HTML would escape;
# no byte of the client's is among them.


def _details(status: int, detail: str, reasons: Sequence[str]) -> Problem:
    listed = ", ".join(f'"{reason}"' for reason in reasons)
    # RFC 9457 §4.2.1: with "about:blank" the title is the phrase of the status; ours is `reason`.
    body = (
        f'{{"type": "about:blank", "title": "{PHRASES[status]}", "status": {status}, "detail": "{detail}", '
        f'"reason": "{reasons[0]}", "reasons": [{listed}]}}\n'
    )
    return _whole(status, _JSON, body.encode("ascii"))


def _varying(answer: Problem) -> Problem:
    return Problem(answer.status, [*answer.fields, (b"vary", b"Accept")], answer.body)


_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1.25rem}"
    "h1{font-size:1.5rem}"
    "p+p{opacity:.75}"
)
_HASH: Final = codecs.encode(sha256(_STYLE.encode()).digest(), "base64").strip()
_POLICY: Final = (
    b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    % _HASH
)


def page(status: int, detail: str, reasons: Sequence[str] = ()) -> Problem:
    """The page that tells a browser of an error; `detail` is HTML, in ASCII."""
    title, codes = f"{status} {PHRASES[status]}", ", ".join(f"<code>{reason}</code>" for reason in reasons)
    named = f"<p>Reason: {codes}</p>\n" if codes else ""
    body = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<p>{detail}</p>\n{named}</main>\n</body>\n</html>\n"
    )
    answer = _html(status, body.encode("ascii"))
    answer.fields.append((b"content-security-policy", _POLICY))
    return answer


def _html(status: int, body: bytes) -> Problem:
    answer = _varying(_whole(status, b"text/html; charset=utf-8", body))
    answer.fields.append((b"x-content-type-options", b"nosniff"))
    return answer


def _whole(status: int, media_type: bytes, body: bytes) -> Problem:
    fields = [
        (b"content-type", media_type),
        (b"content-length", b"%d" % len(body)),
        # RFC 9110 §15.1 lets a cache keep a 414 for as long as it likes: a refusal is the page of no URL.
        (b"cache-control", b"no-store"),
        *([(b"allow", ALLOWED)] if status == 405 else []),
    ]
    return Problem(status, fields, body)


# For a fault of this program: it is no reason for which a request is refused.
_FAULT: Final = (500, "The request could not be answered.", ("internal-error",))
FAULT: Final = _details(*_FAULT)
_PAGE_OF_A_FAULT: Final = page(*_FAULT)


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
                return _html(status, content)
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
