"""A glance finds the gate's own decision, or nothing."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import any_of, examples
from neighbours import everywhere, two_sites
from univocal.cache.decide import Forward, Reuse, Validate, handling_of_hit
from univocal.cache.directives import TAGGING
from univocal.cache.represent import represent
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.http.field_edits import NamedEdits, RouteEdits
from univocal.http.messages import Received, Response, without
from univocal.judge import admission as admission_module
from univocal.judge import hits as hits_module
from univocal.judge.admission import Gate, Lookup, plan_of
from univocal.judge.hits import Hit, Hits
from univocal.judge.runtime import Limits, RouteSettings, cache_status
from univocal.judge.trust import networks
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Pattern, Prefix
from univocal.store.tiers import MemoryTier, tiers_of
from univocal.uri.sites import resolve

NOW = 1_790_000_000.0  # September 2026
HOUR = (b"cache-control", b"max-age=3600")


RUNTIMES = {
    "plain": everywhere(),
    "key": everywhere(cache_status="key"),
    "off": everywhere(cache_status="off", limits=Limits(max_target=12, max_fields=4)),
    "trusted": everywhere(trusted=networks(["192.0.2.0/24"])),
    "bypass": everywhere(rules=Rules(bypass=("/a*",), bypass_cookies=("session",))),
    "strips": everywhere(rules=Rules(strip_cookies=("_*",), strip_tags=True)),
    "ignores": everywhere(rules=Rules(client_directives="ignore", grace=100)),
    "sites": two_sites("/b*"),
    "servlet": everywhere("servlet"),
    "ttl": everywhere(rules=Rules(ttl=3600)),
    "ttl for all": everywhere(rules=Rules(ttl=3600, bypass_cookies=("session",))),
}

# Stored responses: the target, the fields of the requests, the fields of the responses.
STORED = [
    (b"/a", [[]], [HOUR]),
    (
        b"/b",
        [[], [(b"accept-encoding", b"gzip")], [(b"cookie", b"a=b")]],
        [HOUR, (b"vary", b"accept-encoding, cookie")],
    ),
    (b"/c?d", [[]], [HOUR, (b"cache-tag", b""), (b"no-vary-search", b'params=("utm")')]),
    (b"/e", [[]], [(b"cache-control", b"max-age=5"), (b"etag", b'"e"')]),
    (b"/f", [[]], [(b"cache-control", b"no-cache"), (b"etag", b'"f"')]),
    (b"/g", [[]], [HOUR, (b"surrogate-key", b"a b"), (b"date", b"Mon, 21 Sep 2026 14:13:30 GMT")]),
    (b"/h", [[]], []),
    (b"/i", [[]], [(b"vary", b"accept-encoding")]),
]

HOSTS = (b"a.example", b"c.example")


def gate_of(runtime):
    """A gate before a store that holds `STORED` for both hosts; it came ten seconds ago."""
    gate = Gate(runtime, tiers_of(MemoryStore()))
    for host in HOSTS:
        for target, asked, fields in STORED:
            for each in asked:
                store(gate, target, target, host, fields, asked=each, at=NOW - 10)
    return gate


def store(gate, body=b"content", target=b"/z", host=HOSTS[0], fields=(HOUR,), asked=(), at=NOW):
    """Have a response to a target stored, in place of the last one, if it may be."""
    admission = gate.admit(Received(b"GET", target), [(b"host", host), *asked], at)
    if (found := admission.canonical) is None or found.redirect:
        return
    begun = may_store(
        found.key, Fetched(admission.request, Response(200, [*fields]), at, at), admission.rules
    )
    if isinstance(begun, Stored) and (done := complete(begun, body)) is not None:
        lease = gate.tiers.begin(found.key, at)
        assert gate.tiers.commit(lease, done)
        gate.tiers.memory.leases.release(lease)


GATES = {name: gate_of(runtime) for name, runtime in RUNTIMES.items()}

SPELLED = [
    b"Accept-Encoding", b"Accept-Language", b"Authorization", b"Cache-Control", b"Connection",
    b"Content-Length", b"Cookie", b"Expect", b"Forwarded", b"If-None-Match", b"Pragma",
    b"Proxy-Connection", b"Range", b"TE", b"Transfer-Encoding", b"Upgrade", b"URI-Path-Encoding",
    b"X-Any", b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto",
    b"X-HTTP-Method-Override", b"X-Original-URL", b"X-Real-IP",
]  # fmt: skip
SAID = [
    b"", b"0", b"gzip", b"GZIP;q=1.0", b"br, gzip", b"a=b", b"session=1", b"_ga=1", b"a=b; _ga=1",
    b"keep-alive", b"close", b"cookie", b"accept-encoding", b"host", b"no-cache", b"max-age=0",
    b"https", b"http", b"a.example", b"c.example", b"203.0.113.1, 198.51.100.7", b"192.0.2.9",
    b'for=203.0.113.1;host="c.example";proto=http', b'"e"', b"bytes=0-1", b"UTF-8", b"/b",
    b"\xc3\xa9", b"100-continue",
]  # fmt: skip

spelling = any_of(bytes.lower, bytes.upper, bytes.title, bytes)
blanks = any_of(b"", b"", b"", b" ", b"\t ")
value = st.tuples(st.sampled_from(SAID), blanks).map(b"".join)
field = st.tuples(st.tuples(spelling, st.sampled_from(SPELLED)).map(lambda each: each[0](each[1])), value)
host = st.tuples(
    any_of(b"Host", b"host", b"HOST"),
    st.tuples(
        any_of(*HOSTS, b"A.EXAMPLE:80", b"b.example", b"d.example", b"e.example", b"a@b", b""), blanks
    ).map(b"".join),
)
heads = st.tuples(
    st.lists(host, min_size=0, max_size=2), st.lists(field, max_size=4), st.lists(host, max_size=1)
).map(lambda parts: [*parts[0], *parts[1], *parts[2]])
targets = any_of(
    *(target for target, _, _ in STORED),
    *b"/%61 /x/../a //a /a? /a#b /a;x /c?utm=1&d /c?d&utm=1 /z /%zz".split(),
    *(b"/a\\b", b"http://a.example/a", b"http://c.example/b", b"https://a.example/a", b"*", b"/" + b"a" * 12),
)


@pytest.mark.parametrize("name", RUNTIMES)
@settings(max_examples=examples(150))
@given(
    target=targets,
    fields=heads,
    scheme=any_of(b"http", b"http", b"https"),
    client=any_of("192.0.2.1", "198.51.100.1", "::ffff:192.0.2.3", "127.0.0.1", None),
    now=any_of(NOW, NOW, NOW - 3, NOW - 11, NOW + 4000),
)
def test_a_hit_is_what_the_gate_decides(name, target, fields, scheme, client, now):
    gate = GATES[name]
    runtime, received = gate.runtime, Received(b"GET", target, scheme, client)
    plan, said = plan_of(tuple(name for name, _ in fields)), [value for _, value in fields]
    ordinary = plan is not None and plan.suits(said)
    hit = Hits(gate).find(received, plan, said, now) if ordinary else None
    asked = [(each.lower(), said.rstrip(b" \t")) for each, said in fields]
    admission = gate.admit(received, asked, now)
    if isinstance(hit, Lookup):
        informed = gate.admit(received, asked, now, plan, None, hit)
        assert replace(informed, peer=admission.peer, lookup=admission.lookup) == admission
        assert variants_of(informed) == variants_of(admission)
        assert (informed.runtime, informed.canonical) == (admission.runtime, admission.canonical)
    if not isinstance(hit, Hit):
        return
    decision = admission.decision
    assert isinstance(decision, Reuse)
    assert (hit.stored, hit.age) == (decision.stored, decision.age)
    assert (decision.reason, decision.revalidate_in_background) == ("hit", False)
    assert (hit.canonical, hit.client) == (admission.canonical, admission.peer.client)
    assert admission.reasons == ()
    assert hit.hit_fields.handling == handling_of_hit(decision)
    told = cache_status(handling_of_hit(decision), admission.canonical, runtime.cache_status)
    assert hit.hit_fields.fields == told
    assert hit.hit_fields.lines == b"".join(b"%b: %b\r\n" % each for each in told)
    shown = represent(admission.request, decision.stored, decision.age, now)
    fields = without(shown.fields, TAGGING) if admission.rules.strip_tags else shown.fields
    assert (hit.stored.status, hit.stored.body) == (shown.status, shown.body)
    assert [*hit.stored.fields, (b"age", b"%d" % hit.age)] == fields


def variants_of(admission):
    return [] if admission.lookup is None else [*admission.lookup.variants]


ORDINARY = [
    (b"Host", b"a.example"),
    (b"User-Agent", b"x"),
    (b"Accept-Encoding", b"gzip"),
    (b"X-Forwarded-For", b"192.0.2.9"),
]


@pytest.mark.parametrize("name", RUNTIMES)
def test_ordinary_stored_responses_are_found(name):
    """So the property above says something of each runtime."""
    gate = GATES[name]
    hits = Hits(gate)
    found = []
    for target, _, _ in STORED:
        plan = plan_of(tuple(each for each, _ in ORDINARY))
        received = Received(b"GET", target, b"http", "192.0.2.1")
        if isinstance(hits.find(received, plan, [said for _, said in ORDINARY], NOW - 8), Hit):
            found.append(target)
    expected = {b"/a", b"/b", b"/c?d", b"/e", b"/g"}
    if name == "bypass":
        expected.remove(b"/a")
    elif name == "sites":
        expected.remove(b"/b")
    elif name == "strips":
        expected -= {b"/c?d", b"/g"}
    elif name.startswith("ttl"):
        expected |= {b"/h"}
    assert set(found) == expected


def test_a_conclusion_is_remembered_while_it_holds():
    """It is asked for again for another stored response, and is none once that is stale."""
    gate = gate_of(RUNTIMES["plain"])
    hits, plan, received = Hits(gate), plan_of((b"host",)), Received(b"GET", b"/e")
    [stored] = gate.admit(received, [(b"host", b"a.example")], NOW - 8).lookup.variants

    def hit(now):
        return isinstance(hits.find(received, plan, [b"a.example"], now), Hit)

    assert stored.answers is None
    assert [hit(NOW - 8), stored.answers, hit(NOW - 5), hit(NOW - 8)] == [True, True, False, True]
    gate.tiers.memory.purge(Everything(soft=True), NOW - 8)
    assert not hit(NOW - 8)


def test_a_fresh_response_to_be_validated_is_no_hit():
    gate, received = gate_of(RUNTIMES["plain"]), Received(b"GET", b"/z")
    store(gate, fields=[(b"cache-control", b"no-cache, max-age=3600"), (b"etag", b'"z"')])
    for _ in range(2):
        found = Hits(gate).find(received, plan_of((b"host",)), [b"a.example"], NOW)
        assert isinstance(found, Lookup)
        assert [one.answers for one in found.variants] == [False]


@pytest.mark.parametrize("name", ["named_request", "named_response"])
def test_fields_naming_the_client_prevent_hits_at_a_glance(name):
    edits = RouteEdits(**{name: NamedEdits({b"x-client": b"{client}"})})
    assert RouteSettings().hits_at_a_glance
    gate = gate_of(everywhere())
    for each, kind in ((RouteSettings(edits=edits), Lookup), (RouteSettings(), Hit)):
        gate.runtime = replace(gate.runtime, settings=MappingProxyType({"*": each}))
        found = Hits(gate).find(Received(b"GET", b"/a"), plan_of((b"host",)), [b"a.example"], NOW)
        assert isinstance(found, kind)


def test_limits_of_requests_prevent_hits_at_a_glance():
    gate = gate_of(everywhere(limits=Limits(max_requests_per_client=9)))
    found = Hits(gate).find(Received(b"GET", b"/a"), plan_of((b"host",)), [b"a.example"], NOW)
    assert isinstance(found, Lookup)


def test_a_reload_is_heeded():
    """The decision about a target is remembered together with its runtime."""
    gate = gate_of(RUNTIMES["plain"])
    hits, received = Hits(gate), Received(b"GET", b"/a", b"http", None)
    plan = plan_of((b"Host",))
    assert isinstance(hits.find(received, plan, [b"a.example"], NOW), Hit)
    gate.runtime = RUNTIMES["bypass"]
    assert isinstance(hits.find(received, plan, [b"a.example"], NOW), Lookup)
    gate.runtime = RUNTIMES["plain"]
    assert isinstance(hits.find(received, plan, [b"a.example"], NOW), Hit)


def test_a_lookup_in_vain_holds_until_a_reload_or_commit():
    gate = gate_of(RUNTIMES["plain"])
    received, fields, plan = (
        Received(b"GET", b"/z", b"http", None),
        [(b"host", b"a.example")],
        plan_of((b"host",)),
    )
    lookup = Hits(gate).find(received, plan, [b"a.example"], NOW)
    assert isinstance(lookup, Lookup)
    store(gate, host=b"a.example")
    assert isinstance(gate.admit(received, fields, NOW, plan, None, lookup).decision, Reuse)
    gate.runtime = RUNTIMES["servlet"]
    admission = gate.admit(received, fields, NOW, plan, None, lookup)
    assert admission.canonical.key != lookup.canonical.key
    assert isinstance(admission.decision, Forward)


def stale_lookup(gate):
    """A lookup at a glance that has found a stale response, and what the gate is asked then."""
    received, plan = Received(b"GET", b"/e", b"http", None), plan_of((b"host",))
    found = Hits(gate).find(received, plan, [b"a.example"], NOW)
    return found, (received, [(b"host", b"a.example")], NOW, plan, None, found)


def test_the_lookup_of_a_glance_goes_on():
    gate = gate_of(RUNTIMES["plain"])
    found, asked = stale_lookup(gate)
    assert [one.body for one in found.variants] == [b"/e"]
    assert gate.admit(*asked).lookup is found


def test_a_purge_after_a_glance_is_heeded():
    gate = gate_of(RUNTIMES["plain"])
    _, asked = stale_lookup(gate)
    assert isinstance(gate.admit(*asked).decision, Validate)
    gate.tiers.memory.purge(Everything(), NOW)
    admission = gate.admit(*asked)
    assert isinstance(admission.decision, Forward)
    assert [*admission.lookup.variants] == []


def test_a_commit_after_a_glance_is_heeded():
    gate = gate_of(RUNTIMES["plain"])
    _, asked = stale_lookup(gate)
    store(gate, b"fresh", target=b"/e")
    decision = gate.admit(*asked).decision
    assert isinstance(decision, Reuse)
    assert decision.stored.body == b"fresh"


class Beside(MemoryTier):
    """Finds all that another store has, and its memory lacks."""

    def __init__(self, other):
        super().__init__(MemoryStore())
        self.other = other

    def lookup(self, key, now):
        return self.other.lookup(key)


def test_a_tier_of_ones_own_finds_what_memory_lacks():
    runtime = RUNTIMES["plain"]
    gate = Gate(runtime, Beside(gate_of(runtime).tiers.memory))
    received, fields, plan = Received(b"GET", b"/a"), [(b"host", b"a.example")], plan_of((b"host",))
    found = Hits(gate).find(received, plan, [b"a.example"], NOW)
    assert isinstance(found, Lookup)
    assert isinstance(gate.admit(received, fields, NOW, plan, None, found).decision, Reuse)


LETTERS = b"a" * 15


@pytest.mark.pure("a bound is replaced")
@pytest.mark.parametrize(
    ("spelled", "many"),
    [
        (lambda letters: (b"/" + letters.replace(b"A", b"%61"), b"a.example"), 1),
        (lambda letters: (b"/", letters + b".example"), 256),
        (lambda letters: (b"/" + letters[3:].replace(b"A", b"%61"), letters[:3] + b".example"), 8),
    ],
    ids=["targets", "hosts", "both"],
)
def test_remembered_targets_and_hosts_are_bounded(monkeypatch, spelled, many):
    assert hits_module._MOST_LOCATED == 16_384  # fewer are reached sooner
    monkeypatch.setattr(hits_module, "_MOST_LOCATED", 256)
    gate, plan = gate_of(RUNTIMES["plain"]), plan_of((b"Host",))
    hits, (target, host) = Hits(gate), spelled(LETTERS)
    store(gate, target=target, host=host)
    for number in range(300):  # each letter is the same in two spellings
        target, host = spelled(bytes(b"aA"[number >> bit & 1] for bit in range(15)))
        assert isinstance(hits.find(Received(b"GET", target), plan, [host], NOW), Hit)
    targets_by_host = hits._located
    assert sum(map(len, targets_by_host.values())) == len(hits._order) == 256
    assert len(targets_by_host) == many


def test_misses_displace_nothing_that_is_remembered():
    hits, plan = Hits(GATES["plain"]), plan_of((b"Host",))
    for target in (b"/a", b"/1", b"/2"):
        hits.find(Received(b"GET", target), plan, [b"a.example"], NOW)
    assert len(hits._order) == 1


@pytest.mark.pure("a function is replaced")
@pytest.mark.parametrize("stored", [False, True])
def test_a_target_too_long_to_be_remembered_is_judged_once(monkeypatch, stored):
    target, plan, judged = b"/a" + b"%2f" * 500, plan_of((b"Host",)), []
    gate = gate_of(everywhere("nginx"))
    if stored:
        store(gate, target=target)
    for module in (hits_module, admission_module):
        monkeypatch.setattr(module, "resolve", lambda *each: judged.append(each) or resolve(*each))
    assert Hits(gate).find(Received(b"GET", target), plan, [b"a.example"], NOW) is None
    assert isinstance(
        gate.admit(Received(b"GET", target), [(b"host", b"a.example")], NOW).decision, Reuse
    ) is (stored)
    assert len(judged) == 1


def test_a_hit_is_of_what_is_stored_now():
    gate = gate_of(RUNTIMES["plain"])
    hits, received, memory = Hits(gate), Received(b"GET", b"/z", b"http", None), gate.tiers.memory

    def content():
        hit = hits.find(received, plan_of((b"Host",)), [HOSTS[0]], NOW)
        return hit.stored.body if isinstance(hit, Hit) else None

    assert content() is None
    for selector in (
        Prefix(frozenset({b"http a.example /z"})),
        Everything(),
        Pattern("/z", lambda url: url.endswith(b"/z")),
    ):
        store(gate, b"first")
        assert content() == content() == b"first"
        store(gate, b"second")
        assert content() == content() == b"second"
        memory.purge(selector, NOW)
        assert content() is content() is None
        store(gate, b"third")
        assert content() == content() == b"third"
