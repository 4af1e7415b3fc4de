"""Laws of balancing, whatever the origin servers and those who ask them do."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from examples import any_of
from univocal.origin.servers import Balance, Balancing, Member, MemberState, RetryBudget

SERVERS = st.integers(0, 3)


class Requests(RuleBasedStateMachine):
    """Requests, answers, failures, clients that leave, health checks and members that come and go."""

    under_way = Bundle("under_way")

    @initialize(
        choice=any_of("round-robin", "least-requests", "hash"),
        weights=st.lists(st.integers(1, 5), min_size=1, max_size=4),
        fails=st.integers(1, 3),
        retries=st.integers(0, 3),
    )
    def begin(self, choice, weights, fails, retries):
        self.now = 1000.0
        self.number = 0
        self.settings = Balancing(choice, retries, 0.2, fails, 10)
        self.all = [Member(str(n), str(n), weight, self.now) for n, weight in enumerate(weights)]
        self.balance = Balance(self.all, self.settings)
        self.open = {}

    def able(self):
        return [m for m in self.balance.members if m.state is MemberState.UP and m.row < self.settings.fails]

    @rule(target=under_way, key=st.binary(max_size=3))
    def ask(self, key):
        able, ejected = (
            self.able(),
            {m: m.until for m in self.balance.members if m.state is MemberState.EJECTED},
        )
        trials = {m for m in ejected if m.trial is not None}
        self.number += 1
        member = self.balance.take(self.number, key, self.now)
        if member is None:
            assert all(m.state is MemberState.DOWN for m in self.balance.members)
            return (self.number, None, ())
        assert member.state is not MemberState.DOWN
        if able and member in ejected:
            assert ejected[member] <= self.now, "it was ejected for longer"
            assert member not in trials, "it is tried by one request at a time"
            assert member.trial == self.number
        if able and member not in ejected:
            assert member in able
        self.open[self.number] = member
        return (self.number, member, (member,))

    @rule(asked=consumes(under_way))
    def answer(self, asked):
        number, member, _ = asked
        if member is not None:
            was_down = member.state is MemberState.DOWN
            self.balance.answered(member, self.now)
            assert member.state is (MemberState.DOWN if was_down else MemberState.UP)
            self.end(number, member)

    @rule(asked=consumes(under_way))
    def leave(self, asked):
        number, member, _ = asked
        if member is not None:
            self.end(number, member)

    @rule(target=under_way, asked=consumes(under_way), key=st.binary(max_size=3))
    def fail(self, asked, key):
        number, member, tried = asked
        if member is None:
            return (number, None, ())
        others = [m for m in self.able() if m is not member]
        state = member.state
        self.balance.failed(member, self.now)
        if not others and state is MemberState.UP and member in self.balance.members:
            is_poor = member.row >= self.settings.fails
            assert member.state is (MemberState.FAILING if is_poor else MemberState.UP), "it was ejected"
        self.end(number, member)
        able = [m for m in self.able() if m not in tried]
        trials = {m for m in self.balance.members if m.trial is not None} if self.able() else set()
        another = self.balance.another(number, key, self.now, tried)
        if another is None:
            return (number, None, ())
        assert another not in tried
        assert another in able or not able, "one that is up was there"
        assert another not in trials, "it is tried by one request at a time"
        assert len(tried) <= self.settings.retries
        self.open[number] = another
        return (number, another, (*tried, another))

    def end(self, number, member):
        self.balance.ended(number, member)
        del self.open[number]

    @rule(seconds=any_of(0.1, 1, 5, 10, 100))
    def wait(self, seconds):
        self.now += seconds

    @rule(which=SERVERS, up=st.booleans())
    def check(self, which, up):
        self.balance.mark(self.all[which % len(self.all)], self.now, up=up)

    @rule(which=st.lists(SERVERS, unique=True, max_size=4))
    def change(self, which):
        self.balance.change([self.all[n] for n in which if n < len(self.all)], self.now)

    @invariant()
    def what_is_under_way_is_counted(self):
        for member in getattr(self, "all", ()):
            assert member.under_way == sum(each is member for each in self.open.values())
            assert member.trial is None or self.open.get(member.trial) is member
            assert member.trial is None or member.state is MemberState.EJECTED

    @invariant()
    def nobody_is_able_who_has_failed_too_often(self):
        if hasattr(self, "all") and self.able():
            there = [m for m in self.balance.members if m.state in (MemberState.UP, MemberState.FAILING)]
            assert there == self.able()


TestRequests = Requests.TestCase


@given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    gone=st.integers(0, 5),
    keys=st.lists(st.binary(max_size=30), max_size=50),
)
def test_a_hash_moves_the_keys_of_who_is_gone_only(weights, gone, keys):
    members = [Member(n, f"http://10.0.0.{n}", weight) for n, weight in enumerate(weights)]
    gone %= len(members)
    whole = Balance(members, Balancing("hash"))
    rest = Balance(members[:gone] + members[gone + 1 :], Balancing("hash"))
    for key in keys:
        before, after = whole.take(1, key, 0), rest.take(1, key, 0)
        assert before is after or before is members[gone]


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=6), rounds=st.integers(1, 3))
def test_each_round_gives_turns_by_weight(weights, rounds):
    found = Balance([Member(n, str(n), weight) for n, weight in enumerate(weights)], Balancing("round-robin"))
    for _ in range(rounds * sum(weights)):
        assert found.take(1, b"", 0) is not None
    assert [member.requests for member in found.members] == [rounds * weight for weight in weights]


@given(share=st.floats(0, 1), steps=st.lists(st.tuples(st.floats(0, 4), st.booleans()), max_size=200))
def test_no_ten_seconds_have_more_retries_than_the_budget(share, steps):
    budget, now = RetryBudget(share), 0.0
    requests = []
    retries = []
    for seconds, retry in steps:
        now += seconds
        window = int(now) - 9
        may = max(3, int(share * sum(second >= window for second in requests)))
        used = sum(second >= window for second in retries)
        if retry:
            assert budget.spend(now) is (used < may)
            if used < may:
                retries.append(int(now))
        else:
            budget.earn(now)
            requests.append(int(now))
