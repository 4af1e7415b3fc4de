"""Bans: patterns that work lazily, are bounded, and win over what is being fetched."""

import pytest

from examples import examples
from support import LONG_URL, put, store_long_urls, stored_response
from univocal.store.leases import MOST_LISTED
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Pattern, Prefix, url_of

NOW = 1_000_000.0


def key_of(path, host="en.example"):
    return f"d http {host} {path}".encode()


def stored_at(path, vary=""):
    fields = [(b"etag", b'"1"'), *([(b"vary", b"foo")] if vary else [])]
    request = [(b"foo", vary.encode())] if vary else []
    return stored_response(*fields, name=key_of(path), request=request, at=NOW)


def keep(store, *paths):
    assert all(put(store, stored_at(path)) for path in paths)


def pattern(text, *, soft=False, steps=1):
    return Pattern(text.decode(), lambda url: text in url, soft, steps)


SLOW = 20  # steps of a pattern by which a sweep tests one long URL at most


@pytest.fixture
def busy():
    """A store with so much in it that sweeps by slow patterns do not come to what is stored from now on."""
    store = MemoryStore()
    store_long_urls(store, MOST_LISTED + 10)
    return store


def held(store, *paths):
    return [path for path in paths if store.lookup(key_of(path))]


def test_a_sweep_tests_everything_and_forgets_the_bans():
    store = MemoryStore()
    keep(store, *(f"/{number}" for number in range(10)))
    store.purge(pattern(b"/7"), NOW)
    store.sweep(1)
    assert store.stats.bans == 1
    store.sweep()
    assert (store.stats.bans, store.stats.entries) == (0, 9)


def test_a_sweep_can_be_done_in_the_smallest_slices():
    store = MemoryStore()
    keep(store, *(f"/{number}" for number in range(10)))
    for number in range(20):
        store.purge(pattern(b"example/%d" % number), NOW)
    slices = 0
    while store.stats.bans:
        store.sweep(1)
        slices += 1
    assert store.stats.entries == 0
    assert slices < 1_000


def test_a_ban_set_during_a_sweep_outlives_it():
    store = MemoryStore()
    keep(store, *(f"/{number}" for number in range(10)))
    store.purge(pattern(b"/7"), NOW)
    for _ in range(4):
        store.sweep(1)
    store.purge(pattern(b"/0"), NOW)
    while store.stats.bans:
        store.sweep(1)
    assert held(store, "/0", "/7", "/1") == ["/1"]
    assert store.stats.entries == 8


def test_a_purge_that_is_given_up_is_in_force():
    store, paths = MemoryStore(), [f"/{number}" for number in range(1_000)]
    keep(store, *paths)
    for _ in range(2):
        slices = store.purging(Prefix(frozenset((b"http en.example /",))), NOW)
        assert next(slices) < len(paths)
        slices.close()
        assert held(store, *paths) == []
        keep(store, *paths)
    store.sweep()
    assert (store.stats.bans, store.stats.entries) == (0, len(paths))


def test_live_bans_are_bounded_and_none_is_lost():
    store = MemoryStore()
    keep(store, "/0", "/keep")
    for number in range(MOST_LISTED + 10):
        store.purge(pattern(b"example/%d" % number), NOW)
        assert store.stats.bans <= MOST_LISTED
    assert held(store, "/0", "/keep") == ["/keep"]


def test_repeated_bans_during_a_sweep_stay_bounded():
    store = MemoryStore()
    keep(store, *(f"/{number}" for number in range(40)))
    texts = [b"/ban/%d" % number for number in range(MOST_LISTED)]
    for text in [*texts, *texts, *texts, b"/one more", b"/and another"]:
        store.purge(pattern(text), NOW)
        assert store.stats.bans <= MOST_LISTED
        if text == texts[-1]:
            keep(store, "/new")  # a round of the sweep begins


class Counting:
    """A pattern that is found nowhere and counts the steps it takes."""

    def __init__(self, steps=20):
        self.tried, self.steps = 0, steps

    def __call__(self, number):
        def search(url):
            if LONG_URL not in url:
                self.tried += self.steps * len(url)
            return False

        return Pattern(str(number), search, steps=self.steps)


# Shorter URLs and cheaper patterns come nowhere near the bounds, however much of a sweep one call does.
@pytest.mark.parametrize(("steps", "length"), [(20, 5_000), (1_000, 500)])
def test_no_call_works_for_long(steps, length):
    store, made, most = MemoryStore(), Counting(steps), 0
    paths = [f"/{number:0{length}}" for number in range(examples(500))]
    keep(store, *paths)

    def works(call):
        nonlocal most
        before = made.tried
        call()
        most = max(most, made.tried - before)

    for number in range(MOST_LISTED + 100):
        works(lambda number=number: store.purge(made(number), NOW))
        works(lambda number=number: keep(store, f"/{number}"))
        assert store.stats.bans <= MOST_LISTED
    assert most <= 1_000_000  # the whole of it would be millions
    for path in paths[:20]:
        works(lambda path=path: store.lookup(key_of(path)))
    assert most <= 5_000_000


def test_an_entry_with_too_many_bans_counts_as_banned(busy):
    made, long = Counting(1_000), "/" + "x" * 1_000
    keep(busy, "/a", long)
    for number in range(100):
        busy.purge(made(number), NOW)
    assert held(busy, "/a", long) == ["/a"]
    assert made.tried < 7_000_000
    keep(busy, long)
    assert held(busy, long) == [long]


def test_a_ban_without_time_for_room_is_not_lost(busy):
    paths = [f"/{number}" for number in range(MOST_LISTED)]
    keep(busy, *paths, "/other", "/looked up")
    for number in range(MOST_LISTED):
        busy.purge(pattern(b"example/%d" % number, steps=SLOW), NOW)
    assert held(busy, "/looked up") == ["/looked up"]
    keep(busy, "/new")
    assert busy.has_room(pattern(b"example/7", steps=SLOW))
    assert not busy.has_room(pattern(b"another"))
    busy.purge(pattern(b"another"), NOW)
    assert busy.stats.bans == MOST_LISTED
    # A response that had not met the removed ban counts as banned; one that had, or came later, does not.
    assert held(busy, *paths, "/other", "/looked up", "/new") == ["/looked up", "/new"]


def test_room_for_a_ban_is_made_in_slices(busy):
    kept = [f"/keep/{number}" for number in range(100)]
    keep(busy, *kept, "/0", "/1")
    for number in range(MOST_LISTED):
        busy.purge(pattern(b"example/%d" % number, steps=SLOW), NOW)
    another, slices = pattern(b"example/keep/7"), 0
    while not busy.has_room(another):
        busy.sweep()
        slices += 1
    assert slices > 1
    busy.purge(another, NOW)
    assert held(busy, "/0", "/1", *kept) == [path for path in kept if not path.startswith("/keep/7")]


def test_each_pattern_is_tested_once_for_what_is_being_fetched(busy):
    made = Counting(SLOW)
    lease = busy.leases.begin(key_of("/a"), NOW)
    for number in range(50):
        busy.purge(made(number), NOW)
    once = 50 * SLOW * len(url_of(lease.key))
    for _ in range(20):  # who would join asks
        assert busy.leases.holds(lease)
    assert made.tried == once
    for _ in range(20):  # the head has come
        assert busy.leases.holds(lease, stored_at("/a"))
    assert busy.commit(lease, stored_at("/a"))
    assert made.tried == 2 * once
    busy.purge(pattern(b"/a"), NOW)
    assert not busy.commit(lease, stored_at("/a"))


def test_more_patterns_than_one_call_tests_hold_up_nobody(busy):
    made, path = Counting(1_000), "/" + "x" * 100
    lease = busy.leases.begin(key_of(path), NOW)
    for number in range(50):
        busy.purge(made(number), NOW)
    assert not busy.commit(lease, stored_at(path))  # to fetch it again is less work
    assert 0 < made.tried < 1_000_000
    for _ in range(30):
        busy.leases.holds(lease, stored_at(path))
    assert busy.commit(lease, stored_at(path))  # by now all are tested, and none means it


@pytest.mark.parametrize("head", [False, True], ids=["before the head", "behind it"])
def test_more_keys_than_one_call_tests_hold_up_nobody(head):
    store, calls = MemoryStore(), 1
    lease, came = store.leases.begin(key_of("/a"), NOW), stored_at("/a") if head else None
    for number in range(60):
        store.purge(Keys(frozenset(key_of(f"/{number}/{each}") for each in range(200))), NOW)
    while not store.leases.holds(lease, came):
        calls += 1
    assert calls == 2
