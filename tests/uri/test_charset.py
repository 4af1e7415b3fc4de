"""One charset for what clients send in two."""

import re
from urllib.parse import quote, unquote

import pytest

from charsets import units
from examples import LONG, cases
from univocal.http.errors import ProfileError
from univocal.uri.charset import CHARSETS, Charset, decoded, encoded, known_charset
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.target import Canonical, Rejected, canonical_target, encoding_fields, explain_target
from uri.profiles import own


def spelled(text, charset="utf-8"):
    return quote(text, safe="/?=&", encoding=charset).encode()


DOUBLE = ("euc-kr", "gbk", "big5", "shift_jis")
SINGLE = [name for name in CHARSETS if name not in DOUBLE]


@pytest.mark.parametrize("name", CHARSETS)
def test_no_second_byte_is_a_delimiter(name):
    """Slashes, percent signs, digits and dots stay what they are: no second byte is below 0x40."""
    characters = units(name)
    assert len(characters) > (3_000 if name in (*DOUBLE, "euc-jp") else 80)
    for octets, text in characters.items():
        assert min(octets[1:], default=0x80) >= (0x40 if name in DOUBLE else 0x80)
        assert min(text) >= "\x80"
    transcode = Charset().transcoder("path", declared=name)
    for octets, text in list(characters.items())[:: 1 if LONG else 7]:
        assert unquote(transcode(quote(octets).encode()).decode()) == text, octets


@pytest.mark.parametrize("name", CHARSETS)
def test_every_character_comes_back_to_a_legacy_origin(name):
    for octets, text in units(name).items():
        written = encoded(text, name)
        assert written is not None, octets
        assert decoded(written, name) == text
        assert len(written) <= len(octets)


@cases(
    "charset, octets, text",
    ("euc-jp", b"\xad\xa1\xad\xd1\xad\xea", "①㎝㈱"),
    ("euc-jp", b"\xfc\xe2\xa1\xc1\xa1\xdd", "髙～－"),
    ("euc-jp", b"\x8f\xb0\xa1\x8e\xb1", "丂ｱ"),
    ("shift_jis", b"\x87\x40\xfb\xfc\xb1", "①髙ｱ"),
    ("euc-kr", b"\x8c\x63\x94\xee", "똠뷁"),
    ("windows-1252", b"\x80", "€"),
    ("windows-1254", b"\x80\xfe", "€ş"),
    ("gbk", b"\x80", "€"),
    ("big5", b"\xa4\x51\xf9\xf9\x88\x62\x87\x7a", "十═Ê̄㡵"),
    ("koi8-u", b"\xae", "ў"),
)
def test_both_directions(charset, octets, text):
    assert decoded(octets, charset) == text
    assert encoded(text, charset) == octets


@pytest.mark.parametrize("origin", ["utf-8", "legacy"])
@pytest.mark.parametrize("name", SINGLE)
def test_no_ascii_byte_appears_by_transcoding(name, origin):
    transcode = Charset(path=(name,), origin=origin).transcoder("path")
    characters = units(name)
    for octets, text in list(characters.items())[:: 1 if LONG else 7]:
        for part in (quote(octets).encode(), quote(text).encode()):
            transcoded = transcode(part)
            assert not re.search(rb"%[0-7]", transcoded), part
            assert transcode(transcoded) == transcoded
    for text in ("¥", "‾", "é", "−"):
        assert transcode(quote(text).encode()) in {
            quote(text).encode(),
            quote(encoded(text, name) or "").encode(),
        }


@cases(
    "settings, target, canonical",
    ('path = "windows-1251"', spelled("/Кирилл", "cp1251"), spelled("/Кирилл")),
    ('path = "windows-1251"', spelled("/Кирилл"), spelled("/Кирилл")),
    # Judged segment by segment, as links are put together.
    ('path = "windows-1251"', spelled("/Кирилл") + spelled("/файл", "cp1251"), spelled("/Кирилл/файл")),
    ('path = "windows-1253"', b"/%AA%FE", b"/%AA%FE"),  # 0xAA is no character there
    ('path = "windows-1251"', "/Кирилл".encode("cp1251"), spelled("/Кирилл")),
    ('path = "euc-jp"', spelled("/日本語", "euc_jp"), spelled("/日本語")),
    ('path = "euc-jp"', b"/%c6", b"/%C6"),
    ('path = "euc-kr"', spelled("/한국어", "euc_kr"), spelled("/한국어")),
    ('path = "iso-8859-1"', b"/caf%e9", spelled("/café")),
    # The query is another matter.
    ('path = "iso-8859-1"', b"/caf%e9?q=caf%e9", spelled("/café") + b"?q=caf%e9"),
    ('query = "iso-8859-1"', b"/caf%e9?q=caf%e9", b"/caf%E9?q=" + spelled("café")),
    (
        'query = "iso-8859-1"',
        b"/?q=caf%c3%a9&caf%e9=%E9+%c3%a9",
        b"/?q=caf%c3%a9&" + spelled("café=é+Ã©").replace(b"%2B", b"+"),
    ),
    # A second octet may be a letter, "\\" or "@", which clients send bare or not.
    ('path = "gbk"', b"/%b0A/%B0%41/%b0a", spelled("/癆/癆/", "utf-8") + spelled("癮")),
    ('path = "gbk"', spelled("/中文.html", "gbk"), spelled("/中文.html")),
    ('path = "gbk"', b"/%B0/A", b"/%B0/A"),  # a slash is no second octet
    ('path = "gbk"', b"/%B0.html", b"/%B0.html"),
    ('path = "big5"', b"/%A5%5C/%a5\\", spelled("/功/功")),
    ('path = "shift_jis"', b"/%95%5C/%95\\/%B1", spelled("/表/表/ｱ")),
    ('path = "shift_jis"', b"/%B1@", spelled("/ｱ") + b"@"),
    ('query = "shift_jis"', b"/?q=%83A&r=%95%5c", b"/?q=" + spelled("ア") + b"&r=" + spelled("表")),
    ('path = "gbk"\norigin = "legacy"', spelled("/癆"), b"/%B0A"),
    ('path = "gbk"\norigin = "legacy"', b"/%B0%41", b"/%B0A"),
    ('path = "shift_jis"\norigin = "legacy"', spelled("/表.html"), b"/%95%5C.html"),
    ('path = "shift_jis"\norigin = "legacy"', b"/%83@", b"/%83%40"),
    ('path = "shift_jis"\norigin = "legacy"', spelled("/é表"), spelled("/é表")),
    # To an origin that never heard of UTF-8.
    ('path = "windows-1251"\norigin = "legacy"', spelled("/Кирилл"), spelled("/Кирилл", "cp1251")),
    ('path = "windows-1251"\norigin = "legacy"', spelled("/Кирилл", "cp1251"), spelled("/Кирилл", "cp1251")),
    (
        'path = "windows-1251"\norigin = "legacy"',
        spelled("/日本/я"),
        spelled("/日本") + spelled("/я", "cp1251"),
    ),
    ('path = "euc-kr"\norigin = "legacy"', spelled("/한국어"), spelled("/한국어", "euc_kr")),
    ('path = "windows-1251"\norigin = "legacy"', spelled("/a?я"), spelled("/a?я")),
    ('path = "euc-jp"\norigin = "legacy"', spelled("/¥/‾"), spelled("/¥/‾")),  # "\\" and "~" there
    # Bytes that could be both.
    ('path = "euc-kr"', spelled("/책", "cp949"), spelled("/å")),
    ('path = "euc-kr"\nprefer = "legacy"', spelled("/책", "cp949"), spelled("/책")),
    ('path = "gbk"\nprefer = "legacy"', spelled("/台", "gbk"), spelled("/台")),
    ('path = "windows-1251"\nprefer = "legacy"', spelled("/Её", "cp1251"), spelled("/Её")),
    ('path = "windows-1251"\nprefer = "legacy"', spelled("/Кирилл"), spelled("/Кирилл")),
    ('path = "windows-1251"\nprefer = "legacy"', spelled("/é"), spelled("/Г©")),
    ('path = "euc-kr"\nprefer = "legacy"', spelled("/é"), spelled("/챕")),
    ('query = "gbk"\nprefer = "legacy"', b"/?q=%CC%A8", b"/?q=" + spelled("台")),
    ('path = "euc-kr"\nprefer = "legacy"\norigin = "legacy"', spelled("/책"), spelled("/책", "cp949")),
    ('path = "euc-kr"\nprefer = "legacy"\norigin = "legacy"', b"/%C3%A5", b"/%C3%A5"),
    ('path = "windows-1251"\nprefer = "legacy"\norigin = "legacy"', b"/%D0%B8", b"/%D0%B8"),
    # Several charsets, in order.
    ('path = ["euc-jp", "shift_jis"]', spelled("/日本語", "euc_jp"), spelled("/日本語")),
    ('path = ["euc-jp", "shift_jis"]', spelled("/日本語", "cp932"), spelled("/日本語")),
    ('path = ["shift_jis", "euc-jp"]', b"/%B1%B1", spelled("/ｱｱ")),
    ('path = ["euc-jp", "shift_jis"]', b"/%B1%B1", spelled("/臼")),
    ('path = ["us-ascii", "windows-1251"]', b"/%E9", spelled("/é")),
    (
        'path = ["euc-jp", "shift_jis"]\norigin = "legacy"',
        spelled("/日本語", "cp932"),
        spelled("/日本語", "euc_jp"),
    ),
    ('path = ["windows-1251", "windows-1252"]\norigin = "legacy"', spelled("/é"), spelled("/é")),
    # A text that would be taken for another word stays in UTF-8: "Рё" in windows-1251 is "и" in UTF-8.
    ('path = "windows-1251"\norigin = "legacy"', spelled("/Рё"), spelled("/Рё")),
    ('path = "windows-1251"\norigin = "legacy"', spelled("/и"), spelled("/и", "cp1251")),
)
def test_legacy_bytes_become_utf_8(settings, target, canonical):
    profile = own(f"[charset]\n{settings}")
    assert canonical_target(target, profile) == canonical
    assert canonical_target(canonical, profile) == canonical


def test_bad_utf_8_is_judged_after_transcoding():
    profile = own('charset.path = "windows-1253"\nreject.sequences = ["bad-utf-8"]')
    assert canonical_target(b"/%fe", profile) == spelled("/ώ")
    assert canonical_target(b"/%aa", profile) == Rejected("bad-utf-8", ("bad-utf-8",))


def test_transcoding_is_a_stage_of_its_own_and_lossy():
    stages, _ = explain_target(
        b"/%ff?%ff", own('charset = { path = "windows-1251", query = "windows-1251" }')
    )
    assert [
        (stage.name, stage.before, stage.after, stage.lossy) for stage in stages if "charset" in stage.name
    ] == [
        ("charset", b"/%FF?%ff", b"/%D1%8F?%ff", True),
        ("query-charset", b"/%D1%8F?%ff", b"/%D1%8F?%D1%8F", True),
    ]


@cases(
    "text, key",
    ("charset.path = 'utf-16'", "charset.path"),
    ("charset.path = 'gb18030'", "charset.path"),
    ("charset.path = 'utf-8'", "charset.path"),
    ("charset.path = ['euc-jp', 'utf-8']", "charset.path"),
    ("charset.path = 1251", "charset.path"),
    ("charset.prefer = 'windows-1251'", "charset.prefer"),
    ("charset.origin = 'windows-1251'", "charset.origin"),
    ("charset.origin = 'legacy'", "charset.origin"),
    (
        "charset = { path = 'koi8-r', origin = 'legacy' }\nreject.sequences = ['bad-utf-8']",
        "reject.sequences",
    ),
    ("charset.trust_encoding_fields = 1", "charset.trust_encoding_fields"),
)
def test_charsets_that_cannot_be(text, key):
    with pytest.raises(ProfileError) as refused:
        own(text)
    assert refused.value.key == key


def sites(settings):
    return Sites([], Site("s", (), (Route(b"/", own(settings), "o"),)))


TRUSTING = sites('charset = { path = "windows-1251", trust_encoding_fields = true }')
PLAIN = sites('charset.path = "windows-1251"')
NO_LEGACY = sites("charset.trust_encoding_fields = true")


@cases(
    "some, target, encodings, canonical",
    (TRUSTING, b"/%d1%8f", (b"", b""), b"/%D1%8F"),
    (TRUSTING, b"/%d1%8f", (b"UTF-8", b""), b"/%D1%8F"),
    (TRUSTING, b"/%d1%8f", (b" Windows-1251 ", b""), spelled("/СЏ")),
    (TRUSTING, b"/%d1", (b"koi8-r", b""), spelled("/я")),
    (TRUSTING, b"/%ff", (b"x-unknown", b""), spelled("/я")),
    (TRUSTING, b"/%ff", (b"unicode_escape", b""), spelled("/я")),
    (TRUSTING, b"/%ff", (b"UTF-8", b""), None),
    (TRUSTING, b"/?%ff", (b"", b"utf-8"), None),
    (TRUSTING, b"/?%ff", (b"", b"windows-1251"), b"/?" + spelled("я")),
    (PLAIN, b"/%d1%8f", (b"windows-1251", b""), b"/%D1%8F"),
    (PLAIN, b"/%ff", (b"UTF-8", b""), spelled("/я")),
    (NO_LEGACY, b"/%ff", (b"", b""), b"/%FF"),
    (NO_LEGACY, b"/%ff", (b"windows-1251", b""), spelled("/я")),
)
def test_declared_encodings_of_clients_are_trusted_where_set(some, target, encodings, canonical):
    result = resolve(target, [b"a"], b"http", some, encodings=encodings)
    if canonical is None:
        assert result == Rejected("bad-utf-8", ("bad-utf-8",))
    else:
        assert result.target == canonical
        assert resolve(result.target, [b"a"], b"http", some) == result


@cases(
    "some, target, fields",
    (TRUSTING, b"/%ff?%d1%8f", [(b"uri-path-encoding", b"UTF-8"), (b"uri-query-encoding", b"UTF-8")]),
    (TRUSTING, b"/a?%ff", [(b"uri-path-encoding", b"UTF-8")]),
    (PLAIN, b"/a?b", [(b"uri-path-encoding", b"UTF-8")]),
    (sites('charset.path = "windows-1253"'), b"/%AA", []),
    (sites(""), b"/a?b", []),
)
def test_the_origin_server_is_told_the_encodings(some, target, fields):
    canonical = resolve(target, [b"a"], b"http", some)
    assert isinstance(canonical, Canonical)
    assert encoding_fields(canonical) == fields


@cases(
    "value", b"", b"idna", b"rot13", b"utf-7", b'utf8"', b"zlib", b"gb18030", b"utf-16", b"../../x", b"\xff"
)
def test_other_charsets_are_unknown(value):
    assert known_charset(value) == ""


@cases(
    "value, name",
    (b"utf8", "utf-8"),
    (b'"UTF-8"', "utf-8"),
    (b" Unicode-1-1-UTF-8\t", "utf-8"),
    (b"cp1251", "windows-1251"),
    (b"latin1", "windows-1252"),
    (b"ISO-8859-1", "windows-1252"),
    (b"us-ascii", "windows-1252"),
    (b"latin5", "windows-1254"),
    (b"iso-8859-11", "windows-874"),
    (b"x-sjis", "shift_jis"),
    (b"windows-31j", "shift_jis"),
    (b"ks_c_5601-1987", "euc-kr"),
    (b"gb2312", "gbk"),
    (b"big5-hkscs", "big5"),
    (b"ms932", "shift_jis"),
    (b"koi8-ru", "koi8-u"),
    (b"unicode20utf8", "utf-8"),
    (b"x-mac-roman", "macintosh"),
    (b"logical", "iso-8859-8-i"),
)
def test_a_charset_has_every_label_of_whatwg(value, name):
    assert known_charset(value) == name
    if name != "utf-8":
        assert own(f"[charset]\npath = '{value.decode()}'").charset.path == (name,)
