"""docs/how-to/cdn.md: its Worker and its nginx do what the page says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
def worker(exports, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("needs node (Debian package nodejs)")
    (tmp_path / "mediawiki.mjs").write_text((exports("js", ".mjs") / "mediawiki.mjs").read_text("utf-8"))
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
