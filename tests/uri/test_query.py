import pytest

from examples import cases
from univocal.http.errors import ProfileError
from univocal.uri.target import canonical_target, explain_target
from uri.profiles import own


@cases(
    "settings, query, canonical",
    # The query stays as it came, but for bytes that may not stand in one.
    ("", b"?", b"?"),
    ("", b"?a=%2f%7e&&b", b"?a=%2f%7e&&b"),
    ("", b"?a=[b]/c?d:@!$'()*+,;", b"?a=[b]/c?d:@!$'()*+,;"),
    ("", b'?a=<b>|"\\^`{}\xe9 %4g', b"?a=%3Cb%3E%7C%22%5C%5E%60%7B%7D%E9%20%254g"),
    # sort: by name as a form's reader has it, repeats in their order.
    ("query.sort = true", b"?b=1&a=2&c&b=0", b"?a=2&b=1&b=0&c"),
    ("query.sort = true", b"?a=2&%61=1&A=0", b"?A=0&a=2&%61=1"),
    ("query.sort = true", b"?a+b&a%20b&a&", b"?&a&a+b&a%20b"),
    ("query.sort = true", b"?b=2", b"?b=2"),
    ("query.sort = true", b"?", b"?"),
    # drop: names and globs, in whatever spelling.
    ('query.drop = ["utm_*", "fbclid"]', b"?utm_source=x&a=1&fbclid=y&utm_=z", b"?a=1"),
    ('query.drop = ["utm_*"]', b"?a&utm%5Fsource=1&%75tm_x&xutm_y&UTM_z", b"?a&xutm_y&UTM_z"),
    ('query.drop = ["utm_*"]', b"?utm_content=x;callback=evil", b""),
    ('query.drop = ["a"]', b"?a%3D1&a=1&a", b"?a%3D1"),
    ('query.drop = ["a?c"]', b"?abc&ac&a%0Ac&a%26c", b"?ac"),
    ('query.drop = ["a.c"]', b"?abc&a.c", b"?abc"),
    ('query.drop = ["*a*b*"]', b"?xaxbx&xbxax&ab", b"?xbxax"),
    ('query.drop = ["*a*a"]', b"?a&aa&axa&ba", b"?a&ba"),
    ('query.drop = ["a", "ab"]', b"?ab&abc", b"?abc"),
    ('query.drop = ["[a]|b"]', b"?a&b&%5Ba%5D%7Cb", b"?a&b"),
    ('query.drop = ["a.c*", "[a]|b*"]', b"?abc&a.cd&a&b&%5Ba%5D%7Cbc", b"?abc&a&b"),
    ('query.drop = ["*a*b*c"]', b"?axbxbc&axc", b"?axc"),
    ('query.drop = ["*"]', b"?a&b", b""),
    ('query.drop = ["*"]', b"?", b"?"),
    # allow
    ('query.allow = ["title", "x*"]', b"?title=A&y=1&xa&title=B&", b"?title=A&xa&title=B"),
    ("query.allow = []", b"?a=1", b""),
    ('query.allow = ["a*"]\nquery.drop = ["ab"]', b"?a&ab&b", b"?a"),
    # defaults: only where the name stands once, as an origin takes the first or the last.
    ('query.defaults = { lang = "en", page = 1 }', b"?page=1&x&lang=en", b"?x"),
    ('query.defaults = { lang = "en" }', b"?lang=de&lang=en", b"?lang=de&lang=en"),
    ('query.defaults = { lang = "en us" }', b"?l%61ng=en+us", b""),
    ('query.defaults = { lang = "" }', b"?lang=&lang2=", b"?lang2="),
    ('query.defaults = { lang = "en" }', b"?lang=EN", b"?lang=EN"),
    # empty parameters: without a value after "=", or nothing at all; a bare name is a flag.
    ("query.drop_empty = true", b"?a=&b=1&&c&=&=d", b"?b=1&c&=d"),
    ("query.drop_empty = true", b"?&&", b""),
    ("query.drop_empty = true", b"?", b"?"),
    ("query.drop_empty_mark = true", b"?", b""),
    ("query.drop_empty_mark = true", b"?&", b"?&"),
    ("query.drop_empty_mark = true\nquery.drop_empty = true", b"?&", b""),
    # A ";" separates, where the profile says so.
    ('query.semicolon = "separates"', b"?a;b&c", b"?a;b&c"),
    ('query.semicolon = "separates"\nquery.drop = ["utm_*"]', b"?a=1;utm_source=x&b=2", b"?a=1&b=2"),
    ('query.semicolon = "separates"\nquery.drop = ["utm_*"]', b"?a=1;b=2", b"?a=1;b=2"),
    ('query.semicolon = "separates"\nquery.drop = ["a"]', b"?a;a", b""),
    ('query.semicolon = "separates"\nquery.allow = ["page"]', b"?page=1;evil=2", b"?page=1"),
    ('query.semicolon = "separates"\nquery.allow = ["page"]', b"?page=1%3Bevil=2", b"?page=1%3Bevil=2"),
    ('query.allow = ["page"]', b"?page=1;evil=2", b"?page=1;evil=2"),
    ('query.semicolon = "separates"\nquery.defaults = { page = "1" }', b"?page=1;b", b"?b"),
    ('query.semicolon = "separates"\nquery.defaults = { page = "1" }', b"?page=1;page=2", b"?page=1;page=2"),
    ('query.semicolon = "separates"\nquery.drop_empty = true', b"?a=;b;;c=1", b"?b&c=1"),
    ('query.semicolon = "separates"\nquery.sort = true', b"?b;a", b"?a&b"),
    ('query.semicolon = "separates"\nquery.ring = "nginx-uri-component"', b"?a=b;c=d=e", b"?a=b;c=d%3De"),
    ('query.semicolon = "separates"\ncharset.query = "windows-1251"', b"?%E9;%D0%B8", b"?%D0%B9;%D0%B8"),
    # A ring is for names and values; what delimits is never decoded.
    ('query.ring = "rfc3986"', b"?%61=%2f%3d&%7e", b"?a=%2F%3D&~"),
    ('query.ring = "nginx-uri"', b"?a%3Db=%26%2B%3b[%5B/%2f?+", b"?a%3Db=%26%2B%3B[[//%3F+"),
    ('query.ring = "nginx-args"', b"?a=b+c;%28(:%3a", b"?a=b+c;((::"),
    ('query.ring = "nginx-1.13-args"', b"?a=|;+", b"?a=|;+"),
    ('query.ring = "nginx-uri-component"', b"?a=b=c:/&d", b"?a=b%3Dc%3A/&d"),
    ('query.ring = "ngx-lua"', b"?a+b=c%20d+%2b!'()*~:", b"?a%20b=c%20d%20%2B!'()*~%3A"),
)
def test_each_setting_changes_the_canonical_query(settings, query, canonical):
    profile = own(settings)
    assert canonical_target(b"/x" + query, profile) == b"/x" + canonical
    assert canonical_target(b"/x" + canonical, profile) == b"/x" + canonical


def test_the_stages_of_a_query():
    settings = (
        'query = { allow = ["*"], drop = ["d"], defaults = { e = "1" }, drop_empty = true, sort = true, '
        "drop_empty_mark = true }"
    )
    stages, result = explain_target(b"/x?d=1&c=%7c|&b=&e=1&a", own(settings))
    assert result == b"/x?a&c=%7c%7C"
    assert [(stage.name, stage.lossy) for stage in stages if "query" in stage.name] == [
        ("query", False),
        ("query-allow", True),
        ("query-drop", True),
        ("query-defaults", True),
        ("query-drop-empty", True),
        ("query-sort", True),
        ("query-drop-empty-mark", True),
    ]


@cases(
    "text, key",
    ("query.sort = 1", "query.sort"),
    ("query.drop = 'a'", "query.drop"),
    ("query.allow = [1]", "query.allow"),
    ("query.defaults = ['a']", "query.defaults"),
    ("query.defaults = { a = true }", "query.defaults"),
    ("query.ring = 'x'", "query.ring"),
    ("query.decode = ':'", "query.decode"),
    ("path.index_names = ['a/b']", "path.index_names"),
    ("path.index_names = ['..']", "path.index_names"),
    ("path.index_names = ['']", "path.index_names"),
    ("path.trailing_slash = 'x'", "path.trailing_slash"),
    ("path.parameter_delimiters = ''", "path.parameter_delimiters"),
    ("path.parameter_delimiters = '/'", "path.parameter_delimiters"),
    ("path.parameter_delimiters = 'ab;'", "path.parameter_delimiters"),
    ("path.parameter_delimiters = 'a'", "path.parameter_delimiters"),
    (
        "path = { parameters = 'strip', parameter_delimiters = '; ,', decode = ',' }",
        "path.parameter_delimiters",
    ),
    # A ";" begins no query where it could be data.
    ('query.semicolon = "begins"', "query.semicolon"),
    ('path.decode = ";"\nquery.semicolon = "begins"', "query.semicolon"),
    ('query.semicolon = "&"', "query.semicolon"),
    ("path.unicode_escapes = 1", "path.unicode_escapes"),
)
def test_settings_that_cannot_be(text, key):
    with pytest.raises(ProfileError) as refused:
        own(text)
    assert refused.value.key == key


def test_a_glob_is_matched_in_linear_time():
    """Were each "*" tried in every way, this would take longer than the universe has."""
    profile = own(f'query.drop = ["{"*a" * 30}b"]')
    query = b"?" + b"a" * 6000
    assert canonical_target(b"/" + query, profile) == b"/" + query


def test_a_semicolon_that_begins_the_query_is_a_stage():
    stages, canonical = explain_target(b"/a;b?c", own('path.encode = ";"\nquery.semicolon = "begins"'))
    assert (stages[0].name, stages[0].after, stages[0].lossy) == ("semicolon", b"/a?b?c", False)
    assert canonical == b"/a?b?c"
