"""One resource, one URL: a caching reverse proxy and ASGI middleware.

from univocal import CacheMiddleware
app.add_middleware(CacheMiddleware)

A public name is imported when it is first used, so that `import univocal` costs nothing.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

__version__: str  # of the distribution

if TYPE_CHECKING:
    from univocal.asgi.handlers import cached, purge, tag
    from univocal.asgi.middleware import CacheMiddleware
    from univocal.asgi.reverse_proxy import ReverseProxy
    from univocal.cache.rules import Rules
    from univocal.engine.outcome import Outcome
    from univocal.engine.outcome import OutcomeListener as Listener
    from univocal.http.errors import ConfigurationError, ProfileError, RefusedError, UnivocalError
    from univocal.judge.profiles import builtin_profiles, canonicalize
    from univocal.judge.runtime import Runtime
    from univocal.origin.failures import Timeouts
    from univocal.store.memory import MemoryStore
    from univocal.store.tiers import MemoryTier, Tiers
    from univocal.uri.profile import Profile
    from univocal.uri.site import Site
    from univocal.uri.sites import Sites
else:  # type checkers would take any name for one of ours
    _MODULES = {
        "CacheMiddleware": "asgi.middleware",
        "ConfigurationError": "http.errors",
        "Listener": "engine.outcome:OutcomeListener",
        "MemoryStore": "store.memory",
        "MemoryTier": "store.tiers",
        "Outcome": "engine.outcome",
        "Profile": "uri.profile",
        "ProfileError": "http.errors",
        "RefusedError": "http.errors",
        "ReverseProxy": "asgi.reverse_proxy",
        "Rules": "cache.rules",
        "Runtime": "judge.runtime",
        "Site": "uri.site",
        "Sites": "uri.sites",
        "Tiers": "store.tiers",
        "Timeouts": "origin.failures",
        "UnivocalError": "http.errors",
        "builtin_profiles": "judge.profiles",
        "cached": "asgi.handlers",
        "canonicalize": "judge.profiles",
        "purge": "asgi.handlers",
        "tag": "asgi.handlers",
    }

    def __getattr__(name):
        if name == "__version__":
            return _import_module("importlib.metadata").version("univocal")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, known_as = _MODULES[name].partition(":")
        value = getattr(_import_module(f"{__name__}.{module}"), known_as or name)
        globals()[name] = value  # from now on without a call
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "CacheMiddleware",
    "ConfigurationError",
    "Listener",
    "MemoryStore",
    "MemoryTier",
    "Outcome",
    "Profile",
    "ProfileError",
    "RefusedError",
    "ReverseProxy",
    "Rules",
    "Runtime",
    "Site",
    "Sites",
    "Tiers",
    "Timeouts",
    "UnivocalError",
    "builtin_profiles",
    "cached",
    "canonicalize",
    "purge",
    "tag",
]
