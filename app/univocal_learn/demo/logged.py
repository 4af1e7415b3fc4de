"""A shop's access log and a sample of the wiki's URLs: to try the learning commands on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from univocal_learn.demo.origins import READABLE, TITLES

_LINES = 6000
_ARTICLES = 300


def write_files(directory: Path) -> None:
    """Write `access.log` and `titles.txt`."""
    (directory / "access.log").write_text("".join(_log()), "ascii")
    titles = "".join(f"/wiki/{quote(title, safe=READABLE)}\n" for title in TITLES)
    (directory / "titles.txt").write_text(titles, "ascii")


def _log() -> Iterator[str]:
    chance = random.Random(2026)  # noqa: S311 - the same shop for everybody
    for number in range(_LINES):
        article = int(_ARTICLES * chance.random() ** 2)
        size = 4000 + article * 7919 % 30_011
        second = number % 60
        time = f"22/Nov/2026:{number // 3600:02d}:{number // 60 % 60:02d}:{second:02d} +0000"
        target = _spelled(article, chance)
        client = f"192.0.2.{chance.randrange(1, 250)}"
        yield f'{client} - - [{time}] "GET {target} HTTP/1.1" 200 {size} "-" "Mozilla/5.0"\n'


def _spelled(article: int, chance: random.Random) -> str:
    """One of the spellings by which the shop's clients, campaigns and crawlers ask for an article."""
    kind, way = article % 3, chance.random()
    if kind == 0:
        url = f"/article?id={article}&colour=red"
        spelled = [f"/article?colour=red&id={article}", f"{url}&sid={chance.getrandbits(64):016x}1a"]
    elif kind == 1:
        url = f"/story?id={article}"
        spelled = [f"/story_{article}", f"{url}&utm_source=mail{chance.randrange(9)}"]
    else:
        url = f"/shelf{article}/"
        spelled = [f"{url}index.html", f"/{url}"]
    return url if way < 0.6 else spelled[way < 0.8]
