"""The Makefile's environments are made by the interpreter that is named, whatever made them before."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OTHER = '#!/bin/sh\ncase "$*" in *version_info\\[:2\\]*) echo 3.99 /opt/python ;; *) exec {} "$@" ;; esac\n'


@pytest.fixture
def would(root, tmp_path):
    """The commands with which `make PYTHON=… test` would begin, before those that run tests."""
    if shutil.which("make") is None:
        pytest.skip("package make is not installed")
    environment = tmp_path / "venv"
    environment.mkdir()

    def dry(interpreter):
        stamp = f"PYTHON={interpreter}", f"TEST_VENV={environment}"
        asked = ["make", "--no-print-directory", "-n", *stamp, "test"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        ended = subprocess.run(
            asked, capture_output=True, text=True, timeout=60, check=True, cwd=root, env=clean
        )
        for stamped in re.findall(r"touch ([^;]+);", ended.stdout):
            for old in environment.iterdir():
                old.unlink()
            Path(stamped).touch()
        return ended.stdout

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
    if shutil.which("make") is None:
        pytest.skip("package make is not installed")
    places = f"VENV={tmp_path}/runs", f"TEST_VENV={tmp_path}/tests"
    asked = ["make", "--no-print-directory", "-n", f"PYTHON={sys.executable}", *places, target]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True, cwd=root, env=clean)
    installed = re.findall(r"(\S+)/bin/python (?:-m pip )?install .*--editable '\.\[([\w,]+)\]'", said.stdout)
    assert installed == [(f"{tmp_path}/{environment}", extra)]


@pytest.mark.parametrize(
    ("version", "without", "installs"),
    [
        ("23.2.1", " --without-pip", "{python} -m pip --python {place}/bin/python install"),
        ("22.2", "", "{place}/bin/python -m pip install"),
        (None, "", "{place}/bin/python -m pip install"),
    ],
)
def test_the_demo_needs_no_second_pip(version, without, installs, root, tmp_path):
    if shutil.which("make") is None:
        pytest.skip("package make is not installed")
    known = tmp_path / "known"
    known.mkdir()
    (known / "pip.py").write_text(f"__version__ = {version!r}" if version else "raise ImportError")
    place = tmp_path / "runs"
    asked = ["make", "--no-print-directory", "-n", f"PYTHON={sys.executable}", f"VENV={place}", "demo"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    clean["PYTHONPATH"] = str(known)
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True, cwd=root, env=clean)
    assert re.search(rf" -m venv --clear{without} +{re.escape(str(place))}\n", said.stdout)
    assert installs.format(python=sys.executable, place=place) in said.stdout


def test_sources_are_rewritten_as_the_check_wants_them(root, tmp_path):
    if shutil.which("make") is None:
        pytest.skip("package make is not installed")
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    ruff = programs / "ruff"
    ruff.write_text(f'#!/bin/sh\nexec {sys.executable} -m ruff "$@"\n')
    ruff.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    source = tmp_path / "source.py"
    source.write_text("import sys\nx = [ 1,2 ]\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def made(*words):
        command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", "TEST_VENV=venv", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=clean
        ).stdout

    (stamp,) = re.findall(r"touch ([^;]+);", made("-n", "format"))
    (tmp_path / stamp).touch()
    made("format")
    assert source.read_text() == "x = [1, 2]\n"
