"""What one exchange costs in the access log and in the metrics.

    python benchmarks/observe.py [--calls 200000]

Printed are µs of this process for each call with the Outcome of a hit: in the event loop, as a worker
hears of it, with the log in a file that is removed at the end. The lines that are gathered are written
within the time that is measured. `off` is the log of purges alone; `metrics` are those of one process,
`metrics, workers` those that several processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from univocal import MemoryStore
from univocal.cache.decide import Forward
from univocal.engine.outcome import Handling, Outcome, Times
from univocal.engine.runtime import builtin_profiles
from univocal.http.messages import Received
from univocal.uri.site import Route, Site, Sites
from univocal.uri.target import Canonical, resolve
from univocal_app.observe.accesslog import open_log
from univocal_app.observe.metrics import Metrics
from univocal_app.processes import Commons

TARGET = b"/wiki/Main_Page?action=history&limit=50"


def hits() -> list[Outcome]:
    """Those of 30,000 requests a second; each target is an object of its own, as the wire brings it."""
    route = Route(b"/", builtin_profiles()["mediawiki"], "origin")
    canonical = resolve(
        TARGET, [b"en.example"], b"http", Sites([Site("en.example", ("en.example",), (route,))])
    )
    assert isinstance(canonical, Canonical)
    return [
        Outcome(
            site="en.example",
            received=Received(b"GET", bytes(bytearray(TARGET)), b"http", "192.0.2.1"),
            canonical=canonical,
            decision=Forward(
                "uri-miss", may_store=True, fallback=None
            ),  # a log asks only whether there is one
            status=200,
            bytes=1024,
            times=Times(1_790_000_000 + number / 30_000, 3.1e-05, 3.4e-05 + number / 1e6),
            client="192.0.2.1",
            handling=Handling(hit=True, ttl=3599),
        )
        for number in range(1000)
    ]


async def microseconds(listener: Callable[[Outcome], None], calls: int) -> float:
    """CPU time of each call, the best of five rounds; the event loop turns after each hundred."""
    outcomes, best = hits(), float("inf")
    for _ in range(5):
        began = time.process_time()
        for start in range(0, calls // 5, 100):
            for outcome in outcomes[start % 1000 : start % 1000 + 100]:
                listener(outcome)
            await asyncio.sleep(0)
        best = min(best, (time.process_time() - began) / (calls // 5))
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    calls = parser.parse_args().calls
    with TemporaryDirectory() as name:
        directory, commons = Path(name), Commons(Path(name), "1")
        listeners: dict[str, Callable[[Outcome], None]] = {
            "nothing": lambda _: None,
            "log json": open_log(str(directory / "json"), "json"),
            "log json, workers": open_log(str(directory / "shared"), "json", commons),
            "log combined": open_log(str(directory / "combined"), "combined"),
            "log off": open_log("off", "json"),
            "metrics": Metrics(MemoryStore()),
            "metrics, workers": Metrics(MemoryStore(), commons=commons),
        }
        for told, listener in listeners.items():
            print(f"{told:<18}{asyncio.run(microseconds(listener, calls)):6.2f} µs", flush=True)


if __name__ == "__main__":
    main()
