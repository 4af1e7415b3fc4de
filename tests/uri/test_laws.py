"""The laws of canonicalization, over every built-in profile and over generated ones."""

import re
from dataclasses import replace
from urllib.parse import unquote, unquote_to_bytes, urljoin

from hypothesis import assume, example, given
from hypothesis import strategies as st
from starlette.routing import Match, Mount
from starlette.routing import Route as StarletteRoute

from univocal.http.errors import ProfileError
from univocal.uri.percent_encoding import KEEP
from univocal.uri.profile import parse
from univocal.uri.query import split
from univocal.uri.rewrite import rewriter
from univocal.uri.segments import add_trailing_slash
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve, resolve_url
from univocal.uri.target import (
    Canonical,
    Rejected,
    canonical_target,
    explain_target,
    origin_target,
    reference,
    survives_clients,
)
from uri.profiles import BUILT_IN

REASONS = [
    *("control-character", "bad-escape", "bad-utf-8", "backslash", "encoded-slash", "encoded-dot-segment"),
    *("dot-segment-parameter", "dot-segment", "above-root", "dot-dot-after-empty-segment"),
    *("empty-segment-parameter", "repeated-parameter"),
]

TOKENS = [
    *(b"/", b"/", b"//", b".", b"..", b"...", b";", b"..;", b"a", b"A", b"4", b"1", b"F", b"~", b"-"),
    *(b"\\", b" "),
    *b"% %% %2 %25 %2f %2F %2e %2E %41 %61 %7e %5c %3b %3B".split(),
    *b"%00 %0a %7F %20 %3f %23 %28 %5B %5d %7c %26 %2b %3D %40 %u0041 %U00E9 %u002f %u".split(),
    *(b"(", b")", b"[", b"]", b"@", b":", b"!", b"$", b"&", b"'", b"*", b"+", b",", b"=", b"|", b"<", b'"'),
    *(b"^", b"`"),
    *(b"%C3%A9", b"%c3%a9", b"\xc3\xa9", b"%E2%82", b"\xff", b"%ff", b"%ED%A0%80"),
    *(b"%F0%9F%98%80", b"%c0%ae"),
]
LONG = [b"0123456789abcdef", b"a/0123456789ABCDEF/", b"/a/a/4/"]  # what wildcards and prefixes match
PATHS = st.lists(st.one_of(st.sampled_from([*TOKENS, *LONG]), st.binary(max_size=2)), max_size=12).map(
    lambda tokens: b"/" + b"".join(tokens).translate(None, b"?#")
)
QUERIES = st.one_of(
    st.just(b""),
    st.lists(st.one_of(st.sampled_from([*TOKENS, b"?", b"&", b"="]), st.binary(max_size=2)), max_size=8).map(
        lambda tokens: b"?" + b"".join(tokens).translate(None, b"#")
    ),
)
TARGETS = st.builds(lambda path, query: path + query, PATHS, QUERIES)


def set_of(octets):
    return st.lists(st.sampled_from(sorted(octets)), unique=True).map(bytes)


@st.composite
def profiles(draw, octets_alone=False):
    """Any profile; with `octets_alone` one whose rules are about octets, slashes and dot segments."""
    decode = draw(set_of(b":/[]@!$&'()*+,;=\\|"))
    encode = bytes(set(draw(set_of(b":[]@!$&'()*+,;="))) - set(decode))
    path = {
        "decode": " ".join(f"{octet:02X}" for octet in decode),
        "encode": " ".join(f"{octet:02X}" for octet in encode),
        "merge_slashes": draw(st.booleans()),
        "dot_segments": draw(st.sampled_from(["rfc3986", "keep"] + ["servlet"] * (not octets_alone))),
        "parameters": "keep" if octets_alone else draw(st.sampled_from(["keep", "strip"])),
        "raw": draw(st.sampled_from(["encode", "encode", "refuse"])),
        "unicode_escapes": draw(st.booleans()),
    }
    sequences = draw(st.lists(st.sampled_from(REASONS), unique=True, max_size=3))
    tables = {"path": path, "reject": {"sequences": sequences}}
    if draw(st.booleans()):
        path["parameter_delimiters"] = draw(st.sampled_from([";", ", ;"]))
        charset = draw(CHARSET_SETTINGS)
        tables |= {"query": draw(QUERY_SETTINGS), "charset": charset}
        if octets_alone:
            charset["path"] = ""
        else:
            path |= {
                "trailing_slash": draw(st.sampled_from(["keep", "add", "remove"])),
                "index_names": draw(st.sampled_from([[], ["a"], ["a", "("]])),
            }
            tables["rewrite"] = draw(RULES)
    try:
        return parse({"generated": "\n".join(f"{key} = {toml(value)}" for key, value in tables.items())})[
            "generated"
        ]
    except ProfileError:
        assume(False)
        raise


QUERY_SETTINGS = st.fixed_dictionaries(
    {
        "ring": st.sampled_from(["", "rfc3986", "nginx-args", "nginx-uri", "ngx-lua"]),
        "sort": st.booleans(),
        "drop": st.sampled_from([[], ["a"], ["4*"], ["*A"]]),
        "defaults": st.sampled_from([{}, {"a": "4"}]),
        "drop_empty": st.booleans(),
        "drop_empty_mark": st.booleans(),
        "semicolon": st.sampled_from(["data", "separates", "begins"]),
    },
    optional={"allow": st.sampled_from([[], ["*"], ["a*", "1"]])},
)
CHARSET_SETTINGS = st.fixed_dictionaries(
    {
        "path": st.sampled_from(["", "windows-1251", "shift_jis", "gbk", ["euc-jp", "windows-1253"]]),
        "query": st.sampled_from(["", "windows-1251", ["euc-kr"], ["shift_jis", "big5", "koi8-r"]]),
        "origin": st.sampled_from(["utf-8", "utf-8", "legacy"]),
        "prefer": st.sampled_from(["utf-8", "legacy"]),
    }
)
PREFIXES_AWAY = st.fixed_dictionaries(
    {
        "from": st.sampled_from(["/a/", "/A/4/", "/a/*/", "/(*)/", "/*/a/", "/%C3%A9/", "/4-*/1/"]),
        "to": st.sampled_from(["/", "/", "/F/", "/a/"]),
        "at": st.just("prefix"),
    }
)
SUFFIXES_AWAY = st.fixed_dictionaries(
    {"from": st.sampled_from([".a", "/a", "/a4", "..1"]), "to": st.just(""), "at": st.just("suffix")}
)
SUBSTRINGS = st.fixed_dictionaries(
    {
        "from": st.sampled_from(["a", "/a", "4", "1/", "a4", "-", "?a", "%C3%A9", "b/a"]),
        "to": st.sampled_from(["/", ".", "/.", "b", "x?y", "bb/", ";", "A"]),
        "at": st.sampled_from(["anywhere", "start", "end"]),
    }
)
APPENDING = st.fixed_dictionaries(
    {
        "from": st.sampled_from(["a", "/a", "4", "1/"]),
        "to": st.sampled_from(["x?y", "?", "/?b="]),
        "at": st.just("path"),
    }
)
RULES = st.lists(st.one_of(SUBSTRINGS, PREFIXES_AWAY, SUFFIXES_AWAY, APPENDING), max_size=2)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


ANY = st.one_of(st.sampled_from(list(BUILT_IN.values())), profiles())


@given(TARGETS, ANY)
def test_law_1_a_canonical_form_is_its_own(target, profile):
    canonical = canonical_target(target, profile)
    if not isinstance(canonical, Rejected):
        assert canonical_target(canonical, profile) is canonical


@given(TARGETS, profiles())
def test_law_1_both_sides_of_a_rewrite_are_one(target, profile):
    plain = replace(profile, rewrites=(), trailing_slash="keep", index_names=())
    spelled = canonical_target(target, plain)
    assume(not isinstance(spelled, Rejected) and not spelled.partition(b"?")[0].endswith(b"/"))
    assert isinstance(spelled, bytes)
    one, other = (canonical_target(each, profile) for each in (spelled, rewriter(profile.rewrites)(spelled)))
    if not isinstance(one, Rejected) and not isinstance(other, Rejected):
        assert one == other


@given(TARGETS, profiles())
def test_law_1_a_slash_that_is_added_changes_nothing(target, profile):
    spelled = canonical_target(target, replace(profile, trailing_slash="keep", rewrites=(), index_names=()))
    assume(not isinstance(spelled, Rejected))
    assert isinstance(spelled, bytes)
    path, query = split(spelled)
    adding = replace(profile, trailing_slash="add")
    one, other = (canonical_target(each + query, adding) for each in (path, add_trailing_slash(path)))
    if not isinstance(one, Rejected) and not isinstance(other, Rejected):
        assert one == other


@given(TARGETS, ANY)
def test_canonical_targets_are_in_valid_origin_form(target, profile):
    canonical = canonical_target(target, profile)
    if isinstance(canonical, Rejected):
        assert canonical.reasons[0] == canonical.reason
        assert set(canonical.reasons) - {"no-leading-slash", "bad-target"} <= set(profile.sequences)
    else:
        bare = profile.ring.bare + b"%"
        path, _, query = canonical.partition(b"?")
        assert path.startswith(b"/")
        assert not path.translate(None, bare)
        assert re.fullmatch(rb"[!$&-;=?-Z_a-z~\[\]%]*", query)
        unicode = b"|[uU][0-9A-Fa-f]{4}" if profile.ring.unicode_escapes else b""
        assert not re.search(rb"%%(?![0-9A-Fa-f]{2}%b)" % unicode, canonical)
        if profile.dot_segments != "keep":
            assert not {b".", b".."} & set(path.split(b"/"))
        if profile.merge_slashes:
            assert not path.startswith(b"//")
            assert b"//" not in path or profile.merge_slashes == "leading"


@given(TARGETS, ANY)
def test_law_2_no_byte_is_decoded_twice(target, profile):
    """One decoding gives the same bytes for the canonical form as for the received one."""
    for stage in explain_target(target, profile)[0]:
        if stage.name in {"ring", "query"}:
            lua = stage.name == "query" and profile.query.ring and profile.query.ring.plus_is_space
            before, after = (t.replace(b"+", b" ") if lua else t for t in (stage.before, stage.after))
            assert unquote_to_bytes(before) == unquote_to_bytes(after)
        elif "charset" not in stage.name:  # removing something makes no escape of the rest
            assert escapes(stage.after) <= escapes(stage.before)


def escapes(target):
    return set(re.findall(rb"%[0-9A-Fa-f]{0,2}", target))


@given(PATHS, st.sampled_from(sorted(b"()[]/%;ab.")), ANY)
def test_law_2_an_escaped_escape_stays_one(path, octet, profile):
    """%2528 never becomes "(", whatever stands around it."""
    canonical = canonical_target(path + b"/x%%25%02X" % octet, profile)
    if not isinstance(canonical, Rejected) and not profile.rewrites and profile.trailing_slash != "add":
        assert (
            canonical.endswith(b"x%%25%02X" % octet) or b";" in path  # which strips the rest of the segment
        )


@given(TARGETS, ANY)
def test_the_stages_are_what_canonicalizes(target, profile):
    stages, explained = explain_target(target, profile)
    canonical = canonical_target(target, profile)
    assert explained == canonical
    assert [stage.before for stage in stages] == [target, *[stage.after for stage in stages]][: len(stages)]
    if not isinstance(canonical, Rejected):
        assert stages[-1].after == canonical


# Law 3: a model of how an origin server reads a path, built on other code than ours. It reads an accepted
# target as it would have read the received one; so equal keys are one to it (more in integration/servers).


def resolved(segments):
    """Dot segments as RFC 3986 §5.2.4 removes them, by its own procedure on a buffer."""
    source, output = b"/" + b"/".join(segments), b""
    while source:
        if source.startswith(b"/./") or source == b"/.":
            source = b"/" + source[3:]
        elif source.startswith(b"/../") or source == b"/..":
            source = b"/" + source[4:]
            output = output[: max(output.rfind(b"/"), 0)]
        else:
            end = source.find(b"/", 1) % (len(source) + 1)
            output, source = output + source[:end], source[end:]
    return output.split(b"/")[1:]


def asgi(path):
    return (
        unquote(path.decode("latin-1")) if path.isascii() else unquote_to_bytes(path).decode(errors="replace")
    )


@given(PATHS)
def test_law_3_the_application_reads_what_was_received(path):
    canonical = canonical_target(path, BUILT_IN["asgi"])
    if not isinstance(canonical, Rejected):
        assert asgi(canonical) == asgi(path)


def as_told(path, profile):
    """Read a path as origin servers do that tell spellings of a byte apart only if the ring keeps both."""
    text = ""
    if profile.query.semicolon == "begins":
        path = re.split(b"[?;]", path)[0]
    for escape, octet in re.findall(rb"(?s)%([0-9A-Fa-f]{2})|(.)", path):
        number = int(escape, 16) if escape else ord(octet)
        text += chr(number + 0x100 if escape and profile.ring.forms[number] == KEEP else number)
    segments = text.encode()[1:].split(b"/")
    if profile.merge_slashes:
        segments = [*filter(None, segments[:-1]), segments[-1]]
    return segments if profile.dot_segments == "keep" else resolved(segments)


@given(PATHS, profiles(octets_alone=True))
def test_law_3_for_generated_profiles(path, profile):
    canonical = canonical_target(path, profile)
    if not isinstance(canonical, Rejected):
        assert as_told(canonical, profile) == as_told(path, profile)


@given(TARGETS)
def test_law_3_starlette_routes_both_alike(target):
    canonical = canonical_target(target, BUILT_IN["asgi"])
    if isinstance(canonical, Rejected) or not target.isascii():
        return
    routes = [
        StarletteRoute("/a/{x}", print),
        StarletteRoute("/{x}/", print),
        Mount("/a", routes=[]),
        StarletteRoute("/{x:path}", print),
    ]
    matched = []
    for received in (target, canonical):
        scope = {"type": "http", "method": "GET", "path": unquote(received.split(b"?")[0].decode())}
        found = [(route.matches(scope)) for route in routes]
        matched.append(
            [(match, child.get("path_params")) for match, child in found if match is not Match.NONE]
        )
    assert matched[0] == matched[1]


PREFIXES = [b"/a/", b"/a", b"/A/4/", b"/..a/", b"/~"]


@st.composite
def sites(draw):
    prefixes = draw(st.lists(st.sampled_from(PREFIXES), unique=True, max_size=3))
    upstream_paths = st.sampled_from([b"", b"/", b"/v1", b"/v1/", b"/{host}/v1/", b"/{host}{path}"])
    routes = [Route(prefix, draw(ANY), "o", draw(upstream_paths)) for prefix in [b"/", *prefixes]]
    scheme = draw(st.sampled_from([b"keep", b"http", b"https"]))
    return Sites([Site("s", ("one.example", "*.many.example"), tuple(routes), ("alias.example",), 0, scheme)])


HOSTS = st.sampled_from(
    [b"one.example", b"ONE.example.:80", b"a.many.example:443", b"alias.example:8080", b"alias.example"]
)


@given(TARGETS, ANY)
@example(b"/.", BUILT_IN["go"])
@example(b"/%61/../b", BUILT_IN["go"])
def test_a_client_learns_of_a_spelling_only_once(target, profile):
    telling = Sites((), Site("s", (), (Route(b"/", profile, ""),), canonical=301))
    found = resolve(target, [b"a.example"], b"http", telling)
    if isinstance(found, Rejected):
        return
    if not survives_clients(found.target):
        assert not found.respelled  # clients ask for another in its place: dot segments are removed
        return
    told = reference(found).decode("ascii")
    followed = urljoin("http://a.example/x/y?z", told) if told.startswith("/") else told
    again = resolve_url(followed.encode("ascii"), telling)
    assert (again.respelled, again.key) == (False, found.key)


@given(TARGETS, HOSTS, st.sampled_from([b"http", b"https"]), sites())
def test_laws_4_and_5(target, host, scheme, some):
    """The key determines the origin server's target; a canonical target selects the key that produced it."""
    canonical = resolve(target, [host], scheme, some)
    if isinstance(canonical, Rejected):
        return
    again = resolve(canonical.target, [canonical.authority], canonical.scheme, some)
    absolute = resolve(canonical.url, [b"ignored.example"], canonical.scheme, some)
    for other in (again, absolute):
        assert isinstance(other, Canonical)
        assert other == canonical
        assert origin_target(other) == origin_target(canonical)
    assert canonical.key == b" ".join(
        [canonical.route.profile.digest, canonical.scheme, canonical.authority, canonical.target]
    )
    assert canonical.key.count(b" ") == 3
    sent = origin_target(canonical)
    if canonical.upstream_path:
        assert sent.startswith(canonical.upstream_path.partition(b"{")[0].rstrip(b"/"))
        assert b"{" not in canonical.upstream_path.replace(b"{path}", b"")
    else:
        assert sent == canonical.target
