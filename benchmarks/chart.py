"""An SVG chart of horizontal bars in groups; bars compare within their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.figures import Figure, number

WIDTH, LABELS, NUMBERS = 860, 246, 130
BAR, GAP, TITLE, MARGIN = 15, 5, 26, 16
SPACE = WIDTH - LABELS - NUMBERS - 2 * MARGIN
OWN, OTHER, INK, FAINT, PAPER = "#1b6ca8", "#b9c2ca", "#1f2428", "#57606a", "#ffffff"
# Of each colour, the one that a reader gets who wants a dark page.
DARK = {OWN: "#58a6ff", OTHER: "#57606a", INK: "#e6edf3", FAINT: "#9198a1", PAPER: "#161614"}


@dataclass(frozen=True)
class Bar:
    """One server's figure; `own` bars stand out."""

    title: str
    figure: Figure
    own: bool = False


@dataclass(frozen=True)
class Group:
    """Bars that are compared with one another; their numbers are multiples of the base, if there is one."""

    title: str
    bars: Sequence[Bar]
    base: float = 0.0
    unit: str = ""


def draw(title: str, note: str, groups: Sequence[Group]) -> str:
    """The chart as the text of an SVG file."""
    parts: list[str] = []
    top = MARGIN + 22
    for line in note.splitlines():
        parts.append(text(MARGIN, top, line, size=12, fill=FAINT))
        top += 16
    for group in groups:
        top += TITLE
        parts.append(text(MARGIN, top - 4, group.title, weight=600))
        top += 4
        widest = max(bar.figure.most for bar in group.bars)
        for bar in group.bars:
            parts += drawn(bar, group, top, SPACE / widest if widest else 0.0)
            top += BAR + GAP
    height = top + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title" font-size="13" '
        f'font-family="system-ui, sans-serif">\n<title id="title">{escape(title)}</title>\n{style()}\n'
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>\n'
    )
    heading = text(MARGIN, MARGIN + 6, title, size=16, weight=600)
    return head + "\n".join([heading, *parts]) + "\n</svg>\n"


def style() -> str:
    """The style sheet for dark colours."""
    rules = " ".join(f'[fill="{light}"] {{fill: {dark}}}' for light, dark in DARK.items())
    return f"<style>@media (prefers-color-scheme: dark) {{ {rules} path {{stroke: {DARK[INK]}}} }}</style>"


def drawn(bar: Bar, group: Group, top: float, scale: float) -> list[str]:
    """A bar, its name, its number, and a line from the least to the greatest round."""
    left, middle = MARGIN + LABELS, top + BAR / 2
    fill = OWN if bar.own else OTHER
    least, median, most = (each * scale for each in (bar.figure.least, bar.figure.median, bar.figure.most))
    told = f"{number(bar.figure.median / group.base)} ×" if group.base else number(bar.figure.median)
    return [
        text(left - 8, middle + 4, bar.title, anchor="end", weight=600 if bar.own else 400),
        f'<rect x="{left}" y="{top}" width="{median:.1f}" height="{BAR}" fill="{fill}"/>',
        f'<path d="M{left + least:.1f} {middle}H{left + most:.1f}" stroke="{INK}" stroke-width="1"/>',
        text(left + max(most, median) + 8, middle + 4, f"{told} {group.unit}".strip()),
    ]


def text(
    x: float,
    y: float,
    told: str,
    *,
    size: int = 13,
    weight: int = 400,
    anchor: str = "start",
    fill: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(told)}</text>'
    )
