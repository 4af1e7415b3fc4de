"""Profiles that are exported, and targets with what univocal makes of them."""

import random
import re
import socket
from pathlib import Path

import pytest

from examples import examples
from support import head_of
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse
from univocal.uri.target import Rejected, canonical_target
from univocal_learn.exporters.writing import Target, exported

BUILT_IN = {name: profile for name, profile in builtin_profiles().items() if name != "iis"}  # has no export
# Every setting that an export can have is in one of these, beside the built-in profiles.
OWN = {
    "shop": """
extends = "mediawiki"
[path]
index_names = ["index.html", "index.php"]
trailing_slash = "add"
[query]
drop = ["utm_*", "fbclid", "a?c"]
defaults = {page = 1, sort = "name"}
drop_empty = true
sort = true
[[rewrite]]
from = "/story_"
to = "/story?id="
""",
    "sessions": """
extends = "servlet"
[path]
trailing_slash = "remove"
parameters = "strip"
parameter_delimiters = "; !"
ring = ""
decode = ": @"
encode = "[ ]"
[query]
ring = "nginx-args"
allow = ["id", "q*"]
[[rewrite]]
from = "/s-*/"
to = "/"
at = "prefix"
[[rewrite]]
from = ".html"
to = ""
at = "suffix"
""",
    "moved": """
extends = "rfc3986"
[path]
ring = "ngx-lua"
raw = "refuse"
[query]
ring = "ngx-lua"
drop_empty_mark = true
[[rewrite]]
from = "/old_"
to = "/new?page="
at = "path"
[[rewrite]]
from = "/w/index.php?title="
to = "/wiki?t="
at = "start"
[[rewrite]]
from = ".htm"
to = ".x"
at = "end"
""",
    "everything": """
extends = "express"
[reject]
sequences = ["control-character", "fragment", "bad-escape", "bad-utf-8", "backslash", "encoded-slash",
  "encoded-dot-segment", "encoded-dot", "dot-segment-parameter", "dot-segment", "above-root",
  "dot-dot-after-empty-segment",
  "empty-segment-parameter", "repeated-parameter", "no-leading-slash"]
""",
}
PROFILES = {**BUILT_IN, **parse(OWN, BUILT_IN)}

PIECES = (
    *b"/ / / // . .. /. /.. /../ %2F %2f %2e %2E ..;x ..,x .%2Cx".split(),
    *b"a b Z 0 ~ - %61 %7e %41 ; ;x=y %3B %3b ! %21 : %3A @ %40 $ %24 ( ) * , %2C".split(),
    *b"? ? & & = = + %2B %2b %26 %3D [ ] %5b ' %27".split(),
    *b"% %% %4 %zz %25 %00 %0a %7F \x01 \x7f %20 \\ %5C \x00".split(b" "),
    *b'\xc3\xa9 %c3%a9 %C3%A9 \xe9 %ff %E2%82%AC %F0%9F%98%80 %ed%a0%80 " < | ^ ` {'.split(),
    *b"index.html /index.php /story_ /s-0123456789abcdef/ .html /old_ .htm".split(),
    *b"/w/index.php?title= utm_x=1 fbclid abc=1 page=1 sort=name id=1 q=%61".split(),
    b" ",
)


def judged(profile, targets):
    """Each target with its canonical form, or None, and the reason or None."""
    results = [(target, canonical_target(target, profile)) for target in targets]
    return [
        (target, None, found.reason) if isinstance(found, Rejected) else (target, found, None)
        for target, found in results
    ]


def drawn(seed, count=None):
    """Yield `count` targets of random pieces; one in thirty has a fragment or no leading slash.

    By default there are 2000 in `make laws`, and a third of them in `make test`.
    """
    rng = random.Random(seed)
    for _ in range(count or examples(2000)):
        text = b"".join(rng.choices(PIECES, k=rng.randrange(1, 12)))
        lead = b"" if text.startswith(b"/") or rng.random() < 0.02 else b"/"
        tail = b"#" + text[:1] if rng.random() < 0.02 else b""
        yield lead + text + tail


def answers_at(port, heads):
    """The contents of a server's answers to requests with these field lines, many at once on a connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer, peer.makefile("rb") as stream:
        for start in range(0, len(heads), 32):
            some = heads[start : start + 32]
            peer.sendall("".join(f"GET / HTTP/1.1\r\n{head}\r\n\r\n" for head in some).encode())
            for _ in some:
                told = head_of(stream)
                assert told.startswith(b"HTTP/1.1 200 ")
                length = re.search(rb"(?im)^content-length: *(\d+)", told)
                yield stream.read(int(length[1]))


def as_hex(targets):
    return "".join(f"{target.hex()}\n" for target in targets)


def answers_of(text):
    """The lines of a program as answers: "=" and the canonical form in hexadecimal digits, or the reason."""
    return [
        (bytes.fromhex(line[1:]), None) if line.startswith("=") else (None, line)
        for line in text.splitlines()
    ]


@pytest.fixture(params=list(PROFILES))
def profile(request):
    return PROFILES[request.param]


@pytest.fixture
def cases(profile):
    """Random targets, more of which are accepted by some profile than refused."""
    return judged(profile, drawn(7))


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    """A directory with every profile in a language: NAME.lua, NAME.mjs, …"""

    def written(language: str, suffix: str) -> Path:
        directory = tmp_path_factory.mktemp(language)
        for name, each in PROFILES.items():
            (directory / f"{name}{suffix}").write_text(exported(each, Target(language)), "utf-8")
        return directory

    return written
