"""Fields and routes of one's own, by `univocal serve`."""

import re
import socket

import pytest

SITE = '[[sites]]\nhosts = ["a.example"]\nupstream = "@"\n'


class Program:
    """A running program whose configuration can be written anew."""

    def __init__(self, inside, url):
        self._inside, self._url = inside, url

    def begin(self, text):
        self.running = self._inside(text.replace("@", self._url))
        return self.running.proxy

    def reload(self, text):
        assert self.running.reload(text.replace("@", self._url))[0] == 200


@pytest.fixture
def program(inside, origin):
    return Program(inside, origin.url)


def fields(answer, name):
    return re.findall(rf"(?im)^{re.escape(name)}: *(.*?)\r?$", answer.head)


EVERYWHERE = """
[request]
set = { "X-Tenant" = "all", "X-Zone" = "all" }
remove = ["X-Debug"]
[response]
set = { "X-Frame-Options" = "DENY", "X-Level" = "server" }
remove = ["X-Powered-By"]
"""
LEVELS = (
    EVERYWHERE
    + SITE
    + """
[sites.request]
set = { "x-tenant" = "site" }
[sites.response]
set = { "X-Level" = "site", "X-Powered-By" = "univocal" }
[[sites.routes]]
path = "/route/"
[sites.routes.request]
set = { "X-Debug" = "route" }
remove = ["X-Zone"]
[sites.routes.response]
set = { "X-Level" = "route" }
remove = ["X-Frame-Options", "Server"]
"""
)


def test_a_route_goes_before_its_site_before_the_server(program, origin, ask):
    origin.fields = "Cache-Control: max-age=60\r\nServer: old\r\nX-Powered-By: PHP"
    proxy = program.begin(LEVELS)
    sent = "X-Debug: client\r\nX-Zone: client\r\n"
    answers = [
        ask(proxy, path, "a.example", fields=sent) for path in ("/site", "/site", "/route/a", "/route/a")
    ]
    assert [bool(fields(each, "Age")) for each in answers] == [False, True, False, True]
    for each in answers[:2]:
        assert fields(each, "X-Level") == ["site"]
        assert fields(each, "X-Powered-By") == ["univocal"]
        assert fields(each, "X-Frame-Options") == ["DENY"]
        assert fields(each, "Server") == ["old"]
    for each in answers[2:]:
        assert fields(each, "X-Level") == ["route"]
        assert fields(each, "X-Frame-Options") == fields(each, "Server") == []
    site, route = (head.lower() for head in origin.seen)
    own = re.compile(rb"\r\n(x-(?:tenant|zone|debug): [^\r]*)")
    assert sorted(own.findall(site)) == [b"x-tenant: site", b"x-zone: all"]
    assert sorted(own.findall(route)) == [b"x-debug: route", b"x-tenant: site"]


ADDED = (
    '[response]\nadd = { "X-All" = "1", "Link" = "<a>", "Vary" = "X-Shown" }\n'
    + SITE
    + """
[sites.response]
add = { "Link" = "<b>" }
[[sites.routes]]
path = "/route/"
[sites.routes.response]
set = { "Link" = "<c>" }
"""
)


def test_added_fields_stand_beside_the_origin_servers(program, origin, ask):
    origin.fields = "Cache-Control: max-age=60\r\nLink: <own>"
    proxy = program.begin(ADDED)
    for path, links in (("/site", ["<own>", "<b>"]), ("/route/a", ["<c>"])):
        for is_hit in (False, True):
            answer = ask(proxy, path, "a.example", fields=f"X-Shown: {is_hit}\r\n")
            assert bool(fields(answer, "Age")) is is_hit
            assert fields(answer, "Link") == links
            assert fields(answer, "X-All") == ["1"]
            assert "X-Shown" in fields(answer, "Vary")  # for caches behind alone
    program.reload(ADDED.replace("<b>", "<d>"))
    assert fields(ask(proxy, "/site", "a.example"), "Link") == ["<own>", "<d>"]


def test_the_default_site_has_the_hosts_of_none(program, ask):
    other = SITE.replace("a.example", "b.example")
    proxy = program.begin(SITE.replace('["a.example"]', '["a.example"]\ndefault = true') + other)
    assert ask(proxy, "/", "c.example").status == 200
    program.reload(SITE + other)
    assert ask(proxy, "/", "c.example").status == 421


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["adm.*", "~^adm"], {"adm.x": "1", "ADM.X:81": "1", "adm": "2", "admin.x": "2", "x.adm": ""}),
        (["~^a", "adm.*"], {"adm.x": "2", "a.x": "1", "b.x": ""}),  # names with a star go before expressions
        (
            ["~^a", "a.*", "a.b.*", "*.x", "a.b.x"],
            {"a.b.x": "5", "a.x": "4", "a.b.y": "3", "a.c": "2", "az": "1"},
        ),
    ],
)
def test_hosts_by_their_beginning_or_by_an_expression(program, ask, hosts, expected):
    sites = [
        SITE.replace("a.example", host) + f'response = {{ set = {{ X-Site = "{number}" }} }}\n'
        for number, host in enumerate(hosts, 1)
    ]
    proxy = program.begin("".join(sites))
    for host, site in expected.items():
        answer = ask(proxy, "/", host)
        assert (answer.status, *fields(answer, "X-Site")) == ((200, site) if site else (421,))
    changed = sites[0].replace('= "1"', '= "new"')
    program.reload("".join([changed, *sites[1:]]))
    assert {*fields(ask(proxy, "/", next(iter(expected))), "X-Site")} <= {"new", "2", "5"}


def test_errors_and_redirects_have_the_response_fields(program, ask):
    gone = SITE.replace("@", "http://127.0.0.1:1") + 'aliases = ["b.example"]\nalias_answer = 308\n'
    proxy = program.begin(EVERYWHERE + gone)
    unreachable, redirected = ask(proxy, "/", "a.example"), ask(proxy, "/", "b.example")
    refused, unknown = ask(proxy, "/%zz%00", "a.example"), ask(proxy, "/", "c.example")
    assert [each.status for each in (unreachable, redirected, refused, unknown)] == [502, 308, 400, 421]
    assert [fields(each, "X-Frame-Options") for each in (unreachable, redirected, refused, unknown)] == [
        ["DENY"]
    ] * 4


def test_a_refusal_has_the_fields_of_its_route(program, ask):
    routes = """routes = [
    { path = "/a/", access = { deny = ["0.0.0.0/0"] }, response = { set = { X-R = "a" } } },
    { path = "/", max_body = 1, response = { set = { X-R = "/" } } }]\n"""
    proxy = program.begin(EVERYWHERE + SITE + routes)
    answers = [ask(proxy, "/a/b", "a.example"), ask(proxy, "/a/%zz%00", "a.example")]
    answers += [ask(proxy, "/%zz%00", "a.example"), ask(proxy, "/", "a.example", "POST", body="ab")]
    assert [each.status for each in answers] == [403, 400, 400, 413]
    assert [fields(each, "X-R") for each in answers] == [["a"], ["a"], ["/"], ["/"]]


def test_a_reload_changes_what_is_stored_and_shown_at_once(program, origin, ask):
    proxy = program.begin(SITE)
    ask(proxy, "/", "a.example")
    program.reload(SITE + '[sites.response]\nset = { "X-New" = "1" }\n')
    assert fields(ask(proxy, "/", "a.example"), "X-New") == ["1"]
    program.reload(SITE)
    assert fields(ask(proxy, "/", "a.example"), "X-New") == []
    assert len(origin.seen) == 1


def test_a_field_that_is_set_selects_what_vary_names(program, origin, ask):
    origin.fields = "Cache-Control: max-age=60\r\nVary: X-Tenant"
    tenant = SITE + '[sites.request]\nset = { "X-Tenant" = "%s" }\n'
    proxy = program.begin(tenant % "one")
    bodies = {
        ask(proxy, "/", "a.example", fields=f"X-Tenant: {each}\r\n").body for each in ("mine", "yours", "one")
    }
    assert len(bodies) == len(origin.seen) == 1
    program.reload(tenant % "two")
    assert ask(proxy, "/", "a.example").body not in bodies
    program.reload(tenant % "one")
    assert ask(proxy, "/", "a.example").body in bodies


def test_an_operators_credentials_keep_responses_shared(program, origin, ask):
    set_ = '[sites.request]\nset = { "Authorization" = "Basic b3Vy", "X-Script-Name" = "/app" }\n'
    proxy = program.begin(SITE + set_)
    for theirs in ("", "Authorization: Basic dGhlaXJz\r\n"):
        assert ask(proxy, "/", "a.example", fields=theirs).body == b"answer 1"
    assert re.findall(rb"(?i)\r\nauthorization: ([^\r]*)", origin.seen[0]) == [b"Basic b3Vy"]
    assert re.findall(rb"(?i)\r\nx-script-name: ([^\r]*)", origin.seen[0]) == [b"/app"]


STATIC = """
[[sites.routes]]
path = "/static/"
profile = "static"
"""


def test_files_of_an_application_that_sets_cookies_are_hits(program, origin, ask):
    origin.fields = (
        'Content-Type: text/css\r\nSet-Cookie: session=secret; Path=/\r\nVary: Cookie\r\nETag: "1"'
    )
    proxy = program.begin(SITE + STATIC)

    def visit(path):
        cookies = [f"Cookie: session={number}\r\n" for number in range(10)]
        return [ask(proxy, path, "a.example", fields=each) for each in cookies]

    pages, files = visit("/index.php"), visit("/static/style.css?v=1")
    assert {each.body for each in files} == {b"answer 11"}
    assert [bool(fields(each, "Age")) for each in files] == [False] + 9 * [True]
    assert all(fields(each, "Set-Cookie") == [] for each in files)
    assert len({each.body for each in pages}) == 10
    assert all(fields(each, "Set-Cookie") for each in pages)
    assert b"cookie" not in origin.seen[10].lower()
    assert b"cookie: session=9" in origin.seen[9].lower()


def test_cookies_of_other_methods_go_on(program, origin, ask):
    origin.fields = "Set-Cookie: session=new"
    proxy = program.begin(SITE + STATIC)
    answer = ask(proxy, "/static/login", "a.example", "POST", fields="Cookie: a=1\r\nContent-Length: 0\r\n")
    assert fields(answer, "Set-Cookie") == ["session=new"]
    assert b"\r\ncookie: a=1" in origin.seen[0].lower()


def test_hits_of_one_connection_lose_their_cookies(program, origin, ask):
    origin.fields = "Content-Type: text/css\r\nSet-Cookie: a=1\r\nX-Powered-By: PHP\r\nVary: Cookie"
    proxy = program.begin(EVERYWHERE + SITE + STATIC)
    ask(proxy, "/static/style.css", "a.example")
    for cookie in ("", "Cookie: session=mine\r\n"):
        request = f"GET /static/style.css HTTP/1.1\r\nHost: a.example\r\n{cookie}\r\n".encode()
        with socket.create_connection(proxy, timeout=10) as connection:
            received = b""
            for number in range(1, 3):
                connection.sendall(request)
                while received.count(b"answer 1") < number:
                    piece = connection.recv(65536)
                    assert piece, received
                    received += piece
        assert received.count(b"x-level: server") == received.count(b"univocal; hit") == 2
        assert b"set-cookie" not in received
        assert b"x-powered-by" not in received
    assert len(origin.seen) == 1


KEYED = SITE + '[sites.cache]\nkey = ["header:X-Nextjs-Data", "header:X-Device"]\n'


def test_a_field_in_the_key_reaches_the_origin_and_selects(program, origin, ask):
    origin.fields = "Cache-Control: max-age=60\r\nVary: Accept"
    proxy = program.begin(KEYED)
    sent = ["", "X-Device: tv\r\n", "X-Device: phone\r\n", "X-Nextjs-Data: 1\r\nX-Device: tv\r\n"]
    answers = [ask(proxy, "/a", "a.example", fields=each) for each in sent * 2]
    assert [each.body for each in answers] == [b"answer 1", b"answer 2", b"answer 3", b"answer 4"] * 2
    assert {tuple(fields(each, "Vary")) for each in answers} == {("Accept", "x-device, x-nextjs-data")}
    assert b"x-nextjs-data: 1" in origin.seen[3].lower()
    # The other spelling is nobody's field, and a purge of the URL is one of every variant.
    assert ask(proxy, "/a", "a.example", fields="X_Device: tv\r\n").body == b"answer 1"
    assert ask(proxy, "/a", "a.example", method="PURGE").status == 200
    after = [ask(proxy, "/a", "a.example", fields=each).body for each in sent]
    assert after == [b"answer 5", b"answer 6", b"answer 7", b"answer 8"]


def test_a_reload_that_keys_a_field_ends_older_responses(program, ask):
    proxy = program.begin(SITE)
    assert [ask(proxy, "/a", "a.example").body for _ in range(2)] == [b"answer 1"] * 2
    program.reload(KEYED)
    tv = "X-Device: tv\r\n"
    assert [ask(proxy, "/a", "a.example", fields=tv).body for _ in range(2)] == [b"answer 2"] * 2
    assert [ask(proxy, "/a", "a.example").body for _ in range(2)] == [b"answer 3"] * 2


NAMED = (
    """
[request]
set = { "X-Real-IP" = "{client}", "X-Url" = "{scheme}://{host}{path}", "X-Rid" = "{request_id}" }
[response]
set = { "X-Client" = "{client}", "X-Rid" = "{request_id}", "X-User" = "{user}" }
"""
    + SITE
    + """
[[sites.routes]]
path = "/app/"
cache = { bypass = ["*"] }
"""
)
FORGED = "X-Real-IP: 6.6.6.6\r\nX-Rid: forged\r\n"


def sent(origin):
    lines = origin.seen[-1].decode("latin-1").split("\r\n")[1:-2]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def test_values_name_what_a_request_says_of_itself(program, origin, ask):
    proxy = program.begin(NAMED)
    first = ask(proxy, "/app/%61?x=1", "a.example", fields=FORGED)
    gone = sent(origin)
    assert gone["x-real-ip"] == "127.0.0.1"
    assert gone["x-url"] == "http://a.example/app/a"
    assert gone["x-rid"] == gone["x-request-id"] == first.value("X-Rid") != "forged"
    assert first.value("X-Client") == "127.0.0.1"
    assert first.value("X-User") is None
    ask(proxy, "/a", "a.example", method="POST", body="x")
    assert sent(origin)["x-real-ip"] == "127.0.0.1"


def test_a_stored_response_depends_on_no_client(program, origin, ask):
    proxy = program.begin(NAMED)
    miss = ask(proxy, "/a", "a.example", fields=f"{FORGED}X-Forwarded-For: 192.0.2.1\r\n")
    assert "x-real-ip" not in sent(origin)
    hit = ask(proxy, "/a", "a.example", fields="X-Forwarded-For: 192.0.2.2\r\n")
    assert miss.body == hit.body
    assert [each.value("X-Client") for each in (miss, hit)] == ["192.0.2.1", "192.0.2.2"]
    assert miss.value("X-Rid") != hit.value("X-Rid")
    program.reload(NAMED.replace('"X-Client" = "{client}"', '"X-Client" = "of {host}"'))
    assert ask(proxy, "/a", "a.example").value("X-Client") == "of a.example"
