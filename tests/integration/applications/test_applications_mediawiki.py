"""MediaWiki as Debian has it, behind `univocal serve` as docs/how-to/mediawiki.md says."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from examples import LONG
from tests.started import need
from univocal.judge.profiles import builtin_profiles
from univocal.uri.target import canonical_target

HERE = Path(__file__).parent
ROOT = Path("/usr/share/mediawiki")
HOST = "wiki.example"
PAGE = HERE.parents[2] / "docs" / "how-to" / "mediawiki.md"


def block(language: str) -> str:
    """The page's configuration in this language."""
    (found,) = re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def wiki(directory, php, serve, place) -> Any:
    """A wiki: its own server, and univocal before it."""
    need("mediawiki", ROOT / "maintenance" / "install.php", "php")
    need("php-sqlite3", php="pdo_sqlite")
    installed = subprocess.run(
        ["php", str(ROOT / "maintenance" / "install.php"), "--dbtype", "sqlite", "--dbpath", str(directory),
         "--confpath", str(directory), "--pass", "a long enough one", "--server", f"http://{HOST}",
         "--scriptpath", "/w", "Wiki", "Admin"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stdout + installed.stderr
    file = directory / "LocalSettings.php"
    origin = php(HERE / "mediawiki.php", ROOT, MW_CONFIG_FILE=str(file))
    front = serve(block("toml").replace("127.0.0.1:9000", f"127.0.0.1:{origin}"))
    settings = block("php").replace("127.0.0.1:8080", f"127.0.0.1:{front}")
    cache = f"$wgCacheDirectory = '{directory}/cache';\n"  # of its messages, which SQLite is slow to give
    file.write_text(file.read_text() + settings + cache + "$wgJobRunRate = 5;\n$wgRateLimits = [];\n")
    return SimpleNamespace(front=place(front, HOST), origin=place(origin, HOST))


def edit(wiki: Any, title: str, text: str) -> None:
    """Write a page as a reader would who has not logged in."""
    form = urlencode({"action": "edit", "title": title, "text": text, "token": "+\\", "format": "json"})
    answer = wiki.front.ask("/w/api.php", "POST", form, client="127.0.0.2")
    assert '"result":"Success"' in answer.text, answer.text


SPELLINGS = ["/wiki/Stra%C3%9Fe_(Bonn)", "/wiki/Stra%c3%9fe_%28Bonn%29", "/wiki/Stra%C3%9Fe_(Bonn)?"]


def test_a_page_is_one_resource_until_it_is_edited(wiki) -> None:
    edit(wiki, "Straße (Bonn)", "first words")
    for number, text in enumerate(("first words", "second words")):
        if number:
            edit(wiki, "Straße (Bonn)", text)
        answers = [wiki.front.ask(spelling) for spelling in SPELLINGS]
        assert [text in answer.text for answer in answers] == [True] * len(SPELLINGS)
        assert [answer.hit for answer in answers] == [False, True, True]


def test_its_history_is_purged_with_it(wiki) -> None:
    history = "/w/index.php?title=Twice&action=history"
    edit(wiki, "Twice", "once")
    once = wiki.front.ask(history).text.count("data-mw-revid")
    assert wiki.front.ask(history).hit
    edit(wiki, "Twice", "twice")
    assert wiki.front.ask(history).text.count("data-mw-revid") == once + 1


def test_analytics_cookies_make_no_misses(wiki) -> None:
    edit(wiki, "Popular", "words")
    cookies = ["_ga=GA1.2.3; _gid=4", "_pk_id.1=5", "my_wikimwuser-sessionId=6", ""]
    answers = [wiki.front.ask("/wiki/Popular", Cookie=cookie) for cookie in cookies]
    assert [answer.hit for answer in answers] == [False, True, True, True]
    assert not wiki.front.ask("/wiki/Popular", Cookie="_ga=7; my_wikiUserName=Admin; my_wiki_session=8").hit


def test_the_wiki_learns_who_edits(wiki) -> None:
    edit(wiki, "Signed", "words")
    recent = "/w/api.php?action=query&titles=Signed&prop=revisions&rvprop=user&format=json"
    assert '"user":"127.0.0.2"' in wiki.front.ask(recent).text


def test_a_subpage_is_one_title_to_rest(wiki) -> None:
    edit(wiki, "Page/Sub", "words")
    found = wiki.front.ask("/w/rest.php/v1/page/Page%2FSub/bare")
    assert (found.status, '"key":"Page/Sub"' in found.text) == (200, True)
    assert wiki.front.ask("/w/rest.php/v1/page/Page/Sub/bare").status == 404


def seen(answer: Any) -> tuple[int, str]:
    """The page that an answer is of."""
    name = re.search(r'"wgPageName":"((?:[^"\\]|\\.)*)"', answer.text)
    return answer.status, name[1] if name else answer.fields.get("location", "")


def test_urls_with_one_key_are_one_page(wiki) -> None:
    profile, keys = builtin_profiles()["mediawiki"], {}
    for octet in ":/@!$()*,;&'+=~-._"[:: 1 if LONG else 3]:
        # It refuses titles with dot segments, which no link leads to.
        for title in (f"X{octet}y", f"X{octet}", f"X/{octet}y/Y", f"User:X{octet}{octet}"):
            for spelled in (title, quote(title, safe=""), title.replace(octet, f"%{ord(octet):02x}")):
                target = f"/wiki/{spelled}".encode()
                canonical = canonical_target(target, profile)
                assert isinstance(canonical, bytes)
                keys.setdefault(canonical, set()).add(target)
    for canonical, targets in keys.items():
        pages = {seen(wiki.origin.ask(target.decode())) for target in {*targets, canonical}}
        assert len(pages) == 1, (canonical, targets, pages)
    assert len(keys) < 100


def test_links_of_mediawiki_are_canonical(wiki) -> None:
    names = ["A & B", "Who?", "It's", "C++", "A=B", "50 % off", "a:b/c,d;e@f!g$h(i)j*", "Straße"]
    for name in ("A & B", "It's", "C++"):
        edit(wiki, name, "words")
    edit(wiki, "Links", " ".join(f"[[{name}]]" for name in names))
    page = wiki.front.ask("/wiki/Links").text
    links = re.findall(r'href="(/wiki/[^"?#]+)"', page)
    assert {"/wiki/A_%26_B", "/wiki/It%27s", "/wiki/C%2B%2B"} <= set(links)
    for link in links:
        assert canonical_target(link.encode(), builtin_profiles()["mediawiki"]) == link.encode()
