"""Attacks by clients: neither the application nor the next client notices them."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from tests.asgi.conftest import respond
from univocal import CacheMiddleware, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

KNOWN = builtin_profiles()
PROFILES = sorted(KNOWN)

CLAIMS = [
    *("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix"),
    *("X-Forwarded-Scheme", "X-Forwarded-Uri", "Forwarded", "X-Host", "X-HTTP-Host-Override"),
    *("X-Original-URL", "X-Original-URI", "X-Original-Host", "X-Rewrite-URL", "X-Real-IP"),
    *("X-Envoy-Original-Path", "Proxy", "X_Forwarded_Host", "X-Forwarded_Proto"),
]


async def test_forwarded_fields_of_a_trusted_proxy_are_believed(cached, application):
    claims = [
        ("x-forwarded-host", "shown.example"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-for", "198.51.100.7"),
    ]
    client = cached(trusted_proxies=["127.0.0.0/8"])
    await client("/a", fields=claims)
    (scope,) = application.scopes
    assert (application.fields_seen()["host"], scope["scheme"]) == ("shown.example", "https")
    assert scope["client"][0] == "198.51.100.7"
    assert "hit" in (await client("/a", host="shown.example", scheme="https")).handling


# Law 4: what the application sees is a function of key and route

JUNK = st.lists(
    st.tuples(
        st.sampled_from([*(name.lower() for name in CLAIMS), "uri-path-encoding", "uri-query-encoding"]),
        st.sampled_from(
            ["evil.example", "https", "/admin", "127.0.0.1", "DELETE", "host=evil.example", "windows-1251"]
        ),
    ),
    max_size=4,
)
PIECES = st.lists(
    st.sampled_from(
        [
            *("/", "//", "a", "A", "%61", "api", ".", "..", "%2e", "%2E%2e", "%2F", "%2f", "\\", "|"),
            *(";", ";x=y", "(", "%28", "%25", "%", "%20", "+", "é", "%C3%A9", "?", "b=c", "&", "#", "@", ":"),
        ]
    ),
    max_size=8,
)
HOSTS = st.sampled_from(
    ["en.example", "EN.example", "en.example.", "en.example:80", "www.en.example", "ru.example:8080"]
)


def world(name):
    site = Site(
        "wiki",
        ("en.example", "ru.example"),
        (Route(b"/", KNOWN[name], "all"), Route(b"/api/", KNOWN["restbase"], "api", b"/v1/")),
        aliases=("www.en.example",),
    )
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)
        await respond(send, b"")

    return CacheMiddleware(app, runtime=Runtime(Sites([site]))), seen


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(750))
@given(
    name=st.sampled_from(PROFILES),
    pieces=PIECES,
    host=HOSTS,
    junk=JUNK,
    absolute=st.booleans(),
    method=st.sampled_from(["GET", "POST"]),
)
def test_the_scope_follows_from_the_key_and_the_route(client_of, name, pieces, host, junk, absolute, method):
    target = "/" + "".join(pieces)
    if absolute:
        target, host = f"http://{host}{target}", "other.example"

    async def ask():
        door, seen = world(name)
        client = client_of(door)
        answer = await client(target, method, fields=junk, host=host)
        return door, seen, answer

    _, seen, answer = asyncio.run(ask())
    if not seen:
        assert 400 <= answer.status < 500
        return
    (scope,) = seen
    found = scope["extensions"]["univocal.canonical"]["canonical"]
    query = b"?" + scope["query_string"] if b"?" in found.target else b""
    assert scope["raw_path"] + query == found.target
    assert scope["extensions"]["univocal.target"]["target"] == found.target
    assert found.key == b" ".join(
        [found.route.profile.digest, scope["scheme"].encode(), dict(scope["headers"])[b"host"], found.target]
    )
    assert (scope["method"], scope["root_path"]) == (method, "")
    assert {key for key, _ in scope["headers"]} == {b"host"}

    async def again():
        """The one spelling, sent as it is, is the same to the application."""
        door, seen = world(name)
        await client_of(door)(found.target, method, host=found.authority.decode())
        return seen[0]

    repeated = asyncio.run(again())
    for part in ("path", "raw_path", "query_string", "scheme", "headers", "method"):
        assert repeated[part] == scope[part]
