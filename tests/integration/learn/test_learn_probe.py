"""Probe before real servers and applications: nothing false is learned, and most of what is true is."""

import itertools
import random
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from univocal.uri.profile import parse

NAMES = [
    *("A(b)", "C!d", "E:f", "x,y", "it's", "a+b", "a=b", "p@q", "m*n", "[z]", "$5", "R&D", "s;t"),
    *("plain", "other", "third", "é"),
]
FILES = [b"/files/", b"/files/a.html", b"/files/b.html", b"/files/more/", b"/files/more/c.html"]
SAFE = ":[]@!$&'()*+,;="
SAMPLE = [f"/wiki/{quote(name, safe=SAFE)}".encode() for name in NAMES]
RINGS = [f"ring:{octet:02X}" for octet in b":[]@!$&'()*+,;="]
ALWAYS = ["unreserved", "escape-case", *RINGS]


def agrees(verdicts, same, different):
    """No false `same`, and at least four fifths of the true ones."""
    false = [name for name, verdict in verdicts.items() if verdict == "same" and name in different]
    assert false == []
    found = [name for name in same if verdicts[name] == "same"]
    assert len(found) >= 0.8 * len(same), set(same) - set(found)
    assert not [name for name in same if verdicts[name] == "different"]


@pytest.mark.parametrize("kind", ["locations", "merge_slashes off locations"])
def test_nginx(nginx, probed, verdicts, are_one, kind):
    sample = [*SAMPLE, b"/wiki/", b"/wiki/deep/one", b"/wiki/plain?id=1", b"/wiki/other?id=2"]
    report = probed(nginx[kind], sample)
    merges = "off" not in kind
    same = [*ALWAYS, "ring:2F", "dot-segments", "empty-query", "unused:utm_source"]
    different = ["parameters", "case", "trailing-slash", "index-names", "unused:id"]
    (same if merges else different).append("merge-slashes")
    agrees(verdicts(report), same, different)
    assert parse({"learned": report.profile})["learned"].merge_slashes is merges
    are_one(nginx[kind], report.profile, sample, least=0.25)


@pytest.mark.parametrize("kind", ["files", "merge_slashes off files"])
def test_nginx_before_files(nginx, probed, verdicts, are_one, kind):
    """The file system takes many slashes for one, whatever nginx does."""
    sample = [*SAMPLE, b"/", b"/docs/", b"/docs/more/", b"/wiki/"]
    report = probed(nginx[kind], sample)
    same = [*ALWAYS, "ring:2F", "dot-segments", "index-names", "merge-slashes", "empty-query"]
    agrees(verdicts(report), same, ["parameters", "case", "trailing-slash"])
    assert parse({"learned": report.profile})["learned"].index_names == (b"index.html",)
    are_one(nginx[kind], report.profile, sample, least=0.25)


def test_tomcat(tomcat, probed, verdicts, are_one):
    sample = [*(target for target in SAMPLE if not set(target) & set(b"[];")), b"/docs/more/plain"]
    sample += [b"/wiki/plain?id=1", b"/wiki/other?id=2"]
    report = probed(tomcat, sample)
    rings = [name for name in RINGS if name not in {"ring:3B", "ring:5B", "ring:5D"}]
    agrees(
        verdicts(report),
        ["unreserved", "escape-case", *rings, "merge-slashes", "dot-segments", "parameters", "empty-query"],
        ["ring:2F", "ring:3B", "unused:id", "trailing-slash", "index-names", "case"],
    )
    assert "dot-segment-parameter" in {risk.name for risk in report.risks}
    profile = parse({"learned": report.profile})["learned"]
    assert (profile.parameters, profile.merge_slashes) == ("strip", True)
    assert profile.dot_segments == "servlet"
    assert "dot-segment-parameter" in profile.sequences
    are_one(tomcat, report.profile, sample, least=0.25)


def test_static_files_of_tomcat(tomcat, probed, verdicts, are_one):
    """It redirects a directory without its slash, so that a ".." at the end seems to lead to two places."""
    report = probed(tomcat, FILES)
    same = ["unreserved", "escape-case", "merge-slashes", "dot-segments", "parameters", "empty-query"]
    agrees(verdicts(report), same, ["ring:2F", "case"])
    assert parse({"learned": report.profile})["learned"].dot_segments == "servlet"
    are_one(tomcat, report.profile, FILES, least=0.1)


# Applications


def page(name, noise=""):
    chance = random.Random(name)
    text = " ".join(str(chance.randrange(10_000)) for _ in range(60))
    return HTMLResponse(f"<html><body><h1>{name}</h1>\n<p>{text}\n<footer>{noise}</footer></body></html>")


def starlette_site():
    async def wiki(request):
        name = request.path_params["name"]
        return page(name) if name in NAMES else PlainTextResponse("no such page", 404)

    async def item(request):
        return page("item " + request.path_params["number"] + " of " + request.query_params.get("shop", "-"))

    async def search(request):
        query = request.query_params
        return page("found " + ", ".join(f"{name} {query[name]}" for name in ("q", "size") if name in query))

    return Starlette(
        routes=[
            Route("/wiki/{name:path}", wiki),
            Route("/items/{number:int}", item),
            Route("/search", search),
        ]
    )


def test_starlette(hosted, probed, verdicts, are_one):
    origin = hosted(starlette_site())
    sample = [*SAMPLE, b"/search?q=a+b&size=5", b"/search?q=c&size=6"]
    report = probed(origin, sample)
    agrees(
        verdicts(report),
        [*ALWAYS, "ring:2F", "query-order", "empty-query", "unused:utm_source", "unused:gclid", "plus-space"],
        ["merge-slashes", "dot-segments", "parameters", "index-names", "unused:q", "unused:size", "case"],
    )
    assert parse({"learned": report.profile})["learned"].query.sort
    are_one(origin, report.profile, sample, least=0.15)


DJANGO = """
import sys
from django.conf import settings
settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, APPEND_SLASH=True,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"])
import django
django.setup()
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, HttpResponseNotFound
from django.urls import path
NAMES = sys.argv[1:]
def wiki(request, name):
    found = name in NAMES
    return HttpResponse(f"The page of {name}, {len(name)}") if found else HttpResponseNotFound("no")
def story(request, number):
    return HttpResponse(f"Story {number * 7919}, page {request.GET.get('page', '1')}")
urlpatterns = [path("wiki/<path:name>/", wiki), path("stories/<int:number>/", story)]
import uvicorn
import socket
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(get_asgi_application(), ws="none", lifespan="off", log_config=None)
uvicorn.Server(config).run([listener])
"""


@pytest.fixture(scope="module")
def django(tmp_path_factory):
    script = tmp_path_factory.mktemp("django") / "site.py"
    script.write_text(DJANGO)
    with subprocess.Popen(
        [sys.executable, str(script), *NAMES], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def test_django(django, probed, verdicts, are_one):
    sample = [target + b"/" for target in SAMPLE]
    sample += [b"/stories/5/", b"/stories/6/?page=2", b"/stories/7/?page=3"]
    report = probed(django, sample)
    agrees(
        verdicts(report),
        [*ALWAYS, "ring:2F", "trailing-slash", "empty-query", "unused:utm_source"],
        ["merge-slashes", "dot-segments", "parameters", "index-names", "unused:page", "case"],
    )
    assert parse({"learned": report.profile})["learned"].trailing_slash == "add"
    are_one(django, report.profile, sample, least=0.15)


async def mediawiki_like(scope, receive, send):
    """Titles are decoded once, `%2F` is a subpage's slash, blanks are underscores."""
    path = unquote(scope["raw_path"].decode(), errors="replace") if scope["raw_path"].isascii() else ""
    query = scope["query_string"].decode()
    title = path.removeprefix("/wiki/").replace(" ", "_")
    if not path.startswith("/wiki/") or title not in [*NAMES, "AC/DC", "Two_words"]:
        response = PlainTextResponse("There is no such page.", 404)
    elif "action=history" in query:
        response = page(f"history of {title}")
    else:
        response = page(title)
    await response(scope, receive, send)


def test_a_router_like_mediawikis(hosted, probed, verdicts, are_one):
    origin = hosted(mediawiki_like)
    sample = [*SAMPLE, b"/wiki/AC/DC", b"/wiki/Two_words", b"/wiki/plain?action=history"]
    report = probed(origin, sample)
    agrees(
        verdicts(report),
        [*ALWAYS, "ring:2F", "empty-query", "unused:utm_source"],
        ["merge-slashes", "dot-segments", "parameters", "trailing-slash", "unused:action", "case"],
    )
    are_one(origin, report.profile, sample, least=0.15)


def restbase_like(scope):
    """Segments are split before they are decoded: %2F belongs to a title."""
    parts = scope["raw_path"].decode().split("/")
    names = [unquote(part) for part in parts]
    if len(names) == 3 and names[1] == "wiki" and names[2] in [*NAMES, "AC/DC"]:
        return page(names[2])
    return PlainTextResponse("no", 404)


def test_one_that_splits_before_it_decodes(hosted, probed, verdicts, are_one):
    async def app(scope, receive, send):
        await restbase_like(scope)(scope, receive, send)

    origin = hosted(app)
    sample = [*SAMPLE, b"/wiki/AC%2FDC"]
    report = probed(origin, sample)
    agrees(verdicts(report), ALWAYS, ["ring:2F", "merge-slashes", "dot-segments", "trailing-slash"])
    are_one(origin, report.profile, sample)


def test_one_that_decodes_nothing(hosted, probed, verdicts):
    """No ring is learned, and the loader's own folding of unreserved octets is a risk that is named."""

    async def app(scope, receive, send):
        known = scope["raw_path"] in SAMPLE
        response = page(scope["raw_path"].decode()) if known else PlainTextResponse("no", 404)
        await response(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    found = verdicts(report)
    assert not [name for name in [*RINGS, "ring:2F", "merge-slashes"] if found[name] == "same"]
    assert {risk.name for risk in report.risks} >= {"unreserved", "escape-case"}


def test_clocks_and_tokens_do_not_decide(hosted, probed, verdicts):
    count = itertools.count()

    async def app(scope, receive, send):
        name = scope["path"].removeprefix("/wiki/")
        noise = f"{time.time()} <input value=token{random.random()}> {' x' * (next(count) % 3)}"
        known = scope["path"].startswith("/wiki/") and name in NAMES
        response = page(name, noise) if known else PlainTextResponse("no " + noise, 404)
        response.headers["etag"] = f'"{next(count)}"'
        await response(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    agrees(
        verdicts(report), [*ALWAYS, "ring:2F", "empty-query"], ["merge-slashes", "dot-segments", "parameters"]
    )


@pytest.mark.parametrize("repeats", [True, False], ids=["which repeat the name", "of one text"])
def test_soft_404s_decide_nothing(hosted, probed, verdicts, repeats):
    async def app(scope, receive, send):
        name = scope["path"].removeprefix("/wiki/")
        if scope["path"].startswith("/wiki/") and name in NAMES:
            response = page(name)
        else:
            said = f" called {name}" if repeats else ""
            response = HTMLResponse(
                f"<html><h1>Sorry</h1><p>There is no page{said}. Have a look around.</html>"
            )
        await response(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    assert {name for name, verdict in verdicts(report).items() if verdict != "unknown"} == set()
    assert not report.decided


def test_a_page_for_everything_decides_nothing(hosted, probed, verdicts):
    async def app(scope, receive, send):
        await HTMLResponse("<html><script src=app.js></script></html>")(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    assert set(verdicts(report).values()) == {"unknown"}


def test_one_that_fails_now_and_then(hosted, probed, verdicts):
    inner, chance = starlette_site(), random.Random(3)

    async def app(scope, receive, send):
        if chance.random() < 0.15:
            await Response(status_code=503)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    agrees(verdicts(report), [*ALWAYS, "ring:2F"], ["merge-slashes", "dot-segments", "parameters"])


def test_one_that_tells_every_spelling_in_its_content(hosted, probed, verdicts):
    async def app(scope, receive, send):
        await PlainTextResponse(b"You asked for " + scope["raw_path"])(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    assert "same" not in {
        v for name, v in verdicts(report).items() if not name.startswith(("unused", "empty"))
    }


def test_a_redirect_tells_which_spelling_is_canonical(hosted, probed):
    async def app(scope, receive, send):
        path = scope["path"]
        name = path.removeprefix("/wiki/")
        canonical = "/wiki/" + quote(name, safe="!:@")
        if not path.startswith("/wiki/") or name not in NAMES:
            response = PlainTextResponse("no", 404)
        elif scope["raw_path"].decode() != canonical:
            response = RedirectResponse("/", 301, {"location": canonical})
            response.headers["location"] = canonical
        else:
            response = page(name)
        await response(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    profile = parse({"learned": report.profile})["learned"]
    assert {0x28, 0x29, 0x2C, 0x27} <= {octet for octet in range(0x80) if profile.ring.forms[octet] == 0}
    assert {0x21, 0x3A, 0x40} <= {octet for octet in range(0x80) if profile.ring.forms[octet] == 1}


def test_decoding_twice_and_any_suffix_are_risks(hosted, probed):
    async def app(scope, receive, send):
        """Decodes twice, and has a page for any suffix."""
        path = unquote(unquote(scope["raw_path"].decode()))
        name = path.removeprefix("/wiki/").split("/")[0]
        known = path.startswith("/wiki/") and name in NAMES
        await (page(name) if known else PlainTextResponse("no", 404))(scope, receive, send)

    report = probed(hosted(app), SAMPLE)
    assert {risk.name for risk in report.risks} == {"double-decoding", "any-suffix"}


def test_where_the_files_are():
    assert (Path(__file__).parent / "Site.java").exists()
