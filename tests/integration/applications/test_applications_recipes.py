"""The recipes of docs/how-to/applications.md, each before a server that answers as its framework does."""

import re
from collections.abc import Callable, Iterator
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "applications.md"
PUBLIC = {"cache-control": "public, max-age=60"}
# Fields of Next.js 16.4 for a page with `export const revalidate = 300`.
NEXT = {
    "vary": "rsc, next-router-state-tree, next-router-prefetch, next-router-segment-prefetch",
    "cache-control": "s-maxage=300, stale-while-revalidate=31535700",
}
Told = tuple[int, dict[str, str], str]


def nextjs(request: Any) -> Told:
    """A page, its form as a component, draft mode, and a gate in proxy.ts."""
    if request.path == "/secret" and "session" not in request.cookies:
        return 307, {"location": "/news"}, "/news"
    if "__prerender_bypass" in request.cookies:
        return 200, {"cache-control": "private, no-cache, no-store, max-age=0, must-revalidate"}, "draft"
    if request.headers.get("rsc") and "_rsc" not in request.query:
        return 307, {"location": f"{request.path}?_rsc"}, ""
    return 200, NEXT, "component" if request.headers.get("rsc") else "page"


def sveltekit(request: Any) -> Told:
    """An application like SvelteKit 2.70: a page with setHeaders, its data, and a form action."""
    if request.command == "POST":
        return 200, {"content-type": "application/json"}, "done"
    if request.path.endswith("/") and request.path != "/":
        return 308, {"location": request.path.rstrip("/")}, ""
    return 200, {"cache-control": "private, no-store"} if "session" in request.cookies else PUBLIC, "page"


def api(request: Any) -> Told:
    """An API that says nothing of freshness."""
    key = request.headers.get("x-api-key") or request.headers.get("authorization") or "nobody"
    return 200, {"content-type": "application/json"}, f"for {key}"


def graphql(request: Any) -> Told:
    """Queries by GET with a lifetime, as of Apollo Server, and a store chosen by a field, as of Magento."""
    if request.command == "POST":
        return 200, {"cache-control": "no-store"}, "mutated"
    named = f"{request.query['extensions'][0]} in {request.headers.get('store', 'default')}"
    return 200, PUBLIC, named


def registry(request: Any) -> Told:
    """A registry that names the package of each listing and file."""
    package = request.path.split("/")[1]
    return 200, {"cache-control": "max-age=31536000", "surrogate-key": f"package-{package}"}, package


@pytest.fixture
def before(serve: Callable[[str], int], place: Any) -> Iterator[Callable[..., Any]]:
    """before(section, answer): the recipe of a section, before a server that answers so."""
    servers = []

    def start(section: str, answer: Callable[[Any], Told]) -> Any:
        numbers = count(1)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self.path, _, query = self.path.partition("?")
                self.query = parse_qs(query, keep_blank_values=True)
                self.cookies = SimpleCookie(self.headers.get("cookie", ""))
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status, fields, said = answer(self)
                content = f"{said} {next(numbers)}".encode()
                self.send_response(status)
                for name, value in {**fields, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        recipe = PAGE.read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
        [sites] = re.findall(r"```toml\n(.*?)```", recipe, re.DOTALL)
        sites = re.sub(r'upstream = "[^"]+"', f'upstream = "http://127.0.0.1:{server.server_port}"', sites)
        return place(serve(sites), re.findall(r'hosts = \["([^"]+)"', sites)[0])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def said(site: Any, target: str, **fields: str) -> str:
    return site.ask(target, **fields).text


def test_nextjs(before: Callable[..., Any]) -> None:
    site = before("Next.js", nextjs)
    forms: list[tuple[str, dict[str, str]]] = [("/news", {}), ("/news?_rsc", {"RSC": "1"})]
    forms.append(("/news?_rsc=abc", {"RSC": "1", "Next_Router_Prefetch": "1"}))
    asked = [[said(site, target, **fields) for target, fields in forms] for _ in range(2)]
    assert asked[0] == asked[1] == ["page 1", "component 2", "component 3"]
    # Draft mode
    assert said(site, "/news", Cookie="__prerender_bypass=1").startswith("draft")
    assert said(site, "/news") == "page 1"
    # The forms of a page that revalidatePath purges as well
    assert site.ask("/news", "PURGE", X_Purge_Method="prefix").status == 200
    assert not {said(site, target, **fields) for target, fields in forms} & {*asked[0]}
    # The gate
    assert site.ask("/secret").status == 307
    assert site.ask("/secret", Cookie="session=1").status == 200
    assert site.ask("/secret").status == 307


def test_sveltekit(before: Callable[..., Any]) -> None:
    site = before("SvelteKit", sveltekit)
    parts = ("/news", "/news/__data.json", "/news/__data.json?x-sveltekit-invalidated=01")
    asked = [[said(site, part) for part in parts] for _ in range(2)]
    assert asked[0] == asked[1]
    assert said(site, "/news", Cookie="session=1") != said(site, "/news") == asked[0][0]
    site.ask("/news", "POST", "a=1")
    assert said(site, "/news") not in asked[0]
    site.ask("/news", "PURGE", X_Purge_Method="prefix")
    assert not {said(site, part) for part in parts} & {*asked[0]}


def test_apis(before: Callable[..., Any]) -> None:
    site = before("APIs and GraphQL", api)
    assert said(site, "/api/a") == said(site, "/api/a") == "for nobody 1"
    for own in ({"X_Api_Key": "one"}, {"Authorization": "Bearer one"}):
        assert said(site, "/api/a", **own) != said(site, "/api/a", **own)
    assert said(site, "/api/a") == "for nobody 1"
    assert said(site, "/else") != said(site, "/else")


def test_graphql(before: Callable[..., Any]) -> None:
    site = before("APIs and GraphQL", graphql)
    one, two = ("/graphql?extensions=" + name for name in ("one", "two"))
    assert said(site, one) == said(site, one) == "one in default 1"
    assert said(site, one, Store="fr") == said(site, one, Store="fr") == "one in fr 2"
    assert said(site, two) == "two in default 3"
    assert site.ask("/graphql", "POST", "{}").text == "mutated 4"
    assert said(site, one) == "one in default 1"


def test_registries(before: Callable[..., Any]) -> None:
    site = before("Registries with tags", registry)
    targets = ("/left", "/left/-/left-1.0.tgz", "/right")
    asked = [said(site, target) for target in targets]
    assert asked == [said(site, target) for target in targets]
    site.ask("/", "PURGE", Surrogate_Key="package-left")
    assert [said(site, target) in asked for target in targets] == [False, False, True]
