"""Lines that are worth trying: the same for the terminal and for the page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from univocal_app.config.values import Address


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
