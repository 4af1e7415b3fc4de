"""One resource, one URL: a caching reverse proxy and ASGI middleware.

from univocal import CacheMiddleware
app.add_middleware(CacheMiddleware)
"""

from .asgi import CacheMiddleware, ReverseProxy
from .cache.rules import Rules
from .cache.store import MemoryStore
from .errors import ConfigurationError, ProfileError, RefusedError, UnivocalError
from .outcome import Outcome
from .runtime import Runtime
from .uri.profile import Profile

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
