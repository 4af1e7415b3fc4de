"""docs/how-to/mounting.md and testing.md: their examples run, and the tests in them pass."""

import re
import subprocess
import sys


def examples_of(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))


def test_the_tests_of_the_page_pass(root, tmp_path):
    file = tmp_path / "test_page.py"
    file.write_text(examples_of(root / "docs/how-to/testing.md"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_every_example_of_mounting_runs(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(root / "docs/how-to/mounting.md")
    assert examples.count("@app.") >= 3
    exec(compile(examples, "mounting.md", "exec"), {"__name__": "mounting"})
