"""The form of what processes count, as they give it to one another."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Row"]

Row: TypeAlias = tuple[bytes | int, ...]
"""Bytes, which travel as Latin-1, and numbers."""
