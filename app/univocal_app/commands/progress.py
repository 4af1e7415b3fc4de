"""A progress bar for whoever watches, and one line for each thing that is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(doing: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Gives a function that prints a line and counts it; the bar is on stderr, if that is a terminal.

    If `quiet`, lines are only counted.
    """
    if not sys.stderr.isatty() or total < 2:
        yield (lambda _: None) if quiet else typer.echo
        return
    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Only for the time it takes, and with standard output left alone, which may be a file.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    is_terminal = sys.stdout.isatty()
    with bar:
        task = bar.add_task(doing, total=total)

        def tell(line: str) -> None:
            if quiet:
                pass
            elif is_terminal:  # lines go above the bar
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                typer.echo(line)
            bar.advance(task)

        yield tell
