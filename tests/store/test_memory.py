"""The memory store: bounded, with leases, purges, tags, variants, No-Vary-Search and eviction."""

import asyncio
from dataclasses import replace

import pytest

from examples import cases
from support import NOW, put, stored_response
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags, Variants

DIGEST = b"0123456789abcdef"


LONG = b"v" * 3_000


def key(path="/a", scheme="http", host="en.example", digest=DIGEST):
    return b"%b %b %b %b" % (digest, scheme.encode(), host.encode(), path.encode())


def stored(name, *more, body=b"hello", **settings):
    return stored_response(*more, name=name, body=body, **settings)


def test_a_revisited_entry_is_spared_like_one_looked_up():
    one = stored(key("/0"))
    store = MemoryStore(4 * one.cost)
    put(store, one)
    entry = store.entry(key("/0"))
    for number in range(1, 20):
        assert list(store.revisit(entry)) == [one]
        put(store, stored(key(f"/{number}")))


def test_parts_and_head_answers_displace_no_fresh_whole():
    store = MemoryStore()
    whole = stored(key())
    part = stored(key(), (b"content-range", b"bytes 0-4/10"), status=206)
    head = stored(key(), method=b"HEAD", body=b"")
    late = stored(key(), (b"content-range", b"bytes 0-4/10"), status=206, at=NOW + 61)
    assert put(store, part)
    assert put(store, whole)
    assert not put(store, part)
    assert not put(store, head)
    assert list(store.lookup(key())) == [whole]
    assert put(store, late)
    assert list(store.lookup(key())) == [late]


def test_variants_of_one_key_are_capped():
    store = MemoryStore(max_variants=3)
    for number in range(10):
        assert put(store, stored(key(), (b"vary", b"foo"), request=[(b"foo", b"%d" % number)]))
    assert [one.vary[0][1] for one in store.lookup(key())] == [b"9", b"8", b"7"]
    assert store.stats.responses == 3


def of_tongues(store, count, first=0):
    """Have so many variants stored, a second after one another."""
    made = [
        stored(key(), (b"vary", b"foo"), request=[(b"foo", b"%d" % number)], at=NOW + number)
        for number in range(first, first + count)
    ]
    assert all(put(store, one) for one in made)
    return made


@pytest.mark.parametrize("made_up", [64, 200])
def test_invented_values_never_evict_a_used_variant(made_up):
    store = MemoryStore(max_variants=64)
    one, other = of_tongues(store, 2)
    one.used = NOW + 1
    of_tongues(store, made_up, first=2)
    held = store.lookup(key())
    assert (one in held, other in held, len(held)) == (True, False, 64)


def test_a_variant_that_was_used_and_validated_was_used():
    store = MemoryStore(max_variants=64)
    of_tongues(store, 1)[0].used = NOW + 1
    (again,) = of_tongues(store, 1)
    of_tongues(store, 64, first=1)
    assert again in store.lookup(key())


def test_one_key_takes_no_more_than_half():
    store = MemoryStore(max_bytes=100_000)
    assert put(store, stored(key("/other")))
    for number in range(20):
        assert put(
            store, stored(key(), (b"vary", b"foo"), request=[(b"foo", b"%d" % number)], body=bytes(10_000))
        )
    assert sum(one.cost for one in store.lookup(key())) <= 50_000
    assert store.lookup(key("/other"))


@cases(
    "selector, gone",
    (Keys(frozenset((key("/a"),))), {"/a"}),
    (Keys(frozenset((key("/a"), key("/b"), key("/nowhere")))), {"/a", "/b"}),
    (Tags(frozenset((b"t",))), {"/a", "/ab"}),
    (Tags(frozenset((b"t", b"u"))), {"/a", "/ab", "/b"}),
    (Tags(frozenset((b"t",)), origin=b"http en.example"), {"/a", "/ab"}),
    (Tags(frozenset((b"t",)), origin=b"http en"), set()),
    (Tags(frozenset((b"t",)), origin=b"https en.example"), set()),
    (Prefix(frozenset((b"http en.example /a",))), {"/a", "/ab"}),
    (Prefix(frozenset((b"http en.example /a", b"http en.example /b"))), {"/a", "/ab", "/b"}),
    (Prefix(frozenset((b"https en.example /",))), set()),
    (Prefix(frozenset((b"http en",))), {"/a", "/ab", "/b", "/c"}),
    (Prefix(frozenset()), set()),
    (Everything(), {"/a", "/ab", "/b", "/c"}),
)
def test_a_purge_removes_stored_and_fetched_responses(selector, gone):
    tagged = {"/a": b"t v", "/ab": b"t", "/b": b"u", "/c": b""}
    for soft in (False, True):
        chosen = replace(selector, soft=soft)
        store = MemoryStore()
        leases = {}
        for path, tags in tagged.items():
            assert put(store, stored(key(path), (b"surrogate-key", tags)))
            leases[path] = store.leases.begin(key(path), NOW)
        assert sum(store.counting(chosen)) == len(gone)
        assert store.purge(chosen, NOW + 5) == len(gone)
        found = {path: store.lookup(key(path)) for path in tagged}
        if soft:
            assert {path for path, (one,) in found.items() if one.fresh_until <= NOW + 5} == gone
        else:
            assert {path for path, ones in found.items() if not ones} == gone
        for path, lease in leases.items():
            assert store.commit(lease, stored(key(path), (b"surrogate-key", tagged[path]))) is (
                path not in gone
            )
            store.leases.release(lease)


def test_a_response_fetched_before_a_purge_is_never_stored():
    store = MemoryStore()
    before = store.leases.begin(key(), NOW)
    tagged = store.leases.begin(key("/t"), NOW)
    other = store.leases.begin(key("/b"), NOW)
    assert store.leases.holds(before)
    store.purge(Keys(frozenset((key(),))), NOW)
    store.purge(Tags(frozenset((b"t",))), NOW)
    after = store.leases.begin(key(), NOW)
    assert not store.leases.holds(before)
    assert not store.leases.holds(tagged)  # nobody knows its tags yet: who comes now does not wait for it
    assert store.leases.holds(after)
    assert not store.commit(before, stored(key()))
    assert not store.commit(tagged, stored(key("/t"), (b"xkey", b"t")))
    assert store.commit(other, stored(key("/b")))
    assert store.commit(after, stored(key()))
    for lease in (before, tagged, other, after):
        store.leases.release(lease)


def test_a_lease_that_has_ended_commits_nothing():
    store = MemoryStore()
    lease = store.leases.begin(key(), NOW)
    store.leases.release(lease)
    store.leases.release(lease)
    assert not store.leases.holds(lease)
    assert not store.commit(lease, stored(key()))
    assert not store.reserve(lease, 1)


@pytest.mark.parametrize(("count", "length"), [(30_000, 5), (300, 20_000)])
def test_the_log_of_purges_is_bounded_and_forgets_safely(count, length):
    store = MemoryStore()
    old, ended = store.leases.begin(key("/old"), NOW), store.leases.begin(key("/ended"), NOW)
    store.leases.release(ended)
    for number in range(count):
        store.purge(Keys(frozenset((key(f"/{number:0{length}}"),))), NOW)
    new = store.leases.begin(key("/new"), NOW)
    assert not store.leases.holds(old)
    assert not store.commit(old, stored(key("/old")))
    assert store.commit(new, stored(key("/new")))
    store.leases.release(old)
    store.leases.release(new)


def test_variants_are_removed_up_to_a_time():
    store = MemoryStore()
    names = [((b"foo", value),) for value in (b"1", b"2")]
    for vary in names:
        assert put(store, replace(stored(key()), vary=vary))
    assert store.purge(Variants(frozenset({(key(), names[0])}), NOW - 1), NOW) == 0
    lease = store.leases.begin(key(), NOW)
    assert store.purge(Variants(frozenset({(key(), names[0])}), NOW), NOW) == 1
    assert [one.vary for one in store.lookup(key())] == [names[1]]
    assert not store.leases.holds(lease, replace(stored(key()), vary=names[0]))
    assert store.leases.holds(lease, replace(stored(key()), vary=names[0], response_time=NOW + 1))
    assert store.leases.holds(lease, replace(stored(key()), vary=names[1]))
    assert store.leases.holds(lease)


def test_content_under_way_is_bounded():
    store = MemoryStore(max_bytes=1000, max_object_bytes=200)
    one, two, three = (store.leases.begin(key(path), NOW) for path in ("/1", "/2", "/3"))
    assert store.reserve(one, 100)
    assert store.reserve(one, 100)
    assert not store.reserve(one, 1)  # larger than an object may be
    assert store.reserve(two, 50)
    assert not store.reserve(three, 1)  # a quarter of the store is under way
    assert store.stats.reserved == 250
    store.leases.release(one)
    assert store.reserve(three, 100)
    store.leases.release(two)
    store.leases.release(three)
    assert store.stats.reserved == 0


def test_a_response_that_is_too_large_is_not_stored():
    store = MemoryStore(max_bytes=1 << 20, max_object_bytes=5_000)
    assert not put(store, stored(key(), body=bytes(5_000)))
    assert put(store, stored(key(), body=bytes(3_000)))


def test_the_store_never_exceeds_its_budget_and_spares_used_ones():
    one = stored(key("/0"), body=bytes(1000))
    store = MemoryStore(max_bytes=one.cost * 10 + 500)
    assert put(store, one)
    for number in range(1, 50):
        store.lookup(key("/0"))
        assert put(store, stored(key(f"/{number}"), body=bytes(1000)))
        assert store.stats.bytes <= store.max_bytes
    assert store.lookup(key("/0"))
    assert store.lookup(key("/49"))
    assert not store.lookup(key("/20"))
    assert store.stats.evictions == 50 - store.stats.entries
    assert store.stats.entries == 10


def test_a_scan_does_not_flush_what_is_in_use():
    hot = [key(f"/hot{number}") for number in range(5)]
    store = MemoryStore(max_bytes=stored(key("/hot0")).cost * 20)
    for name in hot:
        assert put(store, stored(name))
        store.lookup(name)
    for number in range(1000):
        put(store, stored(key(f"/scan{number}")))
        if not number % 10:
            assert all(store.lookup(name) for name in hot)


def full_of_hot(*, max_object_bytes=16 << 20, is_part=True):
    """A store with 20 responses of one cost, each of which is in use."""
    hot = [stored(key(f"/hot{number:02}")) for number in range(20)]
    store = MemoryStore(20 * hot[0].cost, max_object_bytes, is_part=is_part)
    for one in hot:
        assert put(store, one)
        store.lookup(one.key)
    return store


def test_a_response_too_large_to_fit_displaces_no_ghost():
    once, large = stored(key("/once00")), stored(key("/large"), body=bytes(20_000))
    store = full_of_hot(max_object_bytes=10_000)
    assert not store.is_worth_keeping([once])
    assert not store.is_worth_keeping([large])
    assert not store.is_worth_keeping([large])
    assert store.is_worth_keeping([once])


def with_small(**settings):
    """A store of 200,000 bytes after 400 small responses."""
    store = MemoryStore(max_bytes=200_000, **settings)
    for number in range(400):
        put(store, stored(key(f"/small/{number}"), body=b""))
    return store


def add_large(store, count=100):
    for number in range(count):
        put(store, stored(key(f"/large/{number}"), body=bytes(10_000)))
        assert store.stats.bytes <= store.max_bytes


def test_responses_read_once_evict_none_after_many_small_ones():
    """Memory that small objects took is not room for large ones."""
    store = with_small(is_part=True)
    add_large(store)
    before = store.stats.evictions
    for number in range(100):
        once = stored(key(f"/once/{number}"), body=bytes(10_000))
        if store.is_worth_keeping([once]):
            put(store, once)
    assert store.stats.evictions == before


def test_responses_read_once_evict_none_beside_content_under_way():
    store = full_of_hot(is_part=False)
    assert store.reserve(store.leases.begin(key("/new"), NOW), store.max_bytes // 5)
    before = store.stats.evictions
    assert before
    once = stored(key("/once00"))
    for _ in range(2):
        if not store.is_worth_keeping([once]):
            break
        put(store, once)
    assert store.stats.evictions == before


def test_uncollapsed_keys_are_remembered_for_a_while():
    store = MemoryStore()
    assert not store.is_uncollapsed(key(), NOW)
    store.stop_collapsing(key(), NOW + 10)
    assert store.is_uncollapsed(key(), NOW + 9)
    assert not store.is_uncollapsed(key(), NOW + 10)
    assert not store.is_uncollapsed(key("/b"), NOW)
    assert put(store, stored(key()))
    assert not store.is_uncollapsed(key(), NOW)


def test_of_the_uncacheable_the_oldest_are_forgotten():
    store = MemoryStore()
    for number in range(10_001):
        store.stop_collapsing(key(f"/{number}"), NOW + 10)
    assert not store.is_uncollapsed(key("/0"), NOW)
    assert store.is_uncollapsed(key("/1"), NOW)


SEARCH = b"no-vary-search"


@cases(
    "variance, first, second, same",
    (b"params", "/a?x=1", "/a?y=2", True),
    (b"params", "/a?x=1", "/a", True),
    (b"params", "/a?x=1", "/b?x=1", False),
    (b'params=("utm")', "/a?x=1&utm=2", "/a?utm=3&x=1", True),
    (b'params=("utm")', "/a?x=1&utm=2", "/a?x=2&utm=2", False),
    (b'params=("utm")', "/a?x=1?utm=2", "/a?x=1?utm=3", False),
    (b'params=("a b")', "/a?a+b=1", "/a?a%20b=2", True),
    (b'params, except=("x")', "/a?x=1&y=2", "/a?z=3&x=1", True),
    (b'params, except=("x")', "/a?x=1", "/a?x=2", False),
    (b"key-order", "/a?x=1&y=2", "/a?y=2&x=1", True),
    (b"key-order", "/a?x=1&x=2", "/a?x=2&x=1", False),
    (b"key-order=?0", "/a?x=1&y=2", "/a?y=2&x=1", False),
    (b'key-order, params=("z")', "/a?x=%31&y=2&z", "/a?y=2&x=1", True),
    (b'params=("z")', "/a?x=1%26y=2", "/a?x=1&y=2", False),
    (b'params=("z")', "/a?x=1", "/a?x=1&", True),
    (b'params=("utm")', "/a", "/a?", True),
    (b'params=("utm")', "/a?%75tm=2&x=1", "/a?x=1&utm", True),
    (b'params, except=("a%41")', "/a?aA=1&y=2", "/a?aA=1&z=3", True),
    (b'params, except=("a%41")', "/a?aA=1", "/a?aA=2", False),
    # unreadable: every part of the query matters
    (b"params=1", "/a?x=1", "/a?x=2", False),
    (b'params="x"', "/a?x=1", "/a?x=2", False),
    (b"params=(x)", "/a?x=1", "/a?x=2", False),
    (b'except=("x")', "/a?x=1&y=1", "/a?x=1&y=2", False),
    (b'params=("y"), except=("x")', "/a?x=1&y=1", "/a?x=1&y=2", False),
    (b"params, key-order=1", "/a?x=1", "/a?x=2", False),
    (b"params,,", "/a?x=1", "/a?x=2", False),
    *((value, "/a?x=1", "/a?x=1&", False) for value in (b"", b"params=?0", b"params=()", b"(")),
    (b'params=("a"), except=("b")', "/a?a=1", "/a?a=2", False),
)
def test_a_variance_over_the_query(variance, first, second, same):
    store = MemoryStore()
    one = stored(key(first), (SEARCH, variance))
    assert put(store, one)
    assert list(store.lookup(key(first))) == [one]
    assert list(store.lookup(key(second))) == ([one] if same else [])
    # a purge of one spelling takes the group along, and what is being fetched for it
    lease = store.leases.begin(key(first), NOW)
    assert store.purge(Keys(frozenset((key(second),))), NOW) == same
    assert store.commit(lease, one) is not same
    store.leases.release(lease)


def test_the_newest_of_a_group_stands_for_all():
    store = MemoryStore()
    for number in range(100):
        assert put(store, stored(key(f"/a?utm={number}"), (SEARCH, b'params=("utm")'), body=b"%d" % number))
    assert store.stats.responses == 1
    assert [one.body for one in store.lookup(key("/a"))] == [b"99"]
    plain = stored(key("/a"), body=b"plain")
    assert put(store, plain)
    assert list(store.lookup(key("/a"))) == [plain]
    assert store.purge(Keys(frozenset((key("/a?utm=x"),))), NOW) == 1


@pytest.mark.parametrize(("name", "value"), [(b"vary", b"x-tenant"), (b"etag", b'"%b"' % LONG)])
def test_long_values_take_no_room_from_what_follows(name, value):
    """They are no small objects: a client that makes them long does not make memory smaller for good."""
    store = MemoryStore(max_bytes=200_000)
    for number in range(60):
        asked = [(b"x-tenant", LONG)]
        put(store, stored(key(f"/long/{number}"), (name, value), request=asked, body=b""))
    add_large(store, 40)
    assert store.stats.bytes > 180_000


def test_memory_of_small_objects_counts_when_large_ones_follow():
    """Their memory stays with the process: both together are bounded, too (benchmarks/memory.py)."""
    store = with_small()
    small = store.stats.bytes
    assert small > 190_000
    add_large(store)
    large = store.stats.responses * 10_000
    assert large > 0
    assert large + small <= 1.5 * 200_000


def test_a_soft_purge_changes_nothing_of_what_small_objects_take():
    store = with_small()
    small = store.stats.bytes
    store.purge(Everything(soft=True), 1.0)
    store.purge(Everything(), 2.0)
    assert store.stats.bytes == 0
    add_large(store)
    assert 0 < store.stats.responses * 10_000 <= 1.5 * 200_000 - small


# Purges of many


MANY = 2_000


def with_many(tag=b"t"):
    """Half of the responses are below /p/, all have the tag."""
    store = MemoryStore()
    one = stored(key("/"), (b"surrogate-key", tag))
    for number in range(MANY):
        assert put(store, replace(one, key=key(f"/{'pq'[number % 2]}/{number}")))
    return store


@cases(
    "selector, meant, left",
    (Everything(), MANY, 0),
    (Tags(frozenset((b"t",))), MANY, 0),
    (Prefix(frozenset((b"http en.example /p/",))), MANY // 2, MANY // 2),
    (Prefix(frozenset((b"http en.example /none/",))), 0, MANY),
    (Everything(soft=True), MANY, MANY),
)
def test_a_purge_of_many_is_counted_and_done_in_slices(selector, meant, left):
    store = with_many()
    for slices, least in ((store.counting(selector), MANY), (store.purging(selector, NOW + 5), left)):
        counts = []
        for count in slices:
            counts.append(count)
            assert store.stats.responses >= least
        assert (sum(counts), store.stats.responses) == (meant, least)
        assert len(counts) >= 4
        assert max(counts) <= 500
    fresh = [
        one
        for number in range(MANY)
        for one in store.lookup(key(f"/p/{number}"))
        if one.fresh_until > NOW + 5
    ]
    assert bool(fresh) is (meant == 0)
    assert store.purge(selector, NOW + 6) == (meant if selector.soft else 0)


@pytest.mark.parametrize("selector", [Keys(frozenset((key("/p/0"),))), Tags(frozenset((b"rare",)))])
def test_a_purge_of_few_goes_in_one(selector):
    store = with_many()
    assert put(store, stored(key("/p/0"), (b"surrogate-key", b"rare")))
    assert list(store.counting(selector)) == [1]
    assert list(store.purging(selector, NOW)) == [1]
    assert list(store.counting(selector)) == [0]


def test_fetches_before_a_large_purge_are_not_stored():
    store = with_many()
    before = store.leases.begin(key("/p/before"), NOW)
    slices = store.purging(Everything(), NOW)
    next(slices)
    during = store.leases.begin(key("/p/during"), NOW)
    assert not store.commit(before, stored(key("/p/before")))
    assert store.commit(during, stored(key("/p/during")))
    assert sum(slices) > 0
    assert [bool(store.lookup(key(path))) for path in ("/p/before", "/p/during")] == [False, True]
    assert store.stats.responses == 1


def test_a_large_purge_survives_concurrent_removals():
    store = with_many()
    first, second = store.purging(Everything(), NOW), store.purging(Everything(), NOW)
    counts = [next(first), next(second)]
    names = [key(f"/{'pq'[number % 2]}/{number}") for number in range(0, MANY, 3)]
    counts += [store.purge(Keys(frozenset((name,))), NOW) for name in names]
    counts += [*second, *first]
    assert (sum(counts), store.stats.responses) == (MANY, 0)
    assert put(store, stored(key("/p/1")))


def test_a_purge_that_is_given_up_leaves_a_whole_store():
    store = with_many()
    slices = store.purging(Everything(), NOW)
    gone = next(slices)
    slices.close()
    assert store.stats.responses == MANY - gone
    assert store.purge(Everything(), NOW) == MANY - gone


def test_an_emptied_store_is_empty_from_the_first_slice():
    store = with_many()
    slices = store.purging(Everything(), NOW)
    counts = [next(slices)]
    assert max(counts) <= 500
    assert not any(store.lookup(key(f"/{kind}/{number}")) for kind in "pq" for number in range(10))
    assert put(store, stored(key("/p/0")))  # of a name that was there
    counts += slices
    assert (len(counts) > 1, store.stats.responses) == (True, 1)
    assert store.lookup(key("/p/0"))


async def test_bounds_that_become_smaller_let_go_in_slices():
    store = with_many()
    before, kept = store.stats.bytes, store.stats.bytes // 4
    shrinking = asyncio.ensure_future(store.resize(kept, kept))
    await asyncio.sleep(0)
    assert kept < store.stats.bytes < before
    assert put(store, stored(key("/new")))
    assert kept < store.stats.bytes  # a commit does not evict all the rest in one go
    await shrinking
    assert 0 < store.stats.bytes <= kept == store.max_bytes
    assert put(store, stored(key("/newer")))
    assert store.lookup(key("/newer"))
    assert not put(store, stored(key("/large"), body=bytes(kept + 1)))


async def test_commits_while_bounds_become_smaller_evict_no_more():
    """Each is between two slices."""
    store = with_many()
    kept = store.stats.bytes // 4
    shrinking = asyncio.ensure_future(store.resize(kept, kept))
    for number in range(100):
        await asyncio.sleep(0)
        assert put(store, stored(key(f"/new/{number}")))
    await shrinking
    assert kept // 2 < store.stats.bytes <= kept


@pytest.mark.parametrize("lessens", ["resize", "relieve"])
async def test_a_commit_beside_more_content_under_way_than_memory_ends(lessens):
    """No eviction makes room then."""
    store = MemoryStore(256 << 20, 16 << 20)
    for number in range(3):
        assert store.reserve(store.leases.begin(key(f"/{number}"), NOW), 7 << 20)
    assert put(store, stored(key("/before")))
    if lessens == "resize":
        await store.resize(16 << 20, 16 << 20)
    else:
        store.relieve()
    assert put(store, stored(key("/behind")))
    assert store.stats.responses == 1


@pytest.mark.parametrize("lent", [False, True])
def test_room_for_new_content_is_taken_from_no_client(lent):
    """What is lent takes its memory until the client has it, stored or not."""
    store, recalled = MemoryStore(3 << 20, 2 << 20), []
    large = stored(key("/large"), body=bytes(2_000_000))
    assert put(store, large)
    if lent:
        store.lend(key("/large"), large.body, lambda: recalled.append("cut"))
    lease = store.leases.begin(key("/new"), NOW)
    assert store.reserve(lease, 3 << 19) is not lent
    assert (recalled, lease.reserved) == ([], 0 if lent else 3 << 19)
    assert store.stats.reserved == lease.reserved


@pytest.mark.parametrize("lent", [0, 3 << 20], ids=["reserved", "lent, too"])
async def test_bounds_below_content_under_way_leave_stored_responses(lent):
    """They give way to no more than its share; what they give way to, they do in slices."""
    store = with_many()
    before = store.stats.bytes
    assert store.reserve(store.leases.begin(key("/long"), NOW), 16 << 20)
    store.lend(key("/lent"), bytes(lent), lambda: None)
    shrinking = asyncio.ensure_future(store.resize(before, before // 4))
    await asyncio.sleep(0)
    assert before * 3 // 4 < store.stats.bytes < before
    await shrinking
    left = store.stats.responses
    assert before // 4 < store.stats.bytes <= before * 3 // 4
    assert put(store, stored(key("/new")))
    assert left - 2 <= store.stats.responses <= left + 1


async def test_a_reload_ends_what_too_little_memory_began():
    """Content larger than memory is reserved again, where another store is behind."""
    store = MemoryStore(1 << 20, 4 << 20, is_part=True)
    lease = store.leases.begin(key(), NOW)
    store.relieve()
    await store.resize(1 << 20, 4 << 20)
    assert store.reserve(lease, 2 << 20)
