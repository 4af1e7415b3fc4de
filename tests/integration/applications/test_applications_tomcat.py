"""Sessions in URLs of Tomcat, with the profile that strips them and the one that keeps them."""

from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.started import tomcat, until_it_listens

HERE = Path(__file__).parent
HOST = "shop.example"


@pytest.fixture(scope="module")
def shops(directory, run, serve, place) -> Any:
    """shops[profile]: the shop behind univocal with this profile."""
    port, base = free_port(), directory / "tomcat"
    base.mkdir()
    until_it_listens(run(*tomcat(HERE / "Sessions.java"), str(base), str(port)), port)
    return {
        profile: place(
            serve(f'[[sites]]\nhosts=["*"]\nprofile="{profile}"\nupstream="http://127.0.0.1:{port}"\n'), HOST
        )
        for profile in ("servlet", "tomcat")
    }


@pytest.mark.parametrize(("profile", "counted"), [("servlet", ["1", "1", "1"]), ("tomcat", ["1", "2", "3"])])
def test_a_visitor_without_cookies(shops, profile, counted) -> None:
    """`servlet` makes one URL of every session's: each click begins a new one."""
    clicks, link = [], "/shop/cart"
    for _ in counted:
        answer = shops[profile].ask(link)
        assert not answer.hit
        assert not answer.stored
        click, link = answer.text.split()
        assert ";jsessionid=" in link
        clicks.append(click)
    assert clicks == counted


def test_a_session_in_a_url_is_nobody_elses(shops) -> None:
    shop = shops["tomcat"]
    link = shop.ask("/shop/mine").text.split()[1]
    session = link.partition(";")[2]
    for target, stored in ((f"/shop/public;{session}", False), ("/shop/public", True)):
        assert [shop.ask(target).stored for _ in range(2)] == [stored, False]
        assert shop.ask(target).hit is stored


def test_a_visitor_with_cookies_has_one_session(shops) -> None:
    shop = shops["servlet"]
    first = shop.ask("/shop/basket")
    cookie = first.fields["set-cookie"].partition(";")[0]
    assert [shop.ask("/shop/basket", Cookie=cookie, Cache_Control="no-cache").text for _ in range(2)] == [
        "2 /shop/basket",
        "3 /shop/basket",
    ]
