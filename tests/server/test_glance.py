"""A glance reads what the parser reads, and answers what a turn answers."""

import dataclasses
import functools

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples import any_of, examples
from univocal.engine.outcome import Times
from univocal.http.errors import RefusedError
from univocal.judge.admission import Plan
from univocal.server.clients import ReadLimits
from univocal.server.http1.messages import Glance, IncomingHead, RequestReader
from univocal.server.listener import Bounds

AT_ONCE = Times(0.0, 0.0, 0.0)
HOST = b"Host: a.example\r\n"
END = b"\r\n\r\n"
BROWSER = HOST + b"Connection: keep-alive\r\nAccept-Encoding: gzip\r\nCookie: a=b\r\n"


def heard(data):
    """The heads in these octets, as the parser with all callbacks reads them, and whether it refused any."""
    reader, heads = RequestReader(Bounds()), []
    reader.push(data)
    try:
        while (event := reader.next()) is not None:
            if isinstance(event, IncomingHead):
                heads.append((event.method, event.target, event.version, event.fields))
                reader.accept()
    except RefusedError:
        return heads, True
    except ValueError:
        pass  # a length that is none, of which the listener tells
    return heads, False


names = any_of(
    *(b"Host", b"host", b"HOST", b"X-Any", b"x-any", b"Accept-Encoding", b"Connection"),
    *(b"Content-Length", b"Expect", b"Transfer-Encoding", b"Proxy-Connection", b"Upgrade", b"Cookie"),
    *(b"X-Forwarded-Host", b"", b"X Y", b"X:", b"\xe9"),
)
values = st.one_of(
    any_of(
        *(b"a.example", b"a", b"", b"0", b"5", b"chunked", b"keep-alive", b"close"),
        *(b"upgrade", b"100-continue"),
    ),
    st.binary(max_size=4),
    st.integers(1, 9000).map(lambda length: b"v" * length),
)
between = any_of(b": ", b": ", b": ", b":", b":\t ", b" : ", b"", b":\r\n ")
ends = any_of(
    b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b" \r\n", b"\t\r\n", b"\r\n ", b"\r\r\n", b"\x00\r\n"
)
line = st.tuples(names, between, values, ends).map(b"".join)
targets = st.one_of(
    any_of(
        *(b"/fresh", b"/a/b", b"/large", b"/unknown", b"/%66resh", b"/a//b", b"/fresh#x", b"//x/fresh"),
        *(b"*", b""),
    ),
    any_of(
        b"http://a.example/fresh", b"/fresh HTTP/1.1", b"/fresh\tx", b"/\xe9", b"/a\x00", b"/a\rb", b"/a\nb"
    ),
    st.text(st.characters(max_codepoint=255), max_size=6).map(lambda text: b"/" + text.encode("latin-1")),
)
firsts = st.tuples(
    any_of(b"GET ", b"GET ", b"GET ", b"GET  ", b"get ", b"HEAD ", b"GET\t", b"\r\nGET ", b" GET ", b"POST "),
    targets,
    st.sampled_from(
        [b" HTTP/1.1\r\n"] * 4
        + [b" HTTP/1.0\r\n", b" HTTP/1.1 \r\n", b"  HTTP/1.1\r\n", b" HTTP/1.1\n", b"\r\n"]
    ),
).map(b"".join)
heads = st.tuples(firsts, any_of(HOST, HOST, BROWSER, b""), st.lists(line, max_size=3).map(b"".join)).map(
    lambda parts: b"".join([*parts, b"\r\n"])
)
streams = st.one_of(
    heads,
    st.tuples(heads, heads).map(b"".join),
    st.tuples(heads, any_of(b"\r\n", b"x", b"GET /a/b HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /")).map(
        b"".join
    ),
)

SMUGGLING = [
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X: a\nHost: b\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X: a\rHost: b\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + HOST.lower() + b"\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"Host: b\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X:\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"\r\nGET /a/b HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"\r\n\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n\r\n" + HOST + b"\r\n",
    b"GET /fresh HTTP/1.0\r\n" + HOST + b"\r\n",
    b"GET /fresh HTTP/1.1 \r\n" + HOST + b"\r\n",
    b"GET /fresh  HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /fresh\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\n\n\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"Connection: close, upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"GET /fresh HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 16_000 + END,
]


plan_of_names = functools.cache(Plan)  # plans are compared by their names


def plan(names, _=()):
    """The plan of a head that may be any other's, too: what is read is to be compared for all of them."""
    lower = tuple(name.lower() for name in names)
    return plan_of_names(lower) if b"host" in lower else None


def new_glance(plan_of=plan):
    return Glance(plan_of)


def read_by(glance, data):
    """What a connection's glance reads: it recalls a head, or parses it."""
    return glance.recall(data) or glance.read(data)


def check_reading(data, glance=None):
    glance = glance or new_glance()
    for _ in range(4):  # a reader that has read one is used again, and may remember it
        alone = data.find(END) == len(data) - len(END)
        read = read_by(glance, data) if alone else None
        if read is None:
            return False
        (only,), is_refused = heard(data)
        method, url, version, fields = only
        assert not is_refused
        assert (method, url, version) == (b"GET", read.target, "1.1")
        assert fields == read.plan.fields(read.values)
        if b"content-length" in dict(fields) or b"transfer-encoding" in dict(fields):
            return False  # that reader is not used again
    return True


@settings(max_examples=examples(1500, part=10))
@given(data=streams)
def test_a_glance_reads_what_the_parser_reads(data):
    check_reading(data)


@pytest.mark.parametrize("data", SMUGGLING)
def test_a_glance_reads_nothing_else_into_it(data):
    check_reading(data)


@pytest.mark.parametrize(
    "data", [b"GET /fresh HTTP/1.1\r\n" + fields + b"\r\n" for fields in (HOST, BROWSER)]
)
def test_a_glance_reads_ordinary_heads(data):
    """Otherwise the properties would be empty."""
    assert new_glance().read(data) is not None
    check_reading(data)


def parts(read):
    return None if read is None else (read.target, read.plan, read.values)


def remembering(section):
    """A glance that has read this header section often enough to remember it."""
    glance = new_glance()
    for target in (b"/a", b"/b", b"/c"):
        assert read_by(glance, b"GET %b HTTP/1.1\r\n%b" % (target, section)) is not None
    return glance


# Octets before a header section that is remembered: a request line, or something like it.
before = st.one_of(
    firsts,
    st.tuples(firsts, st.lists(line, max_size=2).map(b"".join)).map(b"".join),
    st.binary(max_size=20),
    st.tuples(st.just(b"GET /"), st.binary(max_size=6), st.just(b" HTTP/1.1\r\n")).map(b"".join),
)


@settings(max_examples=examples(1500, part=10))
@given(data=before, section=any_of(HOST + b"\r\n", BROWSER + b"\r\n"))
@example(data=b"GET /a HTTP/1.1\r\nContent-Length: 5\r\n", section=HOST + b"\r\n")
@example(data=b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n", section=HOST + b"\r\n")
@example(data=b"GET /a HTTP/1.1\r\nX: /b HTTP/1.1\r\n", section=HOST + b"\r\n")
@example(data=b"GET /a HTTP/1.0\r\n", section=HOST + b"\r\n")
@example(data=b"GET / HTTP/1.1\r\n", section=HOST + b"\r\n")
@example(data=b" HTTP/1.1\r\n", section=HOST + b"\r\n")
@example(data=b"", section=HOST + b"\r\n")
@example(data=b"GET /a\r\n", section=HOST + b"\r\n")
@example(data=b"X", section=HOST + b"\r\n")
def test_a_remembered_section_changes_nothing_that_is_read(data, section):
    known, new = remembering(section), new_glance()
    data += section
    if data.find(END) == len(data) - len(END):
        assert parts(read_by(known, data)) == parts(new.read(data))
        check_reading(data, remembering(section))


@pytest.mark.parametrize("target", [b"/%c", b"/a%cb", b"/a?%c", b"/a%c/../?b"])
def test_targets_of_any_bytes_are_read_as_the_parser_does(target):
    for octet in range(256):
        data = b"GET %b HTTP/1.1\r\n%b\r\n" % (target % octet, HOST)
        if data.count(END) == 1:
            assert parts(read_by(remembering(HOST + b"\r\n"), data)) == parts(new_glance().read(data))


@given(data=streams)
def test_a_remembered_section_leaves_no_trace_in_the_next(data):
    glance = remembering(BROWSER + b"\r\n")
    alone = data.find(END) == len(data) - len(END)
    assert not alone or parts(read_by(glance, data)) == parts(new_glance().read(data))


def counted():
    """A glance, and the header sections of which it has had to find the plan."""
    planned = []

    def plan_and_count(names, values):
        planned.append(values)
        return plan(names)

    return new_glance(plan_and_count), planned


def test_a_header_section_that_repeats_is_parsed_twice():
    glance, planned = counted()
    for target in range(20):
        assert read_by(glance, b"GET /%d HTTP/1.1\r\n%b\r\n" % (target, BROWSER)).target == b"/%d" % target
    assert len(planned) == 2


def test_a_long_header_section_is_never_remembered():
    glance, planned = counted()
    for _ in range(5):
        assert read_by(glance, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 3000 + END) is not None
    assert len(planned) == 5


def test_another_header_section_replaces_the_remembered_one():
    glance, planned = counted()
    for host in (b"a", b"a", b"a", b"bb", b"a", b"c", b"c"):
        read = read_by(glance, b"GET / HTTP/1.1\r\nHost: %b" % host + END)
        assert read.values == (host,)
    assert len(planned) == 5


STORED = [
    b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    for target in (b"/fresh", b"/a/b", b"/large", b"/vary")
]


@pytest.fixture
async def twins(door, runtime):
    """Two doors of which one takes the long way always."""
    made = [door(runtime, direct=True) for _ in range(2)]
    for each in made:
        await each.warm(STORED)
    return made


async def test_a_certificate_is_asked_about_each_host(twins):
    client, asked = twins[0].client(), []
    protocol = client.protocol
    protocol.peer = protocol.peer._replace(suits=lambda host: asked.append(host) or host == b"a.example")
    for head in STORED[:1] * 4:
        protocol.data_received(head)
    assert asked == [b"a.example"]
    protocol.data_received(STORED[0].replace(b"a.example", b"b.example"))
    client.clock.end_turn()
    sent = bytes(client.transport.sent)
    assert (sent.count(b"HTTP/1.1 200 OK"), sent.count(b"HTTP/1.1 421 ")) == (4, 1)


async def test_no_hit_has_more_fields_than_are_allowed(twins):
    client = twins[0].client()
    client.protocol.listener.bounds.change(ReadLimits(max_fields=2))
    for lines in (b"X: 1\r\n", b"X: 1\r\nY: 2\r\n"):
        client.protocol.data_received(STORED[0].removesuffix(b"\r\n") + lines + b"\r\n")
        client.clock.end_turn()
    sent = bytes(client.transport.sent)
    assert (sent.count(b"HTTP/1.1 200 OK"), sent.count(b"HTTP/1.1 431 ")) == (1, 1)


async def test_hosts_are_asked_about_anew_after_a_reload(twins):
    client, served = twins[0].client(), [b"a.example"]
    protocol = client.protocol
    protocol.peer = protocol.peer._replace(suits=lambda host: host in served)
    for _ in range(4):
        protocol.data_received(STORED[0])
    served.clear()
    protocol.listener.bounds.change(ReadLimits())
    protocol.data_received(STORED[0])
    client.clock.end_turn()
    sent = bytes(client.transport.sent)
    assert (sent.count(b"HTTP/1.1 200 OK"), sent.count(b"HTTP/1.1 421 ")) == (4, 1)


def check_answers(twins, comparable, data):
    seen = []
    for door, looks in zip(twins, (True, False), strict=True):
        door.outcomes.clear()
        door.origin.asked.clear()
        client = door.client()
        if not looks:
            client.protocol.listener.bounds.longest_glance = 0
        client.protocol.data_received(data)
        after = b"GET /a/b HTTP/1.1\r\n" + HOST + b"\r\n"
        if not client.transport.closed and not client.transport.ended:
            client.protocol.data_received(after)  # and nothing is left of it for the next request
        client.clock.end_turn()
        told = [dataclasses.replace(outcome, times=AT_ONCE, decision=None) for outcome in door.outcomes]
        asked = [request.parts for request in door.origin.asked if request.is_complete]
        seen.append((comparable(bytes(client.transport.sent)), client.open, told, asked))
        client.hang_up()
    assert seen[0] == seen[1]


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=streams)
@example(data=STORED[0] + STORED[1])
async def test_a_glance_answers_what_a_turn_answers(twins, comparable, data):
    check_answers(twins, comparable, data)


async def test_no_smuggled_request_is_answered(twins, comparable):
    for data in SMUGGLING:
        check_answers(twins, comparable, data)
