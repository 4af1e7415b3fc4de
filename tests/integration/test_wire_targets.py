"""An origin server's socket receives what the key says, for every profile and every way to spell."""

import pytest

from examples import LONG, cases
from univocal.cache.rules import Rules
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical

# The package `uri` decides how each profile reads a target; these three send the most different ones.
PROFILES = sorted(builtin_profiles()) if LONG else ["mediawiki", "rfc3986", "servlet"]
SPELLINGS = """
/ /wiki/Steve_Fuller_(sociologist) /wiki/Steve_Fuller_%28sociologist%29 /%77%69ki/%D0%9a%d0%BE /a%2fb
/a%2Fb/%2f /a/../b /a/%2e%2e/b /a/..%2fb /..%2f..%2fetc/passwd /../../x /a/./b/. /a/b/.. /a..;/admin
/a/..;/admin /a/..;x=y/admin /.;/x /a;b=c/d;e //evil.example/x //a///b// /@evil.example
/http://evil.example/ /%252e%252e/x /%%32%65/ /% /%4 /%zz /a%25b /%c0%ae%c0%ae/ /%ff /%00 /%0d%0aX:y
/\u00e9/%C3%A9?\u00e9=%c3%a9 /%c3%a9/\u00e9?%C3%A9=\u00e9 /a%20b /a+b /a|b /a"b<c>d`e{f}^g /a\\b /a%5Cb
/a'b!c$d&e /a:b@c,d=e*f /[a] /a? /a?? /a?b=%28&c=/../d;e /a?b%20c /a?%3f%23%zz /? /a#b /a?b#c /~%7e
http://en.example/a%28b http://en.example http://en.example?a http://EN.example:80/../a
http://ru.example/x http://u@en.example/ https://en.example/ ftp://en.example/ a/b * @evil.example ?a #
"""
TARGETS = SPELLINGS.split()


@pytest.mark.parametrize("profile", PROFILES)
async def test_the_request_line_at_the_origin_is_the_key(front, origin, profile):
    proxy = await front(profile)
    sites = Runtime.everywhere(builtin_profiles()[profile], Rules()).sites
    for target in TARGETS:
        expected = resolve(target.encode(), [b"en.example"], b"http", sites)
        seen = len(origin.requests)
        answer = await proxy.ask(target)
        if not isinstance(expected, Canonical):
            assert answer.status in {400, 421}, target
            assert len(origin.requests) == seen, target
            continue
        assert answer.status == 200, target
        key = answer["cache-status"].partition('key="')[2].partition('"')[0].encode()
        assert key == b"http://" + expected.authority + expected.target
        if len(origin.requests) > seen:
            (received,) = origin.requests[seen:]
            assert received.start == b"GET " + expected.target + b" HTTP/1.1"
            assert key == b"http://" + received["host"].encode() + received.target
            assert received["x-forwarded-host"] == received["host"]
        else:
            assert "; hit" in answer["cache-status"], target


async def test_a_raw_byte_reaches_no_origin_as_it_is(front, origin):
    proxy = await front("rfc3986")
    for octet in [*range(0x21), 0x7F, 0x80, 0xC3, 0xFF]:
        origin.requests.clear()
        answer = await proxy.ask(b"/a" + bytes([octet]) + b"b")
        assert (answer.status, origin.targets) in [(400, []), (200, [b"/a%%%02Xb" % octet])], octet


@cases(
    "received, sent",
    ("en.example", "en.example"),
    ("EN.Example.:80", "en.example"),
    ("[::1]:8080", "[::1]:8080"),
)
async def test_the_host_at_the_origin_is_the_keys(front, origin, received, sent):
    answer = await (await front()).ask("/a", host=received)
    assert origin.requests[0]["host"] == sent
    assert f'key="http://{sent}/a"' in answer["cache-status"]


@pytest.mark.parametrize("host", ["a@b", "a/b", "a/admin?x=", "", "a b", "a%2f", "en.example:http"])
async def test_an_invalid_host_reaches_no_origin(front, origin, host):
    answer = await (await front()).ask("/a", host=host)
    assert answer.status == 400
    assert origin.requests == []


@pytest.mark.parametrize(("method", "kept"), [("GET", False), ("POST", True)])
async def test_another_method_is_claimed_by_requests_past_the_cache_alone(front, origin, method, kept):
    await (await front()).ask("/a", "X-HTTP-Method-Override: DELETE", "Content-Length: 0", method=method)
    assert ((b"x-http-method-override", b"DELETE") in origin.requests[0].fields) is kept


async def test_every_field_line_at_the_origin_is_accounted_for(front, origin):
    await (await front()).ask(
        "/a",
        "Accept: text/html",
        "X-Twice: 1",
        "X-Twice: 2",
        "X-Forwarded-Host: evil.example",
        "X-Original-URL: /admin",
        "X-HTTP-Method-Override: DELETE",
        "Forwarded: host=evil.example",
        "Keep-Alive: 5",
        "TE: trailers",
    )
    assert sorted(origin.requests[0].fields) == sorted(
        [
            (b"host", b"en.example"),
            (b"accept", b"text/html"),
            (b"x-twice", b"1"),
            (b"x-twice", b"2"),
            (b"x-forwarded-for", b"127.0.0.1"),
            (b"x-forwarded-host", b"en.example"),
            (b"x-forwarded-proto", b"http"),
            (b"forwarded", b"for=127.0.0.1;host=en.example;proto=http"),
            (b"via", b"1.1 univocal"),
        ]
    )


async def test_options_of_the_server_itself_keep_the_asterisk(front, origin):
    answer = await (await front()).ask("*", method="OPTIONS")
    assert answer.status == 200
    assert origin.requests[0].start == b"OPTIONS * HTTP/1.1"
