"""The client library, imported here alone: moving to another with the same transports changes one line.

httpx's line is frozen; httpx2 carries it on.
"""

from __future__ import annotations

import httpx

__all__ = ["httpx"]
