"""Forward authentication by a real server: what it decides holds in front of the cache."""

import json
import shutil
import socket
import threading
from itertools import product

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse

from ports import free_port
from tests import started

USERS = {"a1": "anna", "b2": "bert", "b3": "bert"}


class Authority:
    """An authorization server, as one writes it: the cookie names a session, /admin is anna's."""

    def __init__(self):
        self.seen = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        application = Starlette()
        application.add_route("/verify", self.verify)
        config = uvicorn.Config(application, lifespan="off", log_config=None)
        self.server = uvicorn.Server(config)

    async def verify(self, request):
        fields = dict(request.headers)
        self.seen.append((request.method, str(request.url.query), fields, await request.body()))
        user = USERS.get(request.cookies.get("session", ""))
        if user is None:
            to = f"https://login.example/?from={fields['x-forwarded-host']}{fields['x-forwarded-uri']}"
            return RedirectResponse(to, headers={"Set-Cookie": "state=1"})
        if fields["x-forwarded-uri"].startswith("/admin") and user != "anna":
            return PlainTextResponse("not you", 403)
        return PlainTextResponse("come in", headers={"X-User": user})


@pytest.fixture
def authority():
    made = Authority()
    thread = threading.Thread(target=made.server.run, kwargs={"sockets": [made.socket]})
    thread.start()
    yield made
    made.server.should_exit = True
    thread.join()


@pytest.fixture
def serve(inside, origin, ask, tmp_path):
    """Start the program with a guarded site; "@" is its origin server. Returns what asks it."""

    def started(access, rest="", server="", site=""):
        site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "@"\n{site}[sites.access]\n{access}\n{rest}'
        (tmp_path / "profiles").mkdir()
        (tmp_path / "profiles" / "observing.toml").write_text(
            'extends = "rfc3986"\nreject.mode = "observe"\n'
        )
        running = inside((server + site).replace("@", origin.url), 'profiles = ["profiles"]')

        def get(target="/a", *fields, method="GET", body="", at=None):
            lines = "".join(f"{each}\r\n" for each in fields)
            return ask(at or running.proxy, target, "en.example", method, lines, body)

        get.running = running
        return get

    return started


def guarded(authority, more=""):
    return f'forward = "{authority.url}/verify?site=1"\nforward_fields = ["X-User"]\n{more}'


ANNA, BERT = "Cookie: session=a1", "Cookie: session=b2"


def test_a_server_decides_by_the_head_alone(serve, origin, authority):
    get = serve(guarded(authority))
    refused = get("/a%2Db?q", "X-User: anna", "X-Forwarded-Uri: /open", method="POST", body="secret=1")
    assert refused.status == 307
    assert refused.value("location") == "https://login.example/?from=en.example/a-b?q"
    assert refused.value("set-cookie") == "state=1"
    method, query, fields, body = authority.seen[0]
    assert (method, query, body) == ("GET", "site=1", b"")
    told = ("host", "x-forwarded-method", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for")
    address = authority.url.removeprefix("http://")
    assert [fields.get(each) for each in told] == [address, "POST", "en.example", "http", "127.0.0.1"]
    assert {"content-length", "transfer-encoding", "x-user"}.isdisjoint(fields)
    assert origin.seen == []
    assert get("/a", ANNA, method="POST", body="secret=1").status == 200
    assert b"\r\nx-user: anna\r\n" in origin.seen[0]


def test_no_client_sends_the_fields_of_the_server(serve, origin, authority):
    get = serve(guarded(authority), '[[sites.routes]]\npath = "/open/"\naccess = { forward = "" }\n')
    spoofed = ("X-User: root", "x_user: root", "Connection: x-user\r\nX-User: root")
    for number, (path, fields) in enumerate(product(("/a", "/open/a"), spoofed)):
        assert get(f"{path}{number}", BERT, fields).status == 200  # none is stored yet
        lines = origin.seen[-1].split(b"\r\n")
        names = [line.lower() for line in lines if b"root" in line or b"ser:" in line]
        assert names == ([b"x-user: bert"] if path == "/a" else []), fields
    assert len(origin.seen) == 2 * len(spoofed)


@pytest.mark.parametrize("profile", ["rfc3986", "observing"])
def test_every_reading_of_a_path_is_guarded(serve, origin, authority, profile):
    get = serve(
        "",
        f'[[sites.routes]]\npath = "/private"\n[sites.routes.access]\n{guarded(authority)}',
        site=f'profile = "{profile}"\n',
    )
    for target in ("/private/a", "/%70rivate/a", "/x/../private/a", "/private%2Fa", "/PRIVATE/a"):
        assert get(target).status in {307, 400}, target
    assert origin.seen == []
    assert get("/open").status == 200


def test_methods_are_told_and_guarded(serve, origin, authority):
    get, methods = serve(guarded(authority)), ("HEAD", "OPTIONS", "DELETE", "REPORT")
    for method in methods:
        refused = get("/a", method=method)
        assert (refused.status, refused.body) == (307, b"")
    assert origin.seen == []
    assert [get("/a", ANNA, method=method).status for method in methods] == [200] * 4
    told = [fields["x-forwarded-method"] for *_, fields, _ in authority.seen]
    assert told == [*methods, *methods]


def test_a_handshake_is_guarded(serve, origin, authority):
    get = serve(guarded(authority))
    shake = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    shake = (*shake, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    assert (get("/a", *shake).status, origin.seen) == (307, [])
    assert get("/a", *shake, ANNA).status == 200  # from an origin server that knows none
    assert b"upgrade: websocket" in origin.seen[0].lower()
    assert all("upgrade" not in fields for *_, fields, _ in authority.seen)


def test_a_reload_puts_another_server_in_force(serve, authority, ask, tmp_path):
    get = serve(guarded(authority, "forward_ttl = 60\n"))
    assert get("/a", ANNA).status == 200
    file = tmp_path / "univocal.toml"
    file.write_text(file.read_text().replace("/verify?site=1", "/nowhere"))
    assert get.running.reload()[1]["changed"] == ["sites[0].access.forward"]
    assert get("/a", ANNA).status == 404
    shown = json.loads(ask(get.running.admin, "/-/config", "localhost").body)
    assert shown["sites"][0]["access"]["forward"] == f"{authority.url}/nowhere"


def test_a_rate_goes_by_user(serve, authority):
    get = serve(guarded(authority, 'limits = { rate = "2/h", by = "user" }\n'))
    assert [get("/a", BERT).status for _ in range(3)] == [200, 200, 429]
    refused = get("/a", "Cookie: session=b3", "X-User: root")  # another session of the same user
    assert refused.status == 429
    assert 1700 < int(refused.value("retry-after") or "") <= 1800
    assert get("/a", ANNA).status == 200
    assert get("/a").status == 307


def test_the_log_names_the_user_of_the_server(serve, authority, tmp_path):
    log = f'access_log = "{tmp_path}/log"\naccess_log_format = "{{user}} {{status}} {{reasons}}"\n'
    get = serve(guarded(authority), server=log)
    for fields in ((ANNA,), (ANNA, "Authorization: Bearer x"), ()):
        get("/a", *fields)
    assert get.running.end() == 0
    assert (tmp_path / "log").read_text().splitlines() == ["anna 200 -", "anna 200 -", "- 307 access-denied"]


NGINX = """\
daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {home}/t1; proxy_temp_path {home}/t2; fastcgi_temp_path {home}/t3;
  uwsgi_temp_path {home}/t4; scgi_temp_path {home}/t5;
  server {{
    listen 127.0.0.1:{port}; server_name en.example;
    location = /auth {{
      internal; proxy_pass {authority}/verify; proxy_pass_request_body off;
      proxy_set_header Content-Length ""; proxy_set_header X-Forwarded-Uri $request_uri;
      proxy_set_header X-Forwarded-Host $host;
    }}
    location / {{
      auth_request /auth; auth_request_set $who $upstream_http_x_user;
      proxy_set_header X-User $who; proxy_pass {origin};
    }}
    location /open/ {{ proxy_pass {origin}; }}
  }}
}}
"""


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_and_its_import_decide_alike(start, univocal, origin, ask, authority, tmp_path):
    port, file = free_port(), tmp_path / "nginx.conf"
    file.write_text(NGINX.format(home=tmp_path, port=port, authority=authority.url, origin=origin.url))
    profile, sites = tmp_path / "profiles" / "front.toml", tmp_path / "univocal.toml"
    profile.parent.mkdir()
    imported = univocal(
        *("profiles", "import", "--from", "nginx", str(file)), "--output", str(profile), "--sites", str(sites)
    )
    assert imported.returncode == 0, imported.stderr
    sites.write_text(
        sites.read_text().replace("[server]\n", '[server]\nadmin = "127.0.0.1:0"\n').replace(f":{port}", ":0")
    )
    running = start("serve", "--config", str(sites))
    with started.running(["nginx", "-c", str(file), "-p", str(tmp_path)], port):
        decided = [
            [
                decision(ask(address, path, "en.example", method, f"{fields}\r\nX-User: root\r\n"), origin)
                for path in ("/a", "/admin", "/%61dmin", "/open/a", "/auth")
                for fields in (ANNA, BERT, "X: y")
                for method in ("GET", "HEAD", "POST")
            ]
            for address in (("127.0.0.1", port), running.proxy)
        ]
    differing = {pair for pair in zip(*decided, strict=True) if pair[0] != pair[1]}
    # The path is one, however it is spelled; a spoofed field goes no further anywhere on the site.
    assert differing == {("bert", "refused"), ("root", "nobody")}


def decision(answer, origin):
    """The user that the origin server was told, if it was asked."""
    if answer.value("cache-control") != "max-age=60":
        return "refused"
    heads = [line for line in origin.seen[-1].lower().split(b"\r\n") if line.startswith(b"x-user: ")]
    return heads[0].removeprefix(b"x-user: ").decode() if heads else "nobody"
