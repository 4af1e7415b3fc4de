"""One resource, one URL: a caching reverse proxy and ASGI middleware.

from univocal import CacheMiddleware
app.add_middleware(CacheMiddleware)
"""

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.cache.rules import Rules
from univocal.engine.outcome import Outcome
from univocal.engine.runtime import Runtime
from univocal.http.errors import ConfigurationError, ProfileError, RefusedError, UnivocalError
from univocal.store.memory import MemoryStore
from univocal.uri.profile import Profile

__all__ = [
    "CacheMiddleware",
    "ConfigurationError",
    "MemoryStore",
    "Outcome",
    "Profile",
    "ProfileError",
    "RefusedError",
    "ReverseProxy",
    "Rules",
    "Runtime",
    "UnivocalError",
]
