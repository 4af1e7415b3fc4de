"""A Django project behind `univocal serve`, and with the middleware mounted; its views purge."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from examples import examples
from tests.ports import free_port

pytest.importorskip("django", reason="needs Django (univocal[clients])")

SPELLINGS = ["/books/A(b)", "/books/A%28b%29", "/%62ooks/A(b%29"]


@pytest.fixture(scope="module", params=["behind", "mounted"])
def places(request, site, serve):
    """The servers that readers and that editors ask."""
    port = free_port()
    if request.param == "mounted":
        mounted = site(port, "django_site")
        return mounted, mounted
    proxy = serve(port, "asgi")
    return proxy.front, site(port, "django_site", str(proxy.front))


def test_a_book_is_one_resource_until_it_is_edited(places):
    front, editors = places
    answers = [front.ask(spelling) for spelling in SPELLINGS]
    assert {answer.text for answer in answers} == {"A(b) by Ursula: no text"}
    assert ["hit" in answer.cache for answer in answers] == [False, True, True]
    front.ask("/books/other")
    assert editors.ask("/editor/books/A%28b)", "POST", body="second").status == 204
    assert front.ask(SPELLINGS[2]).text == "A(b) by Ursula: second"
    assert "hit" in front.ask("/books/other").cache


def test_a_purge_reaches_every_variant(places):
    front, editors = places
    for tongue in ("en", "ru"):
        front.ask("/books/v", Accept_Language=tongue)
        assert "hit" in front.ask("/books/v", Accept_Language=tongue).cache
    editors.ask("/editor/books/v", "POST", body="second")
    for tongue in ("en", "ru"):
        assert front.ask("/books/v", Accept_Language=tongue).text.endswith("second")


def test_pages_with_a_shared_tag_are_purged_together(places):
    front, editors = places
    for title in ("x", "y"):
        front.ask(f"/books/{title}")
    editors.ask("/editor/author", "POST", body="U. K. L. G.")
    assert [front.ask(f"/books/{title}").text for title in "xy"] == [
        f"{title} by U. K. L. G.: no text" for title in "xy"
    ]


def test_an_unsafe_method_invalidates_what_it_changes(places):
    front, _ = places
    front.ask("/books/p")
    assert front.ask("/books/%70", "PUT", body="put").status == 204
    assert front.ask("/books/p").text.endswith(": put")


def test_no_page_is_older_than_a_commit(places):
    """With ATOMIC_REQUESTS: others read while a transaction is under way, and one in three is rolled back."""
    front, _ = places
    ended = Event()

    def read():
        hits = 0
        while not ended.is_set():
            hits += "hit" in front.ask("/note").cache
        return hits

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            kept = "0"
            for number in range(1, 1 + examples(30, 2)):
                fails = number % 3 == 0
                assert front.ask("/note?fails" if fails else "/note", "POST", body=str(number)).status == (
                    500 if fails else 200
                )
                kept = kept if fails else str(number)
                assert [front.ask("/note").text for _ in range(2)] == [kept] * 2
        finally:
            ended.set()
        assert sum(reader.result() for reader in readers)


def test_a_streamed_page_is_stored_and_an_etag_validates(places):
    front, _ = places
    assert front.ask("/export").text == "line 0\nline 1\nline 2\n"
    assert "hit" in front.ask("/export").cache
    first = front.ask("/books/e")
    assert front.ask("/books/e", If_None_Match=first.fields["etag"]).status == 304


def test_a_304_with_a_shorter_vary_destroys_no_variant(places):
    """GZipMiddleware names Accept-Encoding in a 200 alone: it never sees the content of a 304."""
    front, _ = places
    clients = [("gzip", "de"), ("identity", "de"), ("gzip", "fr"), ("identity", "fr")]
    for _ in range(3):
        for coding, language in clients:
            answer = front.ask("/news", Accept_Encoding=coding, Accept_Language=language)
            assert answer.fields.get("content-encoding", "identity") == coding
            if coding == "identity":
                assert answer.text.startswith(f"{language} news")
            names = {name.strip().lower() for name in answer.fields["vary"].split(",")}
            assert names == {"accept-encoding", "accept-language"}
    assert "304" in front.ask("/news", Accept_Encoding="gzip", Accept_Language="de").cache
