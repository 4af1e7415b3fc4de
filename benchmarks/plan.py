"""The measurements, their servers, and which of them are set against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CACHES = ("univocal", "univocal-pure", "nginx", "varnish")
PASSING = ("univocal", "univocal-pure", "nginx-pass", "nginx-keepalive", "varnish")
LOGGED = ("univocal-logged", "univocal-logged-pure", "nginx-logged")
SECURE = ("univocal-tls", "univocal-tls-pure", "caddy")
MOUNTED = ("middleware", "middleware-pure", "bare", "hishel")
PASSED = (*MOUNTED, "base-http")
ALL = (*CACHES, *MOUNTED)


@dataclass(frozen=True)
class Load:
    """One kind of wrk's load: `kind` is what every answer has to be; a script asks for `keys` of them."""

    title: str
    servers: tuple[str, ...]
    kind: Literal["hit", "miss", "stored"]
    path: str = "/hit"
    browser: bool = False
    script: str = ""
    keys: int = 0


LOADS = {
    "hits-1": Load("Hits, 1 KiB, 1 field", ALL, "hit"),
    "hits-13": Load("Hits, 1 KiB, 13 fields", ALL, "hit", browser=True),
    "misses": Load("Misses, no-store", PASSING, "miss", "/nostore"),
    "stored": Load("Misses that are stored", CACHES, "stored", "/key/1", script="new_keys.lua"),
    "hits-64k": Load("Hits, 64 KiB", ALL, "hit", "/hit64k"),
    "hits-1m": Load("Hits, 1 MiB", ALL, "hit", "/hit1m"),
    "hits-logged": Load("Hits, 1 KiB, access log on", LOGGED, "hit"),
    "hits-logged-13": Load("Hits, 1 KiB, 13 fields, access log on", LOGGED, "hit", browser=True),
    "hits-http2": Load("Hits, 1 KiB, HTTP/2 over TLS", SECURE, "hit"),
    "one-key": Load("Hits, one key of the Zipf script", CACHES, "hit", "/key/1", script="zipf.lua", keys=1),
    "zipf": Load("Hits, 10,000 keys in Zipf order", CACHES, "hit", "/key/1", script="zipf.lua", keys=10_000),
    "misses-mounted": Load("Misses, no-store, in the application", PASSED, "miss", "/nostore"),
    "misses-mounted-13": Load(
        "Misses, no-store, in the application, 13 fields", PASSED, "miss", "/nostore", browser=True
    ),
}
LATENCY = "latency"
MEMORY = "memory"
FILLING = "filling"
START = "start"
CANONICAL = "canonicalization"
CONTENT = "content"
LATENT = CACHES
WEIGHED = ("univocal", "univocal-pure", "varnish")
STARTED = ("univocal", "univocal-pure", "middleware", "bare", "nginx", "varnish")
MEASUREMENTS = (*LOADS, LATENCY, MEMORY, FILLING, START, CANONICAL, CONTENT)


@dataclass(frozen=True)
class Comparison:
    """A ratio that is reported: `server` in one measurement to `against` in the same or another.

    `aim` is the ratio that is wanted: at least, or at most where less is better.
    """

    title: str
    measurement: str
    server: str
    against: str
    aim: float | None = None
    against_measurement: str = ""
    less: bool = False


COMPARISONS = (
    Comparison("Hits, 1 KiB, 1 field", "hits-1", "univocal", "nginx", 1.2),
    Comparison("Hits, 1 KiB, 1 field", "hits-1", "univocal", "varnish", 1.6),
    Comparison("Hits, 1 KiB, 1 field", "hits-1", "univocal", "univocal-pure"),
    Comparison("Hits, 1 KiB, 13 fields", "hits-13", "univocal", "nginx", 1.2),
    Comparison("Hits, 1 KiB, 13 fields", "hits-13", "univocal", "varnish", 1.6),
    Comparison("Hits, 1 KiB, 13 fields", "hits-13", "univocal", "univocal-pure"),
    Comparison("Hits, 64 KiB", "hits-64k", "univocal", "nginx", 0.8),
    Comparison("Hits, 64 KiB", "hits-64k", "univocal", "varnish"),
    Comparison("Hits, 1 MiB", "hits-1m", "univocal", "nginx", 0.8),
    Comparison("Hits, 1 MiB", "hits-1m", "univocal", "varnish"),
    Comparison("Hits, 1 field, access log on in both", "hits-logged", "univocal-logged", "nginx-logged", 1.0),
    Comparison(
        "Hits, 13 fields, access log on in both", "hits-logged-13", "univocal-logged", "nginx-logged", 1.0
    ),
    Comparison("Hits, 1 KiB, HTTP/2 over TLS", "hits-http2", "univocal-tls", "caddy", 2.0),
    Comparison("10,000 keys in Zipf order to one key", "zipf", "univocal", "univocal", 0.9, "one-key"),
    Comparison("Misses, no-store", "misses", "univocal", "nginx-pass", 1.1),
    Comparison("Misses, no-store", "misses", "univocal", "nginx-keepalive", 0.45),
    Comparison("Misses, no-store", "misses", "univocal", "varnish"),
    Comparison("Misses, no-store", "misses", "univocal", "univocal-pure"),
    Comparison("Misses that are stored", "stored", "univocal", "varnish", 0.7),
    Comparison("Misses that are stored", "stored", "univocal", "nginx", 1.1),
    Comparison("Misses that are stored", "stored", "univocal", "univocal-pure"),
    Comparison("CacheMiddleware: hits, 1 KiB, 1 field", "hits-1", "middleware", "bare", 0.9),
    Comparison("CacheMiddleware: hits, 1 KiB, 13 fields", "hits-13", "middleware", "bare", 0.9),
    Comparison("CacheMiddleware: hits, 1 KiB, 1 field", "hits-1", "middleware", "hishel"),
    Comparison("CacheMiddleware, pure: hits, 1 KiB, 1 field", "hits-1", "middleware-pure", "bare", 0.8),
    Comparison("CacheMiddleware, pure: hits, 1 KiB, 13 fields", "hits-13", "middleware-pure", "bare", 0.8),
    Comparison("CacheMiddleware: misses, no-store, 1 field", "misses-mounted", "middleware", "bare", 0.6),
    Comparison(
        "CacheMiddleware: misses, no-store, 13 fields", "misses-mounted-13", "middleware", "bare", 0.6
    ),
    Comparison("CacheMiddleware, pure: misses, 1 field", "misses-mounted", "middleware-pure", "bare", 0.4),
    Comparison(
        "CacheMiddleware, pure: misses, 13 fields", "misses-mounted-13", "middleware-pure", "bare", 0.4
    ),
    Comparison("Empty BaseHTTPMiddleware: misses", "misses-mounted", "base-http", "bare"),
    Comparison("p99 at half of univocal's rate", LATENCY, "univocal", "nginx", 1.2, less=True),
    Comparison("p99 at half of univocal's rate", LATENCY, "univocal", "varnish", less=True),
    Comparison("Resident memory, 100,000 × 1 KiB", MEMORY, "univocal", "varnish", 1.2, less=True),
    Comparison("Storing 100,000 new keys, time", FILLING, "univocal", "varnish", 1.5, less=True),
    Comparison("Start-up to the first answer", START, "univocal", "varnish", less=True),
)
