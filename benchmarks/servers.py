"""The servers that are compared: what each is started with, and by which fields it says that it had a hit.

Every cache has its defaults but for what equal work needs: one process, logs off or on in all, connections
of clients that live on, and room enough for everything that is measured.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.contents import CACHEABLE, CONTENTS, UNCACHEABLE
from benchmarks.machine import free_port, tool_version

ROOT = Path(__file__).resolve().parent.parent
# The compiled wheel, unpacked by `make bench`; without it the servers of the same name are pure.
COMPILED = ROOT / "dist" / "compiled"
Claim = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True)
class Place:
    """A server's place: a directory of its own, its port, the origin's port."""

    folder: Path
    port: int
    origin: int

    def write(self, name: str, text: str) -> str:
        """Write a file into the directory; its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Peer:
    """One server under one configuration.

    `command` writes its files and returns its command line; `hit` reads from the fields of a response whether
    it came from the cache. `log` is the file with a line for each request, in the place's directory.
    """

    title: str
    package: str  # what to install where it is missing
    version: Callable[[], str]  # empty if it is not installed
    command: Callable[[Place], list[str]]
    hit: Claim
    log: str = ""
    is_application: bool = False  # it counts requests itself: no origin is behind it
    is_pure: bool = False  # it runs the sources of this checkout, whether or not there is a compiled wheel
    has_tls: bool = False


def environment(folder: Path, *, is_pure: bool = False) -> dict[str, str]:
    """The environment in which the measured program imports the compiled wheel, or this checkout.

    Its first start writes bytecode, as an installation does: no other start compiles the sources again.
    """
    has_sources = is_pure or not COMPILED.is_dir()
    paths = (ROOT, ROOT / "app", ROOT / "middleware") if has_sources else (ROOT, COMPILED)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(map(str, paths)), "BENCHMARK_FOLDER": str(folder)}


# univocal -------------------------------------------------------------------------------------------------

UNIVOCAL = """
[server]
listen = "127.0.0.1:@port@"
admin = "127.0.0.1:@admin@"
access_log = "@log@"

[cache]
max_bytes = "1 GiB"

[[sites]]
hosts = ["*"]
upstream = "http://127.0.0.1:@origin@"
"""


SECURE = """tls_cert = "@folder@/certificate.pem"
tls_key = "@folder@/key.pem"
http2 = true
"""


def univocal(log: str, more: str = "") -> Callable[[Place], list[str]]:
    """`univocal serve` with an access log on standard output (its default) or none, and more settings."""

    def command(place: Place) -> list[str]:
        text = filled(UNIVOCAL.replace("\n[cache]", f"{more}\n[cache]"), folder=place.folder, log=log)
        text = filled(text, port=place.port, admin=free_port(), origin=place.origin)
        if more:
            make_certificate(place)
        file = place.write("univocal.toml", text)
        return [sys.executable, "-m", "univocal_app", "serve", "--config", file]

    return command


def make_certificate(place: Place) -> None:
    """Write a certificate of its own for 127.0.0.1, with its key."""
    place.folder.mkdir(parents=True, exist_ok=True)
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(place.folder / "key.pem"), "-out", str(place.folder / "certificate.pem")]
    subprocess.run(made, check=True, capture_output=True)


def application(factory: str) -> Callable[[Place], list[str]]:
    """One of applications.py under uvicorn as it comes, without its access log."""

    def command(place: Place) -> list[str]:
        told = ["--factory", f"benchmarks.applications:{factory}", "--port", str(place.port)]
        return [sys.executable, "-m", "uvicorn", *told, "--no-access-log", "--log-level", "warning"]

    return command


def says_hit(fields: Mapping[str, str]) -> bool:
    return re.search(r";\s*hit\b", fields.get("cache-status", "")) is not None


def python_package(*names: str) -> Callable[[], str]:
    """The version of the first distribution, and the others'; empty unless all are installed."""

    def version() -> str:
        try:
            first, *others = (metadata.version(name) for name in names)
        except metadata.PackageNotFoundError:
            return ""
        added = (f"{name} {number}" for name, number in zip(names[1:], others, strict=True))
        return " with ".join([first, *added])

    return version


# nginx ----------------------------------------------------------------------------------------------------

# No tcp_nopush, which Debian's nginx.conf has: over the loopback's segments of 64 KiB the end of a response
# then waits for an acknowledgement, and nginx answers a tenth as many requests for 64 KiB.
NGINX = """
daemon off; master_process off; worker_processes 1; pid @folder@/pid; error_log @folder@/error.log error;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
    sendfile on; default_type text/plain;
    access_log @log@; keepalive_requests 100000000;
    client_body_temp_path @folder@/client; proxy_temp_path @folder@/proxy;
    fastcgi_temp_path @folder@/fastcgi; uwsgi_temp_path @folder@/uwsgi; scgi_temp_path @folder@/scgi;
    @body@
}
"""
CACHE = """
    proxy_cache_path @folder@/cache levels=1:2 keys_zone=kept:64m max_size=4g inactive=1h use_temp_path=off;
    server { listen 127.0.0.1:@port@ backlog=4096; location / {
        proxy_pass http://127.0.0.1:@origin@; proxy_cache kept; add_header X-Cache $upstream_cache_status;
    } }"""
PASS = "server { listen 127.0.0.1:@port@ backlog=4096; location / { proxy_pass http://127.0.0.1:@origin@; } }"
KEEP = """upstream origin { server 127.0.0.1:@origin@; keepalive 64; keepalive_requests 100000000; }
    server { listen 127.0.0.1:@port@ backlog=4096; location / {
        proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
    } }"""
LOG = "@folder@/access.log"


def filled(text: str, **names: object) -> str:
    """The text with @name@ replaced by each name's value."""
    for name, value in names.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def nginx(body: str, log: str = "off") -> Callable[[Place], list[str]]:
    """nginx in one process with one `server`."""

    def command(place: Place) -> list[str]:
        text = filled(NGINX, body=body, log=log, folder=place.folder, port=place.port, origin=place.origin)
        return ["nginx", "-p", str(place.folder), "-c", place.write("nginx.conf", text)]

    return command


def nginx_version() -> str:
    return tool_version("nginx", "-v").rpartition("/")[2] if shutil.which("nginx") else ""


# Varnish --------------------------------------------------------------------------------------------------

VCL = 'vcl 4.1; backend default { .host = "127.0.0.1"; .port = "@origin@"; }\n'


def varnish(place: Place) -> list[str]:
    """varnishd with its built-in VCL. The manager does not ping the worker: both are stopped at times."""
    told = ["-F", "-j", "none", "-T", "none", "-n", str(place.folder / "work"), "-p", "ping_interval=0"]
    told += ["-a", f"127.0.0.1:{place.port}", "-s", "malloc,1g"]
    return ["varnishd", *told, "-f", place.write("default.vcl", filled(VCL, origin=place.origin))]


def varnish_version() -> str:
    found = (
        re.search(r"varnish-([\d.]+)", tool_version("varnishd", "-V")) if shutil.which("varnishd") else None
    )
    return found[1] if found else ""


# Caddy ----------------------------------------------------------------------------------------------------

CADDY = """{
    admin off
    auto_https off
    storage file_system @folder@/storage
}
https://127.0.0.1:@port@ {
    bind 127.0.0.1
    tls @folder@/certificate.pem @folder@/key.pem
    header X-Cache HIT
    root * @folder@
    file_server
}
"""


def caddy(place: Place) -> list[str]:
    """Caddy with the content in a file: it stores no responses."""
    make_certificate(place)
    place.write("hit", CONTENTS["/hit"].decode())
    file = place.write("Caddyfile", filled(CADDY, folder=place.folder, port=place.port))
    return ["caddy", "run", "--config", file, "--adapter", "caddyfile"]


def caddy_version() -> str:
    return tool_version("caddy", "version").split()[0] if shutil.which("caddy") else ""


# The origin -----------------------------------------------------------------------------------------------

ORIGIN = """server { listen 127.0.0.1:@port@ backlog=4096;
    location = /count { stub_status; }
    location = /nostore { add_header Cache-Control "@uncacheable@"; return 200 "@content@"; }
    location = /hit { add_header Cache-Control "@cacheable@"; return 200 "@content@"; }
    location /key/ { add_header Cache-Control "@cacheable@"; return 200 "@content@"; }
    location / { add_header Cache-Control "@cacheable@"; root @folder@; }
}"""


def origin(place: Place) -> list[str]:
    """The origin server, an nginx that answers every path of contents.py."""
    for name in ("hit64k", "hit1m"):
        place.write(name, CONTENTS[f"/{name}"].decode())
    told = {"cacheable": CACHEABLE.decode(), "uncacheable": UNCACHEABLE.decode()}
    return nginx(filled(ORIGIN, content=CONTENTS["/hit"].decode(), **told))(place)


# All of them ----------------------------------------------------------------------------------------------


def nothing(_: Mapping[str, str]) -> bool:
    return False


def of_uvicorn(
    title: str, factory: str, package: str, version: Callable[[], str], hit: Claim, *, is_pure: bool = False
) -> Peer:
    return Peer(title, package, version, application(factory), hit, is_application=True, is_pure=is_pure)


def ours() -> str:
    """The version of univocal, and which form of it is measured under its plain name."""
    version = OURS()
    return f"{version} {'compiled' if COMPILED.is_dir() else 'pure'}" if version else ""


def ours_beside_the_compiled() -> str:
    """The version of the sources; empty if there is no compiled wheel beside which they are measured."""
    return OURS() if COMPILED.is_dir() else ""


def secure() -> str:
    return ours() if shutil.which("openssl") else ""


def secure_pure() -> str:
    return ours_beside_the_compiled() if shutil.which("openssl") else ""


def of_nginx(title: str, body: str, log: str = "off") -> Peer:
    kept = Path(log).name if log == LOG else ""
    return Peer(title, "nginx-light", nginx_version, nginx(body, log), nginx_says_hit, kept)


def nginx_says_hit(fields: Mapping[str, str]) -> bool:
    return fields.get("x-cache") == "HIT"


def varnish_says_hit(fields: Mapping[str, str]) -> bool:
    return len(fields.get("x-varnish", "").split()) == 2


def hishel_says_hit(fields: Mapping[str, str]) -> bool:
    return "age" in fields


OURS = python_package("univocal")
PURE = ours_beside_the_compiled
PEERS = {
    "univocal": Peer("univocal serve", "univocal", ours, univocal("off"), says_hit),
    "univocal-pure": Peer(
        "univocal serve, pure", "univocal (pure)", PURE, univocal("off"), says_hit, is_pure=True
    ),
    "univocal-logged": Peer(
        "univocal serve, log on", "univocal", ours, univocal("stdout"), says_hit, "printed"
    ),
    "univocal-logged-pure": Peer(
        "univocal serve, log on, pure",
        "univocal (pure)",
        PURE,
        univocal("stdout"),
        says_hit,
        "printed",
        is_pure=True,
    ),
    "univocal-tls": Peer(
        "univocal serve, HTTP/2 over TLS", "univocal", secure, univocal("off", SECURE), says_hit, has_tls=True
    ),
    "univocal-tls-pure": Peer(
        "univocal, HTTP/2 over TLS, pure",
        "univocal (pure)",
        secure_pure,
        univocal("off", SECURE),
        says_hit,
        is_pure=True,
        has_tls=True,
    ),
    "middleware": of_uvicorn("CacheMiddleware, uvicorn", "with_univocal", "univocal", ours, says_hit),
    "middleware-pure": of_uvicorn(
        "CacheMiddleware, uvicorn, pure", "with_univocal", "univocal (pure)", PURE, says_hit, is_pure=True
    ),
    "bare": of_uvicorn("bare application, uvicorn", "bare", "uvicorn", python_package("uvicorn"), nothing),
    "base-http": of_uvicorn(
        "empty BaseHTTPMiddleware, uvicorn",
        "with_base_http",
        "starlette",
        python_package("starlette"),
        nothing,
    ),
    "hishel": of_uvicorn(
        "hishel, uvicorn",
        "with_hishel",
        "hishel[async]",
        python_package("hishel", "anysqlite"),
        hishel_says_hit,
    ),
    "nginx": of_nginx("nginx proxy_cache", CACHE),
    "nginx-logged": of_nginx("nginx proxy_cache, log on", CACHE, LOG),
    "nginx-pass": of_nginx("nginx pass-through", PASS),
    "nginx-keepalive": of_nginx("nginx pass-through, keep-alive", KEEP),
    "varnish": Peer("Varnish", "varnish", varnish_version, varnish, varnish_says_hit),
    "caddy": Peer("Caddy, a file", "caddy", caddy_version, caddy, nginx_says_hit, has_tls=True),
}
