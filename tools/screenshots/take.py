"""The pictures of the page in docs/pictures, made anew: the demo, the same requests, the same size.

    python tools/screenshots/take.py [--out DIRECTORY] [--seconds 70] [--listen HOST:PORT] [--admin HOST:PORT]

It needs Debian's chromium, and nothing from elsewhere. The requests and their order are fixed; how long each
took, and the time of day, are not.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from websockets.sync.client import ClientConnection, connect

from univocal_app.config.values import Address
from univocal_learn.demo.visitors import Visitors

HERE = Path(__file__).parent
PICTURES = HERE.parents[1] / "docs" / "pictures"
MOST = 200_000  # bytes of a picture
PATIENCE = 60.0  # seconds


class Picture(NamedTuple):
    """One file: the part of the page that it begins with, its size in CSS pixels, and light or dark."""

    name: str
    part: str  # a CSS selector; "" for the top
    width: int
    height: int
    scheme: str


PARTS = [("page", "", 1280, 800), ("explain", "#h-explain", 1280, 430), ("phone", "", 390, 844)]
TAKEN = [
    Picture(f"{name}-{scheme}.png", part, width, height, scheme)
    for name, part, width, height in PARTS
    for scheme in ("light", "dark")
]


class Tab:
    """A tab of chromium, over the DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._last = connection, 0

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol."""
        self._last += 1
        self._connection.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(timeout=PATIENCE))
            if told.get("id") == self._last:
                return told["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the document."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition of the document is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(
            f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        ):
            if time.monotonic() > end:
                raise RuntimeError(f"never: {condition}")
            time.sleep(0.1)


@contextmanager
def demo(listen: str, admin: str) -> Iterator[tuple[Address, str]]:
    """A demo without visitors of its own; its proxy's address and its page's."""
    command = [sys.executable, "-m", "univocal_app", "demo", "--listen", listen, "--admin", admin]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.findall(r"http://([0-9.]+):(\d+)/", first)
        if len(found) != 2:
            raise SystemExit("the demo does not start: are its addresses free?")
        (host, port), (page_host, page_port) = found
        yield Address(host, int(port)), f"http://{page_host}:{page_port}/"
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@contextmanager
def browser() -> Iterator[Tab]:
    """A tab of a browser of its own."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("needs chromium (Debian package chromium)")
    # Children of the browser that is killed may still write there.
    with tempfile.TemporaryDirectory(prefix="univocal-pictures-", ignore_cleanup_errors=True) as profile:
        command = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-proxy-server", "--hide-scrollbars", "--remote-debugging-port=0"),
            *("--force-color-profile=srgb", "--lang=en", f"--user-data-dir={profile}", "about:blank"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_tab(Path(profile)), proxy=None, max_size=None) as connection:
                yield Tab(connection)
        finally:
            process.kill()
            process.wait()


def _tab(profile: Path) -> str:
    told, end = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if told.exists() and (lines := told.read_text().splitlines()):
            tabs = httpx.get(f"http://127.0.0.1:{lines[0]}/json", trust_env=False, timeout=PATIENCE).json()
            return str(next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page"))
        time.sleep(0.1)
    raise SystemExit("chromium does not begin")


def take(tab: Tab, page: str, example: str, picture: Picture) -> bytes:
    """One picture, as PNG."""
    size = {"width": picture.width, "height": picture.height, "mobile": picture.width < 500}
    tab.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **size)
    tab.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    features = [
        {"name": "prefers-color-scheme", "value": picture.scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    tab.call("Emulation.setEmulatedMedia", features=features)
    tab.call("Page.navigate", url=page)
    tab.until("document.getElementById('state').textContent === 'Live'")
    tab.until("[...document.querySelectorAll('.plot svg')].every((svg) => svg.querySelector('path'))")
    if picture.part:
        tab.evaluate(f"document.getElementById('url').value = {json.dumps(example)}")
        tab.evaluate("document.getElementById('explain').requestSubmit()")
        tab.until("document.getElementById('asked').innerText.includes('stored')")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    place = f"document.querySelector({json.dumps(picture.part)}).closest('section')"
    top = tab.evaluate(f"{place}.getBoundingClientRect().top + scrollY - 8") if picture.part else 0
    clip = {"x": 0, "y": top, "width": picture.width, "height": picture.height, "scale": 1}
    shot = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    return base64.b64decode(shot["data"])


def main() -> None:
    """Have the visitors come, then take every picture."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("--out", type=Path, default=PICTURES)
    asked.add_argument("--seconds", type=int, default=70)
    asked.add_argument("--listen", default="127.0.0.1:8080")
    asked.add_argument("--admin", default="127.0.0.1:8081")
    said = asked.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    with demo(said.listen, said.admin) as (proxy, page), browser() as tab:
        asyncio.run(Visitors(proxy).come(said.seconds))
        example = f"http://wiki.localhost:{proxy.port}/wiki/%41C%2fDC"
        for picture in TAKEN:
            octets = take(tab, page, example, picture)
            if len(octets) > MOST:
                raise SystemExit(f"{picture.name} has {len(octets)} octets: more than {MOST}")
            (said.out / picture.name).write_bytes(octets)
            print(f"{said.out / picture.name}: {len(octets)} octets")


if __name__ == "__main__":
    main()
