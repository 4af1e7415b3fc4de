"""Exports to JavaScript and Python, and the Worker of docs/how-to/cdn.md, canonicalize as univocal does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.exporters.conftest import answers_of, as_hex
from tests.started import need

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


def compare(cases, text):
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    assert list(zip((target for target, _, _ in cases), answers_of(text), strict=True)) == expected


@pytest.fixture(scope="module")
def javascript(exports):
    need("nodejs", "node")
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
    compare(cases, answer["answers"])


def test_a_character_that_is_no_octet_is_refused(javascript):
    program = (
        'const {canonicalize} = await import(process.argv[1]); console.log(canonicalize("/\\u0100")[1]);'
    )
    command = ["node", "--input-type=module", "-e", program, f"{javascript}/rfc3986.mjs"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "bad-target\n"


# Python: a module that knows nothing of univocal


PYTHON = """\
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
        [sys.executable, "-I", "-S", "-c", PYTHON, f"{python}/{profile.name}.py"],
        input=as_hex(target for target, _, _ in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    compare(cases, ran.stdout)


def test_a_module_tests_itself_when_it_is_run(python):
    subprocess.run([sys.executable, "-I", "-S", f"{python}/servlet.py"], check=True)


# The page: its Worker does what it says


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "cdn.md"

DRIVER = """\
globalThis.fetch = async (request) => new Response(request.url);
const { default: worker } = await import(process.argv[1]);
const answers = [];
for (const url of ["https://wiki.example/A%2fB%28c%29?x#y", "https://wiki.example/a%00"]) {
  const answer = await worker.fetch(new Request(url));
  answers.push([answer.status, answer.headers.get("Content-Type"), await answer.text()]);
}
console.log(JSON.stringify(answers));
"""


def block(language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text("utf-8"))[0]


@pytest.fixture
def worker(javascript, tmp_path):
    (tmp_path / "mediawiki.mjs").write_text((javascript / "mediawiki.mjs").read_text("utf-8"))
    (tmp_path / "worker.mjs").write_text(block("js"))
    return tmp_path / "worker.mjs"


def test_the_worker_asks_for_the_canonical_url_and_refuses_others(worker):
    command = ["node", "--input-type=module", "-e", DRIVER, str(worker)]
    accepted, refused = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert accepted[2] == "https://wiki.example/A/B(c)?x"
    assert refused[:2] == [400, "application/problem+json"]
    assert json.loads(refused[2])["reason"] == "control-character"


def test_the_vectors_of_the_page_are_published():
    published = json.loads((PAGE.parents[1] / "vectors.json").read_text("utf-8"))
    for name, rows in json.loads(block("json")).items():
        assert all(row in published[name] for row in rows)
