"""The tables of docs/reference.md that the code knows better, between their marks, and docs/vectors.json.

    python tools/reference/write.py [--check]

With --check nothing is written, and the exit status is 1 if a file has something else.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import typer

from univocal.http.errors import REASONS
from univocal.judge.profiles import builtin_profiles
from univocal_app.commands.cli import app
from univocal_app.observe.families import FAMILIES, written
from univocal_learn.exporters.vectors import vectors

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference.md"
# The profiles of each file with test vectors: those that cannot be exported have files of their own.
VECTORS: Final = {
    PAGE.with_name("vectors.json"): frozenset(builtin_profiles()) - {"iis"},
    PAGE.with_name("vectors-iis.json"): frozenset({"iis"}),
}

Row = tuple[str, ...]

SHARED: Final = 3  # commands with the same option: it has one row for all of them


def main() -> None:
    """Write the page and the vectors anew, or compare."""
    old = PAGE.read_text("utf-8")
    texts = (PAGE, with_tables(old)), *((file, vectors_text(names)) for file, names in VECTORS.items())
    for file, new in texts:
        if "--check" not in sys.argv:
            file.write_text(new, "utf-8")
        elif new != file.read_text("utf-8"):
            sys.exit(f"docs/{file.name} is not what the code says: make reference")


def with_tables(page: str) -> str:
    """The page with each table between its marks as the code has it now."""
    for name, table in TABLES.items():
        begin, end = (f"<!-- {name}: {word} -->" for word in ("written by make reference", "end"))
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"docs/reference.md has no place for {name}: {begin} and {end}")
        page = f"{before}{begin}\n\n{table()}\n\n{end}{after}"
    return page


def vectors_text(names: Collection[str]) -> str:
    """The test vectors of built-in profiles as JSON, one a line; each character is a byte."""
    profiles = []
    for profile in (each for name, each in builtin_profiles().items() if name in names):
        rows = [
            {
                "target": each.target.decode("latin-1"),
                "canonical": None if each.canonical is None else each.canonical.decode("latin-1"),
                "reason": each.reason or None,
            }
            for each in vectors(profile)
        ]
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        profiles.append(f"  {json.dumps(profile.name)}: [\n{lines}\n  ]")
    return "{\n" + ",\n".join(profiles) + "\n}\n"


def _table(head: Row, rows: list[Row]) -> str:
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in (head, *rows)]
    return "\n".join((lines[0], f"|{'---|' * len(head)}", *lines[1:]))


def _cell(text: str) -> str:
    """The text with its bars as an entity: escaped with a backslash, the site shows the backslash in code."""
    code = re.sub(r"`([^`]*\|[^`]*)`", lambda found: f"<code>{escape(found[1])}</code>", text)
    return code.replace("|", "&#124;")


def metrics() -> str:
    """Every metric, with its labels."""
    rows = [(f"`{written(name)}`", family.kind, family.documentation) for name, family in FAMILIES.items()]
    return _table(("metric", "kind", ""), rows)


def reasons() -> str:
    """Every reason for which univocal answers by itself, with its status, in the order of precedence."""
    rows = [(f"`{reason}`", str(status), title) for reason, (status, title) in REASONS.items()]
    return _table(("reason", "status", "title"), rows)


def commands() -> str:
    """Every command with its own options, after a table of the options that several commands share."""
    rows = {
        words: [_parameter(each) for each in command.params if each.name != "help"]
        for words, command in _commands(typer.main.get_command(app), "univocal")
    }
    uses = Counter(row for each in rows.values() for row in each if row[0].startswith("`-"))
    shared = {row for row, count in uses.items() if count >= SHARED}
    texts = [_table(("option", "meaning", "commands"), list(_shared(rows, shared)))]
    for words, command in _commands(typer.main.get_command(app), "univocal"):
        texts.append(f"#### `{words}`\n\n{_sentence(command)}")
        own = [row for row in rows[words] if row not in shared]
        if own:
            texts.append(_table(("option", "meaning"), own))
    return "\n\n".join(texts)


def _shared(rows: dict[str, list[Row]], shared: set[Row]) -> Iterator[Row]:
    """The rows of options that several commands share, each with these commands."""
    for row in sorted(shared):
        names = [words.removeprefix("univocal ") for words, each in rows.items() if row in each]
        yield *row, ", ".join(f"`{name}`" for name in names)


def _commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it, with the words that call each."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{words} {name}")


def _sentence(command: Any) -> str:
    return " ".join((command.help or "").split())


def _parameter(parameter: Any) -> Row:
    """An option's or argument's name, and its meaning with variable and default."""
    if parameter.param_type_name == "argument":
        called = f"`{parameter.metavar}`"
    else:
        names = ", ".join(f"`{name}`" for name in parameter.opts)
        called = names if parameter.is_flag else f"{names} `{parameter.metavar}`"
    more = [parameter.help or ""]
    if parameter.envvar:
        more.append(f"Variable: `{parameter.envvar}`.")
    if parameter.required:
        more.append("Required.")
    elif parameter.default not in {None, False, ""}:
        more.append(f"Default: `{getattr(parameter.default, 'value', parameter.default)}`.")
    return called, " ".join(more)


TABLES: Final = {"commands": commands, "metrics": metrics, "reasons": reasons}


if __name__ == "__main__":
    main()
