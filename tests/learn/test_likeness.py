"""Templates and verdicts, without any network."""

from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal_learn.likeness import CommonWords, Reply, without_echo, words
from univocal_learn.questions import Pair, questions, risks, siblings
from univocal_learn.sample import varied
from univocal_learn.verdicts import Evidence, Judge, verdict_of
from univocal_learn.written import Settings, folded, loaded, settings_of, toml


def html(text, status=200, **fields):
    named = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in fields.items())
    return Reply(status, (*named, (b"content-type", b"text/html")), text.encode())


def template(*texts):
    result = CommonWords.of(words(html(texts[0])))
    for text in texts[1:]:
        result = result.widened(words(html(text)))
    return result


@cases(
    "seen, text, fits",
    (["a b c"], "a b c", True),
    (["a b c"], "a <b> c", True),  # markup and blanks are no words
    (["a b c"], "a c b", False),
    (["a b c"], "a b c d", False),
    (["a b c"], "a b", False),
    (["at 12:00 b c", "at 12:01 b c"], "at 13:00 b c", True),
    (["at 12:00 b c", "at 12:01 b c"], "at 13:00 c b", False),
    (["at 12:00 b c", "at 12:01 b c"], "b c", False),
    (["a x", "a y"], "a", True),
    (["a x", "a y"], "a z", True),
    (["x a", "y a"], "z b", False),
    (["one", "two"], "three", True),  # nothing stays: such a page decides nothing
    (["1 2 3 4", "4 3 2 1"], "2 1 4 3 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3", False),
)
def test_a_template_fits(seen, text, fits):
    assert template(*seen).fits(words(html(text))) is fits


@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12), min_size=1, max_size=4))
def test_a_widened_template_keeps_only_common_words(rows):
    wide = CommonWords.of(rows[0])
    for row in rows[1:]:
        wide = wide.widened(row)
        left = iter(row)
        assert all(item in left for item in wide.items if item is not None)  # in this order


def test_content_that_is_no_text_is_compared_whole():
    one, other = (Reply(200, ((b"content-type", b"image/png"),), body) for body in (b"a b", b"a  b"))
    assert words(one) != words(other)


def test_the_echo_of_a_target_is_left_out():
    assert without_echo([b"Page", b"A(b)", b"of", b"/wiki/A%28b)"], b"/wiki/A%28b)") == [b"Page", b"of"]


def judge(pages):
    """A judge of an origin that answers as told, in turn, and 404 else."""

    def fetch(target, number):
        found = pages.get(target, html("no", 404))
        return found[number % len(found)] if isinstance(found, list) else found

    return Judge(fetch, "http://o.example")


A, B = b"/x/a", b"/x/%61"
PAGE = html("the page " + " ".join(map(str, range(30))))
NOISE = [html(f"the page at {second} " + " ".join(map(str, range(30)))) for second in range(9)]


@cases(
    "pages, verdict, why",
    ({A: PAGE, B: PAGE}, "same", "the same content"),
    ({A: NOISE, B: NOISE[5]}, "same", "the same content"),
    ({A: PAGE}, "different", "refused: status 404"),
    ({A: PAGE, B: html("x", 400)}, "different", "refused: status 400"),
    ({A: PAGE, B: html("x", 503)}, "unknown", "status 503"),
    ({A: PAGE, B: Reply(0)}, "unknown", "no answer"),
    ({A: PAGE, B: html("another page")}, "different", "other content"),
    ({A: PAGE, B: [html("x", 404), PAGE]}, "unknown", "it differed once"),
    ({A: PAGE, B: html("", 301, location="/x/a")}, "same", "301 to it"),
    ({A: PAGE, B: html("", 307, location="http://o.example/x/a")}, "same", "307 to it"),
    ({A: PAGE, B: html("", 302, location="/login")}, "different", "302 to another URL"),
    ({A: PAGE, B: html("", 301, location="https://o.example/x/%61")}, "unknown", "another origin"),
    ({A: html("p q", etag='"1"'), B: html("p q", etag='"2"')}, "unknown", "another etag"),
    ({A: html("p q", vary="cookie"), B: html("p q")}, "different", "another vary"),
    ({A: [html("p q", etag='"1"'), html("p q", etag='"2"')], B: html("p q", etag='"3"')}, "same", "content"),
    ({A: html("x", 404), B: PAGE}, "unknown", "status 404"),
    ({A: PAGE, B: PAGE, siblings(A)[0]: PAGE}, "unknown", "nonsense"),
    ({A: PAGE, B: PAGE, siblings(A)[0]: html("", 302, location="/x/a")}, "unknown", "redirected to it"),
    ({A: PAGE, B: PAGE, b"/x/zq": PAGE}, "unknown", "anything in that place"),
    ({A: [html("1"), html("2")], B: html("3")}, "unknown", "nothing of it stays"),
    ({A: PAGE, B: PAGE, **dict.fromkeys(siblings(A), html("Nothing, sorry"))}, "unknown", "with one page"),
)
def test_a_pair_has_its_verdict_and_reason(pages, verdict, why):
    found = judge(pages).ask(Pair(A, B, (b"/x/zq",)))
    assert (found.verdict, why in found.why) == (verdict, True), found.why


def test_verdicts_of_pairs_are_weighed_together():
    same, unsure, other = (
        Evidence(Pair(A, B, doubt=doubt), v, "")
        for doubt, v in ((0.04, "same"), (0.15, "same"), (0.04, "different"))
    )
    assert verdict_of([same])[0] == "same"
    assert verdict_of([unsure])[0] == "unknown"
    assert verdict_of([unsure, unsure])[0] == "same"
    assert verdict_of([same, same, other])[0] == "different"
    assert verdict_of([])[0] == "unknown"


SAMPLE = [
    *(b"/", b"/a/", b"/wiki/A(b)", b"/wiki/%C3%A9;v=1?b=1&a=2", b"/x/y.html?q=a+b", b"/a/index.php"),
    b"/all/:@!$&'()*+,;=[]?n=",
]


def test_every_question_offers_spellings_and_true_decoys():
    """The decoys are other pages to any reading; both are targets that can be asked for."""
    for question in [*questions(SAMPLE), *risks()]:
        assert any(list(question.pairs(target)) for target in SAMPLE), question.name
        for target in SAMPLE:
            for pair in question.pairs(target):
                assert pair.a == target
                assert pair.b != target
                for asked in (pair.b, *pair.decoys):
                    assert asked.startswith(b"/")
                    assert asked.isascii()
                    assert b" " not in asked
                assert target not in pair.decoys
                assert pair.b not in pair.decoys


def test_the_sample_is_asked_in_an_order_of_many_kinds():
    ordered = varied([b"/a/1", b"/a/2", b"/a/3", b"/b/1", b"/c.png"])
    assert ordered == [b"/a/1", b"/b/1", b"/c.png", b"/a/2", b"/a/3"]


def test_settings_of_nothing_are_sound_and_load():
    settings = settings_of({})
    assert settings == Settings(
        refused=("control-character", "fragment", "bad-escape", "encoded-dot-segment")
    )
    profile = loaded(settings)
    assert folded(profile, b"/%61", b"/a")
    assert not folded(profile, b"/a/../b", b"/b")


@given(st.randoms(use_true_random=False))
def test_settings_as_toml_load(chance):
    some = Settings(
        decode=bytes(chance.sample(sorted(b":@!$'()*,"), 4)),
        merge_slashes=chance.random() < 0.5,
        drop=("a*", 'q"'),
        defaults={"page": "1", "ü": '"'},
        rewrites=(("/en/", "/", "prefix"),),
    )
    profile = loaded(some)
    assert profile.merge_slashes is some.merge_slashes
    assert profile.query.drop == (b"a*", b'q"')
    assert toml(some, "x", {"path.decode": ["why"]}).count("# why\ndecode") == 1
