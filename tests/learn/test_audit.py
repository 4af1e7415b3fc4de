"""`univocal audit` and `discover` from the outside: unreadable lines, and one definition of a hit."""

import json
import sys

import pytest

from univocal_app.commands.cli import main

LINE = '192.0.2.1 - - [22/Nov/2026:02:03:04 +0000] "GET {} HTTP/1.1" {} 512\n'


@pytest.fixture
def univocal(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["univocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    monkeypatch.setenv("NO_COLOR", "1")
    return run


def test_lines_that_cannot_be_read_are_counted_and_shown(univocal, tmp_path):
    log = tmp_path / "access.log"
    log.write_text(LINE.format("/a", 200) * 3 + "nonsense \x1b[31m\n" * 997)
    status, _, err = univocal("audit", log)
    assert status == 0
    assert "997 of 1,000 lines could not be read, the first: nonsense \\x1b[31m\n" in err
    assert "Traefik" in err


def test_a_log_of_unreadable_lines_says_the_formats(univocal, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("nonsense\n" * 2)
    status, _, err = univocal("audit", log)
    assert status == 1
    assert "2 of 2 lines could not be read" in err


def test_a_readable_log_says_nothing_of_formats(univocal, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("# a comment\n" + LINE.format("/a", 200) * 3)
    assert univocal("audit", log)[2] == ""


def test_discover_counts_hits_as_replay_does(univocal, tmp_path):
    log = tmp_path / "access.log"
    statuses = {"/a": 206, "/b": 404, "/c": 410, "/d": 200, "/e": 500}
    log.write_text("".join(LINE.format(path, status) * 5 for path, status in statuses.items()))
    discovered = json.loads(univocal("discover", log, "--json")[1])["hit_ratio"]["before"]
    (replayed,) = json.loads(univocal("replay", log, "--profile", "rfc3986", "--json")[1])
    assert discovered == pytest.approx(replayed["hit_ratio"])
    assert discovered == pytest.approx(16 / 25)
