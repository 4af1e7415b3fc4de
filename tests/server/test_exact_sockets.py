"""The protocol class under a real uvicorn on real sockets, on both event loops."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

from support import until
from tests.asgi.conftest import respond
from univocal.server.asgi_service import ExactProtocol

HOST = b"Host: a.example\r\n"


RUNNING: list[uvicorn.Server] = []


async def ending():
    """Wait until the server has told its connections that it ends: it looks every tenth of a second."""
    while not RUNNING[-1].should_exit:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.3)


async def application(scope, receive, send):
    assert scope["type"] == "http"
    body, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + len(message["body"]), message["more_body"]
    if scope["path"] == "/hint":
        await send({"type": "http.response.informational", "status": 103, "headers": [(b"link", b"</a>")]})
    if scope["path"] == "/slow":
        await asyncio.sleep(0.2)
    if scope["path"] == "/until-the-end":
        await ending()
    content = scope["extensions"]["univocal.target"]["target"] + b"|%d" % body
    await respond(send, content, [(b"content-length", b"%d" % len(content))])


@contextmanager
def serving(loop, http=ExactProtocol, **settings):
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, http=http, loop=loop, lifespan="off", ws="none", log_config=None, **settings
    )
    server = uvicorn.Server(config)
    RUNNING.append(server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield listener.getsockname(), server
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def address(request):
    with serving(request.param, "univocal.protocol:ExactProtocol") as (address, _):
        yield address


def talk(address, data, *, step=None, end=b""):
    """Everything that comes back for `data` until the server closes, or until `end`."""
    with socket.create_connection(address, timeout=30) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), step or len(data)):
            client.sendall(data[i : i + (step or len(data))])
        answer = b""
        while more := client.recv(65536):
            answer += more
            if end and answer.endswith(end):
                break
        return answer


def get(target, fields=b""):
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + fields + b"\r\n"


CLOSE = b"Connection: close\r\n"


def test_pipelined_with_interim_responses(address, parse_answers):
    answers = parse_answers(talk(address, get(b"/hint") + get(b"/slow") + get(b"/hint", CLOSE)), closed=True)
    assert [answer.body for answer in answers] == [b"/hint|0", b"/slow|0", b"/hint|0"]
    assert [[status for status, _ in answer.interim] for answer in answers] == [[103], [], [103]]


def test_uvicorns_own_date_and_server_come_once(address, parse_answers):
    (answer,) = parse_answers(talk(address, get(b"/", CLOSE)), closed=True)
    assert answer.field(b"date")
    assert answer.field(b"server") == b"uvicorn"


def test_a_client_that_sends_too_much_can_read_why(address, parse_answers):
    """Without a lingering close unread octets would reset the connection."""
    answer = talk(address, get(b"/", b"a: b\r\n" * 30_000))
    assert [answer.problem["reason"] for answer in parse_answers(answer, closed=True)] == ["fields-too-large"]


def test_content_of_some_megabytes(address, parse_answers):
    size = 8_000_000
    data = b"POST / HTTP/1.1\r\n" + HOST + CLOSE + b"Content-Length: %d\r\n\r\n" % size + b"a" * size
    (answer,) = parse_answers(talk(address, data), [b"POST"], closed=True)
    assert answer.body == b"/|%d" % size


@pytest.mark.parametrize("fields", [b"", CLOSE], ids=["kept", "closed"])
def test_a_client_that_sends_first_gets_an_early_answer(address, parse_answers, fields):
    size = 16_000_000
    data = b"POST /early HTTP/1.1\r\n" + HOST + fields + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    (answer,) = parse_answers(talk(address, data, end=b"|0"), [b"POST"], closed=bool(fields))
    assert answer.body == b"/early|0"


def test_a_flood_of_pipelined_requests(address, parse_answers):
    many = 1000
    flood = b"".join(get(b"/%d" % number) for number in range(many)) + get(b"/last", CLOSE)
    answers = parse_answers(talk(address, flood), closed=True)
    assert [answer.body for answer in answers] == [b"/%d|0" % number for number in range(many)] + [b"/last|0"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_shutdown_waits_for_the_open_request(loop, parse_answers):
    with serving(loop) as (address, server), socket.create_connection(address, timeout=30) as client:
        client.sendall(get(b"/until-the-end"))
        until(lambda: server.server_state.tasks)
        server.should_exit = True
        answer = b""
        while more := client.recv(65536):
            answer += more
    (answer,) = parse_answers(answer, closed=True)
    assert (answer.body, answer.field(b"connection")) == (b"/until-the-end|0", b"close")
