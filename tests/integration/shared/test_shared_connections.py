"""Every way to a store that docs/how-to/several-nodes.md names, and the one that does not lead there."""

import asyncio
import socket

import pytest

from univocal.store.redis.commands import CommandPipe, servers_at


def tls(port, certificates):
    return [
        "--tls-port", str(port),
        "--tls-ca-cert-file", str(certificates / "ca.pem"),
        "--tls-cert-file", str(certificates / "server.pem"),
        "--tls-key-file", str(certificates / "server.key"),
        "--tls-auth-clients", "no",
    ]  # fmt: skip


@pytest.fixture
def reached(server, join, made, until):
    """Store by one node, read by another, purge by the first, read again: what was read through this URL."""

    async def check(url):
        first, second = await join(url=url), await join(url=url)
        assert await first.put(made())
        stored = await second.read()
        assert await first.purge() == 1
        await until(lambda: second.bodies() == [])
        left = await second.read()
        for node in (first, second):  # or they purge again at the next server that begins here
            await node.store.aclose()
        return stored, left

    return check


async def test_by_a_unix_socket(server, reached, tmp_path):
    server.kill()
    server.start("--unixsocket", str(tmp_path / "s"))
    assert await reached(f"unix://{tmp_path / 's'}") == ([b"content"], [])


async def test_another_database_of_the_server(server, reached, tmp_path):
    assert await reached(server.url.replace("/0", "/3")) == ([b"content"], [])
    server.kill()
    server.start("--unixsocket", str(tmp_path / "s"))
    assert await reached(f"unix://{tmp_path / 's'}?db=3") == ([b"content"], [])


async def test_a_user_with_a_password(server, reached):
    rights = "~univocal:* &* +@all"
    server.client.execute_command("ACL", "SETUSER", "cache", "on", ">s3cret", *rights.split())
    server.client.execute_command("ACL", "SETUSER", "default", "-@all", "+ping", "+info")
    assert await reached(server.url.replace("://", "://cache:s3cret@")) == ([b"content"], [])


async def test_a_wrong_password_is_no_store(server, join, caplog, until):
    server.client.execute_command("ACL", "SETUSER", "cache", "on", ">s3cret", "~*", "&*", "+@all")
    node = await join(url=server.url.replace("://", "://cache:guess@"), connected=False)
    await until(lambda: "lost Redis (AuthenticationError" in caplog.text)
    assert not node.store.connected
    assert "guess" not in caplog.text


async def test_a_node_reaches_redis_over_tls(server, reached, certificates):
    server.kill()
    server.start(*tls(server.tls_port, certificates))
    url = f"rediss://127.0.0.1:{server.tls_port}/0"
    assert await reached(f"{url}?ssl_ca_certs={certificates / 'ca.pem'}") == ([b"content"], [])


async def test_a_certificate_of_an_unknown_authority_is_refused(server, join, certificates, caplog, until):
    server.kill()
    server.start(*tls(server.tls_port, certificates))
    node = await join(url=f"rediss://127.0.0.1:{server.tls_port}/0", connected=False)
    await until(lambda: "certificate verify failed" in caplog.text)
    assert not node.store.connected


async def test_a_server_that_never_speaks_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = servers_at(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", 0.1)
        pipe = CommandPipe(servers.connection(servers.places()[0]))
        async with asyncio.timeout(30):
            with pytest.raises(TimeoutError):
                await pipe.call("PING")
            await pipe.aclose()
    assert pipe.broken
