"""The ways of one response: each state, the states that may follow it, and the response stored in the end."""

import pytest

from examples import cases
from neighbours import FRESH, Proxy
from univocal.cache.decide import Forward, Validate
from univocal.engine.recording import Kept, Mismatched, Recording
from univocal.http.messages import Response
from univocal.store.memory import MemoryStore

TAGGED = [*FRESH, (b"etag", b'"1"')]
OTHER = [*FRESH, (b"etag", b'"2"')]


def nothing(*_):
    pass


def part(first, last, fields=TAGGED):
    return Response(206, [*fields, (b"content-range", b"bytes %d-%d/10" % (first, last))])


def recorded(proxy, *fields, method=b"GET"):
    return Recording(proxy.tiers, proxy.admit(b"/a", method, *fields), proxy.clock)


def answer(begun, response):
    """Take a response's head, as a flight does."""
    if isinstance(begun.decision, Validate):
        begun.validate(begun.decision, response, nothing)
    else:
        begun.assess(response)


def end(begun):
    """Take a response's end, as a flight does."""
    if isinstance(begun.state, Kept):
        begun.finish(begun.state.storing)


@pytest.fixture
def proxy():
    """A proxy that has stored nothing."""
    return Proxy()


@pytest.fixture
def stale(proxy):
    """A whole response is stored, and may not be served."""
    proxy.store_away(b"0123456789", fields=TAGGED)
    proxy.purge(soft=True)
    return proxy


# The states


def test_a_304_for_a_purged_response_is_a_mismatch(stale):
    begun = recorded(stale)
    stale.purge()
    answer(begun, Response(304, TAGGED))
    assert isinstance(begun.state, Mismatched)


def completing(most):
    """A proxy with a stored part, and a request for the rest, of which so many bytes may be stored."""
    proxy = Proxy(store=MemoryStore(max_object_bytes=most))
    proxy.ask(b"/a", b"GET", (b"range", b"bytes=0-4"))
    proxy.origin.last.answers(b"01234", status=206, fields=part(0, 4).fields)
    return proxy, recorded(proxy)


def test_a_completion_that_is_too_large_is_a_mismatch():
    _, begun = completing(2000)
    answer(begun, part(5, 9))
    assert not begun.write(bytes(3000))
    assert isinstance(begun.state, Mismatched)


# Once more


def test_a_discarded_parts_room_is_there_for_the_whole():
    """Half of what one response may take, twice: first the part that is of no use, then all of it."""
    proxy, begun = completing(4000)
    answer(begun, part(5, 9, OTHER))
    assert begun.write(bytes(2500))
    begun.complete(begun.state, nothing)
    assert isinstance(begun.state, Mismatched)
    begun.restart(Forward("partial", may_store=True, fallback=None))
    assert proxy.store.stats.reserved == 0
    answer(begun, Response(200, OTHER))
    assert begun.write(bytes(2500))
    end(begun)
    assert proxy.stored() == [bytes(2500)]


# Purges meanwhile


@pytest.mark.parametrize(("comes_last", "left"), [(True, []), (False, [b"new"])])
def test_a_purged_answer_that_comes_last_removes_the_stored_response(proxy, comes_last, left):
    """It was asked for before the purge, and what is stored after it; its answer came last, or not."""
    purged = recorded(proxy)
    proxy.purge()
    fetched = recorded(proxy)
    for begun in (fetched, purged) if comes_last else (purged, fetched):
        answer(begun, Response(200, FRESH))
        proxy.clock.now += 1
    for begun, content in ((fetched, b"new"), (purged, b"old")):
        begun.write(content)
        end(begun)
    assert proxy.stored() == left


# HEAD (RFC 9111 §4.3.5)


@cases(
    "fields, left",
    ([*TAGGED, (b"content-length", b"10")], "fresh"),
    (OTHER, "gone"),
    ([(b"cache-control", b"max-age=60")], "gone"),
    ([*TAGGED, (b"cache-control", b"no-store")], "gone"),
)
def test_a_head_freshens_what_a_get_stored_or_ends_it(stale, fields, left):
    begun = recorded(stale, method=b"HEAD")
    answer(begun, Response(200, fields))
    end(begun)
    found = [one for one in stale.store.lookup(stale.key()) if one.whole]
    assert bool(found) is (left != "gone")
    assert not found or (found[0].fresh_until > stale.clock()) is (left == "fresh")


def test_one_clients_own_head_teaches_nothing(stale):
    begun = recorded(stale, (b"cookie", b"a=b"), method=b"HEAD")
    answer(begun, Response(200, OTHER))
    assert stale.stored() == [b"0123456789"]


@pytest.mark.parametrize("length", [[], [(b"content-length", b"10")]], ids=["unannounced", "announced"])
def test_content_is_not_kept_past_a_shortage_of_memory(proxy, length):
    begun = recorded(proxy)
    answer(begun, Response(200, [*FRESH, *length]))
    assert begun.write(b"01234")
    proxy.tiers.memory.relieve()
    assert not begun.write(b"56789")
    assert (begun.chunks, begun.unstorable) == ([], "no-room")
    again = recorded(proxy)
    answer(again, Response(200, [*FRESH, *length]))
    assert again.write(b"0123456789")
