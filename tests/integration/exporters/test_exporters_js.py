"""Profiles exported to JavaScript: Node canonicalizes as univocal does."""

import json
import shutil
import subprocess

import pytest

from tests.integration.exporters.conftest import answers_of, as_hex

# Answers each line, a JSON object that names a module and holds targets, by one line.
PROGRAM = """\
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const { file, targets } = JSON.parse(line);
  const { canonicalize, vectors } = await import(file);
  const wrong = vectors.filter(([target, canonical, reason]) => {
    const outcome = canonicalize(target);
    return outcome[0] !== canonical || outcome[1] !== reason;
  });
  const answers = targets.split("\\n").slice(0, -1).map((target) => {
    const [canonical, reason] = canonicalize(Buffer.from(target, "hex").toString("latin1"));
    return reason ?? "=" + Buffer.from(canonical, "latin1").toString("hex");
  });
  console.log(JSON.stringify({ count: vectors.length, wrong, answers: answers.join("\\n") }));
}
"""


@pytest.fixture(scope="module")
def javascript(exports):
    if shutil.which("node") is None:
        pytest.skip("needs node (Debian package nodejs)")
    return exports("js", ".mjs")


@pytest.fixture(scope="module")
def node(javascript):
    """node(name, targets): what Node makes of the targets, in hexadecimal, with the profile of this name."""
    command = ["node", "--input-type=module", "-e", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def node(name, targets):
            process.stdin.write(json.dumps({"file": f"{javascript}/{name}.mjs", "targets": targets}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield node


def test_node_canonicalizes_as_univocal_does(profile, cases, node):
    answer = node(profile.name, as_hex(target for target, _, _ in cases))
    assert answer["count"] > 100
    assert answer["wrong"] == []
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    answers = answers_of(answer["answers"])
    assert list(zip((target for target, _, _ in cases), answers, strict=True)) == expected


def test_a_character_that_is_no_octet_is_refused(javascript):
    program = (
        'const {canonicalize} = await import(process.argv[1]); console.log(canonicalize("/\\u0100")[1]);'
    )
    command = ["node", "--input-type=module", "-e", program, f"{javascript}/rfc3986.mjs"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "bad-target\n"
