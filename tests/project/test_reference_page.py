"""docs/reference.md has what the code has: commands, options, metrics, reasons, keys of univocal.toml."""

import re
import tomllib

import pytest
from pydantic import BaseModel

from examples import cases
from tools.reference.write import PAGE, TABLES, VECTORS, vectors_text, with_tables
from univocal.http.errors import REASONS
from univocal_app.config.tables import Configuration, RouteTable, SiteTable


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text("utf-8")


def test_the_tables_are_what_the_code_says(page):
    assert with_tables(page) == page, "make reference writes docs/reference.md anew"


def test_the_published_vectors_are_those_of_the_profiles():
    for file, names in VECTORS.items():
        assert file.read_text("utf-8") == vectors_text(names), f"make reference writes {file.name} anew"


@cases(
    "said, other",
    ("| `bad-host` | 400 |", "| `bad-host` | 404 |"),
    ("| `--soft` | Mark stale instead of removing. |", "| `--soft` | |"),
    ("| `univocal_stored_bytes` | gauge |", "| `univocal_stored_bytes` | counter |"),
)
def test_tables_that_contradict_the_code_are_rewritten(page, said, other):
    assert page.count(said) == 1
    assert with_tables(page.replace(said, other)) == page


def test_tables_have_no_bar_that_shows_a_backslash():
    for file in (PAGE.parents[1] / "README.md", *PAGE.parent.rglob("*.md")):
        rows = re.findall(r"(?m)^\|.*`[^`]*\\\|[^`]*`.*$", file.read_text("utf-8"))
        assert rows == [], file.name


@pytest.mark.parametrize("name", TABLES)
def test_a_page_without_a_place_is_refused(page, name):
    with pytest.raises(ValueError, match=name):
        with_tables(page.replace(f"<!-- {name}: end -->", ""))


def test_every_reason_is_in_the_section_on_refusals(page):
    _, _, told = page.partition("## Rejections")
    assert set(REASONS) <= set(re.findall(r"`([a-z0-9-]+)`", told))


def test_every_key_is_shown(page):
    (block,) = re.findall(r"(?ms)^## univocal.toml$.*?^```toml\n(.*?)^```", page)
    shown = tomllib.loads(block)
    assert shown.keys() == Configuration.model_fields.keys()
    for name, field in Configuration.model_fields.items():
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            assert shown[name].keys() == table.model_fields.keys(), name
    (site,) = shown["sites"]
    (route,) = site["routes"]
    # Tables of a site's own, which have the keys of the tables above.
    assert site.keys() | {"origin", "cache", "request", "response"} == SiteTable.model_fields.keys()
    assert route.keys() | {"access", "cache", "request", "response"} == RouteTable.model_fields.keys()
