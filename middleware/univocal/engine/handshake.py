"""A request to switch to another protocol: it is answered like any other, or by a tunnel (RFC 9110 §7.8)."""

from __future__ import annotations

import time
from typing import Protocol, cast

from univocal.engine.exchange import _MOVES, Exchange, Step
from univocal.engine.flight import Flight
from univocal.forward.tunnel import Tunnel
from univocal.http.messages import Fields, Response
from univocal.http.roles import Client
from univocal.http.upgrade import WEBSOCKET, Line, Switching
from univocal.judge.cache_status import Handling


class SwitchingClient(Client, Protocol):
    """A client whose connection can become another protocol's."""

    def switch(self, fields: Fields) -> Line:
        """Send a 101, and give the connection away."""
        ...


class Handshake(Exchange):
    """An exchange that may end as a tunnel; its Outcome is told when that ends."""

    _tunnel: Tunnel | None = None

    def cancel(self) -> None:
        if self._tunnel is None:
            super().cancel()
        else:
            self._tunnel.close()  # the end follows when the origin server has taken what was sent

    def send_away(self) -> None:
        """End the tunnel, if there is one, since this server goes down."""
        if self._tunnel is not None:
            self._tunnel.send_away()

    def ended(self, error: BaseException | None) -> None:
        super().ended(error if self._tunnel is None else None)  # a tunnel has no end but its connections'

    def _end(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
            self._account.octets = self._tunnel.octets
        super()._end()

    def _relay(self, flight: Flight, response: Response) -> None:
        if not isinstance(response, Switching):
            super()._relay(flight, response)
            return
        runtime = self.admission.runtime
        self._step = _MOVES[self._step, Step.RELAYING]
        account, reader = self._account, self._wait.reader
        account.handling = Handling(fwd="bypass")
        account.status, account.first = response.status, time.perf_counter()
        assert reader is not None
        reader.resume()  # it hears of the end
        near = cast("SwitchingClient", self._client).switch([*response.fields, *self._cache_status()])
        self._tunnel = Tunnel(
            near,
            response.line,
            self._engine.call_later,
            silence=runtime.limits.upgrade_timeout,
            frames=self.admission.received.upgrade.lower() == WEBSOCKET,
        )
