"""Files of nginx and Traffic Server beside them: what they refuse or keep apart, an import does, too."""

import http.client
import json
import os
import random
import re
import shutil
import ssl
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from authority import Authority
from examples import LONG
from ports import free_port
from support import origin_server, response_with
from tests.started import running
from traffic_server import RECORDS
from univocal_app.commands.cli import app

pytestmark = pytest.mark.long
needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="without nginx")

FILES = 60 if LONG else 6
FIRST = int(os.environ.get("SEED", "0"))
REQUESTS = 120


def echoed(head, _):
    """Answer with what has come, for a minute."""
    line, _, lines = head.partition(b"\r\n")
    method, target, version = line.decode("latin-1").split(" ")
    pairs = (line.split(": ", 1) for line in lines.decode("latin-1").splitlines())
    fields = {name.title(): value for name, value in pairs}
    body = json.dumps({"target": target, "who": who(fields), "method": method}).encode()
    closes = version == "HTTP/1.0" or fields.get("Connection") == "close"
    said = b"Cache-Control: public, max-age=60\r\nX-Origin: 1\r\n"
    # Otherwise nginx may send a POST just then, and it sends none twice.
    answer = response_with(body, said + b"Connection: close\r\n" * closes)
    yield answer.removesuffix(body) if method == "HEAD" else answer
    if closes:
        raise ConnectionError


def who(fields):
    """The fields of a request that name its client."""
    return " ".join(str(fields.get(name)) for name in ("Cookie", "X-User", "Authorization"))


@pytest.fixture(scope="module")
def echo():
    with origin_server(echoed) as url:
        yield urlsplit(url).port


class Asked(NamedTuple):
    """A request."""

    host: str
    method: str
    target: str
    fields: dict[str, str]
    is_other: bool  # at the other socket
    is_bare: bool = False  # its Host has no port
    address: str = "127.0.0.1"


class Heard(NamedTuple):
    """An answer: 0 is a closed connection. `is_served`: it is the origin server's."""

    status: int
    is_served: bool
    who: str
    location: str = ""
    query: str = ""  # that the origin server got


HOSTS = ("a.example", "b.example", "x.w.example", "w.example", "adm.example", "unknown.example")
NAMES = ("a.example", "b.example", "*.w.example", ".w.example", "adm.*", "~^adm", "_", "a.example b.example")
NAMES += ("w.example", ".example")
PATHS = ("/", "/a", "/a/", "/a/b", "/admin", "/admin/", "/admin/x", "/api/v1", "/api/admin", "/priv/a.png")
PATHS += ("/secret/x", "/a/x.php", "/uploads/x.php", "/adminx", "/internal/a", "/v1/admin/x", "/login")
PATHS += ("/.htaccess", "/%61dmin/x", "/a/../admin/x", "//admin/x", "/A/b", "/logo.png")
PREFIXES = ("/", "/a", "/a/", "/admin", "/admin/", "/api/", "/priv/", "/uploads/", "/secret/", "/internal/")
EXACT = ("/", "/login", "/a", "/admin", "/blocked")
EXPRESSIONS = (r"\.php$", r"\.(png|css)$", r"^/priv/|^/secret/", r"/\.ht", r"^/admin(/.*)?$", r"^/api/(.*)$")
EXPRESSIONS += (r"x",)
GUARDS = ("deny all;", "allow 10.0.0.0/8; deny all;", "deny 127.0.0.1;", "return 403;", "return 404;")
GUARDS += ("internal;", "limit_except GET { deny all; }", "auth_basic s; auth_basic_user_file users;")
GUARDS += ("satisfy any; allow 127.0.0.1; deny all; auth_basic s; auth_basic_user_file users;",)
GUARDS += ("if ($http_x_user != ann) { return 403; }", "if ($request_method = POST) { return 405; }")
GUARDS += ("if ($cookie_session = '') { return 302 /login; }",)
GUARDS += ("valid_referers none blocked a.example; if ($invalid_referer) { return 403; }",)
GUARDS += ("auth_request /blocked;", "secure_link $arg_md5; if ($secure_link = '') { return 403; }")
GUARDS += ("rewrite ^ /blocked last;", "limit_req zone=users;", "set $args role=guest;")
GUARDS += ("include ssl-params.conf;", "include modules/guard.conf;", "return 418;")
GUARDS += ("error_page 403 = @app; return 403;", "auth_basic off; allow all;")
GUARDS += ("break; error_page 418 = @app; return 418;", "error_page 404 = /blocked; return 404;")
GUARDS += ("if ($http_x_user = bob) { return 418; }",)
HARMLESS = ("gzip on;", "proxy_read_timeout 5s;", "expires 1h;", "proxy_set_header X-A b;", "set $x y;")
HARMLESS += ("etag off;", "if ($request_method = OPTIONS) { return 204; }")
HARMLESS += ("add_header X-Frame-Options DENY;", "access_log off;")
CACHES = (
    "proxy_cache c;",
    "proxy_cache c; proxy_no_cache $cookie_session; proxy_cache_bypass $cookie_session;",
    "proxy_cache c; proxy_no_cache $http_x_user; proxy_cache_bypass $http_x_user;",
    "proxy_cache c; proxy_cache_key $scheme$host$request_uri$cookie_session;",
    "proxy_cache c; proxy_cache_key $scheme$host$request_uri$http_x_user$cookie_session$http_authorization;",
    "proxy_cache c; proxy_cache_valid 200 1m; "
    "proxy_no_cache $http_authorization; proxy_cache_bypass $http_authorization;",
)
OF_SERVERS = (
    "",
    "",
    "",
    "rewrite ^/internal/ /blocked last;",
    "rewrite ^/v1/(.*)$ /$1;",
    "rewrite ^/admin/(?!y). /blocked last;",
    "rewrite (?<=uploads)/ /blocked last;",
    "rewrite ^/a/(?=b) /blocked last;",
    "error_page 403 418 = @app;",
    "include mime.types;",
    "if ($request_uri ~ secret) { return 403; }",
    "auth_basic s; auth_basic_user_file users;",
    "deny 10.1.1.1;",
    "include guard.conf;",
    "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on; "
    "allow 10.1.1.1; deny all;",
    "allow 10.1.1.1; deny all;",
    "merge_slashes on;",
    "return 444;",
    "return 503;",
)


# Directives and names that no setting says: what they refuse is refused, and more beside it.
UNSAID = re.compile(r"if \(\$secure|auth_request|satisfy any|limit_req|/v1/|\(\?|418; }|error_page 4|[$]args")


class Files:
    """Writes random files of nginx; `is_said`: of one socket, of directives that settings of univocal say."""

    def __init__(self, seed, port, other, origin, *, is_said=False):
        self.random, self.bare = random.Random(seed), random.Random(seed)
        self.port, self.other, self.origin = port, port if is_said else other, origin
        self.guards, self.of_servers, self.names = (
            [each for each in some if not (is_said and UNSAID.search(each))]
            for some in (GUARDS, OF_SERVERS, NAMES)
        )
        # If nginx may forward, "rewrite ^ /blocked last" refuses nothing.
        self.exact = [each for each in EXACT if not (is_said and each == "/blocked")]
        # Guards of an expression hold for all that it matches, those of a prefix for expressions below it.
        self.has_expressions = not is_said or self.random.random() < 0.4
        if is_said and self.has_expressions:
            self.guards = ["sendfile off;"]

    def location(self, depth=0):
        choice = self.random
        kind = choice.choices(("", "^~ ", "= ", "~ ", "~* "), (6, 1, 2, 3, 1))[0]
        if not self.has_expressions and kind in {"~ ", "~* "}:
            kind = ""
        paths = {"= ": self.exact, "~ ": EXPRESSIONS, "~* ": EXPRESSIONS}.get(kind, PREFIXES)
        path = choice.choice(paths)
        inside = []
        if choice.random() < 0.4:
            inside.append(choice.choice(self.guards))
        inside += choice.sample(HARMLESS, choice.randrange(3))
        if choice.random() < 0.4:
            inside.append(choice.choice(CACHES))
        if choice.random() < 0.8:
            inside.append(self.passing(path if kind in {"", "^~ "} else ""))
        elif "return" not in " ".join(inside):
            inside.append(
                choice.choice(("return 301 /a;", "return 200 ok;", "try_files $uri @app;", "root /nowhere;"))
            )
        if depth == 0 and kind == "" and path != "/" and choice.random() < 0.15:
            inside.append(
                f"location {path.rstrip('/')}/nested/ {{ {self.passing('')} {choice.choice(self.guards)} }}"
            )
        return f"location {kind}{path} {{ {' '.join(inside)} }}"

    def passing(self, path):
        uri = self.random.choice(("", "", "", "/", "/b/")) if path.endswith("/") else ""
        if path.endswith("/") and path != "/" and self.random.random() < 0.15:
            return f"rewrite ^{path}(.*)$ /$1 break; proxy_pass http://127.0.0.1:{self.origin};"
        return f"proxy_pass http://127.0.0.1:{self.origin}{uri};"

    def server(self, number):
        choice = self.random
        port = self.port if number == 0 or choice.random() < 0.8 else self.other
        is_whole = self.port != self.other and number > 0 and choice.random() < 0.15
        inside = [f"listen {port};" if is_whole else f"listen 127.0.0.1:{port};"]
        name = choice.choice(self.names)
        inside.append(f"server_name {name};")
        inside.append(choice.choice(self.of_servers))
        seen = set()
        for _ in range(choice.randrange(1, 6)):
            location = self.location()
            place = location.partition("{")[0].replace("^~ ", "")
            if place not in seen:
                inside.append(location)
            seen.add(place)
        if "location / " not in seen and choice.random() < 0.8:
            inside.append(
                f"location / {{ proxy_pass http://127.0.0.1:{self.origin}; {choice.choice(('', *CACHES))} }}"
            )
        if "location = /blocked " not in seen:
            inside.append("location = /blocked { return 403; }")
        inside.append(f"location @app {{ proxy_pass http://127.0.0.1:{self.origin}; }}")
        return "server {\n  " + "\n  ".join(filter(None, inside)) + "\n}"

    def http(self):
        servers = [self.server(number) for number in range(self.random.randrange(1, 4))]
        return "\n".join(servers)

    def request(self):
        choice = self.random
        fields = {}
        if choice.random() < 0.3:
            fields["Cookie"] = f"{choice.choice(('session', 'Session'))}={choice.choice(('ann', 'bob'))}"
        if choice.random() < 0.3:
            fields["X-User"] = choice.choice(("ann", "bob"))
        if choice.random() < 0.15:
            fields["Authorization"] = choice.choice(("Bearer ann", "Basic YW5uOnNlY3JldA=="))
        if choice.random() < 0.15:
            fields["X-Forwarded-For"] = choice.choice(("10.1.1.1", "10.0.0.7"))
        method = choice.choices(("GET", "HEAD", "POST"), (12, 1, 1))[0]
        host, path = choice.choice(HOSTS), choice.choice(PATHS)
        address = "127.0.0.2" if self.bare.random() < 0.1 else "127.0.0.1"
        return Asked(host, method, path, fields, choice.random() < 0.3, self.bare.random() < 0.2, address)


CONNECTIONS = dict[tuple[str, int, bool], http.client.HTTPConnection]()


@pytest.fixture(autouse=True)
def kept_connections():
    """Those to the servers of a test, which end with it."""
    yield
    for connection in CONNECTIONS.values():
        connection.close()
    CONNECTIONS.clear()


def ask(port, asked, *, is_tls=False):
    place = (asked.address, port, is_tls)
    is_kept = place in CONNECTIONS
    if not is_kept and is_tls:
        CONNECTIONS[place] = http.client.HTTPSConnection(asked.address, port, timeout=10, context=UNVERIFIED)
    elif not is_kept:
        CONNECTIONS[place] = http.client.HTTPConnection(asked.address, port, timeout=10)
    connection = CONNECTIONS[place]
    try:
        connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", asked.host if asked.is_bare else f"{asked.host}:{port}")
        for name, value in asked.fields.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
    except (http.client.RemoteDisconnected, ConnectionResetError, ConnectionRefusedError, BrokenPipeError):
        CONNECTIONS.pop(place).close()
        return ask(port, asked, is_tls=is_tls) if is_kept else Heard(0, False, "")
    is_served = answer.getheader("X-Origin") is not None
    told = json.loads(body) if is_served and body else {"who": "", "target": ""}
    # Of a redirect the path and the query: the ports differ.
    location = urlsplit(answer.getheader("Location") or "")._replace(scheme="", netloc="").geturl()
    return Heard(answer.status, is_served, told["who"], location, urlsplit(told["target"]).query)


def nginx_answer(port, asked, *, is_tls=False):
    """The answer of nginx, which closes a connection now and then that it has just accepted."""
    tries = (ask(port, asked, is_tls=is_tls) for _ in range(5))
    return next((heard for heard in tries if heard.status), Heard(0, False, ""))


UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE

CONFIGURATION = """\
daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {home}/t1; proxy_temp_path {home}/t2; fastcgi_temp_path {home}/t3;
  uwsgi_temp_path {home}/t4; scgi_temp_path {home}/t5;
  proxy_cache_path {home}/cache keys_zone=c:1m;
  limit_req_zone $http_x_user zone=users:1m rate=1r/m;
{servers}
}}
"""


def nginx(home, port):
    return running(["nginx", "-c", str(home / "nginx.conf"), "-p", str(home)], port, home / "error.log")


def imported(kind, file, ours_at):
    """Import a file of other listeners, at our ports: the command's status and what it says."""
    home = file.parent
    (home / "profiles").mkdir()
    output = ["--output", str(home / "profiles" / "mine.toml"), "--sites", str(home / "univocal.toml")]
    command = ["profiles", "import", "--from", kind, str(file), *output]
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    if (home / "univocal.toml").exists():
        written = (home / "univocal.toml").read_text()
        for theirs_at, place in ours_at.items():
            written = written.replace(f':{theirs_at}"', f':{place}"')
        (home / "univocal.toml").write_text(written)
    return ended.exit_code, ended.stderr


# The import's note about listeners that have sites of their own.
OF_OTHERS = "each listener refuses (421) the hosts of others; nginx gives them to its default server"


def is_of_another(conf, port, host):
    """Tell whether only servers at other ports name a host, so that the default server answers for it."""
    ports = set()
    for server in conf.split("server {")[1:]:
        patterns = re.findall(r"server_name (.*?);", server)[0].split()
        if any(is_named(host, pattern) for pattern in patterns):
            ports |= set(re.findall(r"listen (?:127\.0\.0\.1:)?(\d+);", server))
    return bool(ports) and str(port) not in ports


def is_named(host, pattern):
    """Tell whether a server_name is a name of a host."""
    if pattern.startswith("~"):
        return re.search(pattern[1:], host) is not None
    return fnmatch(f".{host}", f"*{pattern}") if pattern.startswith(".") else fnmatch(host, pattern)


# Guards are judged by every reading of a path, whatever the origin server makes of it.
LOOSE = {"/A/b", "/a/../admin/x", "//admin/x", "/%61dmin/x", "/a/", "/admin/"}


@needs_nginx
@pytest.mark.parametrize("is_said", [False, True], ids=["any", "said"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + FILES))
def test_an_import_refuses_and_keeps_apart_as_nginx(seed, is_said, echo, start, tmp_path):
    """Files that settings say are served as nginx serves them, too; see `UNSAID` for the others."""
    port, other = free_port(), free_port()
    files = Files(seed, port, other, echo, is_said=is_said)
    conf = CONFIGURATION.format(home=tmp_path, servers=files.http())
    (tmp_path / "modules").mkdir()
    for name in ("guard.conf", "ssl-params.conf", "mime.types", "modules/guard.conf"):
        (tmp_path / name).write_text("if ($http_x_user = bob) { return 403; }\n")
    (tmp_path / "users").write_text("ann:$2y$05$1SYVX0xjFJTuyaOr8eG9AOy/hQyPtP0Ji1qGP3ppbWu.jHRBYGgZ6\n")
    ours_at = {port: free_port(), other: free_port()}
    (tmp_path / "nginx.conf").write_text(conf)
    status, said = imported("nginx", tmp_path / "nginx.conf", ours_at)
    assert status in {0, 1, 3}, said
    if status == 3:
        return
    written = (tmp_path / "univocal.toml").read_text()
    start("serve", "--config", str(tmp_path / "univocal.toml"), "--admin", "127.0.0.1:0")
    requests = [files.request() for _ in range(REQUESTS)]
    earlier = {}
    with nginx(tmp_path, port):
        for request in requests:
            at = other if request.is_other and f"127.0.0.1:{other};" in conf else port
            asked = request if f" {at};" in conf else request._replace(address="127.0.0.1")
            theirs = nginx_answer(at, asked)
            # A port that the import does not listen on may be another program's by now.
            is_there = f':{ours_at[at]}"' in written
            ours = ask(ours_at[at], asked) if is_there else Heard(0, False, "")
            told = f"{asked}\nnginx {theirs}\nunivocal {ours}\n{written}"
            told += f"{conf}\n{said}"
            if not theirs.is_served and not 300 <= theirs.status < 400:
                assert not ours.is_served, told
            earlier[own(asked)] = asked
            if ours.who and ours.who != own(asked) and not is_stripped(said):
                assert not keeps_apart(at, earlier[ours.who], asked), told
            # A client that names another, and that nobody trusts, has no right by its address; nginx does not
            # look at the field. Of expressions that match, all guard here, and in nginx the first.
            is_nobody = "X-Forwarded-For" in asked.fields and re.search("(deny|allow) = ", written)
            # Hosts that sites have at a port are named with it, as clients do.
            is_foreign = ours.status == 421 and OF_OTHERS in said
            is_foreign = is_foreign and is_of_another(conf, at, asked.host)
            is_equal = is_said or (status == 0 and "location ~" not in conf and not asked.is_bare)
            if ours.is_served and theirs.is_served and ours.who and theirs.who:
                assert ours.query == theirs.query, told
            if is_equal and not (is_nobody or is_foreign or asked.target in LOOSE):
                assert ours.is_served or not theirs.is_served, told
                if 300 <= theirs.status < 400 and 300 <= ours.status < 400:
                    assert (ours.status, ours.location) == (theirs.status, theirs.location), told


def keeps_apart(port, one, other):
    """Tell whether nginx answers one client with its own page, and not with another client's."""
    target = f"{other.target}?{free_port()}"
    for _ in range(2):
        ask(port, other._replace(fields=one.fields, target=target))
    heard = ask(port, other._replace(target=target))
    return heard.who == own(other)


def own(asked):
    return who(asked.fields)


def is_stripped(said):
    """Tell whether the origin server does not hear of the client's password, as the import says."""
    return "The origin server does not get Authorization" in said


PUBLIC = Path(__file__).parent / "nginx_files"
KINDS = (
    ("GET", {}),
    ("POST", {"Cookie": "session=ann"}),
    ("GET", {"User-Agent": "a spider", "Referer": "http://evil.example/", "X-User": "program"}),
    ("GET", {"Cookie": "wordpress_logged_in_x=bob; session=bob", "X-Forwarded-For": "10.1.1.1"}),
)


@needs_nginx
@pytest.mark.parametrize(
    ("name", "status", "refused"),
    [
        ("nextcloud", 1, {"/DATA/x"}),  # other cases of a closed path
        ("gitlab", 0, set[str]()),
        # nginx sends its own error page for a path without a file; here the origin server sends one.
        ("mastodon", 1, {"/assets/a.js", "/emoji/a.png", "/sw.js", "/system/x.png"}),
        ("discourse", 1, set[str]()),
        ("gitea", 1, {"/gitea/", "/gitea/user/login", "/gitea/a%2Fb", "/gitea/_/x"}),  # rewrites
        ("jellyfin", 1, {"/web/"}),  # a variable with a path behind it
        ("home_assistant", 0, set[str]()),
        ("synapse", 1, set[str]()),
        ("wordpress", 0, set[str]()),
        ("sentry", 1, set[str]()),
        ("shop", 1, set[str]()),
        ("firewall", 0, set[str]()),
    ],
)
def test_files_of_well_known_programs_serve_what_nginx_serves(name, status, refused, echo, start, tmp_path):
    """`refused` are the paths that univocal refuses beside nginx; status 1 says that there are such."""
    text = (PUBLIC / f"{name}.conf").read_text()
    port, secure = free_port(), free_port()
    Authority(tmp_path).issue("cert", "DNS:*.example")
    (tmp_path / "users").write_text("ann:$2y$05$1SYVX0xjFJTuyaOr8eG9AOy/hQyPtP0Ji1qGP3ppbWu.jHRBYGgZ6\n")
    for word, value in {"HOME": tmp_path, "PORT": port, "SECURE": secure, "ORIGIN": echo}.items():
        text = text.replace(word, str(value))
    conf = CONFIGURATION.format(home=tmp_path, servers=text)
    ours_at = {port: free_port(), secure: free_port()}
    (tmp_path / "nginx.conf").write_text(conf)
    exit_status, said = imported("nginx", tmp_path / "nginx.conf", ours_at)
    written = (tmp_path / "univocal.toml").read_text()
    start("serve", "--config", str(tmp_path / "univocal.toml"), "--admin", "127.0.0.1:0")
    hosts, paths = (
        [word for line in text.splitlines() if line.startswith(f"# {key} ") for word in line.split()[2:]]
        for key in ("hosts", "paths")
    )
    every = [
        Asked(host, method, path + query, fields, place == secure)
        for place, host, path, (method, fields), query in product(ours_at, hosts, paths, KINDS, ("", "?v=1"))
        if f":{place}" in text and (LONG or not query or not fields)
    ]
    less = set[str]()
    earlier = {}
    with nginx(tmp_path, port):
        for asked in every:
            at = secure if asked.is_other else port
            ours = ask(ours_at[at], asked, is_tls=asked.is_other)
            theirs = nginx_answer(at, asked, is_tls=asked.is_other)
            told = f"{asked}\nnginx {theirs}\nunivocal {ours}\n{written}{conf}\n{said}"
            assert theirs.is_served or not ours.is_served, told
            if theirs.is_served and not ours.is_served:
                less.add(asked.target.partition("?")[0])
            earlier[own(asked)] = asked
            if ours.who and ours.who != own(asked):
                assert asked.is_other or not keeps_apart(at, earlier[ours.who], asked), told
    assert len(every) >= 60
    assert (exit_status, less) == (status, refused), f"{written}{said}"


OCTETS = ('@pparam="3A 2F 40" @pparam="5B 5D 26"', '@pparam="2F" @pparam="21 24"')
TARGETS = ("", "/api/", "/admin", "/admin/", "/w/", "/priv/", "/?x", "/%70riv/", "//priv/")
KEPT = ("", "", "", "@action=deny @src_ip=127.0.0.1", "@action=deny @method=post")
KEPT += ("@action=allow @src_ip=10.0.0.1", "@internal", "@plugin=header_rewrite.so @pparam=HOME/refusing")
REMAPPED = ("/", "/admin", "/admin/x", "/adminx", "/api/v1", "/api/%61", "/w/a%2Fb", "/w/x", "/priv/a")
REMAPPED += ("//priv/a", "/%70riv/a")
REMAP_RECORDS = RECORDS + "CONFIG proxy.config.url_remap.remap_required INT 1\n"
PLUGINS = Path("/usr/lib/trafficserver/modules")
SCRIPT = Path(__file__).parents[1] / "integration" / "servers" / "origins" / "normalize-path.lua"


def remap_rules(chance, home, origin):
    """Random rules of remap.config, most of them with sets of octets."""
    rules, seen = list[str](), set[str]()
    for _ in range(chance.randrange(3, 8)):
        kind = chance.choices(("map", "redirect", "regex_map"), (10, 1, 1))[0]
        host = chance.choice(("a.example", "b.example", "w.example", "B.example", "a.example:80"))
        scheme = "ws:" if kind == "map" and chance.random() < 0.1 else "http:"
        target = f"{scheme}//{'(.*)[.]w.example' if kind == 'regex_map' else host}{chance.choice(TARGETS)}"
        target = "//priv/" if kind == "map" and chance.random() < 0.05 else target
        to = f"{'ws' if scheme == 'ws:' else 'http'}://127.0.0.1:{origin}{chance.choice(('', '/', '/b/'))}"
        sets = f"@plugin=tslua.so @pparam={SCRIPT} {chance.choice(OCTETS)}" if chance.random() < 0.8 else ""
        one = target.lower().replace(":80", "").removesuffix("?x").replace("//priv", "/priv").rstrip("/")
        if one in seen:
            continue  # Traffic Server does not start with two of a target
        seen.add(one)
        kept = chance.choice(KEPT).replace("HOME", str(home)) if kind != "redirect" else ""
        rules.append(f"{kind} {target} {to} {'' if kind == 'redirect' else sets} {kept}".rstrip())
    if chance.random() < 0.2:
        rules.insert(
            chance.randrange(len(rules)),
            ".definefilter no @action=deny @src_ip=127.0.0.1\n.activatefilter no",
        )
    return "\n".join(rules) + "\n"


def traffic_server(home, port, rules):
    layout = {"prefix": home, "exec_prefix": "/usr", "bindir": "/usr/bin", "sbindir": "/usr/sbin"}
    layout |= {"libdir": "/usr/lib", "libexecdir": PLUGINS, "sysconfdir": home / "etc"}
    layout |= dict.fromkeys(("datadir", "localstatedir", "runtimedir", "logdir", "cachedir"), home)
    (home / "runroot.yaml").write_text("".join(f"{key}: {value}\n" for key, value in layout.items()))
    (home / "etc").mkdir()
    shutil.copy(rules, home / "etc")
    (home / "refusing").write_text("cond %{REMAP_PSEUDO_HOOK}\nset-status 403\n")
    files = {"records.config": REMAP_RECORDS.format(port=port), "plugin.config": "", "storage.config": ""}
    files["ip_allow.yaml"] = (
        "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n"
    )
    for name, text in files.items():
        (home / "etc" / name).write_text(text)
    return running(["traffic_server", f"--run-root={home}/runroot.yaml"], port, home / "log")


@pytest.mark.skipif(not (PLUGINS / "tslua.so").exists(), reason="without traffic_server")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + (20 if LONG else 4)))
def test_an_import_refuses_what_traffic_server_refuses(seed, echo, start, tmp_path):
    chance = random.Random(seed)
    port, ours_at = free_port(), free_port()
    rules = tmp_path / "remap.config"
    rules.write_text(remap_rules(chance, tmp_path, echo))
    status, said = imported("ats", rules, {})
    if not (tmp_path / "univocal.toml").exists():
        return
    written = f'[server]\nlisten = "127.0.0.1:{ours_at}"\n'
    text = (tmp_path / "univocal.toml").read_text()
    (tmp_path / "univocal.toml").write_text(text.replace("\n", f"\n{written}", 1))
    start("serve", "--config", str(tmp_path / "univocal.toml"), "--admin", "127.0.0.1:0")
    hosts, methods = ("a.example", "b.example", "x.w.example", "w.example"), ("GET", "GET", "POST")
    with traffic_server(tmp_path, port, rules):
        for host, path, method in product(hosts, REMAPPED, methods):
            fields = {"Content-Length": "0"} if method == "POST" else {}
            asked = Asked(host, method, path, fields, is_other=False, is_bare=True)
            theirs, ours = ask(port, asked), ask(ours_at, asked)
            told = f"{asked}\nTraffic Server {theirs}\nunivocal {ours}\n{rules.read_text()}{text}{said}"
            # An escaped letter is one with the letter here, unless a rule has it escaped.
            is_one = "%7" in path and f"//{host}/%7" not in rules.read_text().lower().replace(":80", "")
            assert theirs.is_served or is_one or not ours.is_served, told
            if theirs.is_served and status == 0:
                assert ours.is_served, told
