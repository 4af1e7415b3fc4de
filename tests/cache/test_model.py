"""The memory store against a model that is a plain dictionary; and its budget, whatever happens."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from examples import any_of, examples
from support import NOW, stored_response
from univocal.store.leases import Lease
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags
from univocal.store.tiers import MemoryTier

PATHS = any_of("/a", "/a/b", "/c", "/s?x=1", "/s?x=2")
TAGS = st.sets(any_of(b"t", b"u", b"v"), max_size=2).map(lambda found: b" ".join(sorted(found)))
SELECTORS = st.one_of(
    st.sets(PATHS, min_size=1).map(lambda paths: Keys(frozenset(key(path) for path in paths))),
    st.sets(any_of(b"t", b"u"), min_size=1).map(lambda names: Tags(frozenset(names))),
    st.just(Tags(frozenset((b"v",)), origin=b"http h")),
    st.just(Tags(frozenset((b"v",)), origin=b"http other")),
    st.just(Prefix(frozenset((b"http h /a",)))),
    st.just(Everything()),
)


def key(path):
    return b"digest http h " + path.encode()


def alike(path, other):
    """Tell whether No-Vary-Search, which every response below /s has, makes two paths the same."""
    return path == other or (path.startswith("/s") and other.startswith("/s"))


def response(path, tags, variant, size):
    fields = [(b"cache-control", b"max-age=60"), (b"vary", b"foo"), (b"xkey", tags)]
    if path.startswith("/s"):
        fields.append((b"no-vary-search", b"params"))
    request = [(b"foo", b"%d" % variant)]
    return stored_response(*fields, name=key(path), request=request, body=bytes(size))


def meant(selector, path, tags):
    match selector:
        case Keys(names):
            return any(alike(path, name.decode().split(" ")[3]) for name in names)
        case Tags(names, origin=origin):
            return bool(names & tags) and origin in {b"", b"http h"}
        case Prefix():
            return path.startswith("/a")
        case _:
            return True


class StoreModel(RuleBasedStateMachine):
    """Room for everything: the store is the dictionary."""

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.tier, self.live = MemoryTier(self.store), dict[int, Lease]()
        self.model = {}
        self.purged = {}

    @rule(target=leases, path=PATHS)
    def begin(self, path):
        lease = self.store.leases.begin(key(path), NOW)
        self.purged[id(lease)] = []
        self.live[id(lease)] = lease
        return lease, path

    @rule(lease=leases, tags=TAGS, variant=st.integers(0, 2))
    def commit(self, lease, tags, variant):
        held, path = lease
        found = response(path, tags, variant, 10)
        allowed = not any(meant(selector, path, found.tags) for selector in self.purged[id(held)])
        # The law: a purge since the lease began that means this response keeps it out, and nothing else does.
        assert self.store.commit(held, found) is allowed
        if allowed:
            for other, number in list(self.model):
                if (other != path and alike(other, path)) or (other, number) == (path, variant):
                    del self.model[other, number]
            self.model[path, variant] = found

    @rule(lease=consumes(leases))
    def release(self, lease):
        self.store.leases.release(lease[0])
        del self.purged[id(lease[0])], self.live[id(lease[0])]

    @rule(selector=SELECTORS)
    def purge(self, selector):
        gone = [place for place, found in self.model.items() if meant(selector, place[0], found.tags)]
        assert self.store.purge(selector, NOW) == len(gone)
        for place in gone:
            del self.model[place]
        for seen in self.purged.values():
            seen.append(selector)

    @rule(lease=leases, path=PATHS)
    def purge_sparing(self, lease, path):
        self.store.purge(Keys(frozenset((key(path),))), NOW, sparing=lease[0])
        self.model = {place: found for place, found in self.model.items() if not alike(place[0], path)}
        for number, seen in self.purged.items():
            if number != id(lease[0]):
                seen.append(Keys(frozenset((key(path),))))

    @invariant()
    def what_is_found_is_what_the_model_has(self):
        for path in ("/a", "/a/b", "/c", "/s?x=1", "/s?x=2"):
            expected = [found for (other, _), found in self.model.items() if alike(other, path)]
            assert sorted(map(id, self.store.lookup(key(path)))) == sorted(map(id, expected))
        # A lease remembers what it found, for as long as another lookup would find the same.
        for lease in self.live.values():
            assert self.tier.held(lease) == self.store.lookup(lease.key)
        stats = self.store.stats
        assert stats.responses == len(self.model)
        assert stats.bytes == sum(found.cost for found in self.model.values())


class StoreBudget(RuleBasedStateMachine):
    """Hardly room for anything: whatever happens, the budget holds and nothing is left behind."""

    def __init__(self):
        super().__init__()
        self.store = MemoryStore(max_bytes=12_000, max_object_bytes=6_000, max_variants=3)
        self.live = []

    @rule(path=PATHS, tags=TAGS, variant=st.integers(0, 5), size=st.integers(0, 6_000))
    def put(self, path, tags, variant, size):
        lease = self.store.leases.begin(key(path), NOW)
        found = response(path, tags, variant, size)
        stored = self.store.commit(lease, found)
        assert stored is (found.cost <= 6_000)
        assert not stored or found in self.store.lookup(key(path))
        self.store.leases.release(lease)

    @rule(path=PATHS)
    def look(self, path):
        assert len(self.store.lookup(key(path))) <= 3

    @rule(path=PATHS, nbytes=st.integers(0, 4_000))
    def receive(self, path, nbytes):
        lease = self.store.leases.begin(key(path), NOW)
        self.store.reserve(lease, nbytes)
        self.live.append(lease)

    @rule()
    def finish(self):
        if self.live:
            self.store.leases.release(self.live.pop(0))

    @rule(selector=SELECTORS)
    def purge(self, selector):
        assert self.store.purge(selector, NOW) >= 0

    @invariant()
    def the_budget_holds(self):
        stats = self.store.stats
        assert 0 <= stats.bytes <= 12_000
        assert stats.reserved == sum(lease.reserved for lease in self.live) <= 6_000

    def teardown(self):
        for lease in self.live:
            self.store.leases.release(lease)
        self.store.purge(Everything(), NOW)
        stats = self.store.stats
        assert (stats.entries, stats.responses, stats.bytes, stats.reserved) == (0, 0, 0, 0)
        for path in ("/a", "/s?x=1", "/s?x=3"):
            assert not self.store.lookup(key(path))


StoreModel.TestCase.settings = StoreBudget.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=20
)
TestStoreModel = StoreModel.TestCase
TestStoreBudget = StoreBudget.TestCase
