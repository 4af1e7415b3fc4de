"""The claims of docs/profiles.md: its worked example runs, its tables are the program's."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.started import until_it_listens
from univocal.http.grammar import RESERVED, UNRESERVED
from univocal.judge.profiles import builtin_profiles
from univocal.uri.percent_encoding import DECODE, ENCODE, KEEP, RINGS
from univocal.uri.profile import parse
from univocal.uri.schema import _ARRAYS, _TABLES
from univocal.uri.suspicious import SEQUENCES
from univocal.uri.target import Rejected, canonical_target, explain_target, path_tags
from univocal_app.config.files import parsed
from univocal_app.config.tables import validate
from univocal_app.observe.explain import explain
from univocal_app.run.configured import runtime_of

BUILT_IN = builtin_profiles()
REST = set(b"/:[]@!$&'()*+,;=")


@pytest.fixture(scope="module")
def text(root):
    """The page."""
    return (root / "docs" / "profiles.md").read_text("utf-8")


def section(text, title):
    return re.split(rf"(?m)^#+ {re.escape(title)}$", text)[1].split("\n## ")[0]


def blocks(text, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows(text):
    """The rows of the first table in a section."""
    table = re.split(r"(?m)^\|[-|]+\|\n", text)[1].split("\n\n")[0]
    return [cells(line) for line in table.splitlines()]


# The settings.


@pytest.mark.parametrize("table", ["path", "query", "charset"])
def test_every_setting_has_a_row(text, table):
    told = {row[0].strip("`"): row for row in rows(section(text, f"`[{table}]`"))}
    assert list(told) == list(_TABLES[table])
    for name, setting in _TABLES[table].items():
        written = "absent: all" if setting.default is None else f"`{json.dumps(setting.default)}`"
        assert re.match(rf"{re.escape(written)}(?: for |[;,]|$)", told[name][1]), name


def test_every_key_of_an_array_is_told(text):
    told = section(text, "`[[rewrite]]` and `[[tags]]`")
    assert {key for array in _ARRAYS.values() for key in array} == {"from", "to", "at"}
    assert [row[0] for row in rows(told)] == ["`from`, `to`, `at`"]


def examples(page):
    for title in ("[path]", "[query]", "[charset]", "[[rewrite]]"):
        heading = "`[[rewrite]]` and `[[tags]]`" if title == "[[rewrite]]" else f"`{title}`"
        for name, _, kind, example in rows(section(page, heading)):
            if example:
                settings, target, canonical = re.fullmatch(
                    r"((?:`[^`]+` ?)+): `(.+)` → `(.+)`", example
                ).groups()
                lines = "\n".join(re.findall("`([^`]+)`", settings))
                yield name, f"{title}\n{lines}\n", kind, target, canonical


PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text("utf-8")


@pytest.mark.parametrize(("name", "settings", "kind", "target", "canonical"), list(examples(PAGE)))
def test_every_example_is_true_and_as_lossy_as_told(name, settings, kind, target, canonical):
    profile = parse({"mine": 'extends = "rfc3986"\n' + settings}, BUILT_IN)["mine"]
    stages, result = explain_target(target.encode(), profile)
    assert result == canonical.encode()
    assert canonical_target(target.encode(), BUILT_IN["rfc3986"]) != result
    assert {"lossy": True, "sound": False}[kind] == any(
        stage.lossy for stage in stages if stage.before != stage.after
    )


def test_the_tag_of_a_thumbnail(text):
    settings, *_ = blocks(section(text, "`[[rewrite]]` and `[[tags]]`"), "toml")
    profile = parse({"mine": settings})["mine"]
    assert path_tags(b"/thumb/3/37/F.jpg/200px-F.jpg", profile) == {b"/3/37/F.jpg"}


def test_every_setting_has_a_source(text):
    sources = rows(section(text, "Sources of the rules"))
    named = [name for row in sources for name in re.findall("`([^`]+)`", row[0])]
    tables = [f"{table}.{name}" for table, settings in _TABLES.items() for name in settings]
    assert named == [*(name for name in tables if not name.startswith("reject")), *_ARRAYS, *tables[-3:]]
    assert all(source for _, source in sources)


def test_open_points_of_the_servlet_specification_are_settings(text):
    told = section(text, "Open points of the Servlet specification")
    (settings,) = blocks(told, "toml")
    profiles = [BUILT_IN["servlet"], parse({"mine": settings}, BUILT_IN)["mine"]]
    for _, target, *cells in rows(told):
        for cell, profile in zip(cells, profiles, strict=True):
            result = canonical_target(target.strip("`").encode(), profile)
            expected = re.findall("`([^`]+)`", cell)[0]
            assert (result.reason if isinstance(result, Rejected) else result.decode()) == expected


# Rings, reasons, profiles.


def octets(cell):
    return set() if cell in {"", "nothing"} else {ord(token) for token in cell.split(" ")}


def test_the_tables_of_the_named_rings(text):
    (block,) = blocks(section(text, "Named tables"), "text")
    _, *lines = block.splitlines()
    told = {
        name: (octets(encoded), octets(kept))
        for name, encoded, kept in (re.split(r" {2,}", x) for x in lines)
    }
    assert list(told) == list(RINGS)
    always = {*range(0x21), *range(0x7F, 0x100), ord("%")}
    for name, (encoded, kept) in told.items():
        forms = RINGS[name].forms
        assert {octet for octet in range(256) if forms[octet] == ENCODE} == encoded | always, name
        assert {octet for octet in range(256) if forms[octet] == KEEP} == kept, name
        assert all(forms[octet] == DECODE for octet in UNRESERVED)


def test_every_reason_and_a_target_that_has_it(text):
    told = {row[0].strip("`"): row[2].strip("`").encode() for row in rows(section(text, "Rejections"))}
    assert set(told) == SEQUENCES - {"no-leading-slash"}
    for reason, target in told.items():
        profile = parse({"mine": f'[reject]\nsequences = ["{reason}"]\n'})["mine"]
        result = canonical_target(target, profile)
        assert isinstance(result, Rejected), target
        assert result.reasons == (reason,)


def test_the_built_in_profiles(text):
    told = {
        row[0].strip("`"): [cell.strip("`") for cell in row[1:4]] for row in rows(section(text, "Built in"))
    }
    assert set(told) == set(BUILT_IN)
    for name, row in told.items():
        forms = BUILT_IN[name].ring.forms
        for cell, form in zip(row, (DECODE, ENCODE, KEEP), strict=True):
            expected = REST if cell == "all" else octets(cell)
            assert {octet for octet in RESERVED if forms[octet] == form and octet not in b"?#"} == expected, (
                name
            )


# The worked example.


@pytest.fixture
def shop(text, tmp_path):
    """The page's files in a directory and its shop behind a port of its own: the directory and the port."""
    port = free_port()
    found = section(text, "Write a profile")
    (program,) = blocks(found, "python")
    probe, *_ = blocks(found, "sh")
    profile, configuration = blocks(found, "toml")
    (tmp_path / "profiles").mkdir()
    for name, content in {
        "shop.py": program,
        "probe.sh": probe,
        "profiles/shop.toml": profile,
        "univocal.toml": configuration,
    }.items():
        (tmp_path / name).write_text(content.replace("9000", str(port)), "utf-8")
    with subprocess.Popen([sys.executable, "shop.py"], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            until_it_listens(process, port)
            yield tmp_path
        finally:
            process.kill()


def test_the_probe_tells_what_the_page_says(shop):
    for program in ("sh", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    told = subprocess.run(
        ["sh", "probe.sh"], cwd=shop, capture_output=True, text=True, check=False, timeout=120
    )
    lines = told.stdout.splitlines()
    assert len(lines) == 26
    assert [line for line in lines if not line.startswith("one  ")] == [
        "two  /books/x/y /books/x%2Fy",
        "two  /books//x /books/x",
        "two  /books/z/../x /books/x",
        "two  /books;v=1/x /books/x",
        "two  /books/x/index.html /books/x/",
    ]


def test_the_profile_makes_one_of_what_is_one(shop, text):
    file = shop / "univocal.toml"
    runtime = runtime_of(validate(parsed(file), str(file)))
    url = re.search(r"explain --config univocal.toml '(.+)'", text)[1]
    shown = explain(url, runtime.sites).as_text()
    assert re.search(r"`explain` ends with `(.+?)`", text)[1] in shown
    same = [
        b"/books/A(b)",
        b"/books/%41%28b%29/?utm_source=x",
        b"/books/A%28b)",
        b"/books/A(b)?page=1",
        b"/books/A(b)?",
    ]
    profile = runtime.sites.locate(b"shop.example", 80)[0].routes[-1].profile
    assert {canonical_target(target, profile) for target in same} == {b"/books/A(b)"}
    refused = canonical_target(b"/books/../admin", profile)
    assert isinstance(refused, Rejected)
    assert refused.reason == "dot-segment"
