"""docs/how-to/mounting.md and testing.md: their examples run, and the tests in them pass."""

import re
import warnings

import pytest


def examples_of(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))


def test_the_tests_of_the_page_pass(root, tmp_path, capsys):
    file = tmp_path / "test_page.py"
    file.write_text(examples_of(root / "docs/how-to/testing.md"))
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-c",
        "/dev/null",
        "--import-mode=importlib",
    ]
    with warnings.catch_warnings():
        warnings.resetwarnings()  # as they are of a user
        assert pytest.main([*options, str(file)]) == 0
    assert "4 passed" in capsys.readouterr().out


def test_every_example_of_mounting_runs(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(root / "docs/how-to/mounting.md")
    assert examples.count("@app.") >= 3
    exec(compile(examples, "mounting.md", "exec"), {"__name__": "mounting"})
