"""`univocal serve` with a `ttl`: what only that lets be shared is for nobody who says who asks."""

import pytest

ANALYTICS, SESSION = "Cookie: _ga=1\r\n", "Cookie: _ga=1; session=alice\r\n"


@pytest.fixture
def proxy(start_with):
    """proxy(origin, cache): the address of a proxy before it, with these lines of `[cache]`."""

    def proxy(origin, cache):
        return start_with(
            f'[cache]\n{cache}\n[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
        ).proxy

    return proxy


def test_after_login_the_page_is_ones_own(proxy, origin, ask):
    origin.fields = "Content-Type: text/html"
    front = proxy(origin, 'ttl = 60\nkeep_cookies = ["session"]')
    visitors = [ask(front, "/", "en.example", fields=fields) for fields in ("", ANALYTICS)]
    assert [visitor.body for visitor in visitors] == [b"answer 1"] * 2
    users = [ask(front, "/", "en.example", fields=SESSION) for _ in range(2)]
    assert [user.body for user in users] == [b"answer 2", b"answer 3"]
    assert "cache-status: univocal; fwd=vary-miss; detail=cookie\r\n" in users[0].head.lower()
    # and what the user got is nobody else's
    assert ask(front, "/", "en.example", fields=ANALYTICS).body == b"answer 1"


def test_what_the_origin_server_shares_is_for_users_as_well(proxy, origin, ask):
    front = proxy(origin, 'ttl = 60\nkeep_cookies = ["session"]')  # it says max-age itself
    for fields in ("", SESSION, ANALYTICS):
        assert ask(front, "/", "en.example", fields=fields).body == b"answer 1"
