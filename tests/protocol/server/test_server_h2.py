"""HTTP/2 towards clients, frame by frame: the h2 package is the client, an ASGI application answers."""

import asyncio
import struct
from types import SimpleNamespace

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from univocal.http.framing import ReadLimits
from univocal.server.certificates import SUITS
from univocal.server.clients import Clients, ConnectionLimits
from univocal.server.h2 import AHEAD, CANCELLED, BoundedH2Protocol
from univocal.server.listener import Listener

LIMITS = ReadLimits()
ASKED = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"en.example"), (b":path", b"/a?")]


class Socket(asyncio.Transport):
    def __init__(self, suits=None):
        super().__init__()
        self.sent, self.closed, self.aborted, self.reading, self.suits = b"", False, False, True, suits

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, name, default=None):
        known = {"peername": ("192.0.2.1", 1), "sslcontext": self, SUITS: self.suits}
        return known.get(name, default)


class Client:
    """A client of a connection, and the application behind."""

    def __init__(self, *, limits=LIMITS, clients=None, suits=None, app=None):
        self.scopes, self.contents, self.refusals = [], [], []
        self.socket = Socket(suits)
        self.answer = [(b"content-type", b"text/plain")], [b"answer"]
        config = Config(
            app or self.application, log_config=None, lifespan="off", interface="asgi3", proxy_headers=False
        )
        config.load()
        self.server = BoundedH2Protocol(
            config,
            ServerState(),
            {},
            listener=Listener(
                SimpleNamespace(),
                limits,
                lambda received, reasons: self.refusals.append((received, reasons)),
                clients,
            ),
        )
        self.server.connection_made(self.socket)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.h2.initiate_connection()
        self.events = []

    async def application(self, scope, receive, send):
        self.scopes.append(scope)
        content = b""
        while (message := await receive())["type"] == "http.request":
            content += message["body"]
            if not message["more_body"]:
                break
        else:
            return
        self.contents.append(content)
        fields, pieces = self.answer
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    def flush(self):
        sent, self.socket.sent = self.socket.sent, b""
        if sent:
            self.events += self.h2.receive_data(sent)
        if octets := self.h2.data_to_send():
            self.server.data_received(octets)

    async def settle(self):
        """Let everything happen that can."""
        for _ in range(20):
            self.flush()
            await asyncio.sleep(0)

    async def ask(self, fields=(), *, replace=(), content=None, stream=None):
        """One exchange: status, fields and content of the response, or None where the stream was reset."""
        named = dict(replace)
        stream = stream or self.h2.get_next_available_stream_id()
        head = [(name, named.get(name, value)) for name, value in ASKED]
        self.h2.send_headers(stream, [*head, *fields], end_stream=content is None)
        if content is not None:
            self.h2.send_data(stream, content, end_stream=True)
        await self.settle()
        return self.response(stream)

    def response(self, stream):
        mine = [event for event in self.events if getattr(event, "stream_id", None) == stream]
        # One without an error follows a whole response: no more of the content is asked for (RFC 9113 §8.1).
        if any(isinstance(event, h2.events.StreamReset) and event.error_code for event in mine):
            return None
        (head,) = [event for event in mine if isinstance(event, h2.events.ResponseReceived)]
        fields = dict(head.headers)
        content = b"".join(event.data for event in mine if isinstance(event, h2.events.DataReceived))
        return int(fields.pop(b":status")), fields, content

    def interims(self):
        """The interim responses: their statuses and their fields."""
        kind = h2.events.InformationalResponseReceived
        told = [event.headers for event in self.events if isinstance(event, kind)]
        return [(fields[0][1], [tuple(field) for field in fields[1:]]) for fields in told]

    @property
    def ended(self):
        return [
            event.error_code for event in self.events if isinstance(event, h2.events.ConnectionTerminated)
        ]

    async def leave(self):
        self.server.connection_lost(None)
        await asyncio.gather(*self.server.tasks)


@pytest.fixture
async def connect():
    """Make connections, which end with the test."""
    made = []

    def connect(**settings):
        made.append(Client(**settings))
        return made[-1]

    yield connect
    for client in made:
        await client.leave()


@pytest.mark.parametrize(
    ("path", "raw_path", "query"),
    [
        (b"/a?", b"/a", b""),
        (b"/a", b"/a", b""),
        (b"/a%2fb?x=%7e", b"/a%2fb", b"x=%7e"),
        (b"/%2e/../\xff", b"/%2e/../\xff", b""),
        (b"//", b"//", b""),
    ],
)
async def test_targets_are_exact(connect, path, raw_path, query):
    client = connect()
    status, _, content = await client.ask(replace=[(b":path", path)])
    assert (status, content) == (200, b"answer")
    (scope,) = client.scopes
    assert scope["extensions"]["univocal.target"] == {"target": path}
    assert (scope["raw_path"], scope["query_string"]) == (raw_path, query)
    assert (scope["http_version"], scope["scheme"], scope["client"]) == ("2", "https", ("192.0.2.1", 1))
    assert scope["headers"] == [(b"host", b"en.example")]


async def test_cookies_become_one_field(connect):
    client = connect()
    await client.ask([(b"cookie", b"a=b"), (b"x", b"1"), (b"cookie", b"c=d")])
    assert [field for field in client.scopes[0]["headers"] if field[0] == b"cookie"] == [
        (b"cookie", b"a=b; c=d")
    ]


async def test_content_comes_and_goes(connect):
    client = connect()
    client.answer = [(b"content-length", b"30000")], [b"x" * 10_000] * 3
    assert (await client.ask(content=b"y" * 10_000))[2] == b"x" * 30_000
    assert client.contents == [b"y" * 10_000]


async def test_interim_responses_are_passed_on(connect):
    async def application(scope, receive, send):
        assert "http.response.informational" in scope["extensions"]
        early = [(b"Link", b" </a>"), (b"Connection", b"close"), (b"te", b"gzip"), (b"content-length", b"3")]
        for status, fields in ((103, early), (100, []), (101, [])):
            await send({"type": "http.response.informational", "status": status, "headers": fields})
        await send({"type": "http.response.informational", "status": 102})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    client = connect(app=application)
    assert (await client.ask())[::2] == (200, b"answer")
    assert client.interims() == [(b"103", [(b"link", b"</a>")]), (b"102", [])]


@pytest.mark.parametrize(
    ("fields", "content", "asked"),
    [([(b"expect", b"100-continue")], None, True), ([], None, False),
     ([(b"expect", b"100-continue")], b"at once", False)],
)  # fmt: skip
async def test_who_waits_for_100_is_asked_to_go_on(connect, fields, content, asked):
    client = connect()
    client.h2.send_headers(1, [*ASKED, *fields])
    if content is not None:
        client.h2.send_data(1, content)
    await client.settle()
    assert client.interims() == [(b"100", [])] * asked
    client.h2.send_data(1, b"content", end_stream=True)
    await client.settle()
    assert client.contents == [(content or b"") + b"content"]
    assert client.response(1)[0] == 200


@pytest.mark.parametrize("ended", [False, True])
async def test_a_response_that_needs_no_more_content_ends_its_stream(connect, ended):
    """Nobody gives the client a window any more, so it would wait for one for ever."""

    async def early(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"enough"})

    client = connect(app=early)
    for _ in range(20):  # more than the connection's window, if nobody gave that back
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, ASKED)
        for _ in range(3):
            client.h2.send_data(stream, b"x" * 10_000)
        if ended:
            client.h2.send_data(stream, b"", end_stream=True)
        await client.settle()
        told = [event for event in client.events if getattr(event, "stream_id", None) == stream]
        names = [type(event).__name__ for event in told]
        assert names[:2] == ["ResponseReceived", "DataReceived"]
        assert ("StreamReset" in names) is not ended
        assert ended or told[-1].error_code == 0
    assert client.ended == []


@pytest.mark.parametrize(
    ("fields", "replace", "status", "reason"),
    [
        ([], [(b":path", b"*")], 400, "bad-target"),
        ([], [(b":path", b"a")], 400, "no-leading-slash"),
        ([], [(b":authority", b"u@en.example")], 400, "bad-host"),
        ([], [(b":authority", b"en.example:99999")], 400, "bad-host"),
        ([], [(b":path", b"/" * 8193)], 414, "target-too-long"),
        ([(b"x%d" % number, b"") for number in range(101)], [], 431, "fields-too-large"),
        ([(b"x", b"y" * 10_000), (b"z", b"y" * 11_000)], [], 431, "fields-too-large"),
    ],
)
async def test_what_is_refused_is_told_why(connect, fields, replace, status, reason):
    client = connect(limits=ReadLimits(max_field_bytes=20_000))
    answer = await client.ask(fields, replace=replace)
    assert (answer[0], b'"%b"' % reason.encode() in answer[2]) == (status, True)
    ((received, reasons),) = client.refusals
    assert (received.version, received.client, reasons[0]) == (b"2", "192.0.2.1", reason)
    assert client.scopes == []
    assert (await client.ask())[0] == 200


@pytest.mark.parametrize(
    "fields",
    [
        [(b"x", b"a\r\nb")],
        [(b"x", b"a\0b")],
        [(b"X-Upper", b"1")],
        [(b"x y", b"1")],
        [(b"transfer-encoding", b"chunked")],
        [(b"connection", b"close")],
        [(b"host", b"other.example")],
        [(b"content-length", b"5")],
        [(b":path", b"/b")],
    ],
)
async def test_what_is_malformed_resets_its_stream(connect, fields):
    client = connect()
    assert await client.ask(fields) is None
    assert client.scopes == []
    assert (await client.ask())[0] == 200


async def test_a_host_that_has_another_certificate_is_misdirected(connect):
    client = connect(suits=lambda host: host == b"en.example")
    assert (await client.ask())[0] == 200
    status, _, content = await client.ask(replace=[(b":authority", b"other.example")])
    assert (status, b'"unknown-host"' in content) == (421, True)
    assert (await client.ask())[0] == 200


async def test_a_connection_counts_and_gives_way(connect):
    clients = Clients(ConnectionLimits(connections=1))
    first, second = connect(clients=clients), connect(clients=clients)
    assert (first.socket.closed, second.socket.closed, len(clients)) == (True, False, 1)
    await second.leave()
    assert len(clients) == 0


async def test_a_connection_too_many_is_answered_and_closed(connect):
    clients = Clients(ConnectionLimits(per_client=1))
    _, second = connect(clients=clients), connect(clients=clients)
    status, _, content = await second.ask()
    assert (status, b'"too-many-requests"' in content) == (429, True)
    assert second.socket.closed


async def test_streams_at_the_same_time_are_bounded(connect):
    client = connect()
    await client.settle()
    assert client.h2.remote_settings.max_concurrent_streams == 128
    assert client.h2.remote_settings.max_header_list_size == 65536


async def test_websockets_are_not_offered(connect):
    client = connect()
    await client.settle()
    assert client.h2.remote_settings.enable_connect_protocol == 0
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *ASKED[1:]])
    await client.settle()
    assert client.response(stream)[0] == 400
    assert client.scopes == []


async def test_streams_beyond_the_bound_are_refused(connect):
    client = connect()
    await client.settle()
    # Content that never comes keeps a stream open; the client's own bookkeeping is told of no bound.
    client.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
    client.h2.remote_settings.acknowledge()
    for number in range(200):
        client.h2.send_headers(2 * number + 1, ASKED)
    await client.settle()
    assert len(client.server.cycles) <= 128
    assert client.ended or any(isinstance(event, h2.events.StreamReset) for event in client.events)


@pytest.mark.parametrize("batch", [1, 50])
async def test_a_rapid_reset_ends_the_connection(connect, batch):
    """CVE-2023-44487: streams that are opened and cancelled at once."""
    client = connect()
    await client.settle()
    for number in range(4 * CANCELLED):
        client.h2.send_headers(2 * number + 1, ASKED)
        client.h2.reset_stream(2 * number + 1)
        if number % batch == 0 and not client.socket.closed:
            client.server.data_received(client.h2.data_to_send())
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.socket.closed
    assert len(client.scopes) <= CANCELLED + 1
    assert client.refusals[-1][1] == ("too-many-requests",)


async def test_who_cancels_now_and_then_is_served(connect):
    client = connect()
    for _ in range(2 * CANCELLED):
        assert (await client.ask())[0] == 200
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, ASKED)
        client.h2.reset_stream(stream)
    assert not client.socket.closed


async def test_a_flood_of_continuations_is_bounded(connect):
    """CVE-2024-27316 and its like: one field section without an end."""
    client = connect()
    await client.settle()
    frame = struct.pack(">I", 16384)[1:]
    client.server.data_received(frame + b"\x01\x01\x00\x00\x00\x01" + b"\x00\x01x\x7f\x00" + b"y" * 16379)
    for _ in range(1000):
        if client.socket.closed:
            break
        client.server.data_received(frame + b"\x09\x00\x00\x00\x00\x01" + b"y" * 16384)
    assert client.socket.closed
    assert client.scopes == []


async def test_empty_continuations_are_bounded(connect):
    client = connect()
    await client.settle()
    client.server.data_received(b"\0\0\0\x01\x01\0\0\0\x01")
    for _ in range(100_000):
        if client.socket.closed:
            break
        client.server.data_received(b"\0\0\0\x09\0\0\0\0\x01")
    assert client.socket.closed


async def test_a_bomb_of_indexed_fields_is_bounded(connect):
    client = connect()
    await client.settle()
    client.h2.send_headers(1, [*ASKED, (b"x", b"y" * 3000)], end_stream=True)
    await client.settle()
    client.h2.send_headers(3, [*ASKED, *[(b"x", b"y" * 3000)] * 5000], end_stream=True)
    await client.settle()
    assert client.socket.closed or client.response(3) is None  # zttp's bound is 64 KiB a field section
    assert len(client.scopes) == 1


async def test_a_client_without_a_window_is_sent_no_more_than_a_piece(connect):
    pieces = 0

    async def application(scope, receive, send):
        nonlocal pieces
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            pieces += 1
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body"})

    client = connect(app=application)
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    await client.settle()
    client.h2.send_headers(1, ASKED, end_stream=True)
    await client.settle()
    assert pieces == 1
    assert client.server.conn.stream(1).pending_bytes <= AHEAD
    for _ in range(1000):
        if any(isinstance(event, h2.events.StreamEnded) for event in client.events):
            break
        client.h2.increment_flow_control_window(60_000, 1)
        client.h2.increment_flow_control_window(60_000)
        await client.settle()
    assert client.response(1) == (200, {}, b"x" * 10_000_000)


async def test_a_client_that_takes_nothing_is_given_up(connect):
    client = connect(limits=ReadLimits(send_timeout=0.01))
    client.answer = [], [b"x" * 100_000] * 10
    await client.ask()
    for _ in range(500):
        if client.response(1) is None:
            break
        await asyncio.sleep(0.01)
        await client.settle()
    assert client.response(1) is None
    assert (
        sum(len(event.data) for event in client.events if isinstance(event, h2.events.DataReceived)) == 65535
    )
    assert not client.server.cycles


async def test_content_that_does_not_come_is_given_up(connect):
    client = connect(limits=ReadLimits(content_timeout=0.05))
    client.h2.send_headers(1, ASKED)
    for _ in range(500):
        await asyncio.sleep(0.01)
        await client.settle()
        if not client.server.cycles:
            break
    assert client.response(1) is None
    assert client.contents == []


async def test_content_that_waits_for_the_application_is_not(connect):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    client = connect(limits=ReadLimits(content_timeout=0.02), app=application)
    client.h2.send_headers(1, ASKED)
    client.h2.send_data(1, b"a beginning")
    for _ in range(10):
        await client.settle()
        await asyncio.sleep(0.01)
    gate.set()
    await client.settle()
    assert client.response(1)[2] == b"late"


async def test_a_connection_on_which_nothing_is_asked_is_closed(connect):
    client = connect(limits=ReadLimits(header_timeout=0.01))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if client.socket.closed:
            break
    assert client.socket.closed


async def test_an_ending_server_answers_what_is_under_way(connect):
    client = connect()
    client.h2.send_headers(1, ASKED)
    await client.settle()
    client.server.shutdown()
    assert not client.socket.closed
    client.h2.send_data(1, b"", end_stream=True)
    await client.settle()
    assert client.response(1)[0] == 200
    assert client.socket.closed
