"""Lines that are worth trying, for the terminal and the page, and the log and the sample that they name."""

from __future__ import annotations

import html
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from univocal_app.config.values import Address
from univocal_learn.demo.origins import READABLE, TITLES


@dataclass(frozen=True)
class Ports:
    """The ports that everything listens on."""

    proxy: Address
    admin: Address
    wiki: Address
    servlet: Address
    directory: Path  # where the log and the sample are
    program: str = "univocal"  # as the reader's shell finds it


def _text(at: Ports) -> str:
    """Commands and what to look for in their answers, by groups; each builds on those before it."""
    names = ("wiki", "servlet", "files")
    proxied = {name: f"http://{name}.localhost:{at.proxy.port}" for name in names}
    return _read("tries.txt").format(at=at, **proxied)


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def tries(at: Ports) -> dict[str, list[tuple[str, str]]]:
    """The commands, each with what to look for, by the titles of their groups."""
    groups = dict[str, list[tuple[str, str]]]()
    for group in _text(at).split("\n\n"):
        title, *lines = group.splitlines()
        pairs = zip(lines[::2], lines[1::2], strict=True)
        groups[title] = [(command.strip(), look.strip().removeprefix("# ")) for command, look in pairs]
    return groups


def as_text(at: Ports) -> str:
    """For a terminal."""
    page = f"its page is http://{at.admin}/. Ctrl-C ends it. Worth trying:"
    return f"univocal serves http://{at.proxy}/; {page}\n\n{_text(at)}"


def as_page(at: Ports) -> str:
    """For a browser: the sites with links, then the same lines."""
    links = [
        ("wiki", "/wiki/Steve_Fuller_(sociologist)", "mediawiki"),
        ("servlet", "/shop/cart", "servlet"),
        ("files", "/commons/3/37/Star_(yellow).svg", "upload"),
    ]
    sites = "".join(
        f'<li><a href="http://{name}.localhost:{at.proxy.port}{path}">{name}.localhost:{at.proxy.port}</a>, '
        f"profile <code>{profile}</code></li>\n"
        for name, path, profile in links
    )
    lines = ""
    for group, members in tries(at).items():
        lines += f"<h2>{html.escape(group)}</h2>\n"
        for command, look in members:
            lines += f"<pre>{html.escape(command, quote=False)}</pre>\n<p>{html.escape(look)}</p>\n"
    page = _read("page.html")
    return page.replace("@admin@", str(at.admin)).replace("@sites@", sites).replace("@lines@", lines)


_LINES = 6000
_ARTICLES = 300


def write_files(directory: Path) -> None:
    """Write `access.log` of a shop, and `titles.txt`, a sample of the wiki's URLs."""
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
