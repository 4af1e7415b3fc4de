"""`GET /-/purge-misses`: purges that removed nothing, and the stored pages that resemble what they named."""

import pytest

from examples import cases
from tests.integration.app.conftest import before_admin, client
from univocal import Outcome
from univocal.engine.outcome import Purged, Times
from univocal.judge.orders import order_by_name
from univocal_app.config.tables import validate
from univocal_app.observe import purge_misses as module
from univocal_app.observe.purge_misses import Missed, PurgeMisses, neighbours
from univocal_app.run.configured import runtime_of

HOSTS = ["en.example", "www.en.example"]
CONFIGURATION = validate(
    {"sites": [{"hosts": HOSTS, "profile": "rfc3986", "upstream": "http://127.0.0.1:1"}]}, "univocal.toml"
)
RUNTIME = runtime_of(CONFIGURATION)


@pytest.fixture
def stack():
    return before_admin(CONFIGURATION)


async def ask(app, url, method="GET"):
    async with client(app) as browser:
        assert (await browser.request(method, url)).status_code == 200


async def shown(app):
    async with client(app) as operator:
        answer = await operator.get("/-/purge-misses")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    return [{name: value for name, value in each.items() if name != "at"} for each in answer.json()]


async def test_a_vain_purge_shows_a_similar_stored_name(proxy, application):
    await ask(proxy, "http://www.en.example/post")
    await ask(proxy, "http://en.example/Post/?page=2")
    await ask(proxy, "http://en.example/other")
    await ask(proxy, "http://en.example/post/", "PURGE")
    await ask(proxy, "http://en.example/post/", "PURGE")
    assert await shown(application) == [
        {
            "by": "url",
            "value": "http://en.example/post/",
            "count": 2,
            "neighbours": [
                {"url": "http://www.en.example/post", "differs": ["host", "path"], "stored": 1},
                {"url": "http://en.example/Post/?page=2", "differs": ["path", "query"], "stored": 1},
            ],
        }
    ]


async def test_a_url_that_is_not_stored_is_no_neighbour(proxy, application):
    await ask(proxy, "http://www.en.example/never")
    await ask(proxy, "http://en.example/never", "PURGE")
    await ask(proxy, "http://en.example/gone?a")
    await ask(proxy, "http://en.example/gone?a", "PURGE")  # this one removed something
    await ask(proxy, "http://en.example/gone", "PURGE")
    assert [(each["value"], each["neighbours"]) for each in await shown(application)] == [
        ("http://en.example/gone", []),
        ("http://en.example/never", []),
    ]


async def test_tags_and_prefixes_and_many_urls(proxy, application):
    await ask(proxy, "http://en.example/Blog/one")
    asked = [
        {"tag": "<b>post-7</b>"},
        {"prefix": "http://www.en.example/blog/"},
        {"urls": ["http://en.example/x", "http://en.example/y"]},
        {"all": True},
    ]
    async with client(application) as operator:
        for each in asked[:3]:
            assert (await operator.post("/-/purge", json=each)).json()["purged"] == 0
    told = {(each["by"], each["value"]): each["neighbours"] for each in await shown(application)}
    assert set(told) == {
        ("tag", "<b>post-7</b>"),
        ("prefix", "http://www.en.example/blog/"),
        ("url", "http://en.example/x"),
        ("url", "http://en.example/y"),
    }
    (found,) = told["prefix", "http://www.en.example/blog/"]
    assert (found["url"], found["differs"]) == ("http://en.example/Blog/one", ["host", "path"])


@cases(
    "missed, stored, differs",
    ("http://a.example/p", "http a.example /p?x", ("query",)),
    ("http://a.example/p", "https b.example /p", ("host",)),
    ("http://a.example/p", "http a.example:8080 /p", ("host",)),
    ("http://a.example/p", "http a.example /P", ("path",)),
    ("http://a.example/p", "http a.example /p/", ("path",)),
    ("http://a.example/p/", "http a.example /p/index.html", ("path",)),
    ("http://a.example/p/q", "http a.example //p//q", ("path",)),
    ("http://a.example/p(q)", "http a.example /p%28q%29", ("path",)),
    ("http://a.example/", "http a.example /index.php?a", ("path", "query")),
    ("http://a.example/p", "https a.example /p", None),  # a purge means both schemes
    ("http://a.example/p", "http a.example /pq", None),
    ("http://a.example/p", "http a.example /p/q", None),
)
def test_a_neighbour_differs_in_query_host_or_path(missed, stored, differs):
    each = Missed("url", missed, 1, 0)
    found = neighbours([each], [b"digest " + stored.encode()])[each]
    assert [one.differs for one in found] == ([] if differs is None else [differs])


def missing(by, name):
    order = order_by_name({by: name}, RUNTIME)
    return Outcome.ordered(Purged(order, 0), Times(0.0, 0.0, 0.0))


async def test_the_names_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST", 5)
    misses = PurgeMisses(clock=lambda: 7.0)
    for number in range(50):
        misses(missing("tag", f"t{number}"))
        misses(missing("tag", "often"))
    misses(missing("tag", "x" * 1000))
    found = await misses.last(100)
    assert len(found) == 5
    assert Missed("tag", "often", 50, 7) in found
    assert all(len(each.name) < 10 for each in found)


async def test_successful_and_unconfirmed_purges_are_no_misses():
    misses = PurgeMisses()
    for count in (1, None):
        order = order_by_name({"tag": "a"}, RUNTIME)
        misses(Outcome.ordered(Purged(order, count), Times(0.0, 0.0, 0.0)))
    misses(missing("all", True))
    assert await misses.last(10) == []
