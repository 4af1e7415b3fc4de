"""Many clients of one URL whose origin server answers none of them for another: none stands in line."""

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


def settings(url, server="", cache=""):
    site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "{url}"\n'
    return f'access_log = "off"\n{server}\n[cache]\n{cache}\n{site}'


CLOSE = [b"200 OK\r\nConnection: close"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [("one", MIX[:1]), ("one", MIX), ("one", CLOSE), ("workers", MIX), ("two nodes", MIX)],
    ids=["one-400", "one-mix", "one-close", "workers", "two nodes"],
)
async def test_nobody_waits_longer_than_for_two_answers(inside, start_with, request, kind, told):
    with slow_origin(told) as url:
        if kind == "workers":
            fronts = [start_with(settings(url, "workers = 3"))]
        elif kind == "one":
            fronts = [inside(settings(url))]
        else:
            store = f'store = "{request.getfixturevalue("redis").url}"'
            fronts = [inside(settings(url, cache=store)) for _ in range(2)]
        assert await asked_together([each.proxy for each in fronts], FIELDS) < PATIENCE


async def test_one_client_s_slow_errors_let_no_other_wait(inside):
    with slow_origin([b"400 Bad Request"]) as url:
        front = inside(settings(url)).proxy
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


async def test_streams_of_one_connection_do_not_stand_in_line(inside, tmp_path):
    authority = Authority(tmp_path)
    authority.issue("server", "DNS:en.example,IP:127.0.0.1")
    tls = "http2 = true\n" + "".join(
        f"tls_{name} = '{authority.folder}/server.{end}'\n" for name, end in (("cert", "pem"), ("key", "key"))
    )
    with slow_origin(MIX) as url:
        front = inside(settings(url, tls)).proxy
        context = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
        async with httpx.AsyncClient(http2=True, verify=context, timeout=20) as client:
            target, host = f"https://127.0.0.1:{front[1]}/a", {"host": "en.example"}
            with Stopwatch() as watch:
                answers = await asyncio.gather(*(client.get(target, headers=host) for _ in range(CLIENTS)))
            assert watch.seconds < PATIENCE
        assert {answer.http_version for answer in answers} == {"HTTP/2"}
