"""Facts: the canonical targets and refusals of each built-in profile, in one pass."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from examples import cases
from univocal.uri.target import Rejected, Stage, canonical_target, explain_target
from uri.profiles import BUILT_IN, own

SPELLINGS = [
    (name, received.encode(), canonical.encode())
    for file in ("spellings.json", "iis.json")
    for name, rows in json.loads((Path(__file__).parent / "vectors" / file).read_text()).items()
    for received, canonical in rows
]


def test_the_built_in_profiles():
    names = {"rfc3986", "mediawiki", "restbase", "upload", "servlet", "nginx", "asgi"}
    assert names <= set(BUILT_IN)
    for profile in BUILT_IN.values():
        assert profile.summary
        assert "fragment" in profile.sequences, profile.name
        assert "control-character" in profile.sequences or profile.name == "s3"


@pytest.mark.parametrize(("name", "received", "canonical"), SPELLINGS)
def test_every_spelling_has_a_canonical_one_that_comes_back_itself(name, received, canonical):
    assert canonical_target(received, BUILT_IN[name]) == canonical
    assert canonical_target(canonical, BUILT_IN[name]) is canonical


JAVASCRIPT = ("express", "fastify", "fastify4", "hono")
ROUTED = (
    "asgi",
    "php",
    "rack",
    *JAVASCRIPT,
    "werkzeug",
    "aiohttp",
)  # by routers that leave dot segments alone
APACHE = ("apache", "apache-nodecode")
NGINX = ("nginx", "static")
SERVLETS = ("servlet", "jetty")
CONTROLS = dict.fromkeys(set(BUILT_IN) - {"s3"}, "control-character")
ROOTED = dict.fromkeys(("servlet", *NGINX, *APACHE), "above-root")
DOTS = dict.fromkeys(ROUTED, "dot-segment")
SLASHES = dict.fromkeys((*SERVLETS, "apache", "iis"), "encoded-slash") | {"asgi": "dot-segment"}
NO_UTF_8 = dict.fromkeys((*SERVLETS, "asgi", *JAVASCRIPT, "werkzeug", "aiohttp"), "bad-utf-8")
NO_ESCAPE = dict.fromkeys((*SERVLETS, *APACHE, *NGINX, "go", "php", *JAVASCRIPT), "bad-escape")
WINDOWS = {"iis": "encoded-dot-segment"}
RAW = {"werkzeug": "bad-target"}

# Targets that every profile is asked about, and the bytes for which it refuses them.
REFUSED = [
    (b"/account%00.css", CONTROLS),
    (b"/a%0d%0aHost:%20x", CONTROLS),
    (b"/a\x7f", CONTROLS),
    (b"/a\nb", CONTROLS),
    (b"/admin#x.png", dict.fromkeys(BUILT_IN, "fragment")),
    (b"/a?b#c", dict.fromkeys(BUILT_IN, "fragment")),
    (b"", dict.fromkeys(BUILT_IN, "no-leading-slash")),
    (b"@google.com", dict.fromkeys(BUILT_IN, "no-leading-slash")),
    (b"a/b", dict.fromkeys(BUILT_IN, "no-leading-slash")),
    (b"?q", dict.fromkeys(BUILT_IN, "no-leading-slash")),
    (b"%2Fa", dict.fromkeys(BUILT_IN, "no-leading-slash")),
    (b"/a/../b", DOTS),
    (b"/a/%2e%2E/b", DOTS | WINDOWS | dict.fromkeys(SERVLETS, "encoded-dot-segment")),
    (b"/a/..%2fb", SLASHES),
    (b"/a/.%2f%2fb", SLASHES),
    (b"/a/.", DOTS),
    (b"/..", DOTS | ROOTED | {"jetty": "above-root", "iis": "above-root"}),
    (b"/a/..%2f..%2fb", SLASHES | dict.fromkeys(NGINX, "above-root")),
    (b"/a//..//../b", DOTS | ROOTED | {"jetty": "dot-dot-after-empty-segment"}),
    (b"/a/..;/admin", dict.fromkeys(SERVLETS, "dot-segment-parameter") | {"fastify4": "dot-segment"}),
    (b"/a/..;x=y/admin", dict.fromkeys(SERVLETS, "dot-segment-parameter") | {"fastify4": "dot-segment"}),
    (b"/.;/", dict.fromkeys(SERVLETS, "dot-segment-parameter") | {"fastify4": "dot-segment"}),
    (b"/a;b=/../%zz", DOTS | {"fastify4": None} | NO_ESCAPE | {"fastify4": None, "iis": "bad-escape"}),
    *[
        (b"/a/..%cx/b" % delimiter, dict.fromkeys(SERVLETS, "dot-segment-parameter"))
        for delimiter in b"!$&'()*+,="
    ],
    (b"/a/.,/b", dict.fromkeys(SERVLETS, "dot-segment-parameter")),
    (b"/a/%2e.%2C/b", dict.fromkeys(SERVLETS, "dot-segment-parameter")),
    (b"/a/..x,y/b", {}),
    (b"/a/...,/b", {}),
    (b"/a/.well-known/b", {}),
    (b"/a;x;y", {"jetty": "repeated-parameter"}),
    (b"/a%5C..%5cb", dict.fromkeys((*SERVLETS, "iis"), "backslash")),
    (b"/a%u005Cb", NO_ESCAPE | {"iis": "backslash"}),
    (b"/a%u002f..%U002Fb", NO_ESCAPE | {"iis": "encoded-slash"}),
    (b"/a%u0000b", NO_ESCAPE | {"iis": "control-character"}),
    (b"/a/%u002e./b", NO_ESCAPE | WINDOWS),
    (b"/%c0%ae%c0%ae/", NO_UTF_8),
    (b"/%ed%a0%80", NO_UTF_8),
    (b"/\xff", NO_UTF_8 | RAW),
    (b"/%u002e", NO_ESCAPE | WINDOWS),
    (b"/%%32%65/", NO_ESCAPE | {"iis": "bad-escape"}),
    (b"/%252e%252e/x", {}),
    (b"/\xc3\xa9", RAW),
    (b"/a?../%2f%00%zz\\", {}),
]


@cases(
    "target, canonical",
    (b"/%u00e/%u00zz/%u", b"/%25u00e/%25u00zz/%25u"),
    (b"/%%u0041", b"/%25%u0041"),
    (b"/%75u0041%2%u0041", b"/uu0041%252%u0041"),
    (b"/%25u0041", b"/%25u0041"),
    (b"/%%75%300041", b"/%25u00041"),
    (b"/?a=%u0028%u002", b"/?a=%u0028%25u002"),
)
@pytest.mark.parametrize("ring", ["", 'query.ring = "nginx-args"'])
def test_unicode_escapes_stay_as_they_came(target, canonical, ring):
    profile = own("path.unicode_escapes = true\n" + ring)
    assert canonical_target(target, profile) == canonical
    assert canonical_target(canonical, profile) is canonical
    assert canonical_target(b"/%u0041?%u0041", own(ring)) == b"/%25u0041?%25u0041"


@pytest.mark.parametrize("target", [b"/a#b", b"/a?b#c", b"/a?b#c#d", b"/a?b#c?d", b"/a?b=%23#"])
def test_a_fragment_is_cut_off_where_it_is_not_listed(target):
    assert canonical_target(target, own("")) == target.partition(b"#")[0]
    assert canonical_target(target, own('reject.sequences = ["fragment"]')) == Rejected(
        "fragment", ("fragment",)
    )


LIKE = {"django": "asgi", "tomcat": "servlet"}


@pytest.mark.parametrize(("target", "reasons"), REFUSED)
def test_profiles_refuse_targets_for_their_reasons(target, reasons):
    results = {name: canonical_target(target, profile) for name, profile in BUILT_IN.items()}
    refused = {name: result.reason for name, result in results.items() if isinstance(result, Rejected)}
    wanted = {name: reasons.get(LIKE.get(name, name)) for name in BUILT_IN}
    assert refused == {name: reason for name, reason in wanted.items() if reason}


@cases(
    "settings, sequences, target, refused",
    # Delimiters that the ring lays bare are looked for in both spellings.
    ('path.decode = ";"', "dot-segment-parameter", b"/a/..%3Bx/b", True),
    ("", "dot-segment-parameter", b"/a/..%3Bx/b", False),
    ('path.decode = "/"', "dot-segment", b"/a%2F..", True),
    ("", "dot-segment", b"/a%2F..", False),
    ("", "above-root", b"/a/../..", True),
    ("", "above-root", b"/a//../..", False),  # the empty segment is one to leave
    ("path.merge_slashes = true", "above-root", b"/a//../..", True),
    ("", "dot-dot-after-empty-segment", b"/a//./../b", True),
    ("", "dot-dot-after-empty-segment", b"/a//b/../../c", True),
    ("path.merge_slashes = true", "dot-dot-after-empty-segment", b"/a//../b", False),
    ("", "empty-segment-parameter", b"/a/;x/b", True),
    ("", "backslash encoded-slash", b"/\\%2f", True),
    ('path.parameters = "strip"', "above-root", b"/..;x/b", True),
    ('path.parameters = "strip"', "dot-segment", b"/a/%2e;x", True),
    ("", "dot-segment", b"/a/..;x/b", False),
    ('path.dot_segments = "keep"', "above-root", b"/a/../../b", True),
)
def test_the_other_sequences(settings, sequences, target, refused):
    result = canonical_target(target, own(f"{settings}\nreject.sequences = {sequences.split()}"))
    reasons = list(result.reasons) if isinstance(result, Rejected) else []
    assert reasons == (sequences.split() if refused else [])


@cases(
    "settings, target, canonical",
    ("", b"/a#b?c", b"/a"),  # cut before key and forward, where it is not refused
    ("", b"/a?b#c", b"/a?b"),
    ("reject.sequences = []", b"/%0a\n%7f", b"/%0A%0A%7F"),
    ('path.dot_segments = "keep"', b"/a/%2e%2E/./b", b"/a/.././b"),
    ("path.merge_slashes = true", b"//a//../b//", b"/b/"),
    ('path.parameters = "strip"', b"/a;x%2Fy/..;z/b", b"/b"),
    ('path.decode = "3A 28 29"\npath.encode = "2c"', b"/%3a%28,", b"/:(%2C"),
    ('path.trailing_slash = "add"', b"/a/b", b"/a/b/"),
    ('path.trailing_slash = "add"', b"/a/b.html", b"/a/b.html"),
    ('path.trailing_slash = "add"', b"/a/?q", b"/a/?q"),
    ('path.trailing_slash = "remove"', b"/a/b/", b"/a/b"),
    ('path.trailing_slash = "remove"', b"/a//?q/", b"/a?q/"),
    ('path.trailing_slash = "remove"', b"/a" + b"/" * 20, b"/a"),
    ('path.trailing_slash = "remove"', b"/", b"/"),
    ('path.trailing_slash = "remove"', b"//", b"/"),
    ('path.trailing_slash = "remove"', b"/a/b/..", b"/a"),
    ('path.index_names = ["index.html", "index.php"]', b"/a/index.html", b"/a/"),
    ('path.index_names = ["index.html"]', b"/index%2ehtml?q", b"/?q"),
    ('path.index_names = ["index.html"]', b"/a/xindex.html", b"/a/xindex.html"),
    ('path.index_names = ["index.html"]', b"/index.html/a", b"/index.html/a"),
    ('path.index_names = ["a(b)"]\npath.encode = "( )"', b"/x/a(b)", b"/x/"),
    (
        'path = { index_names = ["index.html"], trailing_slash = "remove" }',
        b"/a/index.html/index.html/",
        b"/a",
    ),
    ('path = { index_names = ["index"], trailing_slash = "add" }', b"/a/index", b"/a/"),
    ('path = { parameters = "strip", parameter_delimiters = "; , !" }', b"/a,x;y/b!;/c;", b"/a/b/c"),
    ('path = { parameters = "strip", parameter_delimiters = "," }', b"/a;x,y", b"/a;x"),
    ('path.index_names = ["index.html"]', b"/a/index.htm", b"/a/index.htm"),
)
def test_each_setting_changes_the_canonical_target(settings, target, canonical):
    profile = own(settings)
    assert canonical_target(target, profile) == canonical
    assert canonical_target(canonical, profile) == canonical


def test_the_stages_join_up():
    stages, result = explain_target(
        b"/A%2fB%28c%29/../x?q= #f", own('path.decode = "/"\npath.merge_slashes = true')
    )
    assert result == b"/A/x?q=%20"
    assert [stage.name for stage in stages] == ["fragment", "ring", "slashes", "dot-segments", "query"]
    assert stages[0] == Stage("fragment", b"/A%2fB%28c%29/../x?q= #f", b"/A%2fB%28c%29/../x?q= ", lossy=True)
    assert all(a.after == b.before for a, b in pairwise(stages))
    assert stages[-1].after == result


def test_a_refused_target_is_explained_all_the_same():
    stages, result = explain_target(b"/a/../%41%00", BUILT_IN["asgi"])
    assert result == Rejected("control-character", ("control-character", "dot-segment"))
    assert stages[-1].after == b"/a/../A%00"
    assert explain_target(b"a", BUILT_IN["asgi"])[0] == []


STORY = '[[rewrite]]\nfrom = "/story_"\nto = "/story?id="\nat = "%s"\n'


@pytest.mark.parametrize("at", ["anywhere", "start", "path"])
@cases(
    "slash, spellings, canonical",
    ("keep", [b"/story_xyz", b"/story?id=xyz"], b"/story?id=xyz"),
    ("add", [b"/story_xyz", b"/story_xyz/", b"/story?id=xyz", b"/story/?id=xyz"], b"/story/?id=xyz"),
    ("remove", [b"/story_xyz", b"/story_xyz/", b"/story?id=xyz", b"/story/?id=xyz"], b"/story?id=xyz"),
    ("add", [b"/story_x.y", b"/story?id=x.y"], b"/story/?id=x.y"),
    ("add", [b"/story_x.y/"], b"/story/?id=x.y/"),  # a slash that nobody adds is part of the name
    ("add", [b"/a", b"/a/", b"/a/index.html", b"/a/index", b"/a/index/"], b"/a/"),
    ("remove", [b"/a", b"/a/", b"/a/index.html", b"/a/index.html/"], b"/a"),
)
def test_a_rewrite_and_a_trailing_slash_unify_all_spellings(at, slash, spellings, canonical):
    profile = own(
        f'path.trailing_slash = "{slash}"\npath.index_names = ["index.html", "index"]\n' + STORY % at
    )
    assert {canonical_target(spelling, profile) for spelling in spellings} == {canonical}
    assert canonical_target(canonical, profile) is canonical


@cases(
    "rule, target, canonical",
    ('from = "/en/"\nto = "/"\nat = "prefix"', b"/en/", b"/"),
    ('from = "/en/"\nto = "/"\nat = "prefix"', b"/en/a", b"/a/"),
    ('from = "/old/"\nto = "/new"\nat = "end"', b"/old", b"/new/"),
    ('from = ".html"\nat = "suffix"', b"/a.html", b"/a/"),
)
def test_rules_meet_paths_with_the_slash_that_is_added(rule, target, canonical):
    profile = own(f'path.trailing_slash = "add"\n[[rewrite]]\n{rule}\n')
    assert canonical_target(target, profile) == canonical


@cases(
    "raw, escaped",
    (b"/\xc3\xa9", b"/%C3%A9"),
    (b"/a?b=\xc3\xa9&\xc3\xa9=1", b"/a?b=%C3%A9&%C3%A9=1"),
    (b"/\xe2\x82\xac/b", b"/%E2%82%AC/b"),
)
def test_bytes_beyond_ascii_are_their_escapes(raw, escaped):
    for name in set(BUILT_IN) - set(RAW):
        profile = BUILT_IN[name]
        assert canonical_target(raw, profile) == canonical_target(escaped, profile), name
        refusing = own('path.raw = "refuse"', name)
        assert canonical_target(raw, refusing) == Rejected("bad-target", ("bad-target",)), name
        assert canonical_target(escaped, refusing) == canonical_target(escaped, profile), name


@pytest.mark.parametrize("octet", [*range(0x20), 0x7F])
def test_a_control_character_is_refused_beside_bytes_beyond_ascii(octet):
    result = canonical_target(b"/\xc3\xa9%c" % octet, BUILT_IN["rfc3986"])
    assert result.reason == "control-character"
