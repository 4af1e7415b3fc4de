"""The prose linter: each rule has a text that breaks it and one that does not."""

import re
from pathlib import Path

import pytest
from proselint.registry import CheckRegistry

from tools.prose.check import RULES, broken, main
from tools.prose.passages import of_markdown, of_python

BREAKS = [
    ("What is stored goes, with every variant.", "'What' begins the sentence"),
    ("It answers. Whoever may purge is powerful.", "'Whoever' begins the sentence"),
    (" ".join(f"word{n}" for n in range(26)) + ".", "a sentence of 26 words"),
    ("The decoder ring is a table.", "write 'percent-encoding table'"),
    ("Each octet counts.", "write 'byte'"),
    ("Take note that the content is complete.", "write 'record'"),
    ("It speaks for nobody.", "write 'supports'"),
]
FOLLOWS = [
    "univocal removes every variant.",
    "What would you gain?",
    " ".join(f"word{n}" for n in range(25)) + ".",
    "Set `ring` to a name: it is the setting's own.",
    "A string of bytes, and somebody whose cookie is there.",
]


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.md"


@pytest.mark.parametrize(("text", "complaint"), BREAKS)
def test_a_broken_rule_is_named_with_its_line(page, capsys, text, complaint):
    page.write_text(f"# Title\n\nAn innocent line.\n\n{text}\n", "utf-8")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}:5: {complaint}")


@pytest.mark.parametrize("text", FOLLOWS)
def test_a_text_that_follows_the_rules_passes(page, text):
    page.write_text(text + "\n", "utf-8")
    assert main([str(page)]) == 0


def test_code_blocks_are_not_prose(page):
    page.write_text("```sh\nWhat is stored goes.\n```\n", "utf-8")
    assert main([str(page)]) == 0


def test_the_page_that_defines_our_terms_may_use_them(tmp_path):
    for name, count in (("architecture.md", 0), ("other.md", 1)):
        path = tmp_path / name
        path.write_text("The decoder ring of a profile.\n", "utf-8")
        assert len([*broken(path)]) == count


def test_every_rule_is_registered_once(page):
    page.write_text(FOLLOWS[0], "utf-8")
    assert [*broken(page), *broken(page)] == []
    names = [check.path for check in CheckRegistry().checks]
    assert all(names.count(rule.path) == 1 for rule in RULES)


def test_cells_items_and_headings_are_passages():
    text = "# One\n\n- two\n- three `code`\n\n| four | five |\n|---|---|\n| six | seven |\n"
    assert [(line, passage) for line, passage in of_markdown(text)] == [
        (1, "One"),
        (3, "two"),
        (4, "three code1"),
        (6, "four"),
        (6, "five"),
        (8, "six"),
        (8, "seven"),
    ]


def test_docstrings_are_passages_with_their_lines():
    text = '"""One."""\n\n\nclass Two:\n    """Three.\n\n    Four.\n    """\n'
    assert [*of_python(text)] == [(1, "One."), (5, "Three."), (7, "Four.")]


def test_names_of_tests_are_short_and_begin_with_no_clause():
    texts = (path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    functions = [name for text in texts for name in re.findall(r"(?m)^ *(?:async )?def test_(\w+)", text)]
    assert len(functions) > 1000
    clause = re.compile("(?:(?:what|who|which)(?:ever)?|whom|whose|those|whether|why|how)_")
    assert [name for name in functions if len(name.split("_")) > 10 or clause.match(name)] == []
