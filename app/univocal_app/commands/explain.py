"""`univocal explain` and `univocal canonicalize`: what becomes of URLs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from univocal.judge.runtime import Runtime
from univocal.uri.sites import Sites, canonical_url
from univocal.uri.target import Rejected
from univocal_app.commands.endings import ending_cleanly
from univocal_app.commands.settings import Config, argument, everywhere, flag, option, usage, usage_errors
from univocal_app.observe.explain import explain
from univocal_app.run.configured import runtime_of
from univocal_app.run.reading import read
from univocal_app.terminal import printable

_PIECE: Final = 1 << 16  # bytes that are read at once


def explain_command(
    url: Annotated[str, argument("URL", "Any spelling, with http:// or https://.")],
    profile: Annotated[str | None, option("NAME|FILE", "The profile to use. Default: rfc3986.")] = None,
    config: Config = None,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    path_encoding: Annotated[str, option("CHARSET", "The charset in URI-Path-Encoding.")] = "",
    query_encoding: Annotated[str, option("CHARSET", "The charset in URI-Query-Encoding.")] = "",
) -> None:
    """Show step by step how univocal makes the canonical URL of a URL.

    Exit status: 0 accepted, 1 rejected, 2 usage error.
    """
    runtime = _runtime(profile, config)
    with usage_errors():
        encodings = (path_encoding.encode(), query_encoding.encode())
        explanation = explain(url, runtime.sites, encodings, runtime.rules_of, runtime.restrictions_of)
    typer.echo(explanation.as_json() if as_json else explanation.as_text())
    raise typer.Exit(0 if explanation.accepted else 1)


def canonicalize_command(
    files: Annotated[
        list[str] | None, argument("FILE", "URLs, one a line; - is standard input, the default.")
    ] = None,
    *,
    profile: Annotated[str | None, option("NAME|FILE", "The profile to use. Default: rfc3986.")] = None,
    config: Config = None,
    as_json: Annotated[bool, flag("--json", "Print a JSON object a line.")] = False,
) -> None:
    """Print the canonical URL of each URL in files or standard input.

    A rejected URL gives an empty line, and its reasons on standard error.

    Exit status: 0 all accepted, 1 some rejected, 2 usage error.
    """
    sites = _runtime(profile, config).sites
    with usage_errors():
        accepted = canonicalize_files(files or ["-"], sites, as_json=as_json)
    raise typer.Exit(0 if accepted else 1)


def _runtime(profile: str | None, config: Path | None) -> Runtime:
    """The configuration that a request would see: a file, or one profile for every host."""
    if profile is not None and config is not None:
        usage("use either --profile or --config: with --config each site names its profile")
    if config is not None:
        return runtime_of(read(config))
    return runtime_of(everywhere(["http://127.0.0.1"], profile))


def canonicalize_files(names: Sequence[str], sites: Sites, *, as_json: bool) -> bool:
    """Write the canonical URL for each line of the files, "-" being standard input; True if none was refused.

    Of a refused URL the line is empty, and the reason is written to standard error. Raises ValueError for a
    file that cannot be opened.
    """
    files = [(name, _opened(name)) for name in names]
    accepted = True
    with ending_cleanly():
        for name, file in files:
            number = 0
            for urls in _pieces(file):
                written = list[bytes]()
                for url in urls:
                    number += 1
                    spelled = canonical_url(url, sites)
                    if isinstance(spelled, Rejected):
                        accepted = False
                        _tell(name, number, spelled)
                    answer, reasons = (b"", spelled.reasons) if isinstance(spelled, Rejected) else spelled
                    written.append(_as_json(url, answer, reasons) if as_json else answer)
                typer.echo(b"".join([b"%b\n" % line for line in written]), nl=False)
    return accepted


def _opened(name: str) -> BinaryIO:
    try:
        return open(sys.stdin.fileno() if name == "-" else name, "rb", buffering=0, closefd=name != "-")
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None


def _pieces(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file without their ends, as many at once as there are: a pipe hears at once."""
    begun = b""
    while piece := os.read(file.fileno(), _PIECE):
        *lines, begun = (begun + piece).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if begun:
        yield [begun.removesuffix(b"\r")]
    file.close()


def _tell(name: str, number: int, rejected: Rejected) -> None:
    place = "standard input" if name == "-" else name
    typer.echo(f"univocal: {place}:{number}: {', '.join(rejected.reasons)}", err=True)


def _as_json(url: bytes, answer: bytes, reasons: Sequence[str]) -> bytes:
    document = {
        "url": printable(url),
        "canonical": printable(answer) if answer else None,
        "rejected": None if answer else reasons[0],
        "reasons": list(reasons),
    }
    return json.dumps(document).encode()
