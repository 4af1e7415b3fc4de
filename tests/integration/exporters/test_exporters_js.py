"""Profiles exported to JavaScript: Node canonicalizes as univocal does."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.integration.exporters.conftest import answers_of, as_hex

PROGRAM = """\
import { readFileSync } from "node:fs";
const { canonicalize, vectors } = await import(process.argv[1]);
for (const [target, canonical, reason] of vectors) {
  const outcome = canonicalize(target);
  if (outcome[0] !== canonical || outcome[1] !== reason) throw new Error(target);
}
const lines = readFileSync(0, "latin1").split("\\n").slice(0, -1);
const answers = lines.map((line) => {
  const [canonical, reason] = canonicalize(Buffer.from(line, "hex").toString("latin1"));
  return reason ?? "=" + Buffer.from(canonical, "latin1").toString("hex");
});
console.log([vectors.length, ...answers].join("\\n"));
"""


@pytest.fixture(scope="module")
def javascript(exports):
    if shutil.which("node") is None:
        pytest.skip("needs node (Debian package nodejs)")
    return exports("js", ".mjs")


def test_node_canonicalizes_as_univocal_does(profile, cases, javascript):
    ran = subprocess.run(
        ["node", "--input-type=module", "-e", PROGRAM, f"{javascript}/{profile.name}.mjs"],
        input=as_hex(target for target, _, _ in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    count, _, answers = ran.stdout.partition("\n")
    assert int(count) > 100
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    assert list(zip((target for target, _, _ in cases), answers_of(answers), strict=True)) == expected


def test_a_character_that_is_no_octet_is_refused(javascript):
    program = (
        'const {canonicalize} = await import(process.argv[1]); console.log(canonicalize("/\\u0100")[1]);'
    )
    command = ["node", "--input-type=module", "-e", program, f"{javascript}/rfc3986.mjs"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "bad-target\n"
