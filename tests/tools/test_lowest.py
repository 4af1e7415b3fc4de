"""The lowest versions that pyproject.toml allows are written as exact ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples import cases
from tools.lowest.write import extras, lowest

ROOT = Path(__file__).parents[2]


@cases(
    "requirement, line",
    ("starlette>=0.40", "starlette==0.40"),
    ("httpx>=0.28,<0.29", "httpx==0.28"),
    ("hishel[async]>=2", "hishel==2"),
    ("uvloop>=0.21; sys_platform != 'win32'", "uvloop==0.21; sys_platform != 'win32'"),
)
def test_a_requirement_is_held_at_its_lower_bound(requirement, line):
    assert list(lowest([requirement])) == [line]


def test_a_requirement_without_a_lower_bound_is_refused():
    with pytest.raises(ValueError, match="has no lower bound"):
        list(lowest(["starlette"]))


def test_extras_for_development_are_no_users():
    optional = {"proxy": ["typer>=0.26"], "dev": ["ruff>=0.14"], "servers": ["daphne>=4"]}
    assert extras({"optional-dependencies": optional}) == {"proxy": ["typer>=0.26"]}


def test_every_requirement_of_a_user_gets_a_line(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools/lowest/write.py", tmp_path], check=True)
    lines = (tmp_path / "constraints.txt").read_text().splitlines()
    assert "starlette==0.40" in lines
    assert all(re.match(r"[a-z0-9.-]+==[0-9.]+(;|$)", line) for line in lines)
    assert (tmp_path / "requirements.txt").read_text().startswith(f"-e {ROOT}[auth,compress,")
