"""The engine as what answers the requests of a listener (a `Service`)."""

from __future__ import annotations

import time

from univocal.engine.engine import Engine
from univocal.engine.exchange import Exchange, Handshake
from univocal.http.messages import Fields, Received
from univocal.http.pipe import NO_CONTENT
from univocal.http.roles import Origin
from univocal.http.upgrade import requested_upgrade
from univocal.server.turn import Find, Responder, Tell, Turn


class EngineService:
    """Lets an engine answer, at a glance or by an exchange; `origin` answers what is not stored."""

    def __init__(self, engine: Engine, origin: Origin) -> None:
        self.engine = engine
        self.origin = origin
        self.clock = engine.clock
        self.dates = True
        self.at_a_glance: Find | None = engine.hits.find
        self.tell: Tell = engine.audience.announce_hit

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        """The protocol that a request asks to switch to, if it is one of those that are passed on."""
        allowed = self.engine.gate.runtime.upgrades
        return requested_upgrade(received.method, received.version.decode(), fields, allowed)

    def respond(self, turn: Turn) -> Responder:
        """Judge a request, and make the exchange that answers it."""
        engine, received = self.engine, turn.received
        begun = engine.clock(), time.perf_counter()
        admission = engine.gate.admit(received, turn.fields, begun[0], turn.plan)
        content = turn.content or NO_CONTENT
        if turn.content is not None:
            turn.max_content = admission.max_body
        if received.upgrade:
            return Handshake(engine, turn, admission, self.origin, content, begun)
        return Exchange(engine, turn, admission, self.origin, content, begun)
