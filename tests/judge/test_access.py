"""Access: rates by arithmetic, networks by believed addresses, passwords by their known checks."""

import asyncio
import base64

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from neighbours import HOST, Proxy
from univocal.cache.decide import Refuse
from univocal.http.errors import RefusedError
from univocal.http.messages import Received
from univocal.judge.access import (
    OwnRates,
    Rate,
    RequestLine,
    Restriction,
    condition_of,
    denial_of,
    paced_by_user,
    rate_of,
)
from univocal.judge.trust import Peer, networks
from univocal_app.run import restrictions
from univocal_app.run.restrictions import UserFile


@cases(
    "text, rate",
    ("10/s", Rate(0.1, 10)),
    ("10/s burst 20", Rate(0.1, 20)),
    ("60/m burst 1", Rate(1, 1)),
    ("1/h", Rate(3600, 1)),
)
def test_a_text_is_a_rate(text, rate):
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["", "10", "10/d", "0/s", "-1/s", "1.5/s", "10/s burst", "10/s burst 0"])
def test_other_texts_are_none(text):
    with pytest.raises(ValueError, match="requests and their time"):
        rate_of(text)


def test_a_burst_passes_and_then_the_rate_holds():
    rates, rate = OwnRates(), Rate(0.5, 3)
    assert [rates.wait("site", "a", rate, 100) for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]
    assert rates.wait("site", "b", rate, 100) == 0
    assert rates.wait("other", "a", rate, 100) == 0
    assert [rates.wait("site", "a", rate, 100.5) for _ in range(2)] == [0, pytest.approx(0.5)]
    assert [rates.wait("site", "a", rate, 200) for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]


def test_a_clock_that_is_set_back_locks_nobody_out():
    rates, rate = OwnRates(), Rate(1, 3)
    assert [rates.wait("site", "a", rate, 1000) for _ in range(4)] == [0, 0, 0, 1]
    waits = [rates.wait("site", "a", rate, 700 + second) for second in range(6)]
    assert waits == [1, 0, 0, 0, 0, 0]


def test_rates_go_by_a_clock_that_is_never_set_back():
    proxy, wall = Proxy(), 1_790_000_000.0
    gate, ticks = proxy.engine.gate, [100.0]
    proxy.restrict(Restriction("*", rate=Rate(1, 2)))
    gate.monotonic = lambda: ticks[0]

    def status(now):
        admission = gate.admit(Received(b"GET", b"/a", b"http", "192.0.2.1"), [(b"host", HOST)], now)
        return admission.decision.status if isinstance(admission.decision, Refuse) else 200

    assert [status(wall) for _ in range(3)] == [200, 200, 429]
    ticks[0] += 1
    assert status(wall - 300) == 200


@pytest.mark.parametrize(
    ("client", "known"), [("192.0.2.9", True), ("192.0.2.9", False)], ids=["known", "contradicted"]
)
def test_other_fields_give_no_second_allowance(client, known):
    rates, restriction = OwnRates(), Restriction("*", rate=Rate(1, 1))
    assert denial_of(restriction, peer(client), "10.0.0.1", [], rates, 0) is None
    denial = denial_of(restriction, peer(client, known=known), "10.0.0.1", [], rates, 0)
    assert denial is not None
    assert denial.reason == "too-many-requests"
    assert denial_of(restriction, peer("192.0.2.10"), "10.0.0.1", [], rates, 0) is None  # another client


@pytest.mark.parametrize("kind", ["rate", "user_rate"])
def test_processes_with_the_same_rates_count_together(kind):
    proxies = Proxy(), Proxy()
    for proxy in proxies:
        proxy.engine.gate.rates = proxies[0].engine.gate.rates
        proxy.restrict(Restriction("*", **{kind: Rate(3600, 2)}))
    decisions = [proxy.admit().decision for proxy in proxies * 2]
    assert [isinstance(each, Refuse) for each in decisions] == [False, False, True, True]


def test_a_user_named_like_an_address_has_its_own_rate():
    rates, restrictions = OwnRates(), [Restriction("*", user_rate=Rate(1, 1))]
    for user in (b"192.0.2.9", b""):  # the latter counts by its address
        denials = [paced_by_user(restrictions, user, peer("192.0.2.9"), None, rates, 0) for _ in range(2)]
        assert [each and each.reason for each in denials] == [None, "too-many-requests"]


GET_SECRET = RequestLine(b"GET", (b"/x?s%65cret", b"/x?secret"))


@cases(
    "subject, text, fields, refused, required",
    # Outcomes for a rule that refuses the value, and for one that requires it.
    ("method", "GET", [], True, False),
    ("method", "get", [], False, True),
    ("target", "~secret", [], True, True),  # one spelling has it, the other not
    ("header:X-User", "bob", [(b"x-user", b"bob")], True, False),
    ("header:X-User", "bob", [(b"x-user", b"Bob")], False, True),
    ("header:X-User", "", [], True, False),
    ("header:X-User", "bob", [(b"x-user", b"ann"), (b"x-user", b"bob")], True, True),
    ("header:X-User", "~^b", [(b"x-user", b"bob")], True, False),
    ("header:X-User", "~.", [(b"x-user", b"b" * 1_000_000)], True, True),  # too long to be searched
    ("cookie:who", "ann", [(b"cookie", b"a=b; WHO = ann")], True, False),
    ("cookie:who", "ann", [(b"cookie", b"xwho=ann")], False, True),
    ("cookie:who", "ann", [(b"cookie", b"a=b,who=ann"), (b"cookie", b"who=bob")], True, True),
)
def test_a_value_is_refused_or_required(subject, text, fields, refused, required):
    for is_required, is_denied in ((False, refused), (True, required)):
        condition = condition_of(subject, [text], is_required=is_required)
        assert denies(condition, fields) == is_denied


def denies(condition, fields, line=GET_SECRET):
    restriction = Restriction("*", conditions=(condition,))
    denial = denial_of(restriction, peer("::1"), "::1", fields, OwnRates(), 0, line)
    return denial is not None and denial.reason == "access-denied"


@cases(
    "subject, text, fields",
    ("header:X-Debug", "~.", [(b"x_debug", b"1")]),
    ("header:X-Debug", "~.", [(b"x.debug", b"1")]),
    ("header:X_Debug", "~.", [(b"x-debug", b"1")]),
    ("header:X-Debug", "a, b", [(b"x-debug", b"a"), (b"x_debug", b"b")]),
    ("header:X-Debug", "", [(b"x_debug", b"1")]),  # some servers see no field
    ("header:X-Debug", "a,b", [(b"x-debug", b"a"), (b"x-debug", b"b")]),
    ("header:X-Debug", "b", [(b"x-debug", b"a")] * 5),  # too many to be searched
    ("header:Cookie", "a=1; role=admin", [(b"cookie", b"a=1"), (b"cookie", b"role=admin")]),
    *(
        ("cookie:role", "admin", [(b"cookie", line)])
        for line in (
            b"a=1;\trole=admin",
            b"role\t=admin",
            b"role=\tadmin",
            b"role=admin ; a=1",
            b"role=admin\t;a=1",
            b'role="admin"',
            b'role="admin,x"',
            b"role=x,role=admin",
            b"role=admin,x=1",
            b"role=x; ROLE=admin",
            b"role=x;" * 5,  # too many to be searched
        )
    ),
    ("cookie:role", "", [(b"cookie", b"a=1;\trole=admin")]),  # some servers see no cookie
)
def test_a_refusal_holds_however_a_field_is_spelled(subject, text, fields):
    assert denies(condition_of(subject, [text], is_required=False), fields)


@cases(
    "subject, text, fields",
    ("header:X-Debug", "1", [(b"x_debug", b"1")]),
    ("header:X-Debug", "~a", [(b"x-debug", b"a")] * 5),
    *(
        ("cookie:role", "admin", [(b"cookie", line)])
        for line in (
            b"a=1;\trole=admin",
            b"role=\tadmin",
            b"role=admin ; a=1",
            b'role="admin"',
            b"role=admin,x=1",
            b"role=admin;\trole=x",
            b"role=admin;role\t=x",
            b"role=admin;" * 5,
        )
    ),
    ("cookie:role", "~admin", [(b"cookie", b"role=admin,role=x")]),
)
def test_a_requirement_holds_for_one_spelling_only(subject, text, fields):
    assert denies(condition_of(subject, [text], is_required=True), fields)


def test_a_required_cookie_may_have_a_comma():
    condition = condition_of("cookie:role", ["~^{.*}$"], is_required=True)
    assert not denies(condition, [(b"cookie", b"a=1; role={1,2}; b=2")])


def status_of(condition, target, *, canonical_only=False):
    """The status of the answer to a request in front of an application."""
    proxy = Proxy()
    proxy.restrict(Restriction("*", conditions=(condition,), canonical_only=canonical_only))
    decision = proxy.admit(target).decision
    return decision.status if isinstance(decision, Refuse) else 200


@pytest.mark.parametrize("text", ["~^/Admin", "~^/admin[?]x", "/admin?x"])
@cases("target", b"//admin?x", b"/x/..%2fadmin?x", b"/%2fadmin?x", b"/\\admin?x", b"/x/..;/admin?x")
def test_a_refusal_holds_for_each_reading_of_a_path(text, target):
    assert status_of(condition_of("target", [text], is_required=False), target) in {400, 403}
    assert status_of(condition_of("target", ["~^/other"], is_required=False), target) in {200, 400}


@pytest.mark.parametrize("target", [b"/ok/..;/x", b"/ok/\\..;a/x", b"/%6fk/..;/..;/x"])
def test_a_required_target_is_each_reading(target):
    condition = condition_of("target", ["~^/(?:%6f|O|o)k/"], is_required=True)
    assert [status_of(condition, each) for each in (b"/ok/x", b"/Ok/x", target)] == [200, 200, 403]


def test_a_query_is_searched_as_it_came():
    condition = condition_of("target", ["~[?&_]REQUEST=|REQUEST="], is_required=False)
    statuses = [status_of(condition, each) for each in (b"/SSO?SAMLRequest=fZ", b"/sso?REQUEST=1")]
    assert statuses == [200, 403]


@cases("text, target", ("~^/a%20b$", b"/a%20b"), ("~^/caf%C3%A9", b"/caf%C3%A9"), ("~^/a b$", b"/a%20b"))
def test_a_required_path_with_one_reading_counts_as_spelled(text, target):
    condition = condition_of("target", [text], is_required=True)
    assert status_of(condition, target) == (403 if " " in text else 200)


def test_cookies_divided_at_blanks_are_refused():
    condition = condition_of("cookie:role", ["admin"], is_required=False)
    for line in (b"a=1 role=admin", b"role=admin a=1", b"a=1\trole=admin\ta=1"):
        assert denies(condition, [(b"cookie", line)])
    assert not denies(condition, [(b"cookie", b"a=%d" % number) for number in range(9)])


def test_a_condition_of_the_canonical_path_ignores_other_readings():
    condition = condition_of("target", ["~^/admin"], is_required=False)
    assert status_of(condition, b"/ADMIN") == 403
    assert status_of(condition, b"/ADMIN", canonical_only=True) == 200


@cases("text, is_required", ("/none", False), ("~.", True))
def test_a_path_with_too_many_readings_has_no_access(text, is_required):
    condition = condition_of("target", [text], is_required=is_required)
    for number, status in ((3, 200), (100, 403)):
        assert status_of(condition, b"/a%2F..;c/b" * number) == status


def test_a_target_in_absolute_form_is_its_path_and_query():
    target = b"http://" + HOST + b"/ok"
    for is_required, status in ((True, 200), (False, 403)):
        assert status_of(condition_of("target", ["/ok"], is_required=is_required), target) == status


def test_many_expressions_are_searched_together():
    words = [f"~word{number}" for number in range(300)]
    condition = condition_of("header:X-User", words, is_required=False)
    assert len(condition.tests) < 40
    assert denies(condition, [(b"x-user", b"a word299")])
    assert not denies(condition, [(b"x-user", b"x" * 8_000)])
    assert denies(condition, [(b"x-user", b"x" * 100_000)])  # too long to be searched
    for texts in (["~a|b", r"~\Qx(", "~(?i)c"], ["~(?P<n>a|b)", "~(?P<n>(?i)c)"]):
        condition = condition_of("header:X-User", texts, is_required=False)
        denied = [each for each in (b"b", b"C", b"B") if denies(condition, [(b"x-user", each)])]
        assert denied == [b"b", b"C"]


@cases("text, message", ("~bot\nx", "newline"), ("a\n", "newline"), ("~\u00e9", "ASCII"))
def test_a_text_that_no_value_can_match_is_an_error(text, message):
    for subject in ("header:User-Agent", "target"):
        with pytest.raises(ValueError, match=message):
            condition_of(subject, [text], is_required=False)


@pytest.mark.parametrize(("subject", "text"), [("path", "a"), ("header:", "a"), ("method", "~(")])
def test_a_condition_of_another_kind_is_no_setting(subject, text):
    with pytest.raises(ValueError, match=r"method|RE2"):
        condition_of(subject, [text], is_required=True)


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=200),
)
def test_no_time_has_more_than_its_rate_and_a_burst(count, burst, pauses):
    rates, rate, now = OwnRates(), Rate(1 / count, burst), 0.0
    passed = list[float]()
    for pause in pauses:
        now += pause
        if not rates.wait("site", "a", rate, now):
            passed.append(now)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - passed[first]) * count + 1e-6


def test_a_client_that_waits_as_told_passes():
    rates, rate = OwnRates(), Rate(7, 2)
    now = 0.0
    for _ in range(50):
        now += rates.wait("site", "a", rate, now)
        assert rates.wait("site", "a", rate, now) == 0


def test_a_clock_set_back_keeps_nobody_waiting_for_long():
    rates, rate = OwnRates(), Rate(1, 5)
    for _ in range(5):
        rates.wait("site", "a", rate, 1_000_000)
    assert rates.wait("site", "a", rate, 10) <= 5


def test_the_rates_of_many_clients_take_bounded_memory():
    rates = OwnRates(most=100)
    for number in range(1000):
        rates.wait("site", str(number), Rate(1, 1), 0)
    assert len(rates) == 100


def peer(client, *, known=True):
    return Peer([b"en.example"], b"http", client, known=known)


@cases(
    "allow, deny, client, known, reason",
    ([], [], None, False, None),
    (["10.0.0.0/8"], [], "10.1.2.3", True, None),
    (["10.0.0.0/8"], [], "::ffff:10.1.2.3", True, None),
    (["10.0.0.0/8"], [], "10.1.2.3", False, "access-denied"),
    (["10.0.0.0/8"], [], "11.1.2.3", True, "access-denied"),
    (["10.0.0.0/8"], ["10.1.0.0/16"], "10.1.2.3", True, "access-denied"),
    (["10.0.0.0/8"], ["10.1.0.0/16"], "10.2.2.3", True, None),
    ([], ["10.0.0.0/8"], "10.1.2.3", True, "access-denied"),
    ([], ["10.0.0.0/8"], "11.1.2.3", True, None),
    ([], ["10.0.0.0/8"], None, True, "access-denied"),
    ([], ["10.0.0.0/8"], "11.1.2.3", False, "access-denied"),
)
def test_an_address_gives_access_or_takes_it(allow, deny, client, known, reason):
    restriction = Restriction("site", networks(allow), networks(deny))
    denial = denial_of(restriction, peer(client, known=known), client, [], OwnRates(), 0)
    assert (None if denial is None else denial.reason) == reason


def credentials(name, password):
    return base64.b64encode(f"{name}:{password}".encode())


@pytest.fixture
def users(tmp_path):
    hashed = bcrypt.hashpw(b"cat", bcrypt.gensalt(4)).decode()
    (tmp_path / "users").write_text(f"anna:{hashed}\n")
    return UserFile(tmp_path / "users", "basic", "univocal.toml")


@cases(
    "lines, challenged",
    ([b"Basic " + credentials("anna", "cat")], True),
    ([b"bASIC  " + credentials("anna", "cat")], True),
    ([], False),
    ([b"Basic"], False),
    ([b"Basic !"], False),
    ([b"Bearer " + credentials("anna", "cat")], False),
    ([b"Basic " + b"a" * 2000], False),
    ([b"Basic " + credentials("anna", "cat")] * 2, False),
)
def test_credentials_that_may_be_right_are_verified(users, lines, challenged):
    fields = [(b"authorization", line) for line in lines]
    restriction = Restriction("site", users=users)
    denial = denial_of(restriction, peer("192.0.2.1"), "192.0.2.1", fields, OwnRates(), 0)
    assert denial is not None
    assert (denial.reason, denial.challenge is not None) == ("unauthorized", challenged)


def test_no_name_ends_the_challenge_early(users):
    restriction = Restriction('a"\\\r\nb: \x7fc', users=users)
    denial = denial_of(restriction, peer("192.0.2.1"), "192.0.2.1", [], OwnRates(), 0)
    assert denial is not None
    assert denial.fields == [(b"www-authenticate", b'Basic realm="ab: c", charset="UTF-8"')]


async def test_results_of_verification_are_remembered(users):
    right, wrong = credentials("anna", "cat"), credentials("anna", "dog")
    assert (users.knows(right), users.knows(wrong)) == (None, None)
    assert [await users.verify(each) for each in (right, wrong, right)] == [True, False, True]
    assert (users.knows(right), users.knows(wrong)) == (True, False)


async def test_requests_with_one_password_wait_for_one_verdict(users, monkeypatch):
    asked = list[bytes]()
    monkeypatch.setattr(restrictions, "_is_right", lambda password, _: asked.append(password) or True)
    right = credentials("anna", "cat")
    assert await asyncio.gather(*(users.verify(right) for _ in range(20))) == [True] * 20
    assert asked == [b"cat"]


async def test_an_unknown_name_costs_as_much_and_has_no_access(users, monkeypatch):
    asked = list[bytes]()
    monkeypatch.setattr(restrictions, "_is_right", lambda password, _: asked.append(password) or True)
    assert await users.verify(credentials("bert", "cat")) is False
    assert asked == [b"cat"]


async def test_too_many_passwords_at_once_are_refused(users):
    many = (users.verify(credentials("anna", str(number))) for number in range(100))
    outcomes = await asyncio.gather(*many, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, RefusedError)]
    assert {each.reason for each in refused} == {"overloaded"}
    assert outcomes.count(False) + len(refused) == 100


@pytest.mark.parametrize("password", ["x" * 200, "a\0b", "", "\u00fc"])
async def test_no_password_is_an_error(users, password):
    assert await users.verify(credentials("anna", password)) is False
