"""TLS towards origins, and Unix sockets."""

import asyncio
import contextlib
import os
import socket
import ssl

import httpx
import pytest

from examples import cases
from support import echo, open_files
from univocal.origin.client_library import OriginTransport
from univocal.origin.failures import origin_failure


@pytest.fixture
def server_context(certificates):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.asked = []
    context.sni_callback = lambda _socket, name, context: context.asked.append(name)
    return context


@pytest.fixture
def client_context(certificates):
    return ssl.create_default_context(cafile=certificates / "ca.pem")


async def test_exact_bytes_over_tls(serve, answered, make_transport, server_context, client_context):
    origin = await serve(echo, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    for _ in range(3):
        _, content = await answered(origin, b"/%2e/../\xff", by=transport)
        assert content == b"GET /%2e/../\xff HTTP/1.1\r\nhost: en.example\r\n\r\n"
    _, content = await answered(
        origin,
        by=transport,
        method="PUT",
        fields=[(b"transfer-encoding", b"chunked")],
        content=[b"x" * 70_000] * 20,
    )
    assert content.endswith(b"\r\n\r\n" + b"x" * 1_400_000)
    assert origin.accepted == 1


# See tests/integration/app/test_app_origins.py for the authorities and the client's certificate.
async def test_a_certificate_is_for_its_name(serve, answered, make_transport, server_context, client_context):
    origin = await serve(echo, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    origin.url = httpx.URL(f"https://localhost:{origin.port}/")
    with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
        await answered(origin, by=transport)
    assert transport.connections == 0


async def test_the_requested_name_is_the_urls_or_the_given(
    serve, answered, make_transport, server_context, client_context
):
    origin = await serve(echo, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    await answered(origin, by=transport)
    await answered(origin, by=transport, sni_hostname="origin.example")
    await answered(origin, by=transport, sni_hostname="origin.example")
    assert server_context.asked == [None, "origin.example"]  # an address is no server name (RFC 6066 §3)
    with pytest.raises(httpx.ConnectError):
        await answered(origin, by=transport, sni_hostname="other.example")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_client_certificate_is_reported_as_its_alert(
    serve, answered, make_transport, server_context, client_context, version
):
    server_context.verify_mode, server_context.maximum_version = ssl.CERT_REQUIRED, version
    origin = await serve(echo)
    # asyncio's own server closes before it has sent its alert.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        origin.url = httpx.URL(f"https://127.0.0.1:{listening.getsockname()[1]}/")

        def refuse():
            accepted, _ = listening.accept()
            with server_context.wrap_socket(
                accepted, server_side=True, do_handshake_on_connect=False
            ) as server:
                with contextlib.suppress(ssl.SSLError):
                    server.do_handshake()
                # To close with octets unread would reset the connection before the alert is read.
                while socket.socket.recv(server, 65536):
                    pass

        refusing = asyncio.get_running_loop().run_in_executor(None, refuse)
        with pytest.raises((httpx.ReadError, httpx.WriteError, httpx.ConnectError)) as failed:
            await answered(origin, by=make_transport(ssl_context=client_context))
        await refusing
    failure = origin_failure(failed.value.__cause__).failure
    assert failure.reason == "tls"
    assert "ALERT" in failure.error


@cases(
    "pieces, error",
    ([], httpx.RemoteProtocolError),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"], httpx.RemoteProtocolError),
    ([b"garbage garbage"], httpx.RemoteProtocolError),
)
async def test_faults_over_tls_leave_nothing(
    serve, answered, make_transport, server_context, client_context, pieces, error, eventually
):
    async def script(peer):
        await peer.head()
        for piece in pieces:
            await peer.send(piece)

    origin = await serve(script, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    before = open_files()
    for _ in range(10):
        with pytest.raises(error):
            await answered(origin, by=transport)
    await eventually(lambda: origin.open == transport.connections == 0)
    await eventually(lambda: open_files() <= before)


async def test_cancelled_and_timed_out_over_tls(
    serve, answered, make_transport, server_context, client_context, eventually
):
    async def script(peer):
        await peer.head()
        await peer.forever()

    origin = await serve(script, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    before = open_files()
    for _ in range(5):
        with pytest.raises(httpx.ReadTimeout):
            await answered(origin, by=transport, timeout={"read": 0.02})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answered(origin, by=transport), 0.02)
    await eventually(lambda: open_files() <= before)
    assert transport.connections == 0


async def test_unix_sockets(serve, answered, make_transport, tmp_path):
    path = str(tmp_path / "origin")
    origin = await serve(echo, path=path)
    transport = make_transport(uds=path)
    for _ in range(3):
        _, content = await answered(origin, b"/a/../b", by=transport)
        assert content.startswith(b"GET /a/../b HTTP/1.1\r\nhost: en.example\r\n")
    assert origin.accepted == 1


async def test_a_unix_socket_that_is_not_there(answered, make_transport, tmp_path):
    class Nobody:
        url = httpx.URL("http://origin.example/")

    with pytest.raises(httpx.ConnectError):
        await answered(Nobody, by=make_transport(uds=str(tmp_path / "nothing")))


async def test_the_authorities_are_loaded_once_and_only_for_https(
    serve, answered, monkeypatch, make_transport
):
    loaded = []

    def context():
        loaded.append(1)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", context)

    async def script(peer):
        await peer.reader.read(1)

    origin = await serve(script)
    transport = make_transport()
    with pytest.raises(httpx.TransportError):
        await answered(origin, by=transport)
    assert loaded == []
    for _ in range(2):
        origin.url = httpx.URL(f"https://127.0.0.{len(loaded) + 1}:{origin.port}/")
        with pytest.raises(httpx.ConnectError):
            await answered(origin, by=transport)
    assert loaded == [1]


def test_a_transport_can_be_made_before_the_event_loop_runs():
    assert OriginTransport().connections == 0


@pytest.mark.parametrize("alert", [True, False], ids=["with an alert", "without"])
async def test_content_without_a_length_ends_with_a_closure_alert(
    serve, answered, make_transport, server_context, client_context, alert
):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf of the")
        if not alert:
            with socket.socket(fileno=os.dup(peer.writer.get_extra_info("socket").fileno())) as bare:
                bare.shutdown(socket.SHUT_WR)
            await peer.forever()

    origin = await serve(script, ssl=server_context)
    transport = make_transport(ssl_context=client_context)
    if alert:
        assert (await answered(origin, by=transport))[1] == b"half of the"
    else:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await answered(origin, by=transport)
