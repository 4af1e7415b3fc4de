"""docs/comparison.md says what each cache does, asked again."""

import pytest

from tools.comparison.run import CACHES, PAGE, QUESTIONS, measured, missing, table


def told():
    """The columns of the page's table, by their heads."""
    lines = PAGE.read_text("utf-8").split("<!-- spellings: written by make comparison -->\n\n")[1]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines.partition("\n\n")[0].splitlines()
    ]
    assert [row[0] for row in rows] == list(QUESTIONS)
    return {title: [row[at] for row in rows] for at, title in enumerate(head) if at}


@pytest.mark.parametrize("cache", CACHES, ids=[cache.title for cache in CACHES])
def test_the_page_tells_what_is_measured(cache):
    if package := missing(cache):
        pytest.skip(f"needs {package}")
    assert measured(cache) == told()[cache.title]


def test_the_table_has_a_column_for_each_cache():
    columns = told()
    assert list(columns) == [cache.title for cache in CACHES]
    assert table(columns) in PAGE.read_text("utf-8")
