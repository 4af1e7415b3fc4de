"""The framework's site that EXAMPLE names, with the cache around it where MOUNTED asks for it."""

import os
from importlib import import_module
from typing import Any

from univocal import CacheMiddleware, Rules


def wrapped(site: Any, mounted: str) -> Any:
    """The site as it is for "", and in a cache for "1", which may give a lifetime of its own ("ttl")."""
    rules = {"1": None, "ttl": Rules(ttl=60)}
    return CacheMiddleware(site, rules=rules[mounted]) if mounted else site


if "EXAMPLE" in os.environ:
    application = wrapped(import_module(os.environ["EXAMPLE"]).application, os.environ["MOUNTED"])
