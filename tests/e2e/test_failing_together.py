"""Many clients of one URL whose origin server answers none of them for another: nobody stands in line."""

import asyncio
import itertools
import ssl
import time

import httpx
import pytest

from authority import Authority
from support import Stopwatch, origin_server

CLIENTS = 60
DELAY = 0.5
# Two answers' time, and what this machine takes for all of them.
PATIENCE = 2 * DELAY + 1.5
MIX = [
    *(b"400 Bad Request", b"401 Unauthorized\r\nWWW-Authenticate: Basic", b"403 Forbidden"),
    *(b"429 Too Many Requests", b"500 Oops", b"503 Unavailable\r\nCache-Control: max-age=60"),
    *(b"200 OK\r\nCache-Control: no-store", b"200 OK\r\nCache-Control: private, max-age=60"),
    *(b"200 OK\r\nSet-Cookie: a=b\r\nCache-Control: max-age=60", b"404 Not Found\r\nCache-Control: no-cache"),
]
FIELDS = ["", "Cookie: session=1\r\n", "X-Odd: 1\r\n", "Cookie: theme=dark\r\nX-Odd: 2\r\n"]


def slow_origin(told):
    """An origin server that takes its time for each request, and answers one of these by turns."""
    turns = itertools.cycle(told)

    def answer(*_):
        time.sleep(DELAY)
        head = next(turns)
        yield b"HTTP/1.1 " + head + b"\r\nContent-Length: 2\r\n\r\nok"
        if b"close" in head:
            raise ConnectionError

    return origin_server(answer)


async def taken(address, watch, fields=""):
    """Ask for the one URL; the seconds until the answer was there."""
    began = watch.seconds
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET /a HTTP/1.1\r\nHost: en.example\r\n{fields}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.endswith(b"\r\n\r\nok")
    return watch.seconds - began


async def asked_together(addresses, fields):
    """Ask by many clients, half of them at once and the others one after the other; the longest wait."""
    asking = []
    with Stopwatch() as watch:
        for number in range(CLIENTS):
            front, sent = addresses[number % len(addresses)], fields[number % len(fields)]
            asking.append(asyncio.create_task(taken(front, watch, sent)))
            await asyncio.sleep(0.01 * (number % 2))
        return max(await asyncio.gather(*asking))


@pytest.fixture
def proxies(start, tmp_path):
    """proxies(url, *settings): the address of one with each of these settings of [server] and [cache]."""

    def proxies(url, *settings):
        found = []
        for number, (server, cache) in enumerate(settings):
            file = tmp_path / f"{number}.toml"
            file.write_text(
                '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\naccess_log = "off"\n'
                f'{server}\n[cache]\n{cache}\n[[sites]]\nhosts = ["en.example"]\nupstream = "{url}"\n'
            )
            found.append(start("serve", "--config", str(file)).proxy)
        return found

    return proxies


@pytest.mark.parametrize(
    "told", [MIX[:1], MIX, [b"200 OK\r\nConnection: close"]], ids=["400", "mix", "close"]
)
@pytest.mark.parametrize("kind", ["one", "workers", "two nodes"])
async def test_nobody_waits_longer_than_for_two_answers(proxies, request, kind, told):
    settings = {"one": [("", "")], "workers": [("workers = 3", "")]}.get(kind)
    if settings is None:
        settings = [("", f'store = "{request.getfixturevalue("redis").url}"')] * 2
    with slow_origin(told) as url:
        addresses = await asyncio.to_thread(proxies, url, *settings)
        assert await asked_together(addresses, FIELDS) < PATIENCE


async def test_one_client_s_slow_errors_let_no_other_wait(proxies):
    with slow_origin([b"400 Bad Request"]) as url:
        (front,) = await asyncio.to_thread(proxies, url, ("", ""))
        with Stopwatch() as watch:

            async def attack():
                while watch.seconds < 4 * DELAY:
                    await taken(front, watch, "X-Bad: 1\r\n")

            attacks = [asyncio.create_task(attack()) for _ in range(4)]
            await asyncio.sleep(0.1)
            waits = []
            while watch.seconds < 4 * DELAY:
                waits.append(asyncio.create_task(taken(front, watch)))
                await asyncio.sleep(0.05)
            assert max(await asyncio.gather(*waits)) < PATIENCE
            await asyncio.gather(*attacks)


async def test_streams_of_one_connection_do_not_stand_in_line(proxies, tmp_path, tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("server", "DNS:en.example,IP:127.0.0.1")
    tls = "http2 = true\n" + "".join(
        f"tls_{name} = '{authority.folder}/server.{end}'\n" for name, end in (("cert", "pem"), ("key", "key"))
    )
    with slow_origin(MIX) as url:
        (front,) = await asyncio.to_thread(proxies, url, (tls, ""))
        context = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
        async with httpx.AsyncClient(http2=True, verify=context, timeout=20) as client:
            target, host = f"https://127.0.0.1:{front[1]}/a", {"host": "en.example"}
            with Stopwatch() as watch:
                answers = await asyncio.gather(*(client.get(target, headers=host) for _ in range(CLIENTS)))
            assert watch.seconds < PATIENCE
        assert {answer.http_version for answer in answers} == {"HTTP/2"}
