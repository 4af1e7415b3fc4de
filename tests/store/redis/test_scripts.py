"""The scripts as Redis gets them: one text each, made of the files beside the module."""

from __future__ import annotations

from pathlib import Path

import pytest

from univocal.store.redis import scripts

FILES = {file.stem: file.read_text("utf-8") for file in Path(scripts.__file__).with_name("lua").iterdir()}
PARTS = {"namespace", "entries", "leases"}
SCRIPTS = {
    name.lower(): text
    for name in scripts.__all__
    if isinstance(text := getattr(scripts, name), str) and name != "MOVED"
}


def test_every_file_is_a_script_or_a_part() -> None:
    assert set(FILES) == {*SCRIPTS, *PARTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_begins_with_its_own_flags(name: str) -> None:
    assert SCRIPTS[name].splitlines()[0] == FILES[name].splitlines()[0]
    assert SCRIPTS[name].startswith("#!lua flags=no-cluster")
    assert SCRIPTS[name].count("#!lua") == 1


@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - {"attach"}))
def test_a_script_checks_its_namespace_before_anything_else(name: str) -> None:
    flags, rest = SCRIPTS[name].split("\n", 1)
    assert rest.startswith(FILES["namespace"])
    assert rest.endswith(FILES[name].removeprefix(f"{flags}\n"))


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("lookup", "no-writes"),
        ("count", "no-writes"),
        ("note", "allow-oom"),
        ("purge_keys", "allow-oom"),
        ("drop", "allow-oom"),
        ("release", "allow-oom"),
    ],
)
def test_readers_never_write_and_purges_need_no_room(name: str, flag: str) -> None:
    assert flag in SCRIPTS[name].splitlines()[0].split("=")[1].split(",")


@pytest.mark.parametrize("name", ["begin", "commit"])
def test_a_full_redis_refuses_what_stores(name: str) -> None:
    assert SCRIPTS[name].splitlines()[0] == "#!lua flags=no-cluster"


def test_the_namespace_error_begins_with_the_word_that_is_looked_for() -> None:
    assert f"redis.error_reply('{scripts.MOVED} " in FILES["namespace"]
