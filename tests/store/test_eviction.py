"""Eviction: who goes next, and walks that meet everybody though entries come and go meanwhile."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from support import NOW, stored_response
from univocal.store.memory import Entry, Sieve, least_used


def queue_of(keys):
    """A queue of entries with one letter each, the oldest first."""
    sieve = Sieve()
    entries = {bytes((letter,)): Entry(bytes((letter,)), 0) for letter in keys}
    for entry in entries.values():
        sieve.add(entry)
    return sieve, entries


def evicted(sieve, number):
    """The keys of as many entries as are evicted one after the other."""
    gone = b""
    for _ in range(number):
        victim = sieve.victim()
        if victim is None:
            break
        gone += victim.key
        sieve.remove(victim)
    return gone


@cases(
    "visited, gone",
    (b"", b"abcd"),
    (b"a", b"bcda"),
    (b"ab", b"cdab"),
    (b"bd", b"acbd"),  # each is spared once, and the hand goes on where it was
    (b"abcd", b"abcd"),
)
def test_the_oldest_goes_first_and_visited_ones_are_spared_once(visited, gone):
    sieve, entries = queue_of(b"abcd")
    for letter in visited:
        entries[bytes((letter,))].visited = True
    assert evicted(sieve, 9) == gone
    assert sieve.victim() is None


@given(st.integers(1, 8), st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=12))
def test_walks_meet_all_that_stays_once(size, changes):
    """One walk goes from the newest of its beginning to the oldest, one from the oldest to the newest."""
    sieve, entries = queue_of(bytes(range(97, 97 + size)))
    before, there, back, forth = list(entries), dict(entries), [], []
    sieve.walk()
    with sieve.through() as walk:
        while walk.at is not None or sieve.walked is not None:
            if walk.at is not None:
                back.append(walk.at.key)
                walk.at = walk.at.older
            if sieve.walked is not None:
                forth.append(sieve.walked.key)
                sieve.walked = sieve.walked.newer
            if changes:
                adds, number = changes.pop()
                if adds:
                    key = b"new %d" % len(changes)  # never the key of an entry that was removed
                    there[key] = Entry(key, 0)
                    sieve.add(there[key])
                elif there:
                    key = sorted(there)[number % len(there)]
                    sieve.remove(there.pop(key))
    assert len(set(back)) == len(back)
    assert len(set(forth)) == len(forth)
    assert {key for key in before if key in there} <= set(back) <= set(before)
    assert {*there} & {*before} <= set(forth)


def variant(at, used=0.0):
    return replace(stored_response(at=NOW + at), used=used and NOW + used)


@cases(
    "variants, gone",
    ([variant(9, 20), variant(5, 10), variant(1, 30)], 1),  # the least recently used
    ([variant(9), variant(5, 10), variant(1, 30)], 0),  # of three one is more than a quarter
    ([variant(9), variant(5), variant(1, 30)], 1),  # the oldest of those that nobody has used
    ([variant(50), *(variant(1, 30 + each) for each in range(4))], 1),  # few: the new one has its time,
)
def test_variants_that_nobody_used_go_first_unless_they_are_few(variants, gone):
    assert least_used(variants) is variants[gone]
