"""One resource, one URL: a caching reverse proxy and ASGI middleware.

from univocal import CacheMiddleware
app.add_middleware(CacheMiddleware)
"""

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.cache.rules import Rules
from univocal.engine.audience import Listener
from univocal.engine.outcome import Outcome
from univocal.http.errors import ConfigurationError, ProfileError, RefusedError, UnivocalError
from univocal.judge.profiles import builtin_profiles, canonicalize
from univocal.judge.runtime import Runtime
from univocal.origin.timeouts import Timeouts
from univocal.store.memory import MemoryStore
from univocal.store.tiers import MemoryTier, Tiers
from univocal.uri.profile import Profile
from univocal.uri.site import Site
from univocal.uri.sites import Sites

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
    "canonicalize",
]
