"""`[origin]`: who is reached over TLS, by which proof, and by which transport."""

import asyncio
import ssl
import tomllib

import httpx
import pytest

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import validate
from univocal_app.run.assemble import Proxy
from univocal_app.run.origins import Ways


@pytest.fixture
def settings(certificates):
    """A configuration whose file stands beside the certificates, with these lines in `[origin]`."""

    def written(port, origin="", site=""):
        source = str(certificates / "univocal.toml")
        text = (
            f'[server]\naccess_log = "off"\n[origin]\n{origin}\n[[sites]]\nhosts = ["*"]\n'
            f'upstream = "https://127.0.0.1:{port}"\n[sites.origin]\n{site}\n'
        )
        return validate(tomllib.loads(text), source)

    return written


@pytest.fixture
async def origin(certificates):
    """Start an origin with the server's certificate; with `demand` it asks for the client's."""
    servers = []

    async def answer(reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            line = head.partition(b"\r\n")[0]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def start(*, demand=False):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        context.verify_mode = ssl.CERT_REQUIRED if demand else ssl.CERT_NONE
        servers.append(await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def asked(configuration):
    proxy = Proxy(configuration)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy.cache)) as client:
            answer = await client.get("http://en.example/a")
            return answer.status_code, answer.content
    finally:
        await proxy.aclose()


CLIENT = 'tls_cert = "client.pem"\ntls_key = "client.key"'


@pytest.mark.parametrize("transport", ["own", "httpx"])
@cases(
    "everywhere, site, demand, status",
    ('tls_ca = "ca.pem"', "", False, 200),
    ("", 'tls_ca = "ca.pem"', False, 200),
    ("", "", False, 502),  # the system knows no such authority
    ('tls_ca = "client.pem"', "", False, 502),
    ("tls_verify = false", "", False, 200),
    ("tls_verify = false", 'tls_verify = true\ntls_ca = "ca.pem"', False, 200),
    ('tls_ca = "ca.pem"', "", True, 502),
    ('tls_ca = "ca.pem"', CLIENT, True, 200),
    (f"tls_verify = false\n{CLIENT}", "", True, 200),
)
async def test_certificates_are_verified_as_the_settings_say(
    settings, origin, transport, everywhere, site, demand, status
):
    port = await origin(demand=demand)
    found, content = await asked(settings(port, f'{everywhere}\ntransport = "{transport}"', site))
    assert found == status
    assert (content == b"GET /a HTTP/1.1") == (status == 200)


@cases(
    "everywhere, first, name",
    ("", "tls_verify = false", "127.0.0.1"),  # of another site alone
    ('tls_ca = "ca.pem"', "", "localhost"),  # the certificate is for an address
)
async def test_unverified_certificates_are_refused(settings, origin, everywhere, first, name):
    port = await origin()
    site = f'{first}\n[[sites]]\nhosts = ["en.example"]\nupstream = "https://{name}:{port}"'
    assert (await asked(settings(port, everywhere, site)))[0] == 502


# The end of a site's own settings, and the beginning of those of a route.
OWN = '[[sites.routes]]\npath = "/a/"\nupstream = "https://127.0.0.1:1"\n[sites.routes.origin]\n'


@cases(
    "everywhere, site, key, allowed",
    ('tls_ca = "ca.key"', "", "origin.tls_ca", "a file of certificates in PEM"),
    ("", 'tls_ca = "none.pem"', "sites[0].origin.tls_ca", "No such file"),
    ('tls_cert = "none.pem"', "", "origin.tls_cert", "No such file"),
    ('tls_cert = "client.pem"\ntls_key = "server.key"', "", "origin.tls_cert", "key values mismatch"),
    ('tls_key = "client.key"', "", "origin.tls_key", "none without tls_cert"),
    ("http2 = true", "", "origin.http2", 'transport = "httpx"'),
    ("", f'{OWN}tls_ca = "none.pem"', "sites[0].routes[0].origin.tls_ca", "No such file"),
)
def test_invalid_settings_of_origins_are_refused(settings, everywhere, site, key, allowed):
    with pytest.raises(ConfigurationError) as refusal:
        Ways.of(settings(9, everywhere, site))
    assert refusal.value.key == key
    assert allowed in refusal.value.allowed


def test_a_mistake_is_told_once_at_the_site_s_settings(settings):
    site = 'tls_ca = "none.pem"\n[sites.access]\nforward = "https://127.0.0.1:1"'
    with pytest.raises(ConfigurationError) as refusal:
        Ways.of(settings(9, "", site))
    errors = {(each.key, str(each)) for each in (refusal.value, *refusal.value.beside)}
    assert [key for key, _ in errors] == ["sites[0].origin.tls_ca"]
