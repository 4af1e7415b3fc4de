"""No response that was contradicted answers again, whatever clients and the origin server send."""

from hypothesis import example, given
from hypothesis import strategies as st

from examples import any_of
from neighbours import Proxy
from univocal.cache.rules import Rules
from univocal.http.messages import values
from univocal.store.memory import MemoryStore

LARGEST = 4_000
CONTROLS = [
    b"max-age=600",
    b"max-age=1, stale-while-revalidate=600",
    b"max-age=1, stale-if-error=600",
    b"no-cache",
    b"no-store",
    b"private",
]
STATUSES = [200, 200, 200, 200, 403, 404, 410, 429, 503]
TAGS = [b"", b'"1"', b'"1"', b'W/"1"', b'"2"']
VARIES = [b"", b"", b"x-var", b"*"]

REPLIES = st.tuples(
    st.sampled_from(STATUSES), st.sampled_from(CONTROLS), st.sampled_from(TAGS), st.sampled_from(VARIES)
)
ASKS = st.tuples(
    any_of(b"GET", b"GET", b"GET", b"HEAD"),
    any_of(b"", b"a", b"b"),  # X-Var
    st.booleans(),  # with a cookie
    st.booleans(),  # with no-cache
)
STEPS = st.tuples(ASKS, REPLIES, any_of(10, LARGEST + 1), any_of(0, 3, 30))
RULES = [
    Rules(ordinary_fields=(b"x-var",)),
    Rules(ordinary_fields=(b"x-var",), errors="explicit", set_cookie="explicit", heuristic=True),
]


class Life:
    """One client after another asks for one page; answers are numbered by their field `number`."""

    def __init__(self, rules):
        self.proxy = Proxy(store=MemoryStore(max_object_bytes=LARGEST), rules=rules)
        self.proxy.origin.script = self.answer
        self.answered = []
        self.reply, self.size = (200, b"", b"", b""), 0

    def answer(self, asked):
        status, control, tag, vary = self.reply
        fields = [(b"number", b"%d" % len(self.answered)), (b"cache-control", control)]
        fields += [(b"etag", tag)] if tag else []
        fields += [(b"vary", vary)] if vary else []
        if status == 200 and tag and asked.field(b"if-none-match") == tag:
            status = 304
        elif self.size > LARGEST:
            fields.append((b"content-length", b"%d" % self.size))
        body = b"" if status == 304 or asked.request.method == b"HEAD" else bytes(self.size)
        self.answered.append((asked, status, fields))
        asked.answers(body, status=status, fields=fields)

    def step(self, ask, reply):
        method, var, cookie, reload = ask
        self.reply = reply
        fields = [(b"x-var", var)] if var else []
        fields += [(b"cookie", b"a=b")] if cookie else []
        fields += [(b"cache-control", b"no-cache")] if reload else []
        before = len(self.answered)
        self.check(self.proxy.ask(b"/a", method, *fields), before)

    def check(self, client, before):
        """No answer that came between contradicts one that came from the store."""
        number = values(client.fields, b"number")
        if not number or int(number[0]) >= before:
            return
        first = int(number[0])
        for later in range(first + 1, before):
            assert not self.contradicts(later, first, client.fields), (first, later)

    def contradicts(self, later, first, shown):
        asked, status, fields = self.answered[later]
        old = self.answered[first][0]
        told, tag = dict(fields), values(shown, b"etag")
        named = values(shown, b"vary")
        # A field that selects one response of the resource selects all of them (RFC 9111 §4.1).
        varied = named or any(b"vary" in dict(each) for _, _, each in self.answered[: later + 1])
        if varied and asked.field(b"x-var") != old.field(b"x-var"):
            return False  # another variant
        forbidden = told[b"cache-control"] in {b"no-store", b"private"} or told.get(b"vary") == b"*"
        if status == 304:
            moved = b"vary" in told and [told[b"vary"]] != named
            return tag == [told[b"etag"]] and (forbidden or moved)
        ours = asked.request.is_unread
        ordinary = asked.field(b"cookie") is None
        if asked.request.method == b"HEAD":
            conditional = asked.field(b"if-none-match") is not None
            return conditional and ordinary and status == 200 and b"etag" not in told
        if status == 200 and not forbidden and b"max-age" in told[b"cache-control"]:
            return True  # it was stored in its place, or was too large for that
        failed = status >= 500 or status == 429
        return not failed and (ours or (ordinary and status in {200, 404, 410}))


def asked(var, *, reload=False, vary=b""):
    """A step: a client with this X-Var gets a response that is fresh, by the origin server if need be."""
    return (b"GET", var, False, reload), (200, b"max-age=600", b"", vary), 10, 0


@example(RULES[0], [asked(b"a"), asked(b"a", reload=True, vary=b"x-var"), asked(b"")])
@given(st.sampled_from(RULES), st.lists(STEPS, min_size=2, max_size=8))
def test_nothing_that_was_contradicted_answers_again(rules, steps):
    life = Life(rules)
    for ask, reply, size, seconds in steps:
        life.size = size
        life.step(ask, reply)
        life.proxy.clock.pass_time(seconds + 0.001)
