"""Profiles exported to Python: a module that knows nothing of univocal canonicalizes as univocal does."""

import subprocess
import sys

import pytest

from tests.integration.exporters.conftest import answers_of, as_hex

PROGRAM = """\
import runpy, sys
export = runpy.run_path(sys.argv[1])
vectors = [(target, (canonical, reason)) for target, canonical, reason in export["VECTORS"]]
assert all(export["canonicalize"](target) == outcome for target, outcome in vectors) and len(vectors) > 100
for line in sys.stdin:
    canonical, reason = export["canonicalize"](bytes.fromhex(line))
    print(reason or "=" + canonical.hex())
"""


@pytest.fixture(scope="module")
def python(exports):
    return exports("python", ".py")


def test_python_canonicalizes_as_univocal_does(profile, cases, python):
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, f"{python}/{profile.name}.py"],
        input=as_hex(target for target, _, _ in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    assert list(zip((target for target, _, _ in cases), answers_of(ran.stdout), strict=True)) == expected


def test_a_module_tests_itself_when_it_is_run(python):
    subprocess.run([sys.executable, "-I", "-S", f"{python}/servlet.py"], check=True)
