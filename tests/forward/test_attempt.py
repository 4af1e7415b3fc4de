"""A request and its retries: which origin servers see it, and what who asked hears."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from neighbours import FRESH, PlayedAnswer
from univocal.forward.upstream import Upstream
from univocal.http.bonds import Bond
from univocal.http.errors import Failure, RefusedError
from univocal.http.messages import Received, Response, values
from univocal.http.pipe import whole
from univocal.http.roles import OriginRequest
from univocal.origin.servers import Balancing, OriginServer

LENGTH = (b"content-length", b"3")


class Server(OriginServer):
    """An origin server whose requests the test answers."""

    def __init__(self, name):
        super().__init__(f"http://{name}.example")
        self.asked = []
        self.at_once = None
        self.place = ""

    @property
    def address(self):
        return self.place

    @property
    def name(self):
        """Do nothing: there is no name to resolve."""

    def ask(self, request, answer, timeouts=None, moved=None):
        self.moved = moved
        asked = Asked(answer, request.fields)
        self.asked.append(asked)
        if self.at_once is not None:
            answer.fail(self.at_once)
        return asked


class Asked:
    def __init__(self, answer, fields):
        self.answer, self.fields = answer, fields
        self.came = self.took = False
        self.calls = []

    def pause(self):
        self.calls.append("pause")

    def resume(self):
        self.calls.append("resume")

    def cancel(self):
        self.calls.append("cancel")

    def fail(self, error, *, came=False, took=False):
        self.came, self.took = came, took
        self.answer.fail(error)


class Group:
    """Origin servers a, b and c, of which each request asks the first that may be asked; it watches them."""

    def __init__(self, number=3, origin_host="site", **settings):
        self.servers = [Server(name) for name in "abcd"[:number]]
        balancing = Balancing(**{"choice": "round-robin", "fails": 100, "retries": 2, **settings})
        self.upstream = Upstream.of(self.servers, origin_host, balancing=balancing)
        self.bond = Bond()
        self.failures = []
        self.told = []

    def send(self, method=b"GET", *fields, content=None):
        self.heard = PlayedAnswer()
        sent = [(b"host", b"en.example"), *fields]
        received = Received(method, b"/a", client="127.0.0.1")
        request = OriginRequest(method, b"/a", sent, received, content)
        request.watch, request.bond = self, self.bond
        self.asked = self.upstream.ask(request, self.heard)
        return self.heard

    # The methods of a watch (see http.roles).

    def sending(self, origin, fields):
        self.told.append(origin)
        return [*fields, (b"x-number", b"%d" % len(self.told))]

    def answered(self, origin, status):
        self.told.append(status)

    def failed(self, failure):
        self.failures.append(failure)

    @property
    def numbers(self):
        return [len(server.asked) for server in self.servers]

    def assert_nothing_is_under_way(self):
        assert [member.under_way for member in self.upstream.balance.members] == [0] * len(self.servers)


def error(reason, *, sent=True):
    refused = RefusedError(reason)
    refused.provoked = sent
    if reason != "bad-target":
        refused.failure = Failure("http://a.example", "", "refused", reason)
    return refused


# A request, its failure, whether it was sent, what octets had come of a response and gone of its content, and
# whether it is sent again.
@cases(
    "method, fields, reason, sent, begun, again",
    (b"GET", [], "origin-unreachable", False, "", True),
    (b"GET", [], "origin-unreachable", True, "", True),
    (b"GET", [], "origin-timeout", True, "", True),
    (b"GET", [], "origin-timeout", True, "came", False),
    (b"GET", [], "origin-bad-response", True, "came", False),
    (b"GET", [], "origin-bad-response", True, "", True),  # closed without an octet
    (b"GET", [], "overloaded", False, "", True),
    (b"GET", [], "bad-target", True, "", False),
    (b"GET", [LENGTH], "origin-timeout", True, "took", False),
    (b"GET", [LENGTH], "origin-unreachable", False, "", True),
    (b"PUT", [LENGTH], "origin-unreachable", True, "took", False),
    (b"PUT", [LENGTH], "origin-unreachable", True, "", True),  # which waited for 100 (Continue)
    (b"DELETE", [], "origin-unreachable", True, "", True),
    (b"POST", [], "origin-unreachable", True, "", False),
    (b"POST", [], "origin-timeout", True, "", False),
    (b"POST", [LENGTH], "origin-unreachable", True, "", False),
    (b"POST", [LENGTH], "origin-unreachable", False, "", True),
    (b"PATCH", [], "origin-bad-response", True, "", False),
    (b"FROB", [], "origin-unreachable", False, "", True),
)
def test_a_request_is_repeated_only_where_that_is_safe(method, fields, reason, sent, begun, again):
    group = Group(2)
    heard = group.send(method, *fields, content=whole(b"x"))
    refused = error(reason, sent=sent)
    group.servers[0].asked[0].fail(refused, came=begun == "came", took=begun == "took")
    assert group.numbers == [1, int(again)]
    if again:
        assert heard.ends == []
        answer = group.servers[1].asked[0].answer
        answer.start(Response(200, FRESH))
        answer.write(b"content")
        answer.finish()
        assert (heard.statuses, heard.content, heard.ends) == ([200], b"content", [None])
    else:
        assert heard.ends == [refused]
    assert group.failures == ([refused.failure] if refused.failure else [])
    group.assert_nothing_is_under_way()


def test_the_first_to_answer_within_the_call_gets_the_request():
    """A failure within `ask` is followed by another `ask` within it, which must not be forgotten."""
    group = Group(2)
    group.servers[0].at_once = error("origin-unreachable", sent=False)
    group.send()
    group.asked.pause()
    group.asked.resume()
    group.asked.cancel()
    assert (group.servers[0].asked[0].calls, group.servers[1].asked[0].calls) == (
        [],
        ["pause", "resume", "cancel"],
    )
    group.assert_nothing_is_under_way()


@cases(
    "reason, failures",
    ("origin-unreachable", 1),
    ("origin-timeout", 1),
    ("origin-bad-response", 1),
    ("overloaded", 0),
    ("bad-target", 0),
)
def test_failures_of_the_origin_server_alone_are_counted(reason, failures):
    group = Group(2)
    group.send(b"POST")
    group.servers[0].asked[0].fail(error(reason))
    assert group.upstream.balance.members[0].failures == failures


def test_an_answer_with_two_lengths_is_a_failure():
    group = Group(2)
    group.send()
    asked = group.servers[0].asked[0]
    with pytest.raises(RefusedError) as raised:
        asked.answer.start(Response(200, [LENGTH, (b"content-length", b"4")]))
    asked.fail(raised.value, came=True)
    assert (group.numbers, group.upstream.balance.members[0].failures) == ([1, 0], 1)


def test_a_client_that_leaves_counts_as_no_failure():
    group = Group(2)
    heard = group.send()
    group.asked.cancel()
    group.asked.cancel()
    member = group.upstream.balance.members[0]
    assert (heard.ends, member.failures, member.under_way) == ([], 0, 0)


@pytest.mark.pure("a method is replaced")
def test_a_request_that_breaks_at_once_is_not_under_way(monkeypatch):
    """A lack of memory breaks a request in this way."""
    group = Group(1)

    def breaks(*_):
        raise MemoryError

    monkeypatch.setattr(group.servers[0], "ask", breaks)
    with pytest.raises(MemoryError):
        group.send()
    assert group.upstream.balance.members[0].under_way == 0


def test_while_all_are_down_who_asks_hears_so_at_once():
    group = Group(2)
    for member in group.upstream.balance.members:
        group.upstream.balance.mark(member, 0, up=False)
    heard = group.send()
    (refused,) = heard.ends
    assert isinstance(refused, RefusedError)
    assert (refused.reason, refused.status, refused.provoked) == ("origin-unreachable", 502, False)
    assert refused.failure is not None
    assert (refused.failure.reason, group.numbers) == ("down", [0, 0])
    assert refused.failure.origin == ", ".join(server.url for server in group.servers)


@cases(
    "origin_host, hosts",
    ("site", [b"en.example", b"en.example"]),
    ("upstream", [b"a.example", b"b.example"]),
    ("app.example:8000", [b"app.example:8000", b"app.example:8000"]),
)
def test_the_host_is_the_configured_one_and_comes_first(origin_host, hosts):
    group = Group(2, origin_host)
    group.send()
    group.servers[0].asked[0].fail(error("origin-unreachable"))
    sent = [server.asked[0].fields for server in group.servers]
    assert [values(fields, b"host") for fields in sent] == [[host] for host in hosts]
    assert [fields[0][0] for fields in sent] == [b"host", b"host"]
    assert sent[0][1:-1] == sent[1][1:-1]
    assert [fields[-1] for fields in sent] == [(b"x-number", b"1"), (b"x-number", b"3")]


@cases("sent, provoked", ((True, False), True), ((False, True), True), ((False, False), False))
def test_a_failure_is_nobodys_fault_if_nothing_was_sent(sent, provoked):
    """Otherwise waiting clients would get an error that one client's request has provoked."""
    group = Group(2)
    heard = group.send()
    for server, each in zip(group.servers, sent, strict=True):
        server.asked[0].fail(error("origin-unreachable", sent=each))
    (refused,) = heard.ends
    assert isinstance(refused, RefusedError)
    assert refused.provoked is provoked


# Ends of one try: nothing was sent, no byte came, some came, a head came before a failure, an answer came,
# or the client left.
TRIES = st.sampled_from(["unsent", "silent", "octets", "cut", "answer", "leaves"])


@given(
    number=st.integers(1, 4),
    retries=st.integers(0, 4),
    fails=st.integers(1, 3),
    method=st.sampled_from([b"GET", b"HEAD", b"PUT", b"DELETE", b"POST", b"PATCH"]),
    has_content=st.booleans(),
    waits=st.booleans(),
    tries=st.lists(TRIES, min_size=5, max_size=5),
)
def test_no_request_is_sent_twice_that_may_not_be(number, retries, fails, method, has_content, waits, tries):
    group = Group(number, retries=retries, fails=fails, choice="least-requests")
    heard = group.send(method, *[LENGTH][:has_content], content=whole(b"x"))
    asked = []
    seen = []
    for outcome in tries:
        fresh = [server for server in group.servers if server.asked and server not in seen]
        if not fresh:
            break
        (server,) = fresh
        seen.append(server)
        asked.append(outcome)
        play(outcome, server.asked[0], group, took=has_content and not waits)
    sent = [outcome for outcome in asked if outcome != "unsent"]
    if (has_content and not waits) or method in {b"POST", b"PATCH"}:
        assert len(sent) <= 1
    assert all(outcome in {"unsent", "silent"} for outcome in asked[:-1])
    assert len(asked) <= min(number, retries + 1)
    assert [len(server.asked) for server in seen] == [1] * len(seen)
    assert len(heard.ends) == (asked[-1] != "leaves")
    blamed = sum(outcome in {"unsent", "silent", "octets"} for outcome in asked)
    assert sum(member.failures for member in group.upstream.balance.members) == blamed
    group.assert_nothing_is_under_way()


def play(outcome, asked, group, *, took):
    match outcome:
        case "unsent":
            asked.fail(error("origin-unreachable", sent=False))
        case "silent":
            asked.fail(error("origin-timeout"), took=took)
        case "octets":
            asked.fail(error("origin-bad-response"), came=True, took=took)
        case "leaves":
            group.asked.cancel()
        case _:
            asked.answer.start(Response(200, FRESH))
            asked.answer.write(b"content")
            if outcome == "cut":
                asked.fail(error("origin-unreachable"), came=True)
            else:
                asked.answer.finish()


@pytest.mark.parametrize("answered", [True, False])
def test_the_first_to_accept_a_connection_gets_the_request(answered):
    """RFC 8305: to the balance, the address that lost the race has failed, and the other one serves."""
    group = Group(retries=0, fails=1)
    for server, address in zip(group.servers, ("2001:db8::1", "192.0.2.1", "192.0.2.2"), strict=True):
        server.url, server.place = "http://app.example", address
    heard = group.send()
    first, second, third = group.upstream.balance.members
    group.servers[0].moved("192.0.2.2")
    assert [member.under_way for member in (first, second, third)] == [0, 0, 1]
    assert [member.state.value for member in (first, second, third)] == ["ejected", "up", "up"]
    if answered:
        group.servers[0].asked[0].answer.start(Response(200, [LENGTH]))
        group.servers[0].asked[0].answer.finish()
        assert heard.statuses == [200]
    else:
        group.servers[0].asked[0].fail(error("origin-timeout"))
    assert [member.failures for member in (first, second, third)] == [1, 0, 0 if answered else 1]
    assert [member.requests for member in (first, second, third)] == [1, 0, 1]
    group.assert_nothing_is_under_way()


def test_an_address_that_is_gone_is_not_moved_to():
    group = Group(retries=0)
    group.send()
    group.servers[0].moved("192.0.2.9")
    assert [member.under_way for member in group.upstream.balance.members] == [1, 0, 0]
    group.servers[0].asked[0].fail(error("origin-timeout"))
    group.assert_nothing_is_under_way()


def test_an_authenticated_client_stays_at_its_server_behind_a_reload():
    group = Group()
    group.bond.keep(group, Asked(None, []))
    for number in range(1, 4):
        group.send()
        asked = group.servers[0].asked
        assert len(asked) == number
        asked[-1].answer.start(Response(200, FRESH))
        asked[-1].answer.finish()
        group.upstream = Upstream.of(group.upstream.servers[::-1])
