"""Several origin servers of one site, which hang up, fail and die: their site as a whole."""

import contextlib

import pytest

from tests.integration.conftest import Origin, reply
from univocal_app.config.tables import validate
from univocal_app.config.values import Address
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound, bind


class Site:
    """The proxy before these origin servers."""

    def __init__(self, proxy, front, servers):
        self.proxy, self.servers, self.get = proxy, servers, front.ask

    def answer(self, *fields):
        """Have all of them answer with these fields from now on."""
        for server in self.servers:
            server.answer = lambda _: reply(b"page", *fields)


@pytest.fixture
async def site(serve):
    """Start so many origin servers and the proxy before them: `await site(2, fails=1)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(number, **settings):
            servers = [Origin() for _ in range(number)]
            for server in servers:
                await server.start()
                stack.push_async_callback(server.stop)
            upstream = [f"http://127.0.0.1:{server.port}" for server in servers]
            configuration = {
                "server": {"access_log": "off"},
                "origin": {"choice": "round-robin", **settings},
                "sites": [{"hosts": ["en.example"], "upstream": upstream}],
            }
            proxy = Proxy(validate(configuration, "univocal.toml"))
            stack.push_async_callback(proxy.aclose)
            with bind(Address("127.0.0.1", 0), "", "") as unused:
                front = await serve(proxy.cache, proxy.front(Bound(unused)).protocol)
            return Site(proxy, front, servers)

        yield begin


async def test_retries_are_bounded_for_a_request_and_for_all(site):
    four = await site(4, retries=1, fails=1000, retry_budget=0)
    for server in four.servers:
        server.answer = lambda _: b""  # it hangs up
    for number in range(5):
        assert (await four.get(f"/{number}")).status == 502
    assert sum(len(server.requests) for server in four.servers) == 5 + 3


async def test_with_all_servers_gone_stale_hits_and_purges_continue(site):
    two = await site(2, fails=1)
    two.answer("Cache-Control: max-age=0, stale-if-error=1000", 'ETag: "1"')
    assert (await two.get("/stale")).status == 200
    two.answer("Cache-Control: max-age=1000")
    assert (await two.get("/fresh")).status == 200
    two.answer("Cache-Control: max-age=0, must-revalidate", 'ETag: "1"')
    assert (await two.get("/strict")).status == 200
    for server in two.servers:
        await server.stop()
    for _ in range(3):
        assert (await two.get("/stale")).status == 200
        assert "hit" in (await two.get("/fresh"))["cache-status"]
        assert (await two.get("/strict")).status in {502, 504}
        assert (await two.get("/new")).status == 502
    assert b'"purged": 1' in (await two.get("/stale", method="PURGE")).content
    assert (await two.get("/stale")).status == 502


async def test_metrics_tell_what_came_of_each(site):
    two = await site(2, fails=1)
    two.answer("Cache-Control: no-store")
    two.servers[0].answer = lambda _: reply(status="503 Service Unavailable")
    for number in range(4):
        await two.get(f"/{number}")
    await two.servers[0].stop()
    for _ in range(2):
        assert (await two.get("/a")).content == b"page"
    told = set(two.proxy.figures.exposition()[0].decode().splitlines())
    one, other = (f'origin="http://127.0.0.1:{server.port}"' for server in two.servers)
    assert {
        f'univocal_origin_requests_total{{{one},site="en.example",status="5xx"}} 2.0',
        f'univocal_origin_requests_total{{{one},site="en.example",status="none"}} 1.0',
        f'univocal_origin_requests_total{{{other},site="en.example",status="2xx"}} 4.0',
        f'univocal_origin_errors_total{{{one},reason="refused",site="en.example"}} 1.0',
        f'univocal_origin_up{{{one},site="en.example"}} 0.0',
        f'univocal_origin_up{{{other},site="en.example"}} 1.0',
    } <= {_sorted(line) for line in told}


def _sorted(line):
    """A line of the exposition, its labels in order."""
    name, brace, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return name + brace + ",".join(sorted(labels.split(","))) + "}" + value
