"""Law 6 beside real servers: nothing that a guard means is answered, and no stored file outlives its purge.

Each server gives out the files of a directory, as loosely as it reads paths. The gate stands before it, and
what it lets through goes to the server as a socket has it.
"""

import os
import random
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples import examples
from tests.ports import free_port
from tests.started import Started, go, need, nginx, node, puma, python, tomcat
from univocal.cache.decide import Forward, Refuse
from univocal.http.messages import Received
from univocal.judge.access import Restriction
from univocal.judge.admission import Gate
from univocal.judge.orders import order_by_name
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import RouteSettings, Runtime
from univocal.judge.trust import networks
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import compiled
from univocal.store.tiers import MemoryTier
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites
from univocal.uri.target import canonical_target, origin_target

pytestmark = pytest.mark.long

ORIGINS = Path(__file__).parent / "origins" / "files"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
MODULES = Path("/usr/lib/apache2/modules")

# No spelling of a name holds these: some servers repeat the path in a 404.
SECRET, OPEN = b"S3CRET", b"open to all"
SECRETS = ["/admin/secret.txt", "/login", "/d/x.key", "/users/12", "/Caps/secret.txt", "/area/secret.txt"]
OPENED = ["/area/open/file.txt", "/static/app.css", "/d/a.txt", "/index.txt"]
GUARDS = ["/admin", "=/login", "*.key", "~^/users/[0-9]+$", "/Caps/", "/area"]
INSIDE = ["/area/open/", "/static/"]


# The servers


def nginx_files(base, files):
    return Started(nginx(base, f"server {{ listen unix:{base}/s; root {files}; }}"), f"{base}/s")


def apache(slashes):
    def start(base, files):
        need("apache2", "apache2", MODULES / "mod_mpm_prefork.so")
        port = free_port()
        modules = "\n".join(
            f"LoadModule {name}_module {MODULES}/mod_{name}.so"
            for name in ("mpm_prefork", "authz_core", "dir")
        )
        (base / "apache.conf").write_text(
            f"ServerRoot {base}\nServerName origin.example\nPidFile {base}/pid\nErrorLog {base}/errors\n"
            f"DefaultRuntimeDir {base}\nMutex file:{base}\n{modules}\nUser www-data\nGroup www-data\n"
            f"StartServers 1\nMaxRequestWorkers 4\nServerLimit 4\nKeepAlive On\nMaxKeepAliveRequests 0\n"
            f"AllowEncodedSlashes {slashes}\nDocumentRoot {files}\n<Directory {files}>\nRequire all granted\n"
            f"</Directory>\nListen 127.0.0.1:{port}\n"
        )
        program = shutil.which("apache2", path=PATH)
        return Started([program, "-X", "-f", str(base / "apache.conf")], ("127.0.0.1", port))

    return start


def at_socket(command, *words):
    """The program of `command()` with these words, a directory and a socket as arguments."""

    def start(base, files):
        return Started([*command(), *words, str(files), f"{base}/s"], f"{base}/s")

    return start


def of_go(how):
    return at_socket(lambda: go(ORIGINS / "files.go"), how)


def of_node(framework, packages):
    return at_socket(lambda: node(ORIGINS / "files.mjs", f"files-{framework}", packages), framework)


def of_python(package):
    return at_socket(lambda: python(ORIGINS / f"files_{package}.py", package))


def php(base, files):
    need("php-cli", "php")
    port = free_port()
    command = ["env", f"FILES={files}", "php", "-S", f"127.0.0.1:{port}", str(ORIGINS / "files.php")]
    return Started(command, ("127.0.0.1", port))


def ruby(by):
    def start(base, files):
        command = ["env", f"FILES={files}", f"BY={by}", *puma(ORIGINS / "files.ru")]
        return Started([*command, "--bind", f"unix://{base}/s"], f"{base}/s")

    return start


def tomcat_files(base, files):
    port = free_port()
    return Started(
        [*tomcat(ORIGINS / "TomcatFiles.java"), str(files), str(port), str(base)], ("127.0.0.1", port)
    )


@dataclass(frozen=True)
class Server:
    """A server, and the profiles that people put before it."""

    start: Callable[[Path, Path], Started]
    profiles: tuple[str, ...]
    at_once: int = 1


SERVERS = {
    "nginx": Server(nginx_files, ("nginx", "static", "rfc3986", "wordpress", "mediawiki"), 64),
    "Apache": Server(apache("Off"), ("apache", "rfc3986", "wordpress", "mediawiki"), 64),
    "Apache, On": Server(apache("On"), ("apache-nodecode", "rfc3986"), 64),
    "Go, ServeMux": Server(of_go("mux"), ("go", "rfc3986"), 64),
    "Go, FileServer": Server(of_go("bare"), ("go", "rfc3986"), 64),
    "express.static": Server(of_node("express", {"express": "5.3.0"}), ("express", "rfc3986")),
    "koa-static": Server(of_node("koa", {"koa": "3.3.0", "koa-static": "5.0.0"}), ("express", "rfc3986")),
    "Fastify": Server(
        of_node("fastify", {"fastify": "5.12.8", "@fastify/static": "10.1.11"}), ("fastify", "rfc3986")
    ),
    "Hono": Server(of_node("hono", {"hono": "4.13.19", "@hono/node-server": "2.1.8"}), ("hono", "rfc3986")),
    "Starlette": Server(of_python("starlette"), ("asgi", "rfc3986")),
    "aiohttp": Server(of_python("aiohttp"), ("aiohttp", "rfc3986")),
    "Werkzeug": Server(of_python("werkzeug"), ("werkzeug", "rfc3986")),
    "PHP": Server(php, ("php", "rfc3986")),
    "Rack::Files": Server(ruby("rack"), ("rack", "rfc3986")),
    "Sinatra": Server(ruby("sinatra"), ("rack", "rfc3986")),
    "Tomcat": Server(tomcat_files, ("servlet", "tomcat", "rfc3986"), 64),
}


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request, new_directory, client_at, serving):
    """A running server: its client, and the profiles that people put before it."""
    base, files = new_directory(), new_directory()
    for each in (base.parent, base, files):
        each.chmod(0o755)
    for names, content in ((SECRETS, SECRET), (OPENED, OPEN)):
        for name in names:
            file = files / name[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    each = SERVERS[request.param]
    started = each.start(base, files)
    kind = socket.AF_UNIX if isinstance(started.address, str) else socket.AF_INET
    client = client_at(kind, started.address, each.at_once)
    with serving(started.command, client, base / "log"):
        assert SECRET in client.one(b"/admin/secret.txt").body
        assert OPEN in client.one(b"/d/a.txt").body
        yield SimpleNamespace(client=client, profiles=each.profiles, files=files)


# The names of files

RESERVED = b":@!$&'()*+,;="


def test_a_profile_folds_file_names_as_its_server_does(server, built_in):
    profile = built_in[server.profiles[0]]
    folded = []
    for octet in RESERVED:
        (server.files / f"r{octet:c}").write_bytes(b"named %c" % octet)
        bare, escaped = b"/r%c" % octet, b"/r%%%02X" % octet
        if canonical_target(bare, profile) == canonical_target(escaped, profile):
            answers = {(answer.status, answer.body) for answer in server.client.ask([bare, escaped]).values()}
            assert len(answers) == 1, (bare, escaped)
            folded.append(octet)
    assert bytes(folded) or profile.name == "rack"


@pytest.mark.parametrize("server", ["Fastify"], indirect=True)
def test_fastify_has_two_files_where_a_url_is_one(server, built_in):
    """RFC 3986 §6.2.2.1: the case of an escape means nothing. Such a file's own URL is "/u%252cb"."""
    for name in ("u%2Cb", "u%2cb"):
        (server.files / name).write_text(name)
    for target, name in ((b"/u%2Cb", b"u%2Cb"), (b"/u%2cb", b"u%2cb"), (b"/u%252cb", b"u%2cb")):
        assert server.client.one(target).body == name
    canonical = [canonical_target(each, built_in["fastify"]) for each in (b"/u%2cb", b"/u%252cb")]
    assert canonical == [b"/u%2Cb", b"/u%252cb"]


# The gate


def gate_of(profile, *, closed=True):
    """A site whose folders, paths and patterns are guarded; a route within one is open."""

    def route(path, own=profile):
        expression = None
        if path.startswith("~"):
            expression = compiled(path[1:]).search, compiled("(?i)" + path[1:]).search
        return Route(path.encode(), own, "o", expression=expression)

    paths = [*GUARDS, *INSIDE] if closed else []
    sites = Sites([Site("a", ("a",), tuple(route(path) for path in ("/", *paths)))])
    closed = networks(["0.0.0.0/0"])
    restrictions = [Restriction(path, deny=closed if path in GUARDS else ()) for path in paths]
    settings = {("a", each.name.encode()): RouteSettings(restriction=each) for each in restrictions}
    return Gate(Runtime(sites, settings=settings), MemoryTier(MemoryStore()))


def admitted(gate, target):
    received = Received(b"GET", target, b"http", "192.0.2.1")
    return gate.admit(received, [(b"host", b"a")], 1_700_000_000.0)


# The spellings


def mutations(chance):
    """Ways to spell a path otherwise; some servers take the new one for the old one."""

    def somewhere(path, text):
        slashes = [place for place, octet in enumerate(path) if octet == 0x2F]
        place = chance.choice(slashes or [0])
        return path[:place] + text + path[place:]

    def escaped(path):
        place = chance.randrange(len(path))
        times = chance.choice([1, 1, 1, 2, 3])
        return path[:place] + b"%" + b"25" * (times - 1) + b"%02X" % path[place] + path[place + 1 :]

    def slash(path):
        places = [place for place, octet in enumerate(path) if octet == 0x2F and place]
        if not places:
            return path
        place = chance.choice(places)
        other = chance.choice([b"\\", b"%2F", b"%2f", b"%5C", b"%252F", b"//", b"/./", b"%u002f"])
        return path[:place] + other + path[place + 1 :]

    def cased(path):
        return bytes(
            chance.choice([octet, octet ^ 0x20]) if 65 <= octet & 0xDF <= 90 else octet for octet in path
        )

    def wide(path):
        letters = [place for place, octet in enumerate(path) if 97 <= octet <= 122]
        if not letters:
            return path
        place = chance.choice(letters)
        wide = chr(path[place] - 33 + 0xFF01).encode()
        return path[:place] + b"".join(b"%%%02X" % octet for octet in wide) + path[place + 1 :]

    climbs = b"/.. /%2e%2e /..; /..;a=b /..%3B /.%2e; /..%2F /..%5C /%252e%252e".split()
    starts = b"/static /area/open /d /x /b%2Fc /b%5Cc /b%252Fc /x;y / /;x%2Fy".split()
    parameters = [b";", b";x", b";x=y", b"%3B", b"%3Bx", b";jsessionid=1", b";x%2Fy", b";%2F.."]
    yield lambda path: somewhere(path, chance.choice([b"/", b"/.", b"/%2e", b"//", b"/;", b"/;x"]))
    yield lambda path: somewhere(path, chance.choice(starts) + chance.choice(climbs))
    yield lambda path: chance.choice(starts) + chance.choice(climbs) * chance.choice([1, 1, 2]) + path
    yield lambda path: somewhere(path, chance.choice(parameters))
    yield (
        lambda path: (
            path + chance.choice([b"%3F", b"%23", b"%3Fx", b"/", b"%2F", b"/.", b";x", b"?x", b"%00"])
        )
    )
    yield (
        lambda path: (
            path + chance.choice([b"/..;/..;/x", b"/..%2F..%2Fx", b"/../" + path.rpartition(b"/")[2]])
        )
    )
    yield escaped
    yield escaped
    yield slash
    yield slash
    yield cased
    yield wide


def spellings(seed, paths, number):
    """Yield `number` spellings of `paths`, with one to four changes each."""
    chance = random.Random(seed)
    ways = list(mutations(chance))
    for _ in range(number):
        path = chance.choice(paths).encode()
        for _ in range(chance.choice([1, 1, 2, 2, 3, 4])):
            path = chance.choice(ways)(path)
        yield path if path.startswith(b"/") else b"/" + path


@cache
def not_refused(name):
    """The origin targets of spellings that a profile does not refuse."""
    gate = gate_of(builtin_profiles()[name])
    asked = {}
    for target in spellings(name, SECRETS, examples(5000)):
        admission = admitted(gate, target)
        if not isinstance(admission.decision, Refuse):
            asked[origin_target(admission.canonical)] = (name, target)
    return asked


@cache
def not_purged(name):
    """The origin targets of stored spellings that a purge of their path keeps."""
    gate = gate_of(builtin_profiles()[name], closed=False)
    order = order_by_name({"url": "http://a/d/a.txt"}, gate.runtime)
    stored = {}
    for target in spellings(name, ["/d/a.txt"], examples(3000, 10)):
        admission = admitted(gate, target.partition(b"?")[0])
        may_be_stored = isinstance(admission.decision, Forward) and admission.decision.may_store
        if may_be_stored and admission.canonical.key not in order.selector.parts:
            stored[origin_target(admission.canonical)] = target
    return stored


def test_nothing_guarded_is_answered_in_any_spelling(server):
    asked = {}
    for name in server.profiles:
        asked |= not_refused(name)
    assert len(asked) > 20
    answers = server.client.ask(asked)
    told = {asked[sent]: sent for sent, answer in answers.items() if SECRET in answer.body}
    assert told == {}


def test_open_paths_stay_open(server, built_in):
    for name in server.profiles:
        gate = gate_of(built_in[name])
        for path in OPENED:
            admission = admitted(gate, path.encode())
            assert not isinstance(admission.decision, Refuse), (name, path)
            assert OPEN in server.client.one(origin_target(admission.canonical)).body


def test_no_file_outlives_the_purge_of_its_path(server):
    """A purge of a file's path removes every stored response with its content."""
    # Parameters of segments are known to the profiles of servlet containers alone.
    others = [name for name in server.profiles if name != "rfc3986" or "tomcat" not in server.profiles]
    for name in others:
        outliving = not_purged(name)
        answers = server.client.ask(outliving)
        assert {sent: outliving[sent] for sent, answer in answers.items() if OPEN in answer.body} == {}, name
