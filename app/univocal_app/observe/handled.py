"""The words for the outcome of a request: in the access log, the events, the metrics and the traces."""

from __future__ import annotations

from typing import Final

from univocal.cache.decide import Handling
from univocal.engine.outcome import Outcome
from univocal.http.errors import REASONS, status_of
from univocal.http.messages import RETRIEVAL

# The reasons of 502, 503 and 504 are failures; the others refuse the request itself.
FAILURES: Final = frozenset(reason for reason in REASONS if status_of(reason) >= 500)
REFUSALS: Final = frozenset(REASONS) - FAILURES


def cache_word(handling: Handling) -> str:
    """`hit`; `revalidated` if the origin server confirmed a stored response; else why it was forwarded.

    Empty if neither is so.
    """
    if handling.hit:
        return "hit"
    return "revalidated" if handling.fwd_status == 304 else handling.fwd


def refused_for(outcome: Outcome) -> str:
    """The first reason for which a request was refused; empty if it was not."""
    reason = outcome.reasons[0] if outcome.reasons and outcome.status >= 400 else ""
    return reason if reason in REFUSALS else ""


def failed_for(outcome: Outcome) -> str:
    """The first reason for which a request was answered with 502, 503 or 504 here; empty if it was not."""
    reason = outcome.reasons[0] if outcome.reasons else ""
    return reason if reason in FAILURES and outcome.status == status_of(reason) else ""


def cut_for(outcome: Outcome) -> str:
    """The first reason for which a response was cut behind its head; empty if it was not."""
    reason = outcome.reasons[0] if outcome.reasons and outcome.status else ""
    return reason if reason in FAILURES and outcome.status != status_of(reason) else ""


def may_hit(outcome: Outcome) -> bool:
    """Tell whether a cache could have answered: GET and HEAD, but no tunnel and nothing refused."""
    return (
        outcome.received.method in RETRIEVAL
        and outcome.status != 101
        and not (outcome.reasons and refused_for(outcome))
    )
