"""`python -m univocal` is the program `univocal`, where it is installed."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run the program, or say what it lacks."""
    programs = entry_points(group="console_scripts", name="univocal")
    if not programs:
        sys.exit("univocal: the program is not installed: pip install 'univocal[proxy]'")
    next(iter(programs)).load()()


if __name__ == "__main__":
    main()
