"""Guards, bypasses and lifetimes hold for every reading of a path."""

import pytest

from examples import cases
from neighbours import HOST, PlayedOrigin
from support import stored_response
from univocal import Profile, builtin_profiles
from univocal.cache.decide import Forward, Refuse, Reuse
from univocal.cache.rules import Rules
from univocal.http.messages import Received
from univocal.judge.access import Restriction
from univocal.judge.admission import Gate
from univocal.judge.forward_auth import ForwardAuth
from univocal.judge.runtime import RouteSettings, Runtime
from univocal.judge.trust import networks
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import compiled
from univocal.store.tiers import MemoryTier
from univocal.uri.profile import parse
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

BUILT_IN = builtin_profiles()
CLOSED = networks(["0.0.0.0/0", "::/0"])
SITE = HOST.decode()
NOW = 1_700_000_000.0


def gate(profile="rfc3986", routes=(), closed=(), rules=None, **bounds):
    """The gate of one site; `routes` are paths with profiles, of which those in `closed` are for none."""
    known = profile if isinstance(profile, Profile) else BUILT_IN[profile]

    def route(path, own=None, upstream="o"):
        expression = None
        if path.startswith("~"):
            expression = compiled(path[1:]).search, compiled("(?i)" + path[1:]).search
        return Route(path.encode(), BUILT_IN[own] if own else known, upstream, expression=expression)

    made = (route("/"), *[route(*(each if isinstance(each, tuple) else (each,))) for each in routes])
    guards = {each.prefix: Restriction(each.prefix.decode()) for each in made if closed}
    guards |= {path.encode(): Restriction(path, deny=CLOSED, **bounds) for path in closed}
    settings = {(SITE, prefix): RouteSettings(restriction=each) for prefix, each in guards.items()}
    settings |= {name: RouteSettings(each) for name, each in (rules or {}).items()}
    runtime = Runtime(Sites([Site(SITE, (SITE,), made)]), settings=settings)
    return Gate(runtime, MemoryTier(MemoryStore()))


def admitted(gate, target, method=b"GET", fields=()):
    received = Received(method, target, b"http", "192.0.2.1")
    return gate.admit(received, [(b"host", HOST), *fields], NOW)


def reason(gate, target, method=b"GET"):
    decision = admitted(gate, target, method).decision
    return decision.reason if isinstance(decision, Refuse) else ""


# A guard


@cases(
    "target",
    *b"/admin /admin/ /admin/x //admin/x ///admin /./admin /ADMIN/x /%41dmin".split(),
    *(b"/admin%2Fx", b"/%2Fadmin", b"/x/..%2Fadmin", b"/x/..%5Cadmin", b"/%5Cadmin", b"/admin%5Cx"),
    *(b"/admin;x/y", b"/admin;/y", b"/admin;jsessionid=1/y", b"//admin;x/y", b"/x/..;/admin"),
    *(b"/;x%2Fy/admin", b"/;/admin", b"/ADMIN/%25FF", b"/%2561dmin", b"/%25%32%46admin"),
    *(b"/admin%3Fx", b"/admin%23x", b"/%EF%BD%81dmin", b"/admin?x", b"/a/%2e%2e%2fadmin"),
    *(b"/b%252Fc/..%2Fadmin", b"/%u0061dmin", b"/x/..%2F" * 90 + b"y"),
    *(b"/admin.", b"/admin%20", b"/admin.%20/x", b"/admin::$DATA", b"/admin:%24i30:$INDEX_ALLOCATION/x"),
    # Letters of which one is 18 more
    *(b"/%EF%BD%81dmin/" + b"%EF%B7%BA" * 800, b"/%25EF%25BD%2581dmin/" + b"%25EF%25B7%25BA" * 500),
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD"])
def test_no_spelling_passes_a_guard(target, method):
    guarded = gate(routes=["/admin"], closed=["/admin"])
    assert reason(guarded, target, method) == "access-denied"


@pytest.mark.parametrize("target", [b"/admin%00", b"/admin%00.jpg", b"/%41dmin%2500/x", b"/x/..%2Fadmin%00"])
def test_a_guard_holds_where_a_refusal_is_observed(target):
    trial = parse({"trial": 'extends = "rfc3986"\n[reject]\nmode = "observe"'}, BUILT_IN)["trial"]
    assert reason(gate(trial, routes=["/admin"], closed=["/admin"]), target) == "access-denied"


def test_a_guarded_folder_that_a_reading_leaves_is_refused():
    assert reason(gate(routes=["/admin"], closed=["/admin"]), b"/admin/..;/..;/x") == "crosses-route"
    assert reason(gate(routes=["/x"], closed=["/"]), b"/x/..;/..;/x") == "crosses-route"


@cases(
    "target",
    *(b"/", b"/administrator", b"/x/admin", b"/x%2Fadmin", b"/100%25", b"/r/https%25253A%252F%252Fa.b"),
    *(b"/x;a=b,c/d", b"/What%3F/..._", b"/d/a%2Fb%2Fc", b"/wiki/A..B", b"/%E2%84%AA", b"/x?y=/admin"),
    *(b"/wiki/%EF%B7%BA", b"/wiki/%EF%B7%BA%EF%B7%BB/" + b"%E3%82%A2" * 300),
)
def test_harmless_paths_pass(target):
    assert reason(gate(routes=["/admin"], closed=["/admin"]), target) == ""


@cases(
    "guard, target",
    *(("=/login", each) for each in (b"/login", b"/LOGIN", b"//login", b"/login%2F", b"/login;x")),
    *(("*.php", each) for each in (b"/a/x.php", b"/a/x.PHP", b"/a/x.ph%2570", b"/a/x.php;y")),
    *(("*.php", each) for each in (b"/a/x.php%3Fy", b"/x.php/..%2Fy.php", b"/x.php.", b"/x.php::$DATA")),
    ("~^/users/[0-9]+$", b"/users/1"),
    ("~^/users/[0-9]+$", b"//USERS/1"),
    ("~^/users/[0-9]+$", b"/users%2F12"),
    ("/Admin/Area/", b"/admin/area/x"),
    ("/private*", b"/private-things"),
    ("/private*", b"/PRIVATE%2Dthings"),
    ("/private*", b"/x/..%2Fprivates"),
)
def test_guards_of_every_kind_hold(guard, target):
    pytest.importorskip("re2")
    assert reason(gate(routes=[guard], closed=[guard]), target) == "access-denied"


@cases(
    "target, refused",
    (b"/admin/open/x", ""),
    (b"/admin/open/a%2Fb", ""),
    (b"/admin/x", "access-denied"),
    (b"/admin/open/..%2Fx", "crosses-route"),
    (b"/admin//open/x", "access-denied"),  # one server reads the one, another the other
    (b"/admin/OPEN/x", "access-denied"),
    (b"/admin/login", ""),
    (b"/admin/login/x", "access-denied"),
)
def test_a_route_within_a_guard_opens(target, refused):
    guarded = gate(routes=["/admin", "/admin/open/", "=/admin/login"], closed=["/admin"])
    assert reason(guarded, target) == refused


@cases(
    "target, refused",
    (b"/uploads/a.png", ""),
    *((each, "access-denied") for each in (b"/uploads/a.php", b"/uploads/a.PHP", b"/a.php", b"/a.css")),
    (b"/static/x/a.css", ""),
)
def test_guards_of_every_route_that_matches_apply(target, refused):
    guarded = gate(routes=["/uploads/", "~\\.php$", "/static/"], closed=["/", "~\\.php$"])
    assert reason(guarded, target) == refused


def test_a_guard_may_look_at_the_canonical_path_alone():
    guarded = gate(routes=["/admin"], closed=["/admin"], canonical_only=True)
    assert reason(guarded, b"/admin/x") == "access-denied"
    assert reason(guarded, b"/%61dmin/x") == "access-denied"
    assert reason(guarded, b"/ADMIN/x") == ""


class Users:
    def knows(self, credentials):
        return True

    async def verify(self, credentials):
        raise NotImplementedError


@cases(
    "kind, one, another, reasons",
    ("users", Users(), Users(), ()),
    ("forward", *(ForwardAuth(PlayedOrigin(), b"/verify") for _ in range(2)), ("access-denied",)),
)
def test_nobody_is_asked_for_two_passwords_or_by_two_servers(kind, one, another, reasons):
    guarded = gate(routes=["/a", "/A"], closed=["/a"])
    for other, expected in ((another, ("crosses-route",)), (one, reasons)):
        settings = {
            (SITE, prefix): RouteSettings(restriction=Restriction("a", **{kind: each}))
            for prefix, each in ((b"/a", one), (b"/A", other))
        }
        guarded.runtime = Runtime(guarded.runtime.sites, settings=settings)
        assert admitted(guarded, b"/A/x", fields=[(b"authorization", b"Basic YTpi")]).reasons == expected


# A route


@cases(
    "target",
    *(b"/static/..;/admin/x", b"/static/..%3B/admin/x", b"/static/%2e%2e;/admin/x", b"/static/..%5Cadmin/x"),
    *(b"/static/..\\admin/x", b"/static/..%2Fadmin/x", b"/static/%252e%252e/admin/x"),
)
@pytest.mark.parametrize("profile", ["servlet", "tomcat", "rack", "rfc3986", "asgi"])
@pytest.mark.parametrize("own", ["static", "nginx", "rfc3986"])
def test_a_narrow_route_opens_no_wide_guard(profile, own, target):
    guarded = gate(profile, routes=[("/static/", own), "/admin"], closed=["/admin"])
    decision = admitted(guarded, target).decision
    assert isinstance(decision, Refuse)


def test_a_route_refuses_what_its_site_refuses():
    assert reason(gate("servlet", routes=[("/static/", "static")]), b"/static/a;/..b%2Fc") == "encoded-slash"
    assert reason(gate("servlet", routes=[("/static/", "static", "other")]), b"/static/a%2Fc") == ""


def test_sloppy_links_go_where_they_go():
    sloppy = gate("wordpress", routes=[("/wp-content/", "static")])
    assert admitted(sloppy, b"//wp-content/x.css").canonical.route.prefix == b"/"
    merged = gate("apache", routes=[("/wp-content/", "static")])
    assert admitted(merged, b"//wp-content/x.css").canonical.route.prefix == b"/wp-content/"


@cases(
    "target",
    *(b"/..%2Fadmin/secret.txt", b"/%2e%2e%2fadmin%2fx", b"/x/..%2F..%2Fadmin/x"),
    *(b"/..%5Cadmin", b"/..;/admin", b"/%252e%252e%252fadmin", b"/a;/..;/..;/x"),
)
@pytest.mark.parametrize("profile", ["rfc3986", "go", "express", "nginx"])
def test_no_reading_leaves_an_upstreams_path(profile, target):
    site = Site(SITE, (SITE,), (Route(b"/", BUILT_IN[profile], "o", b"/public"),))
    inside = Gate(Runtime(Sites([site])), MemoryTier(MemoryStore()))
    assert reason(inside, target) in {"above-root", "dot-segment"}
    assert reason(inside, b"/a%2Fb") == ""


# Rules


def past(gate, target):
    decision = admitted(gate, target).decision
    return decision.reason if isinstance(decision, Forward) else decision


@cases(
    "target, reached",
    *((each, "bypass") for each in (b"/account/me", b"//account/me", b"/account%2Fme", b"/ACCOUNT/me")),
    *((each, "bypass") for each in (b"/x/..;/account/me", b"/me", b"/me/")),
    (b"/mess", "uri-miss"),
    (b"/accounts/me", "uri-miss"),
    (b"/x%2Faccount/me", "uri-miss"),
)
def test_a_bypass_holds_for_every_reading(target, reached):
    assert past(gate(rules={SITE: Rules(ttl=60, bypass=["/account/*", "/me"])}), target) == reached


@cases(
    "target, ttl",
    (b"/news/x", 60),
    (b"/news/a%2Fb", 60),
    (b"/news;a/x", 0),
    (b"/x/..;/news/x", 0),
    (b"//news/x", 0),
)
def test_a_lifetime_of_ours_needs_one_of_each_route(target, ttl):
    some = gate(routes=["/news/"], rules={(SITE, b"/news/"): Rules(ttl=60)})
    assert admitted(some, target).rules.ttl == ttl
    assert admitted(gate(rules={SITE: Rules(ttl=60)}), b"//x").rules.ttl == 60


@cases(
    "target, chosen",
    (b"/static/a%2520b.php", []),  # the prefix is final
    (b"/other/a%2520b.php", []),
    (b"/x/a%2520b.php", []),  # the first one that matches
    (b"/other/%2541", ["~ %41$"]),
)
def test_a_path_decoded_once_keeps_the_order_of_routes(target, chosen):
    profile = BUILT_IN["nginx"]

    def route(path, **settings):
        pattern = compiled(path[2:]).search if path.startswith("~") else None
        return Route(path.encode(), profile, "o", expression=pattern and (pattern, pattern), **settings)

    routes = (route("/static/", final=True), route("~ ^/x"), route("~ \\.php$"), route("~ %41$"), route("/"))
    some = Gate(Runtime(Sites([Site(SITE, (SITE,), routes)])), MemoryTier(MemoryStore()))
    found = admitted(some, target).canonical
    assert [each.prefix.decode() for each in found.chosen if each is not found.route] == chosen


# Loose paths


@cases(
    "profile, target, loose",
    *(("rfc3986", each, True) for each in (b"//d/a.txt", b"/d%2Fa.txt", b"/d//a.txt", b"/d%5Ca.txt")),
    ("rfc3986", b"/d/a.txt", False),
    ("restbase", b"/d%2Fa.txt", False),
    ("upload", b"/d%2Fa.txt", False),  # a slash
    ("nginx", b"/d//a.txt", False),  # merged
    ("mediawiki", b"//wiki/X", False),
    ("mediawiki", b"/wiki/e%CC%81", True),
    ("tomcat", b"/a;b/c", True),
    ("servlet", b"/a;b/c", False),
    ("go", b"/a/../b", True),
    (Profile.load("path.loose = []"), b"//d%2Fa", False),
)
def test_a_loose_path_is_not_stored(profile, target, loose):
    decision = admitted(gate(profile), target).decision
    assert isinstance(decision, Forward)
    assert (decision.may_store, decision.unstorable) == (not loose, "loose-path" if loose else "")


def test_a_response_stored_before_its_path_was_loose_is_unused():
    before = gate(Profile.load("path.loose = []"))
    key, memory = admitted(before, b"//d").canonical.key, before.tiers.memory
    memory.commit(memory.leases.begin(key, NOW), stored_response(name=key, at=NOW))
    after = Gate(gate(Profile.load("")).runtime, before.tiers)
    admission = admitted(after, b"//d")
    assert admission.canonical.key == key
    assert isinstance(admitted(before, b"//d").decision, Reuse)
    assert isinstance(admission.decision, Forward)
    assert isinstance(after.again(admission, NOW).decision, Forward)
