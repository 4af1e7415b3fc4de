"""A request's head has faults that are found before anybody asks for its meaning (RFC 9112 §3, §6). Pure.

A parser has taken the head apart already; these are the rules that parsers leave to their users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from univocal.http.errors import by_rank
from univocal.http.grammar import DEFAULT_PORTS, parse_authority, split_absolute
from univocal.http.messages import Fields, content_length_value, values

# The fields that `faults` reads, so that a server can set them aside while they arrive.
WATCHED: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))


@dataclass(frozen=True, slots=True)
class SplitTarget:
    """A request target's parts; `authority` is None but in the absolute-form, `path` never empty."""

    authority: bytes | None
    path: bytes
    query: bytes


def split_target(target: bytes) -> SplitTarget:
    """The parts of an origin-form, absolute-form or asterisk-form without its fragment (RFC 9112 §3.2)."""
    rest, authority = target.partition(b"#")[0], None
    absolute = split_absolute(rest)
    if absolute is not None and absolute.scheme.lower() in DEFAULT_PORTS:
        authority, rest = absolute.authority, absolute.rest
    path, _, query = rest.partition(b"?")
    return SplitTarget(authority, path or b"/", query)


def is_authority(value: bytes) -> bool:
    """`value` is a host with or without a port, as `Host` and the absolute-form have it."""
    return len(value) <= 300 and _is_authority(value)


@lru_cache(maxsize=1024)
def _is_authority(value: bytes) -> bool:
    return parse_authority(value) is not None


def faults(method: bytes, target: bytes, version: str, fields: Fields) -> tuple[str, ...]:
    """The reasons to refuse a head at once, by rank; `fields` need hold no more than the `WATCHED` ones."""
    if version == "1.1" and target[:1] == b"/" and method != b"CONNECT" and _are_plain(fields):
        return ()
    reasons = []
    if is_ambiguous(fields, version):
        reasons.append("bad-framing")
    hosts = values(fields, b"host")
    authority = split_target(target).authority
    # RFC 9112 §3.2: one Host; a request of HTTP/1.0 may go without.
    named = hosts if authority is None else [*hosts, authority.rpartition(b"@")[2]]
    if len(hosts) > 1 or (not hosts and version == "1.1") or not all(map(is_authority, named)):
        reasons.append("bad-host")
    if fault := _target_fault(method, target, authority):
        reasons.append(fault)
    return by_rank(reasons)


def _are_plain(fields: Fields) -> bool:
    """Nearly all heads have one Host, a length that is a number at most, and no field twice."""
    if len(fields) == 1:
        return fields[0][0] == b"host" and is_authority(fields[0][1])
    named = dict(fields)
    if len(named) != len(fields) or b"transfer-encoding" in named:
        return False
    length = content_length_value(named.get(b"content-length", b"0"))
    return length is not None and is_authority(named.get(b"host", b""))


def is_ambiguous(fields: Fields, version: str = "1.1") -> bool:
    """Another recipient may see the message's end elsewhere (RFC 9112 §6.3, §11.2)."""
    if version not in {"1.1", "1.0"}:
        return True
    codings = values(fields, b"transfer-encoding")
    lengths = values(fields, b"content-length")
    if not codings:
        return len(lengths) > 1 or None in map(content_length_value, lengths)
    # §6.1: neither in HTTP/1.0 nor beside a length; and chunked is the only coding that is understood here.
    return (
        version == "1.0"
        or bool(lengths)
        or len(codings) > 1
        or codings[0].strip(b" \t").lower() != b"chunked"
    )


def _target_fault(method: bytes, target: bytes, authority: bytes | None) -> str:
    """The fault of the target's form for this method, or "" (RFC 9112 §3.2); no authority-form is taken."""
    if method == b"CONNECT" or (target == b"*" and method != b"OPTIONS"):
        return "bad-target"
    if authority is not None:
        return "bad-target" if b"@" in authority else ""
    if target[:1] == b"/" or target == b"*":
        return ""
    return "bad-target" if b"://" in target else "no-leading-slash"


def field_octets(fields: Fields) -> int:
    """The bytes that these field lines took, without optional whitespace."""
    return sum(len(name) + len(value) + 4 for name, value in fields)
