"""The admin listener: health, readiness, metrics, configuration, and purge by URL, prefix or tag."""

from .listener import admin

__all__ = ["admin"]
