"""Redirects of origin servers on their way to clients."""

import asyncio
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.ports import free_port
from tests.started import end, nginx
from univocal import CacheMiddleware, ReverseProxy


def routed(origin, *lines):
    return "\n".join(
        [
            "[[sites]]",
            'hosts = ["shop.example"]',
            f'upstream = "http://127.0.0.1:{origin.port}"',
            "[[sites.routes]]",
            'path = "/api/"',
            f'upstream = "http://127.0.0.1:{origin.port}/v1/"',
            *lines,
        ]
    )


def redirecting(location, *lines):
    head = ["HTTP/1.1 301 Moved Permanently", "Content-Length: 0", f"Location: {location}", *lines]
    return lambda _: "\r\n".join([*head, "", ""]).encode()


@pytest.mark.parametrize("host", ["", "http://127.0.0.1:{port}", "http://shop.example"])
async def test_hits_and_misses_name_the_clients_url(origin, configured, host):
    front = await configured(routed(origin))
    origin.answer = redirecting(host.format(port=origin.port) + "/v1/there", "Cache-Control: max-age=60")
    answers = [await front.ask("/api/here", host="shop.example") for _ in range(2)]
    there = "http://shop.example/api/there" if host else "/api/there"
    assert [answer["location"] for answer in answers] == [there, there]
    assert origin.targets == [b"/v1/here"]
    assert "hit" in answers[1]["cache-status"]


async def test_the_default_is_that_a_cookie_stays(origin, configured):
    origin.answer = redirecting("/v1/x", "Set-Cookie: a=1; Path=/v1/; Domain=127.0.0.1")
    kept = await (await configured(routed(origin))).ask("/api/x1", host="shop.example")
    assert kept["set-cookie"] == "a=1; Path=/v1/; Domain=127.0.0.1"
    front = await configured(routed(origin, 'cookie_path = "map"'))
    mapped = await front.ask("/api/x1", host="shop.example")
    assert mapped["set-cookie"] == "a=1; Path=/api/; Domain=shop.example"


async def test_a_route_keeps_what_its_site_maps(origin, configured):
    own = f"http://127.0.0.1:{origin.port}/v1/there"
    origin.answer = redirecting(own)
    front = await configured(routed(origin, 'redirects = "keep"'))
    assert (await front.ask("/api/x", host="shop.example"))["location"] == own
    there = await front.ask("/x", host="shop.example")
    assert there["location"] == "http://shop.example/v1/there"


async def test_a_post_ends_what_its_location_names(origin, configured):
    front = await configured(routed(origin))
    assert (await front.ask("/api/there", host="shop.example")).status == 200
    before, origin.answer = origin.answer, redirecting("/v1/there")
    await front.ask("/api/change", "Content-Length: 0", method="POST", host="shop.example")
    origin.answer = before
    again = await front.ask("/api/there", host="shop.example")
    assert "hit" not in again["cache-status"]


async def test_a_mounted_proxy_maps_too(origin, serve):
    own = f"http://127.0.0.1:{origin.port}/base/there"
    origin.answer = redirecting(own, "Cache-Control: max-age=60")
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}/base", origin_host="upstream")
    for app in (proxy, CacheMiddleware(proxy)):
        front = await serve(app)
        for _ in range(2):
            answer = await front.ask("/here", host="en.example")
            assert answer["location"] == "http://en.example/there"
    await proxy.aclose()


OWN = """
[[sites]]
hosts = ["shop.example"]
canonical = 301
upstream = "http://127.0.0.1:{port}"
"""


def own_spellings(*redirects):
    """An origin server that leads from each of these targets to a spelling of its own."""

    def answer(request):
        location = dict(redirects).get(request.target)
        if location is None:
            return b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\npage"
        head = f"HTTP/1.1 301 Moved\r\nCache-Control: max-age=60\r\nLocation: {location}\r\n"
        return head.encode() + b"Content-Length: 5\r\n\r\nmoved"

    return answer


async def test_a_spelling_of_the_origin_servers_own_is_asked_for(origin, configured):
    front = await configured(OWN.format(port=origin.port))
    origin.answer = own_spellings((b"/%D0%BF", "/%d0%bf"))
    first = await front.ask("/%D0%BF", host="shop.example")
    again = await front.ask("/%D0%BF", host="shop.example")
    assert [(answer.status, answer.content) for answer in (first, again)] == [(200, b"page")] * 2
    assert first["cache-status"] == "univocal; fwd=uri-miss; stored; detail=own-spelling"
    assert "hit" in again["cache-status"]
    assert origin.targets == [b"/%D0%BF", b"/%d0%bf"]
    assert origin.connections == 1
    there = await front.ask("/%d0%bf", host="shop.example")
    assert (there.status, there["location"]) == (301, "/%D0%BF")  # our own `canonical`


async def test_a_second_redirect_is_neither_stored_nor_led_back(origin, configured):
    front = await configured(OWN.format(port=origin.port))
    origin.answer = own_spellings((b"/%D0%BF", "/%d0%bf"), (b"/%d0%bf", "/%D0%bf"))
    for _ in range(2):
        answer = await front.ask("/%D0%BF", host="shop.example")
        assert (answer.status, answer["location"]) == (301, "/%D0%bf")
        assert "stored" not in answer["cache-status"]
        assert "detail=own-spelling" in answer["cache-status"]
    there = await front.ask("/%D0%bf", host="shop.example")
    assert there["location"] == "/%D0%bf"


async def test_a_redirect_with_a_cookie_is_for_one_client(origin, configured):
    front = await configured(OWN.format(port=origin.port) + "[sites.cache]\nset_cookie = 'explicit'\n")
    origin.answer = redirecting("/%61", "Set-Cookie: a=1", "Cache-Control: max-age=60")
    for number in (1, 2):
        answer = await front.ask("/a", host="shop.example")
        assert (answer.status, answer["set-cookie"], len(origin.requests)) == (301, "a=1", number)


async def test_a_mounted_applications_redirect_goes_on_unstored(serve):
    targets = list[bytes]()

    async def app(scope, receive, send):
        targets.append(scope["raw_path"])
        fields = [(b"location", b"/%61"), (b"cache-control", b"max-age=60"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 301, "headers": fields})
        await send({"type": "http.response.body"})

    front = await serve(CacheMiddleware(app))
    for number in (1, 2):
        answer = await front.ask("/a")
        assert (answer.status, answer["location"], len(targets)) == (301, "/%61", number)
        assert "detail=own-spelling" in answer["cache-status"]


async def test_a_412_to_a_condition_of_ours_reaches_no_client(origin, front, clock):
    lines = ["HTTP/1.1 200 OK", "Content-Length: 4", 'ETag: "1"', "Cache-Control: max-age=1", "", "page"]
    page = "\r\n".join(lines).encode()
    failed = b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"
    origin.answer = lambda request: failed if request["if-none-match"] else page
    proxy = await front()
    assert (await proxy.ask("/a")).status == 200
    clock.now += 5
    assert (await proxy.ask("/a")).status == 200
    assert [bool(request["if-none-match"]) for request in origin.requests] == [False, True, False]


LOWER = """
    location /d0/ {{ if ($request_uri ~ "%[0-9A-F]*[A-F]") {{ return 301 /d0/%d0%bf; }} return 200 page; }}
    location /folder {{ root {folder}/files; }}
"""


async def test_spellings_of_an_nginx_are_found_once(configured, tmp_path):
    """It wants small hexadecimal digits, and a slash behind a folder's name that the profile removes."""
    (tmp_path / "files/folder").mkdir(parents=True)
    (tmp_path / "files/folder/index.html").write_text("page")
    profile = tmp_path / "bare.toml"
    profile.write_text('summary = "no slash"\nextends = "nginx"\n[path]\ntrailing_slash = "remove"\n')
    text = f"""
        profiles = ["{tmp_path}"]
        [[sites]]
        hosts = ["shop.example"]
        profile = "bare"
        cache.ttl = 60
        upstream = "http://127.0.0.1:{{port}}"
    """
    with running_nginx(tmp_path, LOWER.format(folder=tmp_path)) as port:
        front = await configured(text.format(port=port))
        await _until_it_answers(replace(front, port=port))
        for target in ("/d0/%D0%BF", "/d0/%d0%bf", "/folder", "/folder/"):
            answer = await front.ask(target, host="shop.example")
            assert (answer.status, answer.content) == (200, b"page"), target


@contextmanager
def running_nginx(folder, locations):
    port = free_port()
    server = f"server {{ listen 127.0.0.1:{port}; absolute_redirect off; {locations} }}"
    process = subprocess.Popen(nginx(folder, server))
    try:
        yield port
    finally:
        end(process, 20)


async def test_absolute_urls_lead_where_nginx_leads(origin, configured, tmp_path):
    """`proxy_redirect default`; nginx answers with a path what is told here with its host."""
    location = f"location /api/ {{ proxy_pass http://127.0.0.1:{origin.port}/v1/; }}"
    with running_nginx(tmp_path, location) as port:
        front = await configured(routed(origin))
        other = replace(front, port=port)
        for path in ("/v1/", "/v1/a%2Fb?c=/v1/", "/v10/", "/login", "/v1//evil.example/", ""):
            for host in (f"127.0.0.1:{origin.port}", "elsewhere.example"):
                origin.answer = redirecting(f"http://{host}{path}")
                theirs = (await _until_it_answers(other))["location"]
                ours = (await front.ask("/api/x", host="shop.example"))["location"]
                assert ours.removeprefix("http://shop.example") == theirs, (host, path)


async def _until_it_answers(front):
    while True:
        try:
            return await front.ask("/api/x", host="shop.example")
        except OSError:
            await asyncio.sleep(0.05)
