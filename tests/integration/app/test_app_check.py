"""`univocal check`: a configuration that cannot be is refused with its place, a doubtful one is warned of."""

import pytest

from authority import Authority

HOST, UPSTREAM = 'hosts = ["en.example"]\n', 'upstream = "http://127.0.0.1:9"\n'
PAIR = 'tls_cert = "server.pem"\ntls_key = "server.key"\n'
OTHER_PAIR = 'tls_cert = "a.pem"\ntls_key = "a.key"\n'
FORWARD = 'forward = "http://127.0.0.1:1/"\n'
BACKUP = 'upstream = [{ url = "http://127.0.0.1:9", backup = true }]\n'
ROUTE = '[[sites.routes]]\npath = "{}"\n'
PURPOSE = ("sites[0].routes[0].origin: ", "read_timeout")
NAMED = """
[request]
set = { "X-Real-IP" = "{client}" }
"""


def access(lines):
    return f"[sites.access]\n{lines}"


# Lines of [server] and of tables behind it, lines of the site, and what is said.
REFUSED = [
    *(
        ("", access(lines), "univocal.toml:7: sites[0].access", *said)
        for lines, *said in [
            ('basic = "none"', ".basic: found"),
            ("private = true", ".private: found True; allowed: false without `basic`", "nobody has a name"),
            ('basic = "weak"', "line 1'; allowed: lines of a name, a colon and a hash by bcrypt"),
            ('basic = "sha"', "/sha anna\n"),
            ('rate = "fast"', ".rate: found 'fast'; allowed: requests and their time"),
            ('allow = ["nowhere"]', ".allow[0]: found 'nowhere'"),
            ("alow = []", ".alow: unknown key. Did you mean `allow`?"),
            ('forward = "auth"', "the URL of an authorization server"),
            ('forward = "http://a.example/ b"', "the URL of an authorization server"),
            ('forward_fields = ["X-User"]', "nobody has a name"),
            ('limits = { rate = "1/s" }', "nobody has a name"),
        ]
    ),
    *(
        ("", access(lines), *said)
        for lines, *said in [
            (f'{FORWARD}forward_fields = ["Host"]', "any field but"),
            (f'{FORWARD}forward_fields = ["X-Forwarded-For"]', "any field but"),
            (f"{FORWARD}private = false", "always kept by user"),
            (f'{FORWARD}limits = {{ rate = "1/s" }}', "nobody has a name"),
            ('basic = ""\nlimits = { rate = "fast" }', "requests and their time"),
        ]
    ),
    *(
        (f"[cache]\ncompress = {value}", "", "cache.compress")
        for value in ('["deflate"]', '["br", "br"]', '"br"')
    ),
    (
        "[cache]\nstore = 'redis://user:secret@127.0.0.1:no/0'",
        "",
        "cache.store: found 'redis://***@127.0.0.1:no/0'; allowed: 'memory', ",
    ),
    ("", 'upstream = "http://127.0.0.1:9/v1/"\nforward = "received"', "sites[0].forward", "received"),
    ("", BACKUP, "sites[0].upstream[0].backup"),
    *(
        ("", f"{ROUTE.format('/slow/')}[sites.routes.origin]\n{setting} = {value}", setting, *PURPOSE)
        for setting, value in [("choice", '"hash"'), ("max_idle", "1"), ("health", '{ path = "/" }')]
    ),
    *(
        (f"{kind} = {listener}", "", f"server.{place}: ")
        for kind, listener, place in [
            ("listen", '[{ address = "127.0.0.1:0", sites = ["nobody.example"] }]', "listen[0].sites"),
            ("listen", '[{ address = "127.0.0.1:0", site = [] }]', "listen[0].site"),
            ("listen", '[{ address = "there", sites = ["en.example"] }]', "listen[0].address"),
            ("listen", '[{ address = "127.0.0.1:0", sites = "en.example" }]', "listen[0].sites"),
            ("listen", '[{ address = "127.0.0.1:0", proxy_protocol = 1 }]', "listen[0].proxy_protocol"),
            ("listen", '[{ address = "127.0.0.1:0", max_body = "1 XB" }]', "listen[0].max_body"),
            ("listen", '[{ address = "127.0.0.1:0", trusted_proxies = ["a"] }]', "listen[0].trusted_proxies"),
            ("admin", '[{ address = "127.0.0.1:0", proxy_protocol = true }]', "admin"),
        ]
    ),
    *(
        (f"listen = {listen}\nadmin = {admin}", "", f"server.{place}: ", f"that of server.{other}")
        for listen, admin, place, other in [
            ('"127.0.0.1:9"', '"127.0.0.1:9"', "admin", "listen"),
            ('"0.0.0.0:9"', '["127.0.0.1:0", "127.0.0.1:9"]', "admin[1]", "listen"),
            ('["127.0.0.1:0", "127.0.0.1:9"]', '"0.0.0.0:9"', "admin", "listen[1]"),
            ('"127.0.0.1:0"', '["127.0.0.1:9", "0.0.0.0:9"]', "admin[1]", "admin[0]"),
            ('"unix:///tmp/own"', '"unix:///tmp/own"', "admin", "listen"),
        ]
    ),
    (
        f"listen = '127.0.0.1:9'\nlisten_tls = '127.0.0.1:9'\n{PAIR}",
        "",
        "server.listen_tls: ",
        "server.listen",
    ),
    ('[response]\nset = { "Content-Length" = "3" }', "", "response.set.Content-Length"),
    ('[request]\nremove = ["X", "Host"]', "", "request.remove[1]"),
    ("", '[sites.response]\nset = { "Cache-Status" = "mine" }', "sites[0].response.set.Cache-Status"),
    ("", '[sites.request]\nset = { "X" = "a\\r\\nY: b" }', "sites[0].request.set.X"),
    ("", '[sites.request]\nset = { "X" = "a" }\nremove = ["x"]', "sites[0].request.set.X"),
    ("", '[sites.request]\nset = { "X Y" = "a" }', "sites[0].request.set.X Y"),
    (NAMED.replace("client", "clinet"), "", "request.set.X-Real-IP", "{client}"),
    ("access_log_format = '{clinet}'", "", "server.access_log_format", "client"),
    *(
        (f'error_pages = "{folder}"', "", "server.error_pages", f"{name}.html")
        for folder, name in [("unknown", "600"), ("nonsense", "400-nonsense"), ("large", "502")]
    ),
    ("http2 = true", "", "server.http2", "false, or set tls_cert"),
    ("tls_cert = 'none.pem'", "", "server.tls_cert", "No such file"),
    ("tls_cert = 'server.pem'", "", "server.tls_cert", "a file with a certificate in PEM"),
    ("tls_cert = 'server.pem'\ntls_key = 'a.key'", "", "server.tls_cert", "key values mismatch"),
    ("tls_key = 'server.key'", "", "server.tls_key", "none without tls_cert"),
    ("tls_cert = 3", "", "server.tls_cert", "text"),
    ("tls_cert = 'a.pem'\ntls_key = 'none.key'", "", "server.tls_key", "can be read (No such file"),
    ("tls_cert = 'a.pem'\ntls_key = 'a.pem'", "", "server.tls_key", "key in PEM (none is in it)"),
    ("", "tls_cert = 'both.pem'", "sites[0].tls_cert", "none without server.tls_cert"),
    ("tls_cert = 'both.pem'", "tls_key = 'a.key'", "sites[0].tls_key", "none without tls_cert"),
    ("tls_cert = 'both.pem'", "tls_cert = 'a.pem'", "sites[0].tls_cert", "a file with a certificate"),
    (
        "tls_cert = 'none.pem'",
        "tls_cert = 'a.pem'\ntls_key = 'server.key'",
        "server.tls_cert",
        "sites[0].tls_cert",
    ),
    ("", "tls_client_ca = 'ca.pem'", "tls_client_ca", "none without server.tls_cert"),
    ("tls_client_ca = 'ca.pem'", "", "tls_client_ca", "none without server.tls_cert"),
    (PAIR + "tls_client_ca = 'none.pem'", "", "tls_client_ca", "No such file"),
    (PAIR, "tls_client_ca = 'univocal.toml'", "tls_client_ca", "issue clients' ones"),
]
NO_NAME = "the certificate has no name for "
ACCEPTED = [
    ("workers = 4", ""),
    ('listen = ["127.0.0.1:0", "0.0.0.0:0", "127.0.0.1:7", "0.0.0.0:7"]\nadmin = "0.0.0.0:0"', ""),
    (PAIR, ""),
    (PAIR, 'hosts = ["other.example"]', f"univocal.toml:2: server.tls_cert: {NO_NAME}other.example"),
    (PAIR, 'hosts = ["*.en.example"]', f"{NO_NAME}*.en.example"),
    (OTHER_PAIR, PAIR),
    (OTHER_PAIR, f'hosts = ["other.example"]\n{PAIR}', f"sites[0].tls_cert: {NO_NAME}other.example"),
    ('tls_cert = "old.pem"\ntls_key = "old.key"', "", "the certificate has expired"),
    (
        "",
        "".join(map(ROUTE.format, ("/a/", "/A/", "/b/"))),
        "sites[0].routes[1].path",
        "'/a/' has the same reading",
    ),
    (NAMED, "", "request.set.X-Real-IP"),
    (NAMED + "[cache]\nbypass = ['*']", ""),
    ("[cache]\nstore = 'file://FOLDER/own/store'", ""),
    ("[cache]\nstore = 'file://FOLDER/all/store/s'", "", "cache.store", "/all: chmod o-w it"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that a configuration may name."""
    authority = Authority(tmp_path_factory.mktemp("check"))
    for name, host, days in (("server", "en", 2), ("a", "a", 2), ("old", "en", -1)):
        authority.issue(name, f"DNS:{host}.example", days)
    both = [(authority.folder / f"a.{kind}").read_text() for kind in ("pem", "key")]
    texts = {"weak": "anna:$apr1$x$y", "sha": "anna:{SHA}x", "both.pem": "".join(both)}
    texts |= {
        "unknown/600.html": "x",
        "nonsense/400-nonsense.html": "x",
        "large/502.html": "x" * ((1 << 20) + 1),
    }
    for name, text in texts.items():
        (authority.folder / name).parent.mkdir(exist_ok=True)
        (authority.folder / name).write_text(text)
    for name, mode in (("own", 0o755), ("all", 0o777)):
        (authority.folder / name).mkdir()
        (authority.folder / name).chmod(mode)
    return authority.folder


@pytest.fixture
def check(univocal, folder):
    """Run a command with a file of these lines of the server and of its site."""

    def check(server, site, command="check"):
        lines = ("" if "hosts" in site else HOST) + ("" if "upstream" in site else UPSTREAM)
        server = server.strip().replace("FOLDER", str(folder))
        (folder / "univocal.toml").write_text(f"[server]\n{server}\n[[sites]]\n{lines}{site}\n")
        return univocal(command, "--config", str(folder / "univocal.toml"))

    return check


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[2]}-{row[-1]}")
def test_invalid_settings_are_refused_with_their_place(check, row):
    server, site, *said = row
    ended = check(server, site)
    assert ended.returncode == 2
    assert ended.stderr.startswith("univocal: ")
    assert [each for each in said if each not in ended.stderr] == []
    assert "secret" not in ended.stderr


@pytest.mark.parametrize("row", ACCEPTED)
def test_doubtful_settings_are_warned_of(check, row):
    server, site, *said = row
    ended = check(server, site)
    assert ended.returncode == 0
    assert [each for each in said if each not in ended.stderr] == []
    assert len(ended.stderr.splitlines()) == bool(said)
