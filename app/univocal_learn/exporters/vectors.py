"""Test vectors: targets, and what a profile makes of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from univocal.http.grammar import RESERVED
from univocal.uri.profile import Profile
from univocal.uri.target import Rejected, canonical_target


class Vector(NamedTuple):
    """A target, and its canonical form or, where that is None, the reason for which it is refused."""

    target: bytes
    canonical: bytes | None
    reason: str


_TARGETS: Final = (
    *(b"/", b"/a", b"/a/", b"/a/b?c=d", b"/%61%7e", b"/%7E~", b"/a%2fb", b"/a%2Fb", b"/%c3%a9", b"/%C3%A9"),
    *(b"/\xc3\xa9", b"/\xe9", b"/%e9", b"/%C0%AF", b"/%ED%A0%80", b"/%F4%90%80%80", b"/%F0%9F%98%80"),
    *(b"/a b", b"/%20", b"/a%2520", b"/%", b"/%4", b"/%zz", b"/100%", b"/%%41", b'/"<>^`{|}'),
    *(b"/%00", b"/%0a", b"/a\tb", b"/%7f", b"/a\\b", b"/a%5cb", b"/a#b", b"/a#", b"/a%23b", b"/a%3Fb"),
    *(b"//", b"//a", b"/a//b", b"/a///", b"/a/b//", b"/%2F", b"/%2f/a", b"/a/%2F/b"),
    *(b"/.", b"/..", b"/a/.", b"/a/..", b"/a/b/..", b"/a/./b", b"/a/../b", b"/a/../../b", b"/a//../b"),
    *(b"/%2e", b"/%2E%2e/a", b"/a/%2e%2E", b"/a/.%2e/b", b"/...", b"/a/.b", b"/a%2F..%2Fb", b"/..%2fa"),
    *(b"/;", b"/;x", b"/a;x=y/b", b"/a;x;y/b", b"/..;/a", b"/a/..;x/b", b"/.;x", b"/a/;x/b", b"/a;x/..;y/b"),
    *(b"/a%3Bx/b", b"/a%3bx;y", b"/..%3Bx/a", b"/a/;/b"),
    *(b"/a?", b"/?", b"/a?b", b"/a?b=", b"/a?=b", b"/a?b&&c", b"/a?b=c&a=d", b"/a?b+c=d%2Be", b"/a?%61=%62"),
    *(b"/a?b=%2f/?", b"/a?[x]=%5B", b"/a?%zz", b"/a?\xe9", b"/a?b c", b"/a?b#c", b'/a?"', b"/a?a=2&b&a=1"),
    *(b"", b"a", b"?a", b"*", b"%2Fa"),
)


def vectors(profile: Profile) -> tuple[Vector, ...]:
    """The vectors of a profile: the same targets for all, and some that its settings are about."""
    return tuple(_vector(target, profile) for target in dict.fromkeys((*_TARGETS, *_own(profile))))


def _vector(target: bytes, profile: Profile) -> Vector:
    result = canonical_target(target, profile)
    if isinstance(result, Rejected):
        return Vector(target, None, result.reason)
    return Vector(target, result, "")


def _own(profile: Profile) -> Iterator[bytes]:
    for octet in RESERVED:
        yield b"/a%cb" % octet
        yield b"/a%%%02Xb" % octet
        yield b"/?a=%%%02x" % octet
    for name in profile.index_names:
        yield from (b"/" + name, b"/a/" + name + b"?a", name.join((b"/", b"/")))
    for rule in profile.rewrites:
        text = rule.pattern.replace(b"*", b"0123456789abcdef")
        lead = b"" if text.startswith(b"/") else b"/"
        yield from (
            lead + text,
            lead + text + b"x?y=z",
            b"/x" + text,
            b"/x" + text + b"?y=z",
            lead + text * 2,
        )
    if profile.ring.unicode_escapes:
        yield from (
            b"/%u0041",
            b"/%U00e9?a=%u4F60",
            b"/%u004",
            b"/a/%u002e%u002E/b",
            b"/a%u002fb",
            b"/%u005C",
        )
        yield from (b"/%u0000", b"/%25u0041", b"/%%u0041?%%u0041", b"/%uD83D%uDE00")
    query = profile.query
    for name in (*(query.allow or ()), *query.drop, *(name for name, _ in query.defaults)):
        whole = name.replace(b"*", b"x").replace(b"?", b"y")
        yield from (b"/?%b=1" % whole, b"/?a=1&%b&b" % whole, b"/?x%b=1&b=" % whole)
    for name, value in query.defaults:
        yield from (b"/?%b=%b" % (name, value), b"/?%b=%b&%b=%b" % (name, value, name, value))
