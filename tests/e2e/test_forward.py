"""The three ways a target reaches an upstream: as its key, as it came, and in a template."""

import json

import pytest


@pytest.fixture
def serve(inside, origin):
    """`univocal serve` with one site; "@" in the settings is the origin's URL."""

    def serve(settings, host="en.example", top=""):
        site = f'[[sites]]\nhosts = ["{host}"]\n{settings.replace("@", origin.url)}'
        return inside(site, top).proxy

    return serve


def test_received_targets_are_variants_of_one_key(serve, origin, ask):
    proxy = serve('profile = "nginx"\nupstream = "@"\nforward = "received"\n')
    for refused in ("/a%00b", "/../a"):
        assert (ask(proxy, refused, "en.example").status, origin.lines) == (400, [])
    spellings = ["/a%2Fb", "/a/b", "//a/./b", "/a%2fb"]
    first = [ask(proxy, spelling, "en.example").body for spelling in spellings]
    assert [line.split(b" ")[1].decode() for line in origin.lines] == spellings
    assert [ask(proxy, spelling, "en.example").body for spelling in spellings] == first
    assert len(set(first)) == len(spellings)
    purged = json.loads(ask(proxy, "/x/..//a/b", "en.example", "PURGE").body)
    assert purged == {"purged": 4, "key": "http://en.example/a/b"}
    assert ask(proxy, "/a/b", "en.example").body not in first


@pytest.mark.parametrize("target", ["/p/group%2Frepo?q=%31", "/p//a/./%62", "//a.example/p", "/p?"])
def test_redirects_keep_a_received_target(serve, origin, ask, target):
    site = 'scheme = "http"\naliases = ["www.en.example"]\nalias_answer = 301\n'
    proxy = serve(f'upstream = "@"\nprofile = "nginx"\nforward = "received"\n{site}')
    moved = ask(proxy, target, "www.en.example")
    assert (moved.status, moved.value("Location")) == (301, f"http://en.example{target}")
    assert ask(proxy, target, "en.example").status == 200
    assert origin.lines == [f"GET {target} HTTP/1.1".encode()]


REDIRECTS = """upstream = "@"
redirect = "https://new.example{path}{query}"
[[sites.routes]]
path = "=/a"
redirect = "/a/{query}"
[[sites.routes]]
path = "/old/"
redirect = { to = "http://{host}:8443/x/{rest}", status = 308 }
[[sites.routes]]
path = "~^/users/([0-9]+)$"
redirect = { to = "/u?id={1}", status = 302 }
[[sites.routes]]
path = "/in/"
redirect = "/out"
access = { deny = ["127.0.0.1"] }
[[sites.routes]]
path = "/kept/"
upstream = "@"
"""


@pytest.mark.parametrize(
    ("target", "status", "location"),
    [
        ("/b%2E?c=%31", 301, "https://new.example/b.?c=1"),
        ("//evil.example", 301, "https://new.example//evil.example"),
        ("/a?b", 301, "http://en.example/a/?b"),
        ("/old//evil.example?q", 308, "http://en.example:8443/x//evil.example"),
        ("/users/42", 302, "http://en.example/u?id=42"),
        ("/users/x", 301, "https://new.example/users/x"),
        ("/%75sers/7", 302, "http://en.example/u?id=7"),
        ("/in/x", 403, None),
        ("/a/%00", 400, None),
        ("/kept/x", 200, None),
    ],
)
def test_a_redirect_sends_clients_elsewhere(serve, origin, ask, target, status, location):
    proxy = serve(REDIRECTS)
    for method in ("GET", "POST", "GET"):
        answer = ask(proxy, target, "en.example", method)
        assert (answer.status, answer.value("Location")) == (status, location)
    assert bool(origin.lines) is (status == 200)


def test_a_redirect_goes_before_stored_responses(inside, origin, ask):
    text = f'[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n'
    program = inside(text)
    assert [ask(program.proxy, "/a", "en.example").status for _ in range(3)] == [200] * 3
    status, told = program.reload(f'{text}redirect = "https://new.example{{path}}"\n')
    assert (status, told["changed"]) == (200, ["sites[0].redirect"])
    assert [ask(program.proxy, "/a", "en.example").status for _ in range(3)] == [301] * 3
    purged = json.loads(ask(program.proxy, "/a", "en.example", "PURGE").body)
    assert purged == {"purged": 1, "key": "http://en.example/a"}


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/a%0D%0AX-Evil:%201/b", None),  # a decoded line break ends nginx's request line; here it is refused
        ("/a%20b%3Fc%23d", b"/x/a%20b%3Fc%23d"),
        ("/a%2Fb%5B?q=1", b"/x/a/b[?q=1"),
    ],
)
def test_a_template_never_lets_anything_into_the_request_line(serve, origin, ask, target, sent):
    proxy = serve('profile = "nginx"\nupstream = "@/x{path}"\n')
    answer = ask(proxy, target, "en.example")
    assert answer.status == (200 if sent else 400)
    assert [line.split(b" ")[1] for line in origin.lines] == ([sent] if sent else [])
