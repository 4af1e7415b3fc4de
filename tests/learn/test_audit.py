"""`univocal audit` and `discover` from the outside: unreadable lines, and one definition of a hit."""

import json

import pytest

from examples import cases
from inside import commands

LINE = '192.0.2.1 - - [22/Nov/2026:02:03:04 +0000] "GET {} HTTP/1.1" {} 512\n'


@pytest.fixture
def about(monkeypatch, capsys, tmp_path):
    """A function that runs a command about the lines of a log."""
    run, log = commands(monkeypatch, capsys), tmp_path / "access.log"

    def command(lines, name, *options):
        log.write_text(lines)
        return run(name, str(log), *options)

    return command


@cases(
    "lines, status, said",
    (
        LINE.format("/a", 200) * 3 + "nonsense \x1b[31m\n" * 997,
        0,
        "997 of 1,000 lines could not be read, the first: nonsense \\x1b[31m\n",
    ),
    ("nonsense\n" * 2, 1, "2 of 2 lines could not be read"),
    ("# a comment\n" + LINE.format("/a", 200) * 3, 0, ""),
)
def test_lines_that_cannot_be_read_are_counted_and_shown(about, lines, status, said):
    audit = about(lines, "audit")
    assert audit.returncode == status
    assert said in audit.stderr
    assert ("Traefik" in audit.stderr) is bool(audit.stderr) is bool(said)


def test_discover_counts_hits_as_replay_does(about):
    statuses = {"/a": 206, "/b": 404, "/c": 410, "/d": 200, "/e": 500}
    lines = "".join(LINE.format(path, status) * 5 for path, status in statuses.items())
    discovered = json.loads(about(lines, "discover", "--json").stdout)["hit_ratio"]["before"]
    (replayed,) = json.loads(about(lines, "replay", "--profile", "rfc3986", "--json").stdout)
    assert discovered == pytest.approx(replayed["hit_ratio"])
    assert discovered == pytest.approx(16 / 25)
