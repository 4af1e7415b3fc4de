"""`univocal serve` writes the access log, standard error and error pages."""

import re
import shutil
import subprocess

import pytest

from support import until

SITE = '[[sites]]\nhosts = ["a.example"]\nprofile = "servlet"\nupstream = "@"\n'
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) univocal: .+")


@pytest.fixture
def serve(inside, origin):
    """`univocal serve` with these settings of the server; "@" is the origin server's URL."""

    return lambda server, site=SITE: inside((server + site).replace("@", origin.url))


def test_an_all_down_502_names_the_origin_server(serve, ask):
    down = (
        SITE.replace("@", "http://127.0.0.1:1")
        + '[sites.origin]\nhealth = { path = "/", interval = 0.1, falls = 1 }\n'
    )
    running = serve('access_log_format = "combined"\n', down)
    for _ in range(50):
        ask(running.proxy, "/a", "a.example")
    running.end()
    lines = running.out.splitlines()
    assert all('"origin http://127.0.0.1:1 at ' in line for line in lines)


def test_each_line_of_standard_error_has_time_and_level(start_with, ask, tmp_path):
    running = start_with(SITE.replace("@", "http://127.0.0.1:1") + "[sites.origin]\nfails = 1\n")
    ask(running.proxy, "/a", "a.example")
    (tmp_path / "univocal.toml").write_text("[server]\nlisten = 3\n")
    running.process.send_signal(1)
    running.process.stderr.readline()
    running.end()
    lines = (running.said + running.err).splitlines()
    assert [line for line in lines if not STAMPED.fullmatch(line)] == []
    assert {STAMPED.fullmatch(line)[1] for line in lines} >= {"INFO"}


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "5xx.html").write_text("<h1>ours</h1>")
    (folder / "400-encoded-slash.html").write_text("<h1>slash</h1>")
    (folder / "style.css").write_text("")
    return folder


GONE = SITE.replace("@", "http://127.0.0.1:1")
HTML = "Accept: text/html,*/*;q=0.8\r\n"


def test_error_pages_are_for_those_who_like_html(serve, ask, pages):
    running = serve('error_pages = "pages"\n', GONE)
    page = ask(running.proxy, "/", "a.example", fields=HTML)
    assert (page.status, page.body, page.value("Content-Type")) == (
        502,
        b"<h1>ours</h1>",
        "text/html; charset=utf-8",
    )
    assert page.value("Cache-Control") == "no-store"
    head = ask(running.proxy, "/", "a.example", "HEAD", fields=HTML)
    assert (head.status, head.body, head.value("Content-Length")) == (502, b"", "13")
    problem = ask(running.proxy, "/", "a.example")
    assert (problem.status, problem.value("Content-Type")) == (502, "application/problem+json")
    assert ask(running.proxy, "/a%2Fb", "a.example", fields=HTML).body == b"<h1>slash</h1>"
    assert b"<h1>" in ask(running.proxy, "/%00", "a.example", fields=HTML).body  # univocal's own page


def test_a_route_has_pages_of_its_own(serve, ask, pages, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "400.html").write_text("the shop's")
    route = '[[sites.routes]]\npath = "/shop/"\nerror_pages = "shop"\n'
    running = serve('error_pages = "pages"\n', GONE + route)
    assert ask(running.proxy, "/a%2Fb", "a.example", fields=HTML).body == b"<h1>slash</h1>"
    assert ask(running.proxy, "/shop/%00", "a.example", fields=HTML).body == b"the shop's"
    assert ask(running.proxy, "/%73hop/x/../%00", "a.example", fields=HTML).body == b"the shop's"
    assert ask(running.proxy, "/shop/a%2Fb", "a.example", fields=HTML).body == b"<h1>slash</h1>"
    assert ask(running.proxy, "/shop/", "a.example", fields=HTML).body == b"<h1>ours</h1>"
    (tmp_path / "shop" / "400.html").write_text("new")
    assert "sites[0].routes[0].error_pages" in running.reload()[1]["changed"]
    assert ask(running.proxy, "/shop/%00", "a.example", fields=HTML).body == b"new"


def test_a_reload_reads_the_pages_again(serve, ask, pages):
    running = serve('error_pages = "pages"\n', GONE)
    (pages / "5xx.html").write_text("new")
    assert running.reload()[1]["changed"] == ["server.error_pages"]
    assert ask(running.proxy, "/", "a.example", fields=HTML).body == b"new"


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="needs logrotate (Debian package logrotate)")
def test_logrotate_goes_on_in_a_new_file(start_with, origin, ask, tmp_path, root):
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    log = f'access_log = "{logs}/access.log"\naccess_log_format = "{{target}}"\n'
    running = start_with(log + SITE.replace("@", origin.url))
    ask(running.proxy, "/before%2", "a.example")  # a refusal is written at once
    text = (root / "deploy" / "logrotate" / "univocal").read_text()
    text = text.replace("/var/log/univocal/", f"{logs}/")
    text, count = re.subn(r"systemctl kill .*", f"kill -USR1 {running.process.pid}", text)
    assert count == 1
    (tmp_path / "rotate").write_text(text)
    subprocess.run(["logrotate", "--force", "--state", tmp_path / "state", tmp_path / "rotate"], check=True)
    until((logs / "access.log").exists)
    ask(running.proxy, "/after%2", "a.example")
    assert (logs / "access.log.1").read_text() == "/before%2\n"
    assert (logs / "access.log").read_text() == "/after%2\n"
