"""The program as it runs, and all of it in one process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from univocal_app.config.tables import Configuration
from univocal_app.observe.admin import Drains, Life
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Listeners, https_port
from univocal_app.run.reload import Read, Reload
from univocal_app.run.serve import Serving, run
from univocal_app.run.systemd import Notices


class WorkersError(Exception):
    """A worker ended before all of them accepted connections; it has said why."""


@dataclass(frozen=True)
class Program:
    """The program as it runs: what is served, on which sockets, and how the configuration is read again.

    `tell` hears lines: one that names the listeners, when clients are served.
    """

    configuration: Configuration
    listeners: Listeners
    read: Read
    tell: Callable[[str], None]
    notices: Notices

    def ready(self) -> None:
        """Say that clients are served."""
        addresses = str(self.listeners)
        self.tell(addresses)
        self.notices.ready(addresses)


def alone(program: Program) -> None:
    """Serve both listeners by this one process. Raises ConfigurationError."""
    proxy, serving, reload = in_one(program)
    run(serving, program.ready, hears={signal.SIGHUP: reload.begin, signal.SIGUSR1: proxy.log.reopen})


def in_one(program: Program) -> tuple[Proxy, Serving, Reload]:
    """The proxy with both of its listeners, and what reads its configuration again."""
    listeners = program.listeners
    proxy = Proxy(program.configuration, https_port=https_port(listeners.front))
    reload = Reload(proxy, program.read, program.tell, program.notices)
    serving = proxy.serving_of(listeners.front, program.notices.stopping)
    drains = Drains(proxy.drain, lambda: proxy.drained)
    life = Life(leaving=lambda: serving.is_leaving, reload=reload, drains=drains)
    serving.listen(proxy.back(each, life) for each in listeners.back)
    return proxy, serving, reload
