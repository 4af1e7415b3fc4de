"""Wagtail's frontend cache module, its HTTP backend as it is: what an editor publishes, readers see."""

import pytest

from examples import cases
from tests.ports import free_port

pytest.importorskip("wagtail", reason="needs Wagtail (univocal[clients])")


@pytest.fixture(scope="module")
def wagtail(serve, site, tmp_path_factory):
    """The proxy, and the origin where the editor works."""
    port = free_port()
    proxy = serve(port, "asgi")
    database = tmp_path_factory.mktemp("wagtail") / "site.sqlite"
    return proxy, site(port, "wagtail_site", str(proxy.front), str(database))


@cases(
    "slug, spellings",
    ("news", ["/news/", "/%6Eews/", "/n%65ws/"]),
    ("caf%C3%A9", ["/caf%C3%A9/", "/caf%c3%a9/", "/c%61f%C3%A9/"]),
)
def test_a_published_page_is_seen_in_every_spelling(wagtail, slug, spellings):
    proxy, editors = wagtail
    for number, spelling in enumerate(spellings):
        before = proxy.front.ask(spelling).text
        assert ["hit" in proxy.front.ask(other).cache for other in spellings] == [True] * 3
        assert editors.ask(f"/editor/{slug}/", "POST", body=f"published {number}").status == 204
        assert proxy.front.ask(spelling).text == f"published {number}" != before
    told = proxy.purges[-1]
    assert (told["client"], told["status"], told["purge"]["count"]) == ("127.0.0.1", 200, 1)
    assert told["purge"]["names"] == [f"http://en.example/{slug}/"]


def test_an_unpublished_page_is_gone(wagtail):
    proxy, editors = wagtail
    assert [proxy.front.ask("/news/").status for _ in range(2)] == [200, 200]
    editors.ask("/editor/news/", "POST")
    assert proxy.front.ask("/news/").status == 404
