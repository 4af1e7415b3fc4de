"""`univocal canonicalize`: a line for each URL that is read, in order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import typer

from univocal.uri.pipeline import Rejected
from univocal.uri.sites import Sites, canonical_url
from univocal_app.commands.endings import ending_cleanly
from univocal_app.terminal import printable

_PIECE: Final = 1 << 16  # bytes that are read at once


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
                sys.stdout.buffer.write(b"".join([b"%b\n" % line for line in written]))
                sys.stdout.buffer.flush()
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
