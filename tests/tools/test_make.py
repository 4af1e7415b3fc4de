"""The Makefile's environments are made by the interpreter that is named, whatever made them before."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples import cases

OTHER = '#!/bin/sh\ncase "$*" in *version_info\\[:2\\]*) echo 3.99 /opt/python ;; *) exec {} "$@" ;; esac\n'


def make(*words, cwd, **variables):
    """The output of `make` with these arguments."""
    if shutil.which("make") is None:
        pytest.skip("package make is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command, environment = ["make", "--no-print-directory", *words], clean | variables
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=cwd, env=environment
    )
    return ended.stdout


@pytest.fixture
def would(root, tmp_path):
    """The commands with which `make PYTHON=… test` would begin, before those that run tests."""
    environment = tmp_path / "venv"
    environment.mkdir()

    def dry(interpreter):
        said = make("-n", f"PYTHON={interpreter}", f"TEST_VENV={environment}", "test", cwd=root)
        for stamped in re.findall(r"touch ([^;]+);", said):
            for old in environment.iterdir():
                old.unlink()
            Path(stamped).touch()
        return said

    return dry


def test_another_interpreter_makes_the_environment_anew(would, tmp_path):
    assert callable(would)
    other = tmp_path / "python3.99"
    other.write_text(OTHER.format(sys.executable))
    other.chmod(0o755)
    assert "-m venv --clear" in would(sys.executable)
    assert "-m venv" not in would(sys.executable)
    assert f"{other} -m venv --clear" in would(str(other))
    assert "-m venv" not in would(str(other))
    assert "-m venv --clear" in would(sys.executable)


@pytest.mark.parametrize(
    ("target", "extra", "environment"), [("demo", "proxy,learn", "runs"), ("test", "dev", "tests")]
)
def test_the_demo_installs_what_running_needs_and_no_more(target, extra, environment, root, tmp_path):
    places = f"VENV={tmp_path}/runs", f"TEST_VENV={tmp_path}/tests"
    said = make("-n", f"PYTHON={sys.executable}", *places, target, cwd=root)
    installed = re.findall(r"(\S+)/bin/python (?:-m pip )?install .*--editable '\.\[([\w,]+)\]'", said)
    assert installed == [(f"{tmp_path}/{environment}", extra)]


@cases(
    "version, without, installs",
    ("23.2.1", " --without-pip", "{python} -m pip --python {place}/bin/python install"),
    ("22.2", "", "{place}/bin/python -m pip install"),
    (None, "", "{place}/bin/python -m pip install"),
)
def test_the_demo_needs_no_second_pip(version, without, installs, root, tmp_path):
    known = tmp_path / "known"
    known.mkdir()
    (known / "pip.py").write_text(f"__version__ = {version!r}" if version else "raise ImportError")
    place = tmp_path / "runs"
    words = ("-n", f"PYTHON={sys.executable}", f"VENV={place}", "demo")
    said = make(*words, cwd=root, PYTHONPATH=str(known))
    assert re.search(rf" -m venv --clear{without} +{re.escape(str(place))}\n", said)
    assert installs.format(python=sys.executable, place=place) in said


def test_sources_are_rewritten_as_the_check_wants_them(root, tmp_path):
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    ruff = programs / "ruff"
    ruff.write_text(f'#!/bin/sh\nexec {sys.executable} -m ruff "$@"\n')
    ruff.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    source = tmp_path / "source.py"
    source.write_text("import sys\nx = [ 1,2 ]\n")
    places = (f"PYTHON={sys.executable}", "TEST_VENV=venv")
    (stamp,) = re.findall(r"touch ([^;]+);", make("-n", *places, "format", cwd=tmp_path))
    (tmp_path / stamp).touch()
    make(*places, "format", cwd=tmp_path)
    assert source.read_text() == "x = [1, 2]\n"
