"""Law 3 with the server of each family as the judge: targets with one key get one answer."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote_to_bytes

import pytest

from examples import LONG, examples
from tests.ports import free_port
from tests.started import Started, go, java, need, node, puma, python
from univocal.uri.target import canonical_target

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
ORIGINS = HERE / "origins"
VECTORS = json.loads((HERE.parents[1] / "uri" / "vectors" / "spellings.json").read_text())
PAGE = HERE.parents[2] / "docs" / "comparison.md"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
APACHE_MODULES = Path("/usr/lib/apache2/modules")
PHP_PACKAGES = Path("/usr/share/php")

# RFC 3986 lets these stand bare in no path; univocal escapes them, and some servers refuse them.
NEVER_BARE = re.compile(rb'[\x80-\xFF"<>\[\]\\^`{|}]')
STRAY = re.compile(rb"%(?![0-9A-Fa-f]{2})")


# The servers: how each is started, and where it listens.


def jetty(base):
    jars = (f"jetty9-{name}" for name in ("server", "servlet", "http", "io", "util", "security"))
    port = free_port()
    command = java(ORIGINS / "JettyOrigin.java", "libjetty9-java", *jars, "servlet-api")
    return Started([*command, str(port)], ("127.0.0.1", port))


def at_socket(command, *words):
    """The program of `command()` with these words and a socket as arguments."""

    def start(base):
        return Started([*command(), *words, f"{base}/s"], f"{base}/s")

    return start


def apache(virtual_host):
    """Apache with apache.conf; the address is that of one of its virtual hosts."""

    def start(base):
        need("apache2", "apache2", APACHE_MODULES / "mod_lua.so")
        php = next(APACHE_MODULES.glob("libphp8*.so"), None)
        if php is None:
            pytest.skip("needs PHP's module of Apache (Debian package libapache2-mod-php)")
        need("php-symfony-routing", PHP_PACKAGES / "Symfony" / "Component" / "Routing")
        need("php-symfony-http-foundation", PHP_PACKAGES / "Symfony" / "Component" / "HttpFoundation")
        need("php-nikic-fast-route", PHP_PACKAGES / "FastRoute")
        # The user that Apache's worker runs as may not read the checkout.
        base.parent.chmod(0o755)
        base.chmod(0o755)
        (base / "files").mkdir()
        (base / "scripts").mkdir()
        for name in ("apache.lua", "front.php"):
            shutil.copy(ORIGINS / name, base / "scripts")
        text = (ORIGINS / "apache.conf").read_text()
        ports = {name: free_port() for name in re.findall(r"^Listen \S+:PORT_(\w+)$", text, re.MULTILINE)}
        for name, port in ports.items():
            text = text.replace(f"PORT_{name}", str(port))
        names = {
            "PREFIX": base,
            "MODULES": APACHE_MODULES,
            "SCRIPTS": base / "scripts",
            "PHP_MODULE": php.name,
        }
        for name, path in names.items():
            text = text.replace(name, str(path))
        (base / "apache.conf").write_text(text)
        program = shutil.which("apache2", path=PATH)
        return Started([program, "-X", "-f", str(base / "apache.conf")], ("127.0.0.1", ports[virtual_host]))

    return start


def of_ruby(name):
    def start(base):
        return Started([*puma(ORIGINS / name), "--bind", f"unix://{base}/s"], f"{base}/s")

    return start


# Frameworks of the package index of Node, as of November 2026, and the oldest Node that each wants.
FRAMEWORKS = {
    "express": ({"express": "5.3.0"}, 18),
    "fastify": ({"fastify": "5.12.8"}, 20),
    "fastify4": ({"fastify4": "npm:fastify@4.29.1"}, 14),
    "koa": ({"koa": "3.3.0", "@koa/router": "15.7.0"}, 20),
    "hono": ({"hono": "4.13.19", "@hono/node-server": "2.1.8"}, 20),
}


@cache
def node_version():
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return int(told.lstrip("v").split(".")[0])


def of_node(framework):
    packages, oldest = FRAMEWORKS[framework]

    def command():
        need("nodejs", "node")
        if node_version() < oldest:
            pytest.skip(f"needs Node {oldest} for {framework}; this is {node_version()}")
        return node(ORIGINS / "node.mjs", f"family-{framework}", packages)

    return at_socket(command, framework)


def of_python(package):
    return at_socket(lambda: python(ORIGINS / f"{package}_origin.py", package))


@dataclass(frozen=True)
class Family:
    """A server and the profile for it; `at_once`: how many requests it answers on one connection in order."""

    profile: str
    start: Callable[[Path], Started]
    at_once: int = 64


FAMILIES = {
    "Jetty": Family("jetty", jetty),
    "Go": Family("go", at_socket(lambda: go(ORIGINS / "go.go"))),
    "Apache": Family("apache", apache("OFF")),
    "Apache, `NoDecode`": Family("apache-nodecode", apache("NODECODE")),
    "Apache, `On`": Family("apache-nodecode", apache("ON")),
    "Symfony": Family("php", apache("SYMFONY")),
    "FastRoute": Family("php", apache("FASTROUTE")),
    "Puma": Family("rack", of_ruby("config.ru")),
    "Sinatra": Family("rack", of_ruby("sinatra.ru")),
    "Express": Family("express", of_node("express"), at_once=1),
    "Fastify": Family("fastify", of_node("fastify"), at_once=1),
    "Fastify 4": Family("fastify4", of_node("fastify4"), at_once=1),
    "Koa": Family("express", of_node("koa"), at_once=1),
    "Hono": Family("hono", of_node("hono"), at_once=1),
    "Werkzeug": Family("werkzeug", of_python("werkzeug"), at_once=1),
    "aiohttp": Family("aiohttp", of_python("aiohttp"), at_once=1),
}


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request, new_directory, client_at, serving, built_in):
    """A family's running server: its name, its client and its profile."""
    family = FAMILIES[request.param]
    base = new_directory()
    started = family.start(base)
    kind = socket.AF_UNIX if isinstance(started.address, str) else socket.AF_INET
    client = client_at(kind, started.address, family.at_once)
    with serving(started.command, client, base / "log"):
        yield SimpleNamespace(name=request.param, client=client, profile=built_in[family.profile])


# Targets as applications see them.


def is_readable(target, profile):
    """Tell whether every server reads the query as a form in UTF-8; others are left alone."""
    begins = b"[?;]" if profile.query.semicolon == "begins" else b"[?]"
    query = b"".join(re.split(begins, target, maxsplit=1)[1:])
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return False
    return query.isascii() and not STRAY.search(query)


def seen(family, answer):
    """The target as the application reports it, or the Location of its redirect."""
    body = answer.body if answer.status == 200 else b""
    if family.name == "Puma" and body:
        script, path, query = (bytes.fromhex(text) for text in json.loads(body))
        body = (
            script,
            canonical_target(path, family.profile),
            canonical_target(b"/?" + query, family.profile),
        )
    elif family.name == "Apache, `NoDecode`":
        body = body.replace(b"253266", b"253246")  # %2f stays %2f, which no reader tells from %2F
    return answer.status, body, unquote_to_bytes(answer.location)


def test_urls_with_one_key_are_one_to_the_server(family, generated, judge):
    targets = [target for target in generated(1, 3000) if is_readable(target, family.profile)]
    targets += [received.encode() for received, _ in VECTORS[family.profile.name]]
    judged = judge(targets, family.profile)
    assert len(judged.accepted) > examples(1500)
    assert len(judged.accepted) > 1.3 * len(set(judged.accepted.values()))
    # `make laws` asks for all; a canonical target is asked for with all of its spellings, or not at all.
    keys = set(sorted(set(judged.accepted.values()))[:: 1 if LONG else 9])
    spellings = {received: key for received, key in judged.accepted.items() if key in keys}
    answers = family.client.ask([*spellings, *keys])
    for received, canonical in spellings.items():
        if answers[received].refused:
            assert NEVER_BARE.search(received), received
        else:
            assert seen(family, answers[received]) == seen(family, answers[canonical]), (received, canonical)


TOO_MUCH = {
    "jetty": ("merge_slashes = true", b"//admin/a"),
    "go": ("merge_slashes = true", b"/foo//a"),
    "apache": ('parameters = "strip"\ndecode = ""', b"/foo;v=1/a"),
    "apache-nodecode": ('parameters = "strip"\ndecode = ""', b"/foo;v=1/a"),
    "php": ("merge_slashes = true", b"/foo//a"),
    "rack": ('trailing_slash = "remove"', b"/foo/a/"),
    "express": ('decode = "/"', b"/foo/a%2Fb"),
    "fastify": ('decode = "/"', b"/foo/a%2Fb"),
    "fastify4": ('decode = "/"', b"/foo/a%2Fb"),
    "hono": ('decode = "/"', b"/foo/a%2Fb"),
    "werkzeug": ("merge_slashes = true", b"/foo//a"),
    "aiohttp": ('decode = "/"', b"/foo/a%2Fb"),
}


def test_a_profile_that_folds_more_is_found_out(family, derived):
    settings, received = TOO_MUCH[family.profile.name]
    profile = derived(family.profile.name, f"[path]\n{settings}\n[reject]\nsequences = []\n")
    canonical = canonical_target(received, profile)
    assert seen(family, family.client.one(received)) != seen(family, family.client.one(canonical))


@pytest.mark.parametrize("family", ["Go"], indirect=True)
def test_go_strips_only_a_prefix_that_is_not_escaped(family):
    """Behind univocal it gets the canonical prefix."""
    assert family.client.one(b"/str%69pped/a").status == 404
    assert family.client.one(canonical_target(b"/str%69pped/a", family.profile)).status == 200


@pytest.mark.parametrize("family", ["Express"], indirect=True)
def test_express_knows_a_route_only_as_it_is_written(family):
    """RFC 3986 §6.2.2.2 makes both spellings one; behind univocal it gets the canonical one."""
    assert json.loads(family.client.one(b"/n%61med").body)[0] == "/:a"
    assert canonical_target(b"/n%61med", family.profile) == b"/named"
    assert json.loads(family.client.one(b"/named").body)[0] == "/named"


@pytest.mark.parametrize("family", ["Fastify", "Fastify 4"], indirect=True)
def test_a_semicolon_begins_the_query_before_fastify_5(family):
    one, other = (family.client.one(target) for target in (b"/foo;a=%26b;c?d", b"/foo?a=%26b;c?d"))
    assert (seen(family, one) == seen(family, other)) == (family.name == "Fastify 4")
    folded = canonical_target(b"/foo;a=%26b;c?d", family.profile) == b"/foo?a=%26b;c?d"
    assert folded == (family.name == "Fastify 4")


@pytest.mark.parametrize("family", ["Sinatra"], indirect=True)
def test_rack_2_separates_parameters_by_semicolons(family, derived):
    profile = derived("rack", '[query]\ndrop = ["utm_*"]')
    received = b"/foo/a?b=1;utm_x=2;c=3"
    canonical = canonical_target(received, profile)
    assert canonical == b"/foo/a?b=1&c=3"
    told = [
        family.client.one(target).body for target in (received, canonical, b"/foo/a?b=1;c=3", b"/foo/a?b=1")
    ]
    assert told[1] == told[2]
    assert told[0] != told[1] != told[3]


@pytest.mark.parametrize("family", ["Apache, `On`"], indirect=True)
def test_apache_removes_dot_segments_again_where_it_decodes_slashes(family):
    """For this reason the profile's page recommends NoDecode."""
    one, other = (family.client.one(target) for target in (b"/x/..%2Fadmin/a", b"/admin/a"))
    assert seen(family, one) == seen(family, other)
    assert canonical_target(b"/x/..%2Fadmin/a", family.profile) == b"/x/..%2Fadmin/a"


# The table of docs/comparison.md.


def rows():
    """The rows of the page's table of families: the spellings of each column, and the cells by server."""
    section = PAGE.read_text("utf-8").split("\n## How servers read URLs\n")[1].split("\n## ")[0]
    head, _, *lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, *lines)]
    return table[0][2:], {row[0]: row[1:] for row in table[1:]}


def verdict(family, one, other):
    spelled, plain = (family.client.one(target.encode()) for target in (one, other))
    if spelled.status >= 300 or spelled.status == 0:
        return str(spelled.status or "hangs up")
    return "one" if seen(family, spelled) == seen(family, plain) else "two"


def test_the_page_says_what_the_server_does(family):
    columns, by_server = rows()
    profile, *cells = by_server[family.name]
    assert profile == f"`{family.profile.name}`"
    spellings = [re.findall("`([^`]+)`", column) for column in columns]
    assert cells == [verdict(family, one, other) for one, other in spellings]


def test_the_page_has_every_family():
    assert list(rows()[1]) == list(FAMILIES)
