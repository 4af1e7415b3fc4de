"""The lowest versions that pyproject.toml allows of what users install, as a constraints file for pip.

    python tools/lowest/write.py DIRECTORY

`constraints.txt` has one exact version a line. `requirements.txt` has the project with these extras, and what
tests need beside, of any version that goes with them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"bench", "clients", "dev", "docs", "servers", "test"}  # extras that no user installs
# Of what tests need beside: newer ones want newer versions of the project's own requirements.
COMPANIONS = {"fastapi": "fastapi==0.115.5"}
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)[^;]*(;.*)?")
_NAME = re.compile(r"[A-Za-z0-9._-]+(?:\[[^]]*\])?")


def extras(project: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """The extras that users install, with their requirements."""
    optional = project["optional-dependencies"]
    return {name: needs for name, needs in optional.items() if name not in OURS}


def lowest(requirements: Iterable[str]) -> Iterator[str]:
    """Each requirement at its lower bound. Raises ValueError for one that has none."""
    for requirement in requirements:
        bound = _BOUND.fullmatch(requirement)
        if bound is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        yield f"{bound[1]}=={bound[2]}{bound[3] or ''}"


def main(directory: Path) -> None:
    """Write both files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = extras(project)
    needed = {*project["dependencies"], *(each for needs in optional.values() for each in needs)}
    tools = [_NAME.match(each) for each in project["optional-dependencies"]["test"]]
    names = [
        COMPANIONS.get(name[0], name[0])
        for name in tools
        if name is not None and not name[0].startswith("univocal")
    ]
    lines = [f"-e {ROOT}[{','.join(sorted(optional))}]", *names]
    (directory / "constraints.txt").write_text("\n".join(sorted(lowest(needed))) + "\n", "utf-8")
    (directory / "requirements.txt").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
