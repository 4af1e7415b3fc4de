"""Ask nginx, Varnish, hishel and univocal which spellings of a URL are one entry.

    python -m tools.comparison.run [--check]

Every cache stands before an origin server that writes down what it is asked for. The table is written into
docs/comparison.md, or, with --check, compared with what stands there: the exit status is 1 if that differs.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.machine import Cores, free_port, running
from benchmarks.servers import CACHE, PEERS, Place, environment, filled, nginx

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- spellings: written by make comparison -->", "<!-- spellings: end -->"
PATIENCE = 20.0  # seconds

UNIVOCAL = """
[server]
listen = "127.0.0.1:@port@"
admin = "127.0.0.1:@admin@"
access_log = "off"

[[sites]]
hosts = ["wiki.example"]
profile = "mediawiki"
upstream = "http://127.0.0.1:@origin@"

[[sites]]
hosts = ["api.example"]
profile = "restbase"
upstream = "http://127.0.0.1:@origin@"

[[sites]]
hosts = ["shop.example"]
profile = "servlet"
upstream = "http://127.0.0.1:@origin@"
"""
# With a path, even "/", nginx sends its own reading of the path on.
CACHE_READ = CACHE.replace("proxy_pass http://127.0.0.1:@origin@;", "proxy_pass http://127.0.0.1:@origin@/;")
# The built-in VCL, and the usual way to take PURGE.
VCL = """vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "@origin@"; }
sub vcl_recv { if (req.method == "PURGE") { return (purge); } }
"""


def univocal(place: Place) -> list[str]:
    text = filled(UNIVOCAL, port=place.port, admin=free_port(), origin=place.origin)
    file = place.write("univocal.toml", text)
    return [sys.executable, "-m", "univocal_app", "serve", "--config", file]


def varnish(place: Place) -> list[str]:
    told = ["-F", "-j", "none", "-T", "none", "-n", str(place.folder / "work")]
    told += ["-a", f"127.0.0.1:{place.port}", "-s", "malloc,16m"]
    return ["varnishd", *told, "-f", place.write("default.vcl", filled(VCL, origin=place.origin))]


def hishel(place: Place) -> list[str]:
    told = ["--factory", "tools.comparison.applications:with_hishel", "--port", str(place.port)]
    return [sys.executable, "-m", "uvicorn", *told, "--no-access-log", "--log-level", "warning"]


@dataclass(frozen=True)
class Cache:
    """One program under one configuration, and the key of benchmarks.servers.PEERS that knows its version."""

    title: str
    command: Callable[[Place], list[str]]
    peer: str


CACHES = [
    Cache("univocal", univocal, "univocal"),
    Cache("nginx", nginx(CACHE), "nginx"),
    Cache("nginx, `proxy_pass` with a path", nginx(CACHE_READ), "nginx"),
    Cache("Varnish", varnish, "varnish"),
    Cache("hishel", hishel, "hishel"),
]


def missing(cache: Cache) -> str:
    """The package to install, empty if it is there."""
    peer = PEERS[cache.peer]
    return "" if peer.version() else peer.package


@dataclass
class Asking:
    """A running cache, and the targets that its origin server was asked for."""

    port: int
    seen_in: Path
    _before: int = field(default=0, init=False)

    def ask(self, target: str, host: str = "wiki.example", method: str = "GET") -> int:
        """The status of the answer to one request, its target sent byte for byte."""
        self._before = len(self._lines())
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(head.encode("latin-1"))
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(received.split(b" ", 2)[1])

    def _lines(self) -> list[str]:
        return self.seen_in.read_text("utf-8").splitlines() if self.seen_in.exists() else []

    def seen(self) -> list[str]:
        """The targets that the last request asked the origin server for."""
        return self._lines()[self._before :]

    def sharing(self, *targets: str, host: str = "wiki.example") -> str:
        """The number of entries that these spellings of one page become."""
        asked = 0
        for target in targets:
            status = self.ask(target, host)
            if status != 200:
                return f"{status}"
            asked += len(self.seen())
        return f"{asked} {'entry' if asked == 1 else 'entries'}"

    def purged(self, stored: str, named: str) -> str:
        """The effect of a PURGE of one spelling on a response stored by another."""
        self.ask(stored)
        status = self.ask(named, method="PURGE")
        self.ask(stored)
        return f"{status}, {'gone' if self.seen() else 'stays'}"

    def forwarded(self, target: str) -> str:
        """The request that reaches the origin server, or the refusal."""
        status = self.ask(target, "shop.example")
        seen = self.seen()
        return f"sends `{seen[0].split()[1]}`" if seen else f"{status}"


TITLE, ESCAPED = "/wiki/Steve_Fuller_(sociologist)", "/wiki/Steve_Fuller_%28sociologist%29"
QUESTIONS: dict[str, Callable[[Asking], str]] = {
    f"`{TITLE}` and `…%28sociologist%29`": lambda it: it.sharing(TITLE, ESCAPED),
    "`/wiki/%7Euser`, `/wiki/%7euser`, `/wiki/~user`": lambda it: it.sharing(
        "/wiki/%7Euser", "/wiki/%7euser", "/wiki/~user"
    ),
    "`/page/C%2FD` and `/page/C/D`, two pages of RESTBase": lambda it: it.sharing(
        "/page/C%2FD", "/page/C/D", host="api.example"
    ),
    "`/wiki/a/../B` and `/wiki/B`": lambda it: it.sharing("/wiki/a/../B", "/wiki/B"),
    "PURGE `/wiki/P%28q%29`, `/wiki/P(q)` is stored": lambda it: it.purged("/wiki/P(q)", "/wiki/P%28q%29"),
    "PURGE `/wiki/R`, `/wiki/R` is stored": lambda it: it.purged("/wiki/R", "/wiki/R"),
    "GET `/shop/..;/admin`": lambda it: it.forwarded("/shop/..;/admin"),
    "GET `/shop/../keys`": lambda it: it.forwarded("/shop/../keys"),
    "GET `/shop/%2e%2e/users`": lambda it: it.forwarded("/shop/%2e%2e/users"),
    "GET `/shop/%2e%2e%2fbackup`": lambda it: it.forwarded("/shop/%2e%2e%2fbackup"),
}


@contextlib.contextmanager
def origin(seen_in: Path) -> Iterator[int]:
    """An origin server that answers 200 to every GET and writes it down, and 501 to a PURGE; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with seen_in.open("a", encoding="utf-8") as seen:
                seen.write(f"{self.command} {self.path}\n")
            self.send_response(200)
            self.send_header("Cache-Control", "max-age=60")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def measured(cache: Cache) -> list[str]:
    """The answers to all questions, of a cache that is started for them."""
    with tempfile.TemporaryDirectory() as folder:
        seen_in = Path(folder) / "seen"
        with origin(seen_in) as port:
            place = Place(Path(folder), free_port(), port)
            variables = {**environment(place.folder), "COMPARISON_SEEN": str(seen_in)}
            core = Cores.of_this_machine().server
            with running(cache.command(place), core, place.port, place.folder, variables):
                asking = Asking(place.port, seen_in)
                return [question(asking) for question in QUESTIONS.values()]


def table(columns: dict[str, list[str]]) -> str:
    """The table of the page: a row for each question, a column for each cache."""
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    rows += [[asked, *answers] for asked, *answers in zip(QUESTIONS, *columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Ask every cache, and write the page anew or compare."""
    if packages := sorted({package for cache in CACHES if (package := missing(cache))}):
        sys.exit(f"not installed: {', '.join(packages)}")
    told = table({cache.title: measured(cache) for cache in CACHES})
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"{PAGE} has no place for the table: {BEGIN} and {END}")
    new = f"{before}{BEGIN}\n\n{told}\n\n{END}{after}"
    if "--check" not in sys.argv:
        PAGE.write_text(new, "utf-8")
    elif new != page:
        sys.exit(f"docs/comparison.md is not what was measured:\n{told}")


if __name__ == "__main__":
    main()
