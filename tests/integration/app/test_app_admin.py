"""The admin listener: what it shows, and whose purges it carries out."""

import json

import httpx
import pytest

from examples import cases
from tests.integration.app.conftest import before_admin, client
from univocal_app.config.tables import validate
from univocal_app.observe import admin_views
from univocal_app.observe.log_lines import as_json

SETTINGS = {
    "server": {
        "admin_hosts": ["localhost", "cache.example"],
        "admin_read": ["192.0.2.7"],
        "admin_read_token_env": "READING",
    },
    "sites": [{"hosts": ["en.example"], "profile": "mediawiki", "upstream": "http://127.0.0.1:1"}],
}


@pytest.fixture
def heard():
    """Every Outcome."""
    return []


@pytest.fixture
async def stack(heard, monkeypatch):
    """The proxy with four stored responses, and its admin application."""
    monkeypatch.setenv("UNIVOCAL_PURGE_TOKEN", "s3cret")
    monkeypatch.setenv("READING", "r3ad")
    monkeypatch.setattr(admin_views, "_discovered", lambda counted: b"{}")  # a process for each request
    configuration = validate(SETTINGS, "univocal.toml")
    proxy, application = before_admin(configuration, heard.append)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy)) as browser:
        for path in ("/wiki/A", "/wiki/B/C", "/w/D", "/w/E"):
            await browser.get(f"http://en.example{path}")
            await browser.get(f"http://en.example{path}")
    assert proxy.store.stats.entries == 4
    heard.clear()
    return proxy, application


@cases(
    "asked, told, left",
    ({"url": "http://en.example/wiki/B%2fC"}, {"purged": 1, "key": "http://en.example/wiki/B/C"}, 3),
    ({"url": "https://EN.example.:443/w/%44"}, {"purged": 1, "key": "https://en.example/w/D"}, 3),
    ({"urls": ["http://en.example/w/D", "http://en.example/w/E", "http://en.example/w/F"]}, {"purged": 2}, 2),
    ({"prefix": "http://en.example/wik%69/"}, {"purged": 2, "by": "prefix"}, 2),
    ({"tag": "article"}, {"purged": 4, "by": "tag", "value": "article"}, 0),
    ({"tag": "other"}, {"purged": 0, "by": "tag", "value": "other"}, 4),
    ({"all": True}, {"purged": 4, "by": "all"}, 0),
    ({"all": True, "soft": True}, {"softened": 4, "by": "all"}, 4),
)
async def test_each_kind_of_purge_is_foreseen_and_carried_out(proxy, application, asked, told, left):
    async with client(application) as browser:
        foreseen = await browser.post("/-/purge/preview", json=asked)
        assert proxy.store.stats.entries == 4
        answer = await browser.post("/-/purge", json=asked)
    assert answer.status_code == 200
    assert told.items() <= answer.json().items()
    assert proxy.store.stats.entries == left
    purged = answer.json()
    count = purged.pop("softened" if "soft" in asked else "purged")
    assert foreseen.status_code == 200
    assert foreseen.json() == {"would_purge": count, **purged}


@cases(
    "content, status, said",
    (b"", 400, None),
    (b"[]", 400, None),
    (b"{}", 400, None),
    (b"\xff", 400, None),
    (b"[" * 100_000, 400, None),
    (b'{"url": "http://en.example/", "tag": "a"}', 400, None),
    (b'{"url": 3}', 400, None),
    (b'{"soft": true}', 400, None),
    (b'{"all": true, "soft": 1}', 400, None),
    (b'{"url": "/wiki/A"}', 400, "bad-target"),
    (b'{"url": "http://en.example/wiki/%00"}', 400, "control-character"),
    (b'{"url": "http://other.example/"}', 421, "unknown-host"),
    (b'{"url": "' + b"a" * 5_000_000 + b'"}', 413, "body-too-large"),
)
@pytest.mark.parametrize("path", ["/-/purge", "/-/purge/preview"])
async def test_an_invalid_purge_removes_nothing(proxy, application, path, content, status, said):
    async with client(application) as browser:
        answer = await browser.post(path, content=content)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().get("reason") == said
    assert proxy.store.stats.entries == 4


async def test_nobody_foresees_how_many_a_pattern_means(proxy, application, heard):
    pytest.importorskip("re2")
    async with client(application) as browser:
        answer = await browser.post("/-/purge/preview", json={"pattern": "/wiki/"})
    assert answer.status_code == 400
    assert "nobody knows beforehand" in answer.json()["detail"]
    assert heard == []
    assert proxy.store.stats.entries == 4


async def test_undecodable_content_is_not_repeated(application):
    async with client(application) as browser:
        answer = await browser.post("/-/purge", content=b'{"url": "\xfe"}')
    assert answer.json()["detail"] == "the content is not in a Unicode encoding"


@cases(
    "peer, fields, status",
    ("127.0.0.1", {}, 200),
    ("192.0.2.1", {}, 403),
    ("192.0.2.1", {"authorization": "Bearer s3cret"}, 200),
    ("192.0.2.1", {"authorization": "Bearer s3cre"}, 403),
    ("192.0.2.1", {"x-forwarded-for": "127.0.0.1"}, 403),
    ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, 403),  # loopback is a trusted proxy, and says for whom
    ("127.0.0.1", {"origin": "http://evil.example"}, 403),  # another site's page
    ("127.0.0.1", {"origin": "null"}, 403),
    ("127.0.0.1", {"origin": "http://evil.example", "host": "evil.example"}, 403),  # a name pointed here
    ("127.0.0.1", {"origin": "http://127.0.0.1:8081"}, 200),
    ("127.0.0.1", {"origin": "http://localhost:8081", "host": "localhost:8081"}, 200),
    ("::1", {"origin": "http://[::1]:8081", "at": "[::1]:8081"}, 200),
    ("::1", {"origin": "http://[::1]", "host": "[::1]", "at": "[::1]:8081"}, 200),
)
async def test_the_admin_listener_refuses_purges_without_rights(proxy, application, peer, fields, status):
    async with client(application, peer, **fields) as browser:
        foreseen = await browser.post("/-/purge/preview", json={"all": True})
        answer = await browser.post("/-/purge", json={"all": True})
    assert (foreseen.status_code, answer.status_code) == (status, status)
    assert proxy.store.stats.entries == (0 if status == 200 else 4)


@cases(
    "asked, by, names, count",
    ({"url": "http://en.example/w/%44"}, "key", ["http://en.example/w/D"], 1),
    (
        {"urls": ["http://en.example/w/%44", "http://en.example/w/F"]},
        "urls",
        ["http://en.example/w/D", "http://en.example/w/F"],
        1,
    ),
    ({"prefix": "http://en.example/wiki/"}, "prefix", ["http://en.example/wiki/"], 2),
    ({"tag": "two words"}, "tag", ["two words"], 0),
    ({"all": True}, "all", ["*"], 4),
)
async def test_an_audit_line_for_every_purge(application, heard, asked, by, names, count):
    async with client(application, "192.0.2.1", authorization="Bearer s3cret") as browser:
        await browser.post("/-/purge", json=asked)
    (outcome,) = heard
    assert (outcome.client, outcome.status) == ("192.0.2.1", 200)
    line = json.loads(as_json(outcome))
    assert (line["method"], line["target"]) == ("POST", "/-/purge")
    assert line["purge"] == {"by": by, "names": names, "soft": False, "count": count}


@cases(
    "peer, content, status",
    ("192.0.2.1", b'{"all": true}', 403),
    ("127.0.0.1", b"{}", 400),
    ("127.0.0.1", b'{"url": "/"}', 400),
)
async def test_an_audit_line_for_every_purge_that_is_refused(application, heard, peer, content, status):
    async with client(application, peer) as browser:
        await browser.post("/-/purge", content=content)
    (outcome,) = heard
    assert (outcome.client, outcome.status, outcome.purged) == (peer, status, None)


@cases(
    "peer, content, status",
    ("127.0.0.1", b'{"all": true}', 200),
    ("127.0.0.1", b"{}", 400),
    ("192.0.2.1", b'{"all": true}', 403),
)
async def test_audit_lines_name_the_agent_and_the_request(application, heard, peer, content, status):
    fields = {"user-agent": "script/1", "referer": "http://from/", "x-request-id": "front-7"}
    async with client(application, peer, **fields) as browser:
        problem = await browser.post("/-/purge", content=content)
        page = await browser.post("/-/purge", content=content, headers={"accept": "text/html"})
    lines = [json.loads(as_json(outcome)) for outcome in heard]
    assert [line["status"] for line in lines] == [problem.status_code, page.status_code] == [status] * 2
    assert {(line["user_agent"], line["referrer"]) for line in lines} == {("script/1", "http://from/")}
    assert all((line["request_id"] == "front-7") is (peer == "127.0.0.1") for line in lines)
    if status != 200:
        assert problem.json()["request_id"] == lines[0]["request_id"]
        assert f"<code>{lines[1]['request_id']}</code>" in page.text


@pytest.mark.parametrize("method", ["PURGE", "BAN"])
async def test_the_methods_work_here_too(proxy, application, heard, method):
    if method == "BAN":
        pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    async with client(application) as browser:
        answer = await browser.request(method, "/wiki/A", headers={"host": "en.example"})
        await browser.request(method, "/-/health", headers={"host": "en.example"})
        elsewhere = await browser.request(method, "/wiki/A")
    assert answer.status_code == 200
    assert elsewhere.json()["reason"] == "unknown-host"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy)) as browser:
        missed = await browser.get("http://en.example/wiki/A")
    assert "fwd=uri-miss" in missed.headers["cache-status"]
    assert heard[0].purged is not None


async def test_the_admin_listener_shows_health_and_configuration(application):
    async with client(application, "192.0.2.1") as browser:
        health, ready = await browser.get("/-/health"), await browser.get("/-/ready")
    async with client(application) as browser:
        shown, metrics = await browser.get("/-/config"), await browser.get("/metrics")
        missing, wrong = await browser.get("/-/none"), await browser.get("/-/purge")
    assert (health.status_code, health.text, ready.status_code, ready.text) == (200, "ok\n", 200, "ready\n")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert shown.json()["sites"][0]["upstream"] == "http://127.0.0.1:1"
    assert shown.json()["server"]["listen"] == "127.0.0.1:8080"
    assert "s3cret" not in shown.text
    assert validate(SETTINGS, "f").model_dump(mode="json") == json.loads(shown.text)
    assert all(answer.headers["cache-control"] == "no-store" for answer in (health, ready, shown, metrics))


@cases(
    "method, path, status",
    ("GET", "/-/none", 404),
    ("GET", "/-/purge", 405),
    ("DELETE", "/-/stats", 405),
    ("GET", "/-/top?by=none", 400),
    ("GET", "/-/events?status=x", 400),
    ("GET", "/-/explain?url=%3Cb%3E", 400),
    ("POST", "/-/purge", 400),
    ("POST", "/-/purge/preview", 400),
)
async def test_an_error_is_a_problem_or_a_browser_page(application, method, path, status):
    async with client(application) as browser:
        problem = await browser.request(method, path)
        page = await browser.request(method, path, headers={"accept": "text/html,*/*;q=0.8"})
    assert problem.status_code == page.status_code == status
    assert problem.headers["content-type"] == "application/problem+json"
    assert problem.json()["status"] == status
    assert problem.json()["detail"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<h1>{status} " in page.text
    assert "<b>" not in page.text
    assert problem.headers["vary"] == page.headers["vary"] == "Accept"
    assert problem.headers.get("allow") == page.headers.get("allow")
    assert ("allow" in page.headers) == (status == 405)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "same-origin"])
async def test_another_sites_page_may_not_purge_reload_or_read(proxy, application, site):
    permitted = site in {"none", "same-origin"}
    fields = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "content-type": "text/plain"}
    async with client(application, **fields) as browser:
        named = {"content": b'{"url": "http://en.example/wiki/A"}'}
        for method, path, more in (
            ("GET", "/-/discover", {}),
            ("POST", "/-/reload", {}),
            ("POST", "/-/purge/preview", named),
            ("POST", "/-/purge", named),
        ):
            answer = await browser.request(method, path, **more)
            assert answer.status_code == (200 if permitted else 403), path
        link = await browser.get("/", headers={"sec-fetch-mode": "navigate"})
        frame = await browser.get("/-/discover", headers={"sec-fetch-mode": "navigate"})
        form = await browser.post("/-/reload", headers={"sec-fetch-mode": "navigate"})
    assert proxy.store.stats.entries == (3 if permitted else 4)
    assert link.status_code == 200  # a link on that page
    assert (frame.status_code, form.status_code) == ((200, 200) if permitted else (403, 403))


async def test_the_page_may_purge_under_a_name_that_is_configured(application):
    for host, permitted in (("cache.example:8081", True), ("other.example:8081", False)):
        async with client(application, host=host, origin=f"http://{host}") as browser:
            answer = await browser.post("/-/purge", json={"url": "http://en.example/wiki/A"})
        assert answer.status_code == (200 if permitted else 403)


@pytest.mark.parametrize("path", ["/-/config", "/metrics", "/-/stats", "/-/top", "/-/discover", "/-/none"])
async def test_nothing_else_is_shown_to_who_may_not_purge(application, path):
    for peer, fields, permitted in (
        ("192.0.2.1", {}, False),
        ("192.0.2.1", {"authorization": "Bearer s3cre"}, False),
        ("192.0.2.1", {"authorization": "Bearer s3cret"}, True),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, False),
        ("127.0.0.1", {"origin": "http://evil.example"}, False),
        ("127.0.0.1", {}, True),
    ):
        async with client(application, peer, **fields) as browser:
            answer = await browser.get(path)
            assert (answer.status_code == 403) is not permitted
            if not permitted:
                assert answer.json()["reason"] == "purge-forbidden"


@cases(
    "peer, fields, reads",
    ("192.0.2.7", {}, True),
    ("192.0.2.8", {}, False),
    ("192.0.2.8", {"authorization": "Bearer r3ad"}, True),
    ("192.0.2.8", {"authorization": "Bearer r3a"}, False),
    ("192.0.2.7", {"origin": "http://evil.example"}, False),
    ("192.0.2.7", {"x-forwarded-for": "127.0.0.1"}, False),
)
async def test_a_right_to_read_changes_nothing(application, peer, fields, reads):
    async with client(application, peer, **fields) as reader:
        for path in ("/metrics", "/-/stats", "/-/top?by=requests", "/-/config", "/"):
            assert ((await reader.get(path)).status_code == 200) is reads
        for path in ("/-/purge", "/-/purge/preview", "/-/reload", "/-/origins/drain"):
            assert (await reader.post(path, json={"all": True})).status_code == 403
        assert (await reader.request("PURGE", "/")).status_code == 403
        assert (await reader.get("/-/discover")).status_code == 403
