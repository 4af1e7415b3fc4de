"""An application of the user's answers refused requests, as a matched context does (Servlet 6.1 §3.5.2)."""

from __future__ import annotations

from typing import Final

from univocal.asgi.messages import App, Message, Receive, Scope, Send
from univocal.cache.decide import Refuse
from univocal.http.errors import status_of
from univocal.http.fields import without
from univocal.http.forward import HOP_BY_HOP, end_to_end
from univocal.judge.admission import Admission
from univocal.judge.orders import PURGES

REFUSED: Final = "univocal.refused"
"""The ASGI extension that tells of a refusal: {"status", "reason", "reasons", "target"}."""

# The application gets neither the connection nor the content.
_NOT_PASSED: Final = HOP_BY_HOP | {b"content-length", b"expect"}
_STATUSES: Final = frozenset((400, 421))  # of what a URL is refused for


def may_be_answered(admission: Admission) -> bool:
    """Tell whether a request is refused for its URL, and is one whose answer an application may write."""
    decision = admission.decision
    return (
        isinstance(decision, Refuse)
        and decision.status in _STATUSES
        and decision.reason != "bad-framing"
        and admission.received.method not in PURGES
    )


async def answer_refused(app: App, scope: Scope, receive: Receive, send: Send, admission: Admission) -> None:
    """Have `app` answer a refused request, of which it sees neither the path nor the content.

    The path is that of its root, so that no route of an application mistakes it for a page. The received
    target is in the extension.
    """
    received, reasons = admission.received, admission.reasons
    root = scope.get("root_path", "").rstrip("/") + "/"
    refusal = {
        "status": status_of(reasons[0]),
        "reason": reasons[0],
        "reasons": reasons,
        "target": received.target,
    }
    fields = without(end_to_end(scope["headers"], received.method), _NOT_PASSED)
    refused = {
        **scope,
        "path": root,
        "raw_path": root.encode("ascii", "ignore"),
        "query_string": b"",
        "headers": fields,
        "extensions": {**scope.get("extensions", {}), REFUSED: refusal},
    }
    refused["extensions"].pop("univocal.target", None)
    await app(refused, _without_content(receive), send)


def _without_content(receive: Receive) -> Receive:
    """A `receive` that tells of no content, then of the client's leaving."""
    begun = False

    async def call() -> Message:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await receive())["type"] == "http.request":
            pass
        return message

    return call
