"""Request methods by what they promise (RFC 9110 §9.2). Pure."""

from __future__ import annotations

from typing import Final

# Those whose answer is a representation of the target: it may be stored, shared and served again (§9.2.3).
RETRIEVAL: Final = frozenset((b"GET", b"HEAD"))
# Those that ask for no change, so that nothing stored ends with them (§9.2.1).
SAFE: Final = RETRIEVAL | {b"OPTIONS", b"TRACE"}
# Those that may be sent twice with the effect of once (§9.2.2).
IDEMPOTENT: Final = SAFE | {b"PUT", b"DELETE"}
