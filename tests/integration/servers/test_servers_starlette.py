"""Law 3 with Starlette on uvicorn as the judge: what has one key reaches one route with one set of values."""

import contextlib
import itertools
import json
import re
import socket
import threading
import time
from urllib.parse import parse_qsl

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles

from examples import cases, examples
from univocal.uri.target import Rejected, canonical_target

IMPLEMENTATIONS = ("h11", "httptools")
QUERY_RINGS = ("rfc3986", "nginx-uri", "nginx-args", "nginx-uri-component", "ngx-lua")
QUERY_RING = '[query]\nring = "{}"\n'


def told(name):
    """An endpoint that tells its name and all that it is given of the target."""

    async def endpoint(request):
        return JSONResponse(
            [name, request.scope["path"], request.path_params, request.query_params.multi_items()]
        )

    return endpoint


def application(files):
    shop = Router(
        [Route("/", told("shop")), Route("/{item}", told("item")), Mount("/admin", told_below("back"))]
    )
    return Starlette(
        routes=[
            Route("/", told("root")),
            Route("/admin", told("admin")),
            Route("/admin/{rest:path}", told("admin")),
            Route("/foo/", told("foo")),
            Route("/foo/{name}", told("name")),
            Route("/foo/{name}/{other}", told("names")),
            Route("/a/{number:int}", told("number")),
            Mount("/shop", shop),
            Mount("/x", StaticFiles(directory=files, html=True)),
            Route("/{rest:path}.php", told("php")),
            Route("/{anything}", told("anything")),
        ]
    )


def told_below(name):
    return Router([Route("/{rest:path}", told(name))])


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def starlette(request, new_directory, client_at):
    """The application behind uvicorn with one of its two readers of HTTP."""
    base = new_directory()
    files = base / "files"
    (files / "y").mkdir(parents=True)
    for name in ("index.html", "a", "y/index.html", "a(b)", "..."):
        (files / name).write_text(name)
    address = str(base / "sock")
    config = uvicorn.Config(
        application(files),
        uds=address,
        http=request.param,
        ws="none",
        lifespan="off",
        log_config=None,
        loop="asyncio",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < end
            time.sleep(0.02)
        # uvicorn answers what it cannot read before what it was asked before that.
        yield client_at(socket.AF_UNIX, address, alone=re.compile(rb"[^!-~]").search)
    finally:
        server.should_exit = True
        thread.join(30)


def seen(answer):
    """The status, what the endpoint or the file is, and where a redirect leads."""
    path, mark, query = answer.location.partition(b"?")
    body = answer.body
    with contextlib.suppress(ValueError):
        body = json.loads(body)
    return answer.status, body, path, mark, parse_qsl(query.decode("latin-1"), keep_blank_values=True)


@pytest.mark.parametrize("settings", ["", *map(QUERY_RING.format, QUERY_RINGS)])
def test_urls_with_one_key_are_one_to_starlette(starlette, generated, judge, derived, settings):
    """Conversely, URLs with one path and one query in Starlette have one key."""
    judged = judge(generated(1, 3000), derived("asgi", settings))
    answers = starlette.ask(judged.both)
    keys = {}
    for received, canonical in judged.accepted.items():
        if answers[received].refused:
            continue
        one = seen(answers[received])
        assert one == seen(answers[canonical]), (received, canonical)
        if one[0] == 200 and isinstance(one[1], list):
            path = one[1][1]
            key = canonical.partition(b"?")[0]
            assert keys.setdefault(path, key) == key, (received, canonical)
    assert len(keys) > 300
    assert len(judged.accepted) > 1.2 * len(set(judged.accepted.values()))


def test_every_ring_fits(starlette, generated, judge, derived, drawn):
    """A ring may decode "/" or keep it."""
    targets = generated(2, 600)[-600:]
    for number, ring in enumerate([*drawn(1, examples(8, 2)), *drawn(2, examples(8, 2), "/")]):
        judged = judge(targets, derived("asgi", ring))
        answers = starlette.ask(judged.both)
        for received, canonical in judged.accepted.items():
            same = answers[received].refused or seen(answers[received]) == seen(answers[canonical])
            assert same, (number, ring, received, canonical)


@cases("profile, received", ("rfc3986", b"/foo/.."), ("nginx", b"/foo//"), ("servlet", b"/foo/a;b"))
def test_a_profile_that_does_not_fit_is_found_out(starlette, built_in, profile, received):
    canonical = canonical_target(received, built_in[profile])
    assert seen(starlette.one(received)) != seen(starlette.one(canonical))


LAXER = {
    "control-character": (b"/foo/a%0Ab", ["name", "/foo/a\nb", {"name": "a\nb"}, []]),
    "bad-utf-8": (b"/foo/%E8", ["name", "/foo/\ufffd", {"name": "\ufffd"}, []]),
    "dot-segment": (b"/foo/..", ["name", "/foo/..", {"name": ".."}, []]),
}


@pytest.mark.parametrize("reason", LAXER)
def test_starlette_accepts_some_targets_that_the_profile_refuses(starlette, built_in, reason):
    target, body = LAXER[reason]
    result = canonical_target(target, built_in["asgi"])
    assert isinstance(result, Rejected)
    assert result.reasons == (reason,)
    assert seen(starlette.one(target))[:2] == (200, body)


def test_starlette_takes_what_is_not_utf_8_for_one(starlette):
    assert seen(starlette.one(b"/foo/%E8")) == seen(starlette.one(b"/foo/%F0"))


@pytest.mark.parametrize("target", [b"/x/y/../a", b"/x/y%2f..%2fa", b"/x/./a", b"/x/y/%2e%2e/a"])
def test_routes_keep_dot_segments_and_files_do_not(starlette, built_in, target):
    """One application reads a dot segment in two ways: no spelling would do for both."""
    assert starlette.one(target).body == b"a"
    result = canonical_target(target, built_in["asgi"])
    assert isinstance(result, Rejected)
    assert result.reasons == ("dot-segment",)


def test_uvicorn_refuses_only_bytes_that_are_not_ascii(starlette, generated, judge, built_in):
    judged = judge(generated(1, 3000)[::3], built_in["asgi"])
    answers = starlette.ask([*judged.both, *judged.refused])
    assert all(not received.isascii() for received in judged.accepted if answers[received].refused)
    assert not [canonical for canonical in judged.accepted.values() if answers[canonical].refused]
    only_ours = {reasons.reasons for target, reasons in judged.refused.items() if not answers[target].refused}
    assert set(itertools.chain(*only_ours)) == {"fragment", *LAXER}
