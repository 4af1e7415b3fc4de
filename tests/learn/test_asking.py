"""Requests to an origin server: robots.txt, the rate, and remembered answers."""

import gzip
from itertools import pairwise

import httpx
import pytest

from examples import cases
from support import Clock
from univocal_learn.asking import Asker, Forbidden, OriginError, Remembered, remembering
from univocal_learn.likeness import Reply, words
from univocal_learn.verdicts import led_to

ORIGIN = "http://en.example"


def answered(content=b"page", status=200, **fields):
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    told = {"content-length": str(len(content)), **named}
    return httpx.Response(status, headers=told, stream=httpx.ByteStream(content))


def asker(handler, rate=100.0, clock=None):
    clock = clock or Clock()
    transport = httpx.MockTransport(lambda request: handler(request.extensions["target"]))
    return Asker(ORIGIN, rate, clock=clock, sleep=clock.sleep, transport=transport)


ROBOTS = """
User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*?print
Disallow: /*.pdf$
Crawl-delay: 2
"""


def site(robots):
    def handler(target):
        if target == b"/robots.txt":
            return answered(robots.encode())
        return answered()

    return handler


@pytest.mark.parametrize(
    "target",
    [b"/private", b"/private/x", b"//private/x", b"/x/../private", b"/%70rivate", b"/a?print=1", b"/b/c.pdf"],
)
def test_urls_that_robots_txt_disallows_are_not_fetched(target):
    """RFC 9309 §2.2.2 and §2.2.3: the longest rule, stars and the end, in whichever spelling."""
    asking = asker(site(ROBOTS))
    asking.read_robots()
    with pytest.raises(Forbidden):
        asking.get(target)
    assert asking.asked == 1


@pytest.mark.parametrize("target", [b"/", b"/private/open", b"/a?x=print", b"/b/c.pdf?x", b"/robots.txt"])
def test_the_rest_is_asked(target):
    asking = asker(site(ROBOTS))
    asking.read_robots()
    assert asking.get(target).status == 200


def test_robots_txt_may_be_elsewhere_on_the_origin():
    def handler(target):
        if target == b"/robots.txt":
            return answered(b"", 301, location="/static/robots.txt")
        return answered(b"User-agent: univocal-probe\nDisallow: /")

    asking = asker(handler)
    asking.read_robots()
    with pytest.raises(Forbidden):
        asking.get(b"/a")


@pytest.mark.parametrize(("robots", "rate", "spacing"), [(ROBOTS, 20, 2.0), ("", 20, 0.05), ("", 0.5, 2.0)])
def test_the_slower_of_rate_and_crawl_delay_counts(robots, rate, spacing):
    clock = Clock()
    asking = asker(site(robots), rate, clock)
    asking.read_robots()
    asking.get(b"/a")
    before = clock.now
    asking.get(b"/b")
    assert spacing <= clock.now - before <= 1.06 * spacing


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.5, 2.9, 20.0, 33.3])
def test_no_second_has_more_requests_than_the_rate(rate):
    clock, times = Clock(), []

    def handler(_):
        times.append(clock.now)
        return answered()

    asking = asker(handler, rate, clock)
    for _ in range(100):
        asking.get(b"/a")
    assert max(sum(begin <= each < begin + 1 for each in times) for begin in times) <= max(rate, 1)


def test_an_origin_that_is_gone_is_not_asked_for_ever():
    asking = asker(lambda _: (_ for _ in ()).throw(httpx.ConnectError("refused")))
    with pytest.raises(OriginError, match="no longer answers"):
        list(map(asking.get, 1000 * [b"/a"]))
    assert asking.asked < 100


class Endless(httpx.SyncByteStream):
    def __init__(self, clock):
        self._clock = clock

    def __iter__(self):
        for _ in range(10_000):
            self._clock.sleep(5)
            yield b": still there\n"


def test_an_answer_that_does_not_end_is_none():
    clock = Clock()
    began = clock.now
    asking = asker(lambda _: httpx.Response(200, stream=Endless(clock)), clock=clock)
    assert asking.get(b"/events").status == 0
    assert clock.now - began < 200


def test_of_a_large_answer_the_beginning_and_the_length_count():
    beginning, ends = bytes(1 << 20), iter([b"a", b"bb"])
    asking = asker(lambda _: answered(beginning + next(ends)))
    assert asking.get(b"/a").body != asking.get(b"/a").body


def test_compressed_content_is_compared_as_a_whole():
    packed = ((b"content-type", b"text/html"), (b"content-encoding", b"br"))
    assert len(words(Reply(200, packed, b"\x1f\x8b three blanks here"))) == 1


@cases(
    "coding, content, found",
    ("gzip", gzip.compress(b"of words", mtime=0), [b"of", b"words"]),
    ("X-Gzip", gzip.compress(b"of words", mtime=0), [b"of", b"words"]),
    ("gzip", gzip.compress(b"of words", mtime=0)[:-9], [b"of", b"words"]),
    ("gzip", b"no gzip", None),
    ("br", b"of words", None),
)
def test_gzip_that_comes_unasked_is_unpacked(coding, content, found):
    answer = asker(lambda _: answered(content, content_encoding=coding)).get(b"/a")
    assert words(answer) == found if found else len(words(answer)) == 1


def test_compressed_input_is_bounded_like_any_other():
    packed = gzip.compress(bytes(1 << 24))
    assert len(asker(lambda _: answered(packed, content_encoding="gzip")).get(b"/a").body) == 1 << 20


# Answers that are kept


def test_failed_answers_are_not_kept_for_a_resumed_run(tmp_path):
    path, answers = tmp_path / "kept", {b"/a": Reply(200, (), b"x"), b"/b": Reply(0), b"/c": Reply(503)}
    kept = Remembered(path, "this run")
    fetch = remembering(answers.__getitem__, kept)
    for target, answer in answers.items():
        assert fetch(target, 0) == fetch(target, 0) == answer
    kept.close()
    again = Remembered(path, "this run")
    assert again.answers == {(b"/a", 0): answers[b"/a"]}
    again.close()


@pytest.mark.parametrize("damaged", [b"[]", b'{"target": "/b"}', b'{"target', b"\xff", b"null"])
def test_a_damaged_line_is_where_the_run_goes_on(tmp_path, damaged):
    path = tmp_path / "kept"
    kept = Remembered(path, "this run")
    kept.keep(b"/a", 0, Reply(200, ((b"x", b"\xe9"),), b"content"))
    kept.close()
    with path.open("ab") as file:
        file.write(damaged + b"\n" + path.read_bytes().splitlines()[1] + b"\n")
    again = Remembered(path, "this run")
    assert again.answers == {(b"/a", 0): Reply(200, ((b"x", b"\xe9"),), b"content")}
    again.keep(b"/c", 0, Reply(404))
    again.close()
    third = Remembered(path, "this run")
    third.close()
    assert len(third.answers) == 2


# Redirects


@cases(
    "location, target",
    (b"/b", b"/b"),
    (b"/b#top", b"/b"),
    (b"c?x", b"/a/c?x"),
    (b"http://en.example/b", b"/b"),
    (b"HTTP://EN.example", b"/"),
    (b"http://en.example?x", b"/?x"),
    (b"//en.example/b", b"/b"),
    (b"/\xc3\xa9 \x1b[31m", b"/%C3%A9%20%1B[31m"),  # as browsers ask for it
    (b"c?to=http://x/", b"/a/c?to=http://x/"),
    (b"http://EN.example:80/b", b"/b"),
    (b"http://en.example:443/b", None),
    (b"https://en.example/b", None),
    (b"//other.example/b", None),
    (b"http://en.example:8080/b", None),
    (b"", None),
)
def test_redirects_lead_within_their_origin_alone(location, target):
    answer = Reply(301, ((b"location", location),))
    assert led_to(ORIGIN, answer, b"/a/b") == target


def test_a_host_may_be_called_as_the_scheme():
    answer = Reply(301, ((b"location", b"http://http/b"),))
    assert led_to("http://http", answer, b"/a") == b"/b"


def test_another_host_name_is_probed_at_the_same_pace():
    hosts, clock = [], Clock()

    def handle(request):
        hosts.append((request.url.host, request.headers["host"], clock.now))
        return answered(b"User-agent: *\nDisallow: /private", content_type="text/plain")

    own = Asker(ORIGIN, 1, clock=clock, sleep=clock.sleep, transport=httpx.MockTransport(handle))
    own.get(b"/")
    other = own.named("http://www.en.example")
    other.read_robots()
    with pytest.raises(Forbidden):
        other.get(b"/private")
    own.get(b"/")
    assert [asked for _, asked, _ in hosts] == ["en.example", "www.en.example", "en.example"]
    assert {where for where, _, _ in hosts} == {"en.example"}
    times = [time for _, _, time in hosts]
    assert all(later - earlier >= 1 for earlier, later in pairwise(times))
    assert (own.asked, other.asked) == (2, 1)
