"""The page of the admin listener, as a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

Fixture = Callable[..., Any]
HOSTILE = "/wiki/<img src=x onerror=document.title='owned'>"


@pytest.fixture
def running(start: Fixture, origin: Any, tmp_path: Path) -> Any:
    file = tmp_path / "univocal.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\naccess_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n'
    )
    return start("serve", "--config", str(file))


class Browser:
    """A tab of chromium, over the DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._last = connection, 0

    def call(self, method: str, **parameters: Any) -> Any:
        self._last += 1
        self._connection.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(timeout=60))
            if told.get("id") == self._last:
                return told["result"]

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition of the document is true."""
        poll = f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        for _ in range(600):
            if self.evaluate(f"new Promise((done) => setTimeout(() => done({poll}), 100))"):
                return
        raise AssertionError(f"{condition}: {self.evaluate('document.body.innerText')}")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium (Debian package chromium)")
    command = [
        *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={tmp_path / 'profile'}"),
        *("--window-size=390,844", "about:blank"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_tab(tmp_path / "profile"), proxy=None, max_size=None) as connection:
            yield Browser(connection)
    finally:
        process.kill()
        process.wait()


def _tab(profile: Path) -> str:
    """The URL of the first tab, once the browser has said where it listens."""
    told = profile / "DevToolsActivePort"
    for _ in range(600):
        if told.exists() and (lines := told.read_text().splitlines()):
            tabs = httpx.get(f"http://127.0.0.1:{lines[0]}/json", trust_env=False, timeout=60).json()
            return str(next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page"))
        time.sleep(0.1)
    raise AssertionError("chromium does not begin")


def test_the_page_comes_from_the_package_alone(running: Any, ask: Fixture) -> None:
    page = ask(running.admin, "/", "127.0.0.1")
    assert (page.status, page.value("content-type")) == (200, "text/html; charset=utf-8")
    policy = page.value("content-security-policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = page.body.decode()
    assert "<style" not in text
    assert not re.search(r"<script(?! src)|\son\w+=|style=|https?:", text)
    for path in re.findall(r'(?:src|href)="(/[^"]*)"', text):
        asset = ask(running.admin, path, "127.0.0.1")
        assert (asset.status, asset.value("content-security-policy")) == (200, policy)
        assert not re.search(rb"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", asset.body)


def test_whoever_may_not_purge_sees_no_page(running: Any, ask: Fixture) -> None:
    for path in ("/", "/-/page/page.js"):
        answer = ask(running.admin, path, "127.0.0.1", fields="X-Forwarded-For: 192.0.2.1\r\n")
        assert answer.status == 403


def test_a_browser_shows_what_happens_and_does_what_is_asked(
    running: Any, browser: Browser, ask: Fixture
) -> None:
    for number in range(12):
        for target in (f"/w/p{number}/", f"/w/p{number}/", f"/w/p{number}/index.html"):
            ask(running.proxy, target, "en.example")
    for target in (
        "/wiki/A(b)",
        "/wiki/A%28b%29",
        "/wiki/A%28b)",
        "/wiki/%00",
        f"{HOSTILE}%00".replace(" ", "+"),
    ):
        ask(running.proxy, target, "en.example")
    host, port = running.admin
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
    )
    browser.call("Page.navigate", url=f"http://{host}:{port}/")
    browser.until("document.getElementById('state').textContent === 'Live'")
    shown = browser.evaluate("document.body.innerText")
    assert "http://en.example/wiki/A(b) 2 saved of 3 spellings" in shown
    assert "control-character" in shown
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("document.images.length") == 0

    browser.evaluate("document.getElementById('discover').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            windowsVirtualKeyCode=13,
            text="\r",
        )
    browser.until("document.querySelector('#discovered pre').textContent.includes('index.html')")

    browser.evaluate("document.getElementById('name').value = 'http://en.example/wiki/A%28b%29'")
    browser.evaluate("document.getElementById('purge').requestSubmit()")
    browser.until(
        "document.getElementById('purged').textContent === '1 removed: http://en.example/wiki/A(b)'"
    )
    assert "uri-miss" in ask(running.proxy, "/wiki/A(b)", "en.example").value("cache-status")
    browser.evaluate("document.getElementById('url').value = 'http://en.example/wiki/A%28b%29'")
    browser.evaluate("document.getElementById('explain').requestSubmit()")
    browser.until("document.getElementById('verdict').textContent === 'http://en.example/wiki/A(b)'")
    assert "/wiki/A(b)" in browser.evaluate("document.getElementById('stages').innerText")
    browser.until("document.getElementById('numbers').innerText.includes('Purges\\n1')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(running: Any, browser: Browser, scheme: str) -> None:
    host, port = running.admin
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=f"http://{host}:{port}/")
    browser.until("document.getElementById('state').textContent === 'Live'")
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", colour)[0])
    assert (red > 128) == (scheme == "light")
