"""The program at work: sockets, processes, reloads, and the origin servers of a configuration.

httpx is imported without its own command line, which would bring rich and pygments: to httpx, this is an
environment without its extra `cli`. Other modules can import pygments afterwards.
"""

from __future__ import annotations

import sys

if "pygments" not in sys.modules:
    sys.modules["pygments"] = None  # type: ignore[assignment]
    try:
        import univocal.origin.client_library  # noqa: F401
    finally:
        del sys.modules["pygments"]
