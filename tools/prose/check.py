"""Check the prose of pages and docstrings: `python -m tools.prose.check FILE…`; 1 if a rule is broken."""

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

RULES: Final = (*SENTENCES, *COINED)

# The pages that define our own terms, or cite the rules of an RFC.
_DEFINING: Final = {"architecture.md", "conformance.md"}


def broken(path: Path) -> Iterator[str]:
    """Each rule that a file breaks, as `FILE:LINE: message`."""
    _register()
    own_terms = {"univocal.coined": False} if path.name in _DEFINING else {}
    checks = {**own_terms, **GENERAL}
    text = path.read_text("utf-8")
    for line, passage in of_python(text) if path.suffix == ".py" else of_markdown(text):
        if not passage.strip():
            continue
        for result in LintFile(str(path), passage).lint({"max_errors": 1_000, "checks": checks}):
            # proselint puts an empty line before the text.
            yield f"{path}:{line + max(result.pos[0] - 2, 0)}: {result.check_result.message}"


def main(names: Sequence[str]) -> int:
    """Check the named files and those below the named directories; 1 if a rule is broken."""
    complaints = [complaint for path in _files(names) for complaint in broken(path)]
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _register() -> None:
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many((*__register__, *RULES))


def _files(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from sorted([*path.rglob("*.md"), *path.rglob("*.py")])
        else:
            yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
