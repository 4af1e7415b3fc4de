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


def tries(at: Ports) -> dict[str, list[tuple[str, str]]]:
    """Commands and what to look for in their answers, by groups; each builds on those before it."""
    wiki, shop, store = (f"http://{name}.localhost:{at.proxy.port}" for name in ("wiki", "servlet", "files"))
    fuller, log = f"{wiki}/wiki/Steve_Fuller_", f"{at.directory}/access.log"
    return {
        "A wiki: one page, many spellings, one cached response (profile mediawiki)": [
            (f"curl -i '{fuller}(sociologist)'", "Cache-Status says fwd=uri-miss; stored"),
            (f"curl -i '{fuller}%28sociologist%29'", "hit: the same rendering number, an Age"),
            (
                f"curl -X PUT -d 'Edited.' 'http://{at.wiki}/wiki/Steve_Fuller_(sociologist)'",
                "an edit at the wiki itself, past the proxy: revision 2",
            ),
            (f"curl -X PURGE '{fuller}%28sociologist)'", "a third spelling; purged: 1"),
            (f"curl -i '{fuller}(sociologist)'", "revision 2"),
            (f"curl -i '{wiki}/wiki/AC%2fDC'", "for MediaWiki %2F is a slash: one page with /wiki/AC/DC"),
            (f"curl -i '{wiki}/wiki/Кошка'", "the canonical spelling is percent-encoded UTF-8"),
        ],
        "An application that reads /shop/..;/admin as /admin, as servlet containers do (profile servlet)": [
            (
                f"curl --path-as-is 'http://{at.servlet}/shop/..;/admin'",
                "without the proxy: the administrator's page",
            ),
            (f"curl -i --path-as-is '{shop}/shop/..;/admin'", "400, reason dot-segment-parameter"),
            (f"curl -i --path-as-is '{shop}/shop/%2e%2e/admin'", "400, reason encoded-dot-segment"),
            (
                f"curl -i '{shop}/shop;jsessionid=42/cart'",
                "the origin server gets /shop/cart: the profile strips the parameter",
            ),
        ],
        "A file server (profile upload), and the admin listener": [
            (
                f"curl -i '{store}/commons/3/37/Star_(yellow).svg'",
                "X-Reads counts the requests to the file server",
            ),
            (f"curl -i '{store}/commons%2F3/37/Star_%28yellow%29.svg'", "hit: X-Reads stays"),
            (
                f'curl -d \'{{"prefix": "{store}/commons/"}}\' http://{at.admin}/-/purge',
                "purged: everything below that prefix",
            ),
            (f"curl http://{at.admin}/-/health", "ok"),
        ],
        "On the terminal: explain a URL, and watch the proxy": [
            (
                f"{at.program} explain --profile mediawiki '{wiki}/wiki/A%2fB%28c%29'",
                "each step and its change",
            ),
            (
                f"{at.program} top --admin http://{at.admin}",
                "rates, keys, spellings, rejections; Ctrl-C ends it",
            ),
        ],
        "Learn the rules from a shop's access log, or from an origin server": [
            (f"{at.program} audit {log}", "the gain for that shop, in plain words"),
            (f"{at.program} discover {log}", "the URLs that are one page, and a profile to paste"),
            (
                f"{at.program} probe http://{at.wiki} --sample {at.directory}/titles.txt --rate 500",
                "asks the wiki for its rules, such as: %2F is a slash to it",
            ),
        ],
    }


def as_text(at: Ports) -> str:
    """For a terminal."""
    page = f"its page is http://{at.admin}/. Ctrl-C ends it. Worth trying:\n"
    parts = [f"univocal serves http://{at.proxy}/; {page}"]
    for group, members in tries(at).items():
        parts.append(f"\n{group}\n")
        parts += [f"  {command}\n      # {look}\n" for command, look in members]
    return "".join(parts)


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
    page = files(__package__).joinpath("page.html").read_text("utf-8")
    return page.replace("@admin@", str(at.admin)).replace("@sites@", sites).replace("@lines@", lines)
