"""Rewrite rules and tags: what a path is taken for, and what it is filed under."""

import pytest

from examples import cases
from univocal.http.errors import ProfileError
from univocal.uri.rewrite import Rule, first_overlap
from univocal.uri.target import canonical_target, explain_target, path_tags
from uri.profiles import own

NO_SUFFIXES = ["", ".", "/", "..", "/.", "/..", "html", "/a/", "/a/..", ".a?b", ".a%41", ".a%2", ".a#"]


def rule(pattern, output, at="anywhere"):
    return f'[[rewrite]]\nfrom = "{pattern}"\nto = "{output}"\nat = "{at}"\n'


@cases(
    "rules, target, canonical",
    (rule("/story_", "/story?id="), b"/story_5", b"/story?id=5"),
    (rule("/story_", "/story?id="), b"/a/story%5F5", b"/a/story?id=5"),
    (rule("/story_", "/story?id="), b"/story", b"/story"),
    (rule("x", "y"), b"/xx/axb?x=x", b"/yy/ayb?y=y"),
    (rule("/old/", "/new/", "start"), b"/old/old/", b"/new/old/"),
    (rule("/old/", "/new/", "start"), b"/x/old/", b"/x/old/"),
    (rule(".htm", ".html", "end"), b"/a.htm/b.htm", b"/a.htm/b.html"),
    (rule(".htm", ".html", "end"), b"/a.htm?b.htm", b"/a.htm?b.html"),
    (rule("/a", "/b", "start") + rule("/x", "/y"), b"/a/x", b"/b/y"),
    # An escape is one octet: nothing begins within it.
    (rule("2", "7"), b"/%282/%2528", b"/%287/%2578"),
    (rule("F", "G"), b"/%2fF?%2F", b"/%2FG?%2F"),
    (rule("%C3%A9", "e"), b"/caf%c3%a9", b"/cafe"),
    # The result is canonical again.
    (rule("-", "/"), b"/a-..-b", b"/b"),
    (rule("-", "/"), b"/a-", b"/a/"),
    ("path.merge_slashes = true\n" + rule("-", "/"), b"/a--b", b"/a/b"),
    ('path.index_names = ["i"]\n' + rule("/home", "/i", "end"), b"/a/home", b"/a/"),
    ('query.drop = ["id"]\n' + rule("/story_", "/story?id="), b"/story_5", b"/story"),
    # The target is taken as text, or the request's query goes on the one that the rule begins.
    (rule("/story_", "/story?id="), b"/story_7?print=1", b"/story?id=7?print=1"),
    (rule("/story_", "/story?id=", "path"), b"/story_7", b"/story?id=7"),
    (rule("/story_", "/story?id=", "path"), b"/story_7?print=1", b"/story?id=7&print=1"),
    (rule("/story_", "/story?id=", "path"), b"/story_7?", b"/story?id=7"),
    (rule("/story/", "/story.php?id=", "start"), b"/story/7?print=1", b"/story.php?id=7&print=1"),
    (rule("/story/", "/story.php?id=", "start"), b"/x/story/7?print=1", b"/x/story/7?print=1"),
    (rule("/story_", "/story?id=", "path"), b"/x?u=/story_7", b"/x?u=/story_7"),
    (rule("/story_", "/story?id=", "path"), b"/a/story_7?u=/story_8", b"/a/story?id=7&u=/story_8"),
    ('query.drop = ["print"]\n' + rule("/story_", "/story?id=", "path"), b"/story_7?print=1", b"/story?id=7"),
    # A prefix, as often as it stands there, for every section.
    (rule("/en/", "/", "prefix"), b"/en/story?a=/en/", b"/story?a=/en/"),
    (rule("/en/", "/", "prefix"), b"/en/en/en/story", b"/story"),
    (rule("/en/", "/", "prefix"), b"/x/en/story", b"/x/en/story"),
    (rule("/en/", "/", "prefix"), b"/english/story", b"/english/story"),
    (rule("/en/", "/", "prefix"), b"/en", b"/en"),
    (rule("/index.php/wiki/", "/wiki/", "prefix"), b"/index.php/wiki/A", b"/wiki/A"),
    (rule("/index.php/wiki/", "/wiki/", "prefix"), b"/index_php/wiki/A", b"/index_php/wiki/A"),
    # A suffix, as often as it stands there, behind a name.
    (rule(".html", "", "suffix"), b"/doc/page7.html", b"/doc/page7"),
    (rule(".html", "", "suffix"), b"/doc/page7.html?x=.html", b"/doc/page7?x=.html"),
    (rule(".html", "", "suffix"), b"/page7.html.html", b"/page7"),
    (rule(".html", "", "suffix"), b"/page7.html/", b"/page7.html/"),
    (rule(".html", "", "suffix"), b"/doc/.html", b"/doc/.html"),
    (rule(".html", "", "suffix"), b"/doc/..html", b"/doc/..html"),
    (rule(".html", "", "suffix"), b"/doc/page7%2Ehtml", b"/doc/page7"),
    (rule(".html", "", "suffix"), b"/doc/page7%252Ehtml", b"/doc/page7%252Ehtml"),
    (rule("/amp", "", "suffix"), b"/p/5/amp", b"/p/5"),
    (rule(".a/b", ".a", "end") + rule(".a", "", "suffix"), b"/x.a/b", b"/x"),
    (rule("/i.x", "/", "end") + rule("/a/", "/a.php?id=", "start"), b"/a/i.x", b"/a.php?id="),
    (rule("/amp", "", "suffix"), b"/amp", b"/amp"),
    (rule("/amp", "", "suffix"), b"//amp", b"//amp"),
    (rule("/amp", "", "suffix"), b"/p/5/xamp", b"/p/5/xamp"),
    ('path.trailing_slash = "add"\n' + rule(".html", "", "suffix"), b"/p/5.html", b"/p/5/"),
    (rule("/a/b/", "/c/", "prefix") + rule("/c/", "/", "prefix"), b"/a/b/x", b"/x"),
    # One wildcard segment is what no person would have chosen.
    (rule("/s/*/", "/", "prefix"), b"/s/0123456789abcdef/story/5", b"/story/5"),
    (rule("/s/*/", "/", "prefix"), b"/s/short/story/5", b"/s/short/story/5"),
    (rule("/s/*/", "/", "prefix"), b"/s/0123456789abcdef%2F/story/5", b"/s/0123456789abcdef%2F/story/5"),
    (rule("/(S(*))/", "/", "prefix"), b"/(S(0123456789abcdef_-))/a.aspx", b"/a.aspx"),
    (rule("/*/story/", "/story/", "prefix"), b"/0123456789abcdef/story/5", b"/story/5"),
    (rule("/*/story/", "/story/", "prefix"), b"/0123456789abcdef/other/5", b"/0123456789abcdef/other/5"),
)
def test_rules_rewrite_once_and_for_all(rules, target, canonical):
    profile = own(rules)
    assert canonical_target(target, profile) == canonical
    assert canonical_target(canonical, profile) == canonical


@cases(
    "rules, target, reason",
    ('reject.sequences = ["dot-segment"]\n' + rule("-", "/"), b"/a-..-b", "dot-segment"),
    ('reject.sequences = ["above-root"]\n' + rule("-", "/"), b"/..-b", "above-root"),
    (rule("/a", "x"), b"/a", "no-leading-slash"),
)
def test_rewritten_targets_are_judged_again(rules, target, reason):
    result = canonical_target(target, own(rules))
    assert result.reason == reason


def test_the_stage_and_its_turns():
    stages, result = explain_target(b"/a-..-b", own(rule("-", "/")))
    assert result == b"/b"
    assert [(stage.name, stage.lossy) for stage in stages] == [
        ("ring", False),
        ("dot-segments", False),
        ("rewrite", True),
        ("query", False),
        ("dot-segments", False),  # what the rewriting made, removed in a second turn
    ]
    assert stages[-1].before == b"/a/../b"


@cases(
    "rules, writer, matcher",
    ([("a", "a")], 0, 0),
    ([("a", "ba")], 0, 0),
    ([("ab", "b")], 0, 0),
    ([("ab", "bb")], 0, 0),
    ([("ab", "xa")], 0, 0),
    ([("/index.php/wiki/", "/wiki/", "anywhere")], 0, 0),
    ([("/index.php/", "/", "start")], 0, 0),
    ([("a", "b"), ("b", "c")], 0, 1),
    ([("b", "c"), ("a", "b")], 1, 0),
    ([("a", "xy"), ("yz", "q")], 0, 1),
    ([("/a", "/b", "start"), ("b/", "c")], 0, 1),
    ([("x", "/a"), ("/a", "/b", "start")], 0, 1),
    ([(".htm", ".x", "end"), ("a.x", "b", "end")], 0, 1),
    ([("-", "/"), ("/en/", "/", "prefix")], 0, 1),
    ([("x", "/s/"), ("/s/*/", "/", "prefix")], 0, 1),
    ([("x", "y.html"), (".html", "", "suffix")], 0, 1),
    ([("x", "y/story/"), ("/*/story/", "/story/", "prefix")], 0, 1),
)
def test_overlapping_rules_are_refused(rules, writer, matcher):
    with pytest.raises(ProfileError) as refused:
        own("".join(rule(*row) for row in rules))
    assert refused.value.key == f"rewrite[{writer}].to"
    assert f"rewrite[{matcher}].from" in str(refused.value)


@cases(
    "rules",
    [("/story_", "/story?id=")],
    [("/index.php/wiki/", "/wiki/", "start")],
    [(".htm", ".html", "end")],
    [("/a", "/b", "start"), ("a/", "c/", "end")],
    [("/a.css", "/b.css"), (".css", "", "suffix")],
    [(".htm", ".html", "end"), ("lx", "q")],
    [("/en/", "/", "prefix"), ("/story_", "/story?id=")],
    [("/a/b/", "/c/", "prefix"), ("/c/", "/", "prefix")],
    [(".html", "", "suffix"), ("/amp", "", "suffix"), ("/story_", "/story?id=")],
    [("-title/amp", "-title", "end"), ("/en/", "/", "prefix"), (".title", "", "suffix")],
    [("/Default.aspx", "/", "end"), ("/article/", "/article.php?id=", "start")],
    [(".htm", ".html", "end"), ("/s/*/", "/", "prefix")],
)
def test_rules_that_leave_one_another_alone(rules):
    assert first_overlap([Rule(*(part.encode() for part in row[:2]), *row[2:]) for row in rules]) is None


@cases(
    "text, key",
    ("rewrite = 1", "rewrite"),
    ("rewrite = [1]", "rewrite[0]"),
    ("[[rewrite]]\nform = 'a'", "rewrite[0].form"),
    (rule("", "a"), "rewrite[0].from"),
    (rule("%", "a"), "rewrite[0].from"),
    (rule("%2", "a"), "rewrite[0].from"),
    (rule("%41", "a"), "rewrite[0].from"),
    (rule("a b", "a"), "rewrite[0].from"),
    (rule("#", "a"), "rewrite[0].from"),
    ('path.encode = "("\n' + rule("a", "("), "rewrite[0].to"),
    (rule("a", ""), "rewrite[0].to"),
    (rule("a", "%41"), "rewrite[0].to"),
    (rule("a", "b\\\\"), "rewrite[0].to"),
    (rule("a", "b#"), "rewrite[0].to"),
    (rule("a", "b\\n"), "rewrite[0].to"),
    (rule("a", "b c"), "rewrite[0].to"),
    (rule("a", "/../"), "rewrite[0].to"),
    (rule("a", "/b/."), "rewrite[0].to"),
    (rule("a", ".."), "rewrite[0].to"),
    (rule("?a=", "/a/"), "rewrite[0].to"),
    (rule("a", "b", "middle"), "rewrite[0].at"),
    (rule("/a/", "/b/", "path"), "rewrite[0].at"),
    (rule("?a=", "?b=", "path"), "rewrite[0].at"),
    (rule(".html", ".htm", "suffix"), "rewrite[0].to"),
    *((rule(each, "", "suffix"), "rewrite[0].from") for each in NO_SUFFIXES),
    (rule("/a/", "/b/", "prefix"), "rewrite[0].to"),
    (rule("/a/", "/a/b/", "prefix"), "rewrite[0].to"),
    (rule("/a/b/", "/../", "prefix"), "rewrite[0].to"),
    (rule("/a/b/", "/*/", "prefix"), "rewrite[0].to"),
    (rule("/a/b/", "", "prefix"), "rewrite[0].to"),
    (rule("/a/b/", "/?x=/", "prefix"), "rewrite[0].to"),
    (rule("/*/", "/", "prefix"), "rewrite[0].from"),
    (rule("/*/a/*/", "/", "prefix"), "rewrite[0].from"),
    (rule("/a", "/", "prefix"), "rewrite[0].from"),
    (rule("a/", "/", "prefix"), "rewrite[0].from"),
    (rule("/", "/", "prefix"), "rewrite[0].from"),
    (rule("/a/?b/", "/", "prefix"), "rewrite[0].from"),
    (rule("/%61/", "/", "prefix"), "rewrite[0].from"),
    (rule("/a b/", "/", "prefix"), "rewrite[0].from"),
    ("[[tags]]\nfrom = 'a'", "tags[0].to"),
    ("[[tags]]\nto = 'a'", "tags[0].from"),
    ("[[tags]]\nfrom = '('\nto = 'a'", "tags[0].from"),
    ("[[tags]]\nfrom = 'a'\nto = '\\1'", "tags[0].to"),
    ("[[tags]]\nfrom = 'a'\nto = '\\g<x>'", "tags[0].to"),
)
def test_rules_that_cannot_be(text, key):
    with pytest.raises(ProfileError) as refused:
        own(text)
    assert refused.value.key == key


def test_a_query_may_hold_what_a_path_may_not():
    profile = own('path.encode = "& ="\n' + rule("&sid=", "!s="))
    assert canonical_target(b"/x&sid=/?a=1&sid=2", profile) == b"/x%26sid%3D/?a=1!s=2"


THUMBNAILS = """
[[tags]]
from = "^(/[^/]+/[^/]+)/thumb/(./../[^/]+)/[^/]+$"
to = '\\1/\\2'

[[tags]]
from = "^/wikipedia/"
to = "wikipedia"
"""


@cases(
    "target, tags",
    (b"/wikipedia/commons/thumb/3/37/F.jpg/200px-F.jpg?x", {b"/wikipedia/commons/3/37/F.jpg", b"wikipedia"}),
    (b"/wikipedia/commons/3/37/F.jpg", {b"wikipedia"}),
    (b"/other?/wikipedia/", set()),
)
def test_tags_from_paths(target, tags):
    assert path_tags(target, own(THUMBNAILS)) == tags
    assert path_tags(target, own("")) == frozenset()
