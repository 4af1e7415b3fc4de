"""Probe before real servers and applications: nothing false is learned, and most of what is true is."""

import random
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from probing import ALWAYS, NAMES, RINGS, SAMPLE, agrees, are_one
from univocal.uri.profile import parse
from univocal_learn.asking import Asker, remembering
from univocal_learn.likeness import Reply
from univocal_learn.probe import probe

FILES = [b"/files/", b"/files/a.html", b"/files/b.html", b"/files/more/", b"/files/more/c.html"]


def probed(origin, sample, least):
    """Probe at full speed; of the learned profile, this share of random spellings must be one resource."""
    with closing(HTTPConnection(origin.removeprefix("http://"))) as connection:

        def get(target):
            connection.request("GET", target.decode())
            answer = connection.getresponse()
            fields = [(name.lower().encode(), value.encode()) for name, value in answer.getheaders()]
            return Reply(answer.status, tuple(fields), answer.read())

        fetch = remembering(get)
        report = probe(origin, sample, fetch, lambda: 0, lambda _: None)
        are_one(fetch, report.profile, sample, least, origin)
    return report


@pytest.mark.parametrize("kind", ["locations", "merge_slashes off locations"])
def test_nginx(nginx, kind):
    sample = [*SAMPLE, b"/wiki/", b"/wiki/deep/one", b"/wiki/plain?id=1", b"/wiki/other?id=2"]
    report = probed(nginx[kind], sample, least=0.25)
    merges = "off" not in kind
    same = [*ALWAYS, "ring:2F", "dot-segments", "empty-query", "unused:utm_source"]
    different = ["parameters", "case", "trailing-slash", "index-names", "unused:id"]
    (same if merges else different).append("merge-slashes")
    agrees(report, same, different)
    assert parse({"learned": report.profile})["learned"].merge_slashes is merges


def test_nginx_before_files(nginx):
    """The file system takes many slashes for one, whatever nginx does."""
    sample = [*SAMPLE, b"/", b"/docs/", b"/docs/more/", b"/wiki/"]
    report = probed(nginx["merge_slashes off files"], sample, least=0.25)
    same = [*ALWAYS, "ring:2F", "dot-segments", "index-names", "merge-slashes", "empty-query"]
    agrees(report, same, ["parameters", "case", "trailing-slash"])
    assert parse({"learned": report.profile})["learned"].index_names == (b"index.html",)


def test_tomcat(tomcat):
    sample = [*(target for target in SAMPLE if not set(target) & set(b"[];")), b"/docs/more/plain"]
    sample += [b"/wiki/plain?id=1", b"/wiki/other?id=2"]
    report = probed(tomcat, sample, least=0.25)
    rings = [name for name in RINGS if name not in {"ring:3B", "ring:5B", "ring:5D"}]
    agrees(
        report,
        ["unreserved", "escape-case", *rings, "merge-slashes", "dot-segments", "parameters", "empty-query"],
        ["ring:2F", "ring:3B", "unused:id", "trailing-slash", "index-names", "case"],
    )
    assert "dot-segment-parameter" in {risk.name for risk in report.risks}
    profile = parse({"learned": report.profile})["learned"]
    assert (profile.parameters, profile.merge_slashes) == ("strip", True)
    assert profile.dot_segments == "servlet"
    assert "dot-segment-parameter" in profile.sequences


def test_static_files_of_tomcat(tomcat):
    """It redirects a directory without its slash, so that a ".." at the end seems to lead to two places."""
    report = probed(tomcat, FILES, least=0.1)
    same = ["unreserved", "escape-case", "merge-slashes", "dot-segments", "parameters", "empty-query"]
    agrees(report, same, ["ring:2F", "case"])
    assert parse({"learned": report.profile})["learned"].dot_segments == "servlet"


# Applications


def page(name):
    text = " ".join(map(str, random.Random(name).choices(range(10_000), k=60)))
    return HTMLResponse(f"<html><body><h1>{name}</h1>\n<p>{text}</body></html>")


def starlette_site():
    async def wiki(request):
        name = request.path_params["name"]
        return page(name) if name in NAMES else PlainTextResponse("no such page", 404)

    async def search(request):
        query = request.query_params
        return page("found " + ", ".join(f"{name} {query[name]}" for name in ("q", "size") if name in query))

    return Starlette(routes=[Route("/wiki/{name:path}", wiki), Route("/search", search)])


def test_starlette(hosted):
    sample = [*SAMPLE, b"/search?q=a+b&size=5", b"/search?q=c&size=6"]
    report = probed(hosted(starlette_site()), sample, least=0.15)
    agrees(
        report,
        [*ALWAYS, "ring:2F", "query-order", "empty-query", "unused:utm_source", "unused:gclid", "plus-space"],
        ["merge-slashes", "dot-segments", "parameters", "index-names", "unused:q", "unused:size", "case"],
    )
    assert parse({"learned": report.profile})["learned"].query.sort


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


def test_django(django):
    sample = [target + b"/" for target in SAMPLE]
    sample += [b"/stories/5/", b"/stories/6/?page=2", b"/stories/7/?page=3"]
    report = probed(django, sample, least=0.15)
    agrees(
        report,
        [*ALWAYS, "ring:2F", "trailing-slash", "empty-query", "unused:utm_source"],
        ["merge-slashes", "dot-segments", "parameters", "index-names", "unused:page", "case"],
    )
    assert parse({"learned": report.profile})["learned"].trailing_slash == "add"


def test_one_that_fails_now_and_then(hosted):
    inner, chance = starlette_site(), random.Random(3)

    async def app(scope, receive, send):
        if chance.random() < 0.15:
            await Response(status_code=503)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    with closing(Asker(hosted(app), 100_000)) as asker:
        asker.read_robots()
        fetch = remembering(asker.get)
        report = probe(asker.origin, SAMPLE, fetch, lambda: asker.asked, lambda _: None)
    agrees(report, [*ALWAYS, "ring:2F"], ["merge-slashes", "dot-segments", "parameters"])
