"""Exports to JavaScript and Python, and the Worker of docs/how-to/cdn.md, canonicalize as univocal does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.exporters.conftest import answers_of, as_hex
from tests.started import need

# Each answers a line, a JSON object that names a module and holds targets, by one line.
NODE = """\
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


# The module knows nothing of univocal.
PYTHON = """\
import json, runpy, sys
for line in sys.stdin:
    asked = json.loads(line)
    export = runpy.run_path(asked["file"])
    canonicalize = export["canonicalize"]
    vectors = [(target, (canonical, reason)) for target, canonical, reason in export["VECTORS"]]
    wrong = [repr(target) for target, outcome in vectors if canonicalize(target) != outcome]
    outcomes = [canonicalize(bytes.fromhex(target)) for target in asked["targets"].splitlines()]
    answers = [reason or "=" + canonical.hex() for canonical, reason in outcomes]
    print(json.dumps({"count": len(vectors), "wrong": wrong, "answers": "\\n".join(answers)}), flush=True)
"""
PROGRAMS = {
    "js": (["node", "--input-type=module", "-e", NODE], ".mjs"),
    "python": ([sys.executable, "-I", "-S", "-c", PYTHON], ".py"),
}


@pytest.fixture(scope="module")
def javascript(exports):
    need("nodejs", "node")
    return exports("js", ".mjs")


@pytest.fixture(scope="module")
def python(exports):
    return exports("python", ".py")


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    """program(name, targets): what it makes of the targets, in hexadecimal, with the profile of this name."""
    command, suffix = PROGRAMS[request.param]
    directory = request.getfixturevalue("javascript" if request.param == "js" else "python")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def program(name, targets):
            process.stdin.write(
                json.dumps({"file": f"{directory}/{name}{suffix}", "targets": targets}) + "\n"
            )
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield program


def test_a_program_canonicalizes_as_univocal_does(profile, cases, program):
    answer = program(profile.name, as_hex(target for target, _, _ in cases))
    assert answer["count"] > 100
    assert answer["wrong"] == []
    expected = [(target, (canonical, reason)) for target, canonical, reason in cases]
    assert (
        list(zip((target for target, _, _ in cases), answers_of(answer["answers"]), strict=True)) == expected
    )


def test_a_character_that_is_no_byte_is_refused(javascript):
    program = (
        'const {canonicalize} = await import(process.argv[1]); console.log(canonicalize("/\\u0100")[1]);'
    )
    command = ["node", "--input-type=module", "-e", program, f"{javascript}/rfc3986.mjs"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "bad-target\n"


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
