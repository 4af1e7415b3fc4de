"""Profiles exported to Lua: nginx and Traffic Server canonicalize as univocal does."""

import os
import shutil
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.integration.exporters.conftest import PROFILES, answers_at, answers_of, as_hex, drawn, judged
from tests.ports import free_port
from tests.started import running
from tests.traffic_server import with_rules

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "cdn.md"
NGINX_PROGRAM = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
NGINX_MODULES = Path("/usr/lib/nginx/modules")

NGINX = """\
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
daemon off;
master_process off;
pid {base}/pid;
error_log {base}/error.log error;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {base}/client;
    proxy_temp_path {base}/proxy;
    fastcgi_temp_path {base}/fastcgi;
    scgi_temp_path {base}/scgi;
    uwsgi_temp_path {base}/uwsgi;
    client_max_body_size 8m;
    client_body_buffer_size 8m;
    init_by_lua_block {{
        function outcome(export, target)
            local canonical, reason = export.canonicalize(target)
            return canonical and "=" .. canonical:gsub(".", function(octet)
                return string.format("%02x", octet:byte())
            end) or reason
        end
        exports = {{}}
        for name in ("{names}"):gmatch("%S+") do
            local export = dofile("{directory}/" .. name .. ".lua")
            for _, vector in ipairs(export.vectors) do
                local canonical, reason = export.canonicalize(vector[1])
                assert(canonical == (vector[2] or nil) and reason == (vector[3] or nil), vector[1])
            end
            assert(#export.vectors > 100)
            exports[name] = export
        end
    }}
    server {{
        listen 127.0.0.1:{port};
        merge_slashes off;
        location / {{ content_by_lua_block {{
            ngx.print(outcome(exports[ngx.var.http_x_profile], ngx.var.request_uri))
        }} }}
        location = /-/hexadecimal {{ content_by_lua_block {{
            ngx.req.read_body()
            for line in ngx.req.get_body_data():gmatch("%x*\\n") do
                local target = line:sub(1, -2):gsub("%x%x", function(digits)
                    return string.char(tonumber(digits, 16))
                end)
                ngx.say((outcome(exports[ngx.var.http_x_profile], target)))
            end
        }} }}
    }}
}}
"""


@pytest.fixture(scope="module")
def directory(exports):
    return exports("lua", ".lua")


@pytest.fixture(scope="module")
def nginx(directory):
    if NGINX_PROGRAM is None or not (NGINX_MODULES / "ngx_http_lua_module.so").exists():
        pytest.skip("needs nginx with Lua (Debian package libnginx-mod-http-lua)")
    base, port = directory / "nginx", free_port()
    base.mkdir()
    text = NGINX.format(
        modules=NGINX_MODULES, base=base, directory=directory, port=port, names=" ".join(PROFILES)
    )
    (base / "nginx.conf").write_text(text)
    command = [NGINX_PROGRAM, "-p", str(base), "-e", str(base / "error.log"), "-c", str(base / "nginx.conf")]
    with running(command, port, base / "log"):
        yield port


def test_lua_in_nginx_canonicalizes_as_univocal_does(profile, cases, nginx):
    client = HTTPConnection("127.0.0.1", nginx, timeout=60)
    content = as_hex(target for target, _, _ in cases)
    client.request("POST", "/-/hexadecimal", content, {"X-Profile": profile.name})
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    assert answer.status == 200, text
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    assert list(zip((target for target, _, _ in cases), answers_of(text), strict=True)) == expected


@pytest.mark.parametrize("name", ["mediawiki", "servlet", "shop"])
def test_nginx_hands_lua_the_target_as_it_was_sent(name, nginx):
    """nginx itself answers 400 to control characters, and to paths that leave the root."""
    lines = []
    targets = [target for target in drawn(3, 300) if not set(target) & {*range(0x21), 0x7F}]
    cases = judged(PROFILES[name], [target for target in targets if target.startswith(b"/")])
    for target, _, _ in cases:
        with socket.create_connection(("127.0.0.1", nginx), timeout=30) as peer:
            peer.sendall(b"GET %b HTTP/1.0\r\nX-Profile: %b\r\n\r\n" % (target, name.encode()))
            head, _, content = b"".join(iter(lambda: peer.recv(65536), b"")).partition(b"\r\n\r\n")
            lines.append(content.decode() if b" 200 " in head.split(b"\r\n")[0] else None)
    answers = [(case, line) for case, line in zip(cases, lines, strict=True) if line is not None]
    assert len(answers) > 50
    for (target, canonical, reason), line in answers:
        assert answers_of(line) == [(canonical, reason)], target


def test_nginx_of_the_page_asks_for_the_canonical_target(directory, nginx, tmp_path):
    page, port = PAGE.read_text("utf-8"), free_port()
    block = page.split("```nginx\n")[1].split("```")[0]
    for old, new in (
        ("/etc/nginx", str(directory)),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("http://127.0.0.1:8080", f"http://127.0.0.1:{nginx}"),
        ("proxy_set_header Host $host;", "proxy_set_header Host $host; proxy_set_header X-Profile s3;"),
    ):
        assert old in block
        block = block.replace(old, new)
    head, _, _ = NGINX.format(
        modules=NGINX_MODULES, base=tmp_path, directory=directory, port=port, names=""
    ).partition("    init_by_lua_block")
    (tmp_path / "nginx.conf").write_text(f"{head}{block}}}\n")
    command = [
        NGINX_PROGRAM,
        "-p",
        str(tmp_path),
        "-e",
        f"{tmp_path}/error.log",
        "-c",
        f"{tmp_path}/nginx.conf",
    ]
    with running(command, port, tmp_path / "log"):
        client = HTTPConnection("127.0.0.1", port, timeout=30)
        for received, expected in (("/A%2fB%5b?x=%2F", b"/A/B%5B?x=%2F"), ("/a?", b"/a")):
            client.request("GET", received)
            assert answers_of(client.getresponse().read().decode()) == [(expected, None)]
        client.request("GET", "/%0a")
        assert client.getresponse().status == 400


ATS_SCRIPT = """\
local export = dofile("{directory}/{name}.lua")
function do_remap()
  local target = (ts.client_request.header["X-Target"]):gsub("%x%x", function(digits)
    return string.char(tonumber(digits, 16))
  end)
  local canonical, reason = export.canonicalize(target)
  ts.http.set_resp(200, canonical and "=" .. canonical:gsub(".", function(octet)
    return string.format("%02x", octet:byte())
  end) or reason)
  return 0
end
"""
ATS_PROFILES = ("mediawiki", "restbase", "upload", "servlet", "nginx", "shop", "sessions", "moved")


@pytest.fixture(scope="module")
def traffic_server(directory):
    base, port, rules = directory / "ats", free_port(), ""
    base.mkdir()
    for name in ATS_PROFILES:
        (base / f"{name}.lua").write_text(ATS_SCRIPT.format(directory=directory, name=name))
        rules += f"map http://{name}.example http://127.0.0.1:9 @plugin=tslua.so @pparam={base}/{name}.lua\n"
    with running(with_rules(base, port, rules), port, base / "log"):
        yield port


@pytest.mark.parametrize("name", ATS_PROFILES)
def test_lua_in_traffic_server_canonicalizes_as_univocal_does(name, traffic_server):
    cases = judged(PROFILES[name], [target for target in drawn(11) if target])
    heads = [f"Host: {name}.example\r\nX-Target: {target.hex()}" for target, _, _ in cases]
    for (target, *expected), answer in zip(cases, answers_at(traffic_server, heads), strict=True):
        assert answers_of(answer.decode()) == [tuple(expected)], target
