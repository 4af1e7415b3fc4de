"""The mark of classes that Python code may subclass even where mypyc has compiled them.

mypyc reads the mark as it compiles. Nothing needs `mypy_extensions` to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(*, allow_interpreted_subclasses: bool) -> Callable[[C], C]:  # noqa: ARG001
        """Return the class as it is: it is not compiled."""
        return lambda marked: marked
