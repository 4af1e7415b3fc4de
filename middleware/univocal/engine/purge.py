"""PURGE: an order is carried out, on every node, and what came of it is the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from univocal.http.errors import RefusedError
from univocal.judge.orders import Order, ordered
from univocal.judge.runtime import Runtime
from univocal.store.purge_selectors import Everything, Keys, Tags
from univocal.store.tiers import Tiers

# How many selectors the shared store is asked to confirm one by one, once it did not confirm.
_MOST_OWED: Final = 10


@dataclass(frozen=True, slots=True)
class Purged:
    """An order and the number of stored responses that went or were marked stale; None: not confirmed."""

    order: Order
    count: int | None = None
    is_exact: bool = True  # False: other nodes may have held more

    def body(self) -> bytes:
        """The answer's content (JSON)."""
        order = self.order
        members: dict[str, object] = {"softened" if order.selector.soft else "purged": self.count}
        if order.by == "pattern":
            members = {"banned": True}  # it works lazily: nobody knows yet how many it means
        elif not self.is_exact:
            members["exact"] = False
        return json.dumps(members | order.members).encode() + b"\n"


async def carry_out(order: Order, tiers: Tiers, now: float) -> Purged:
    """Purge the store, on every node. Raises RefusedError if the shared store did not confirm (503).

    Then all of it is purged here nevertheless, and there as soon as it is back.
    """
    count, unconfirmed = 0, list[RefusedError]()
    for selector in (order.selector, *order.also):
        if isinstance(selector, Keys | Tags) and not selector.parts:
            continue
        if len(unconfirmed) == _MOST_OWED:
            # Each takes its time to fail, and what is owed in plenty becomes everything anyway.
            with suppress(RefusedError):
                await tiers.purge(Everything(soft=order.selector.soft), now)
            break
        try:
            count += await tiers.purge(selector, now)
        except RefusedError as refused:
            unconfirmed.append(refused)
        await asyncio.sleep(0)
    if unconfirmed:
        raise unconfirmed[0]
    return Purged(order, count, all(map(tiers.counts, (order.selector, *order.also))))


async def foresee(document: Mapping[str, object], runtime: Runtime, tiers: Tiers) -> tuple[Order, int]:
    """The order by name, and the number of stored responses that it would mean: nothing is removed.

    Raises what `order_by_name` does, RefusedError too where the shared store does not tell (503).
    """
    # Of soft orders no response is meant by two selectors.
    soft = document.get("soft", False)
    order = await ordered({**document, "soft": True if soft is False else soft}, runtime)
    if order.by == "pattern":
        raise ValueError("a pattern works lazily: nobody knows beforehand how many it means")
    return order, sum([await tiers.count(selector) for selector in (order.selector, *order.also)])
