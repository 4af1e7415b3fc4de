"""Profiles that are exported, and targets with what univocal makes of them."""

import random
from pathlib import Path

import pytest

from examples import examples
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse
from univocal.uri.target import Rejected, canonical_target
from univocal_learn.exporters.languages import Target
from univocal_learn.exporters.writing import exported

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
    *b"a b Z 0 ~ - %61 %7e %41 ; ;x=y %3B %3b ! %21".split(),
    *b"? ? & & = = + %2B %2b %26 %3D [ ] %5b ' %27".split(),
    *(
        b"%",
        b"%%",
        b"%4",
        b"%zz",
        b"%25",
        b"%00",
        b"%0a",
        b"%7F",
        b"\x01",
        b"\x7f",
        b" ",
        b"%20",
        b"\\",
        b"%5C",
    ),
    *(
        b"\xc3\xa9",
        b"%c3%a9",
        b"%C3%A9",
        b"\xe9",
        b"%ff",
        b"%E2%82%AC",
        b"%F0%9F%98%80",
        b"%ed%a0%80",
        b'"',
        b"<",
    ),
    *(
        b"|",
        b"^",
        b"`",
        b"{",
        b":",
        b"%3A",
        b"@",
        b"%40",
        b"$",
        b"%24",
        b"(",
        b")",
        b"*",
        b",",
        b"%2C",
        b"\x00",
    ),
    *(b"index.html", b"/index.php", b"/story_", b"/s-0123456789abcdef/", b".html", b"/old_", b".htm"),
    *(b"/w/index.php?title=", b"utm_x=1", b"fbclid", b"abc=1", b"page=1", b"sort=name", b"id=1", b"q=%61"),
)


def judged(profile, targets):
    """Each target with its canonical form, or None, and the reason or None."""
    results = [(target, canonical_target(target, profile)) for target in targets]
    return [
        (target, None, found.reason) if isinstance(found, Rejected) else (target, found, None)
        for target, found in results
    ]


def drawn(seed, count=None):
    """So many targets of random pieces; one in thirty has a fragment or no leading slash.

    By default there are 2000 in `make laws`, and a third of them in `make test`.
    """
    rng = random.Random(seed)
    for _ in range(count or examples(2000)):
        text = b"".join(rng.choices(PIECES, k=rng.randrange(1, 12)))
        lead = b"" if text.startswith(b"/") or rng.random() < 0.02 else b"/"
        tail = b"#" + text[:1] if rng.random() < 0.02 else b""
        yield lead + text + tail


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
