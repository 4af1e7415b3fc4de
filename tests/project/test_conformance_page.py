"""docs/conformance.md: every section has its rows, and every test that they name exists."""

import re
import subprocess
import sys
from functools import cache
from typing import NamedTuple

import pytest

from project.sources import ROOT

PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
ROW = re.compile(r"^\| (?P<section>[\d.]+) \| (?P<clause>.+?) \| (?P<kept>.+?) \| (?P<tests>.+) \|$")

# Sections whose rows there must be, those of their subsections included.
SECTIONS = {
    "9110": ["3.7", "5", "6", "7.6", "8", "9", "10.1", "11", "12", "13", "14", "15"],
    "9111": ["2", "3", "3.1", "3.2", "3.3", "3.4", "3.5", "4", "4.1", "4.2.1", "4.2.2", "4.2.3", "4.2.4"]
    + [
        *("4.3.1", "4.3.2", "4.3.3", "4.3.4", "4.3.5", "4.4", "5.1", "5.2", "5.2.1", "5.2.2", "5.3", "5.4"),
        "5.5",
    ]
    + [f"5.2.1.{number}" for number in range(1, 8)]
    + [f"5.2.2.{number}" for number in range(1, 11)],
    "9112": ["2", "3", "4", "5", "6.1", "6.2", "6.3", "7", "8", "9", "11"],
}


class Row(NamedTuple):
    """A clause, and what the page says of it."""

    rfc: str
    section: str
    clause: str
    kept: str
    tests: list[str]  # the one in which it holds, the one in which it does not


def rows(page):
    found, rfc = [], ""
    for line in page.splitlines():
        if heading := re.match(r"## RFC (\d+)", line):
            rfc = heading[1]
        elif row := ROW.match(line):
            found.append(
                Row(
                    rfc,
                    row["section"],
                    row["clause"],
                    row["kept"],
                    re.findall(r"`([^`]+::[^`]+)`", row["tests"]),
                )
            )
    return found


ROWS = rows(PAGE)


@cache
def functions(file):
    """The test functions of a file below tests/, none if it is not there."""
    path = ROOT / "tests" / file
    text = path.read_text("utf-8") if path.is_file() else ""
    return set(re.findall(r"(?m)^ *(?:async )?def (\w+)", text))


def unknown(found):
    """The named tests whose function does not exist."""
    named = [test for row in found for test in row.tests]
    return [
        test
        for test in named
        if test.partition("::")[2].partition("[")[0] not in functions(test.partition("::")[0])
    ]


def test_every_line_of_a_table_is_a_row():
    lines = [
        line
        for line in PAGE.partition("## The clauses")[2].splitlines()
        if line.startswith("|") and not line.startswith(("| § ", "|---"))
    ]
    assert len(lines) == len(ROWS) > 300
    assert len({(row.rfc, row.section, row.clause) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("rfc", "section"), [(rfc, each) for rfc in SECTIONS for each in SECTIONS[rfc]])
def test_every_section_has_a_row(rfc, section):
    assert any(f"{row.section}.".startswith(f"{section}.") for row in ROWS if row.rfc == rfc)


def test_every_clause_has_a_positive_and_a_negative_test():
    for row in ROWS:
        if row.tests:
            assert len(set(row.tests)) == 2, row
        else:
            assert row.kept.startswith(("n/a: ", "no: ")), row


def test_every_named_test_exists():
    assert unknown(ROWS) == []


def test_a_test_that_does_not_exist_is_noticed():
    line = "| 3 | A clause. | yes | `project/test_conformance_page.py::{}` | `pure/nowhere.py::test_x` |"
    (row,) = rows(line.format("test_a_test_that_does_not_exist_is_noticed[odd]"))
    assert unknown([row]) == ["pure/nowhere.py::test_x"]
    (row,) = rows(line.format("test_nothing"))
    assert len(unknown([row])) == 2


def test_every_named_row_of_a_table_exists(request):
    named = {test for row in ROWS for test in row.tests if "[" in test}
    if named <= {item.nodeid.removeprefix("tests/") for item in request.session.items}:
        return  # this run has found them all, which saves looking for them once more
    files = sorted({f"tests/{test.partition('::')[0]}" for test in named})
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    told = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    there = {line.removeprefix("tests/") for line in told.stdout.splitlines()}
    assert sorted(named - there) == [], told.stderr
