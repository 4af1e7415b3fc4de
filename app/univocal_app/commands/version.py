"""The version of the program, and its form."""

from __future__ import annotations

from univocal.http import errors


def version_text() -> str:
    """The program's name, its version, and whether the library is compiled or pure."""
    from importlib.metadata import version  # noqa: PLC0415 - slow, and for this alone

    form = "pure" if errors.__file__.endswith(".py") else "compiled"
    return f"univocal {version('univocal')} ({form})"
