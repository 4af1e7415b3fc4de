"""Another server decides about requests: what it is told, and what its answer means for how long."""

from dataclasses import replace

import pytest

from neighbours import FRESH, HOST, PlayedOrigin, Proxy
from univocal.http.errors import RefusedError
from univocal.judge import forward_auth
from univocal.judge.access import Restriction
from univocal.judge.forward_auth import ForwardAuth
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import RouteSettings
from univocal.judge.trust import networks
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

COOKIE = (b"cookie", b"session=anna")


class Server(PlayedOrigin):
    """An authorization server, as a next hop."""

    cookie = b""

    def send(self, request, answer, watch=None):
        assert watch is None
        return self.ask(request, answer)


class Guarded(Proxy):
    """An engine whose only site asks a server about each request."""

    def __init__(self, ttl=0, names=(b"x-user",)):
        super().__init__()
        self.server, self.ticks = Server(), 100.0
        self.engine.gate.monotonic = lambda: self.ticks
        self.restrict(Restriction("*", forward=ForwardAuth(self.server, b"/verify", names, ttl)))

    def sent(self):
        """The fields of the last request to the origin server, as far as they are set."""
        request = self.origin.last.request
        return request.fields if request.edits is None else request.edits.supply(request.fields)


def test_a_server_learns_the_request_without_its_content():
    proxy = Guarded()
    spoofed = [(b"x-user", b"root"), (b"x_user", b"root"), (b"x-forwarded-uri", b"/open")]
    framing = [(b"content-length", b"3"), (b"expect", b"100-continue"), (b"range", b"bytes=0-")]
    client = proxy.ask(b"/%61?b", b"POST", COOKIE, *spoofed, *framing, (b"if-none-match", b'"a"'))
    asked = proxy.server.last.request
    assert (asked.method, asked.target, asked.content) == (b"GET", b"/verify", None)
    assert asked.edits is not None
    assert asked.edits.supply(asked.fields) == [
        (b"host", HOST), COOKIE, (b"x-forwarded-method", b"POST"), (b"x-forwarded-uri", b"/a?b"),
        (b"x-original-method", b"POST"), (b"x-original-uri", b"/a?b"),
        (b"x-original-url", b"http://en.example/a?b"), (b"x-real-ip", b"127.0.0.1"),
    ]  # fmt: skip
    assert (client.status, proxy.origin.asked) == (0, [])


def test_a_grant_replaces_the_fields_of_the_client():
    proxy = Guarded(names=(b"x-user", b"x-role"))
    proxy.ask(b"/a", b"GET", COOKIE, (b"x-user", b"root"), (b"x_role", b"root"), (b"x-role", b"root"))
    proxy.server.last.answers(fields=[(b"x-user", b"anna"), (b"x-other", b"no")])
    assert proxy.sent() == [(b"host", HOST), COOKIE, (b"x-user", b"anna")]


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 429, 500, 503])
def test_any_other_answer_is_the_client_s(status):
    proxy = Guarded(ttl=60)
    for count in (1, 2):  # it is not remembered
        client = proxy.ask(b"/a", b"GET", COOKIE)
        proxy.server.last.answers(b"no", b"!", status=status, fields=[(b"location", b"/login")])
        assert (client.status, client.body, client.state) == (status, b"no!", "finished")
        assert client.fields == [
            (b"location", b"/login"), (b"cache-control", b"no-store"), (b"content-length", b"3"),
        ]  # fmt: skip
        assert (len(proxy.server.asked), proxy.origin.asked) == (count, [])
        assert proxy.outcomes[-1].reasons == ("access-denied",)


def too_large(request):
    request.answers(*[bytes(1024)] * 300, status=403)


def too_many_fields(request):
    request.answers(fields=[(b"x-user", bytes(1024))] * 20)


def cut(request):
    request.start(403)
    request.fail(RefusedError("origin-bad-response"))


@pytest.mark.parametrize(
    "failing",
    [
        lambda request: request.answer.fail(RefusedError("origin-unreachable")),
        lambda request: request.answer.fail(RefusedError("origin-timeout")),
        lambda request: request.answer.fail(ValueError()),
        cut,
        too_large,
        too_many_fields,
    ],
    ids=["refused", "timeout", "fault", "cut", "large", "large fields"],
)
def test_without_an_answer_nobody_has_access(failing):
    for is_early in (True, False):
        proxy = Guarded(ttl=60)
        proxy.server.script = failing if is_early else None
        client = proxy.ask(b"/a", b"GET", COOKIE)
        if not is_early:
            failing(proxy.server.last)
        assert (client.status, proxy.origin.asked, client.state) == (503, [], "finished")
        assert proxy.outcomes[-1].reasons == ("authorization-unavailable",)


def allowed(proxy, target, *fields, user=b"anna"):
    """A client asks; the server, if it is asked, allows it as this user."""
    count = len(proxy.server.asked)
    client = proxy.ask(target, b"GET", *fields)
    if len(proxy.server.asked) > count:
        proxy.server.last.answers(fields=[(b"x-user", user)] if user else [])
    return client


def test_a_grant_holds_for_the_same_credentials_and_url():
    proxy = Guarded(ttl=10)
    questions = [
        (b"/a", COOKIE, 0, 1),
        (b"/%61", COOKIE, 9, 1),  # the same URL
        (b"/b", COOKIE, 0, 2),
        (b"/a", (b"cookie", b"session=bert"), 0, 3),
        (b"/a", (b"x-api-key", b"1"), 0, 4),
        (b"/a", (b"accept", b"text/html"), 0, 5),
        (b"/a", (b"accept", b"text/plain"), 0, 5),  # neither has credentials
        (b"/a", COOKIE, 1, 6),
        (b"/a", COOKIE, -5, 7),
    ]
    for target, field, seconds, count in questions:
        proxy.ticks += seconds
        allowed(proxy, target, field)
        assert len(proxy.server.asked) == count, (target, field, seconds)


def test_a_grant_holds_for_one_method_and_one_client():
    proxy = Guarded(ttl=10)
    proxy.engine.gate.runtime = replace(proxy.engine.gate.runtime, trusted=networks(["127.0.0.1"]))
    for method, more in ((b"GET", ()), (b"POST", ()), (b"GET", [(b"x-forwarded-for", b"192.0.2.9")])):
        for asked in (1, 0):
            count = len(proxy.server.asked)
            proxy.ask(b"/a", method, COOKIE, *more)
            assert len(proxy.server.asked) == count + asked, (method, more)
            if asked:
                proxy.server.last.answers(fields=[(b"x-user", b"anna")])


@pytest.mark.pure("a bound is replaced")
def test_many_grants_take_bounded_memory(monkeypatch):
    assert forward_auth._MOST_GRANTS == 4096  # fewer are forgotten sooner
    monkeypatch.setattr(forward_auth, "_MOST_GRANTS", 40)
    proxy = Guarded(ttl=10)
    for number in range(50):
        allowed(proxy, b"/%d" % number, COOKIE).exchange.cancel()
    for target, count in ((b"/10", 50), (b"/49", 50), (b"/9", 51)):
        allowed(proxy, target, COOKIE)
        assert len(proxy.server.asked) == count


def test_a_stored_response_answers_its_user_alone():
    proxy, cookies = Guarded(), {user: (b"cookie", b"session=" + user) for user in (b"anna", b"bert")}
    stored = {user: allowed(proxy, b"/a", cookies[user], user=user) for user in cookies}
    for client, request in zip(stored.values(), proxy.origin.asked, strict=True):
        request.answers(client.exchange.admission.user, fields=FRESH)
    for user, cookie in cookies.items():
        assert (stored[user].body, allowed(proxy, b"/a", cookie, user=user).body) == (user, user)
    assert len(proxy.origin.asked) == 2
    allowed(proxy, b"/a", user=b"")
    assert len(proxy.origin.asked) == 3


def test_without_a_name_what_is_stored_answers_its_credentials_alone():
    proxy = Guarded(names=())
    allowed(proxy, b"/a", COOKIE, user=b"")
    proxy.origin.last.answers(b"anna's", fields=FRESH)
    assert allowed(proxy, b"/a", COOKIE, user=b"").body == b"anna's"
    assert allowed(proxy, b"/a", (b"cookie", b"session=bert"), user=b"").status == 0
    assert allowed(proxy, b"/a", user=b"").status == 0
    assert len(proxy.origin.asked) == 3


class NoUsers:
    """No password is right."""

    def knows(self, credentials):
        return False

    async def verify(self, credentials):
        raise AssertionError


@pytest.mark.parametrize("kind", ["users", "forward"])
def test_without_credentials_an_alias_leads_on_and_no_route(kind):
    """The alias goes first, and the client learns of its site's host alone."""
    proxy, profile = Guarded(), builtin_profiles()["asgi"]
    hidden = Route(b"/in/", profile, "", redirect=b"https://hidden.example/", redirect_status=301)
    site = Site(
        "*", ("en.example",), (Route(b"/", profile, ""), hidden), ("www.en.example",), alias_answer=308
    )
    runtime = replace(proxy.engine.gate.runtime, sites=Sites([site]))
    if kind == "users":
        runtime = replace(
            runtime, settings={"*": RouteSettings(restriction=Restriction("*", users=NoUsers()))}
        )
    proxy.engine.gate.runtime = runtime
    for path in (b"/a", b"/in/x"):
        led = proxy.ask(b"http://www.en.example" + path)
        assert (led.status, dict(led.fields)[b"location"]) == (308, b"http://en.example" + path)
        assert (len(dict(led.fields)), led.body, proxy.server.asked) == (2, b"", [])
    for path in (b"/a", b"/in/x"):
        refused = proxy.ask(path, b"GET", COOKIE)
        if kind == "forward":
            proxy.server.last.answers(status=401)
        assert (refused.status, dict(refused.fields).get(b"location")) == (401, None)
        assert b"hidden" not in refused.body
    assert proxy.origin.asked == []


def test_a_client_that_leaves_is_asked_about_no_longer():
    proxy = Guarded()
    client = proxy.ask(b"/a", b"GET", COOKIE)
    client.exchange.cancel()
    assert proxy.server.last.cancelled
    assert proxy.origin.asked == []


def test_a_reload_meanwhile_asks_again():
    proxy = Guarded()
    proxy.ask(b"/a", b"GET", COOKIE)
    proxy.engine.gate.runtime = replace(proxy.engine.gate.runtime)
    proxy.server.last.answers(fields=[(b"x-user", b"anna")])
    assert (len(proxy.server.asked), proxy.origin.asked) == (2, [])
    proxy.server.last.answers(fields=[(b"x-user", b"anna")])
    assert len(proxy.origin.asked) == 1


def test_a_refresh_in_the_background_is_its_users_own():
    proxy = Guarded(names=())
    stale = [(b"cache-control", b"max-age=1, stale-while-revalidate=600")]
    allowed(proxy, b"/a", COOKIE, user=b"")
    proxy.origin.last.answers(b"anna's", fields=stale)
    proxy.clock.now += 5
    assert allowed(proxy, b"/a", COOKIE, (b"range", b"bytes=0-1"), user=b"").body == b"an"
    assert len(proxy.origin.asked) == 2
    assert COOKIE in proxy.sent()
    assert b"range" not in dict(proxy.sent())
    proxy.origin.last.answers(b"anna's, again", fields=stale)
    assert allowed(proxy, b"/a", COOKIE, user=b"").body == b"anna's, again"
    assert allowed(proxy, b"/a", (b"cookie", b"session=bert"), user=b"").status == 0
