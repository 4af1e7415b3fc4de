"""The program `univocal` run inside the test's process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from univocal_app.commands.cli import main


@dataclass(frozen=True)
class Ended:
    """What a run of the program left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def univocal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run `univocal` with these arguments to its end."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["univocal", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    return run
