"""Check the prose of pages and docstrings: `python -m tools.prose.check FILE…`; exits with 1 if a rule is broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from tools.prose.passages import of_markdown, of_python
from tools.prose.rules import COINED, GENERAL, SENTENCES

# The page that defines our own terms, and the pages that cite the rules of an RFC.
DEFINES: Final = {"architecture.md", "conformance.md"}


def broken(path: Path, checks: dict[str, bool]) -> Iterator[str]:
    """Each rule that a file breaks, as `FILE:LINE: message`."""
    text = path.read_text("utf-8")
    passages = of_python(text) if path.suffix == ".py" else of_markdown(text)
    for line, passage in passages:
        if not passage.strip():
            continue
        results = LintFile(str(path), passage).lint({"max_errors": 1_000, "checks": checks})
        for result in results:
            yield f"{path}:{line + max(result.pos[0] - 2, 0)}: {result.check_result.message}"


def main(names: Sequence[str]) -> int:
    """Check the named files and those below the named directories; 1 if a rule is broken."""
    registry = CheckRegistry()
    registry.register_many((*__register__, *SENTENCES, *COINED))
    count = 0
    for path in _files(names):
        checks = dict(GENERAL)
        if path.name in DEFINES:
            checks = {"univocal.coined": False, **checks}
        for complaint in broken(path, checks):
            print(complaint)
            count += 1
    return 1 if count else 0


def _files(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from sorted([*path.rglob("*.md"), *path.rglob("*.py")])
        else:
            yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
