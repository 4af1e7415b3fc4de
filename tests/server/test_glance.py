"""A glance reads what the parser reads, and answers what a turn answers."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples import examples
from univocal.http.errors import RefusedError
from univocal.server.bounds import Bounds
from univocal.server.http1.glance import Glance
from univocal.server.http1.head_reader import IncomingHead
from univocal.server.http1.request_reader import RequestReader

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


names = st.sampled_from(
    [
        b"Host",
        b"host",
        b"HOST",
        b"X-Any",
        b"x-any",
        b"Accept-Encoding",
        b"Connection",
        b"Content-Length",
        b"Expect",
        b"Transfer-Encoding",
        b"Proxy-Connection",
        b"Upgrade",
        b"Cookie",
        b"X-Forwarded-Host",
        b"",
        b"X Y",
        b"X:",
        b"\xe9",
    ]
)
values = st.one_of(
    st.sampled_from(
        [
            b"a.example",
            b"a",
            b"",
            b"0",
            b"5",
            b"chunked",
            b"keep-alive",
            b"close",
            b"upgrade",
            b"100-continue",
        ]
    ),
    st.binary(max_size=4),
    st.integers(1, 9000).map(lambda length: b"v" * length),
)
between = st.sampled_from([b": ", b": ", b": ", b":", b":\t ", b" : ", b"", b":\r\n "])
ends = st.sampled_from(
    [b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b" \r\n", b"\t\r\n", b"\r\n ", b"\r\r\n", b"\x00\r\n"]
)
line = st.tuples(names, between, values, ends).map(b"".join)
targets = st.one_of(
    st.sampled_from(
        [
            b"/fresh",
            b"/a/b",
            b"/large",
            b"/unknown",
            b"/%66resh",
            b"/a//b",
            b"/fresh#x",
            b"//x/fresh",
            b"*",
            b"",
        ]
    ),
    st.sampled_from(
        [b"http://a.example/fresh", b"/fresh HTTP/1.1", b"/fresh\tx", b"/\xe9", b"/a\x00", b"/a\rb", b"/a\nb"]
    ),
    st.text(st.characters(max_codepoint=255), max_size=6).map(lambda text: b"/" + text.encode("latin-1")),
)
firsts = st.tuples(
    st.sampled_from(
        [b"GET ", b"GET ", b"GET ", b"GET  ", b"get ", b"HEAD ", b"GET\t", b"\r\nGET ", b" GET ", b"POST "]
    ),
    targets,
    st.sampled_from(
        [b" HTTP/1.1\r\n"] * 4
        + [b" HTTP/1.0\r\n", b" HTTP/1.1 \r\n", b"  HTTP/1.1\r\n", b" HTTP/1.1\n", b"\r\n"]
    ),
).map(b"".join)
heads = st.tuples(
    firsts, st.sampled_from([HOST, HOST, BROWSER, b""]), st.lists(line, max_size=3).map(b"".join)
).map(lambda parts: b"".join([*parts, b"\r\n"]))
streams = st.one_of(
    heads,
    st.tuples(heads, heads).map(b"".join),
    st.tuples(
        heads, st.sampled_from([b"\r\n", b"x", b"GET /a/b HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /"])
    ).map(b"".join),
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


def check_reading(data):
    glance = Glance()
    for _ in range(2):  # a reader that has read one is used again
        read = glance.read(data) if data.endswith(END) else None
        if read is None:
            return
        target, names, said = read
        (only,), is_refused = heard(data)
        method, url, version, fields = only
        assert not is_refused
        assert (method, url, version) == (b"GET", target, "1.1")
        assert fields == [
            (name.lower(), value.rstrip(b" \t")) for name, value in zip(names, said, strict=True)
        ]
        if b"content-length" in dict(fields) or b"transfer-encoding" in dict(fields):
            return  # that reader is not used again


@settings(max_examples=examples(1500))
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
    """So that the properties say something."""
    assert Glance().read(data) is not None
    check_reading(data)


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
        told = [outcome._replace(times=None, decision=None) for outcome in door.outcomes]
        seen.append((comparable(bytes(client.transport.sent)), client.open, told, door.origin.asked[:]))
        client.hang_up()
    assert seen[0] == seen[1]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=streams)
@example(data=STORED[0] + STORED[1])
async def test_a_glance_answers_what_a_turn_answers(twins, comparable, data):
    check_answers(twins, comparable, data)


async def test_no_smuggled_request_is_answered(twins, comparable):
    for data in SMUGGLING:
        check_answers(twins, comparable, data)
