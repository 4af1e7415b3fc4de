"""The page of the admin listener, as a browser shows it."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

import univocal
import univocal_app
from support import origin_server, response_with

OBSERVE = Path(univocal_app.__file__).parent / "observe"
TILES = (
    *("Requests in another spelling", "Hits", "Requests", "Requests a second", "Latency, median", "Stored"),
    *("Origin servers up", "Failed", "Refused", "Connections", "Stale", "Purges", "Running for"),
)
# The page asks every two seconds: here ten times as often.
OFTEN = "setTimeout = ((later) => (call, time) => later(call, time === 2000 ? 200 : time))(setTimeout)"
HOSTILE = "/wiki/<img src=x onerror=document.title='owned'>"


SERVED = """
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
access_log = "off"
[[sites]]
hosts = ["en.example"]
profile = "mediawiki"
upstream = "{}"
[[sites.routes]]
path = "/own/"
cache = {{ ttl = 60 }}
"""


@pytest.fixture
def running(start, origin, tmp_path):
    """A server that has not been asked yet."""
    return served(start, origin.url, tmp_path)


@pytest.fixture(scope="module")
def shared(start_once, tmp_path_factory):
    """A server for tests that pass over what others have asked it."""
    with origin_server(lambda *_: response_with(b"page", b"Cache-Control: max-age=60\r\n")) as url:
        yield served(start_once, url, tmp_path_factory.mktemp("shared"))


def served(start, url, folder):
    file = folder / "univocal.toml"
    file.write_text(SERVED.format(url))
    return start("serve", "--config", str(file))


CODES = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27, "PageUp": 33, "End": 35, "Home": 36}
CODES |= {"ArrowLeft": 37, "ArrowRight": 39}


class Browser:
    """A tab of chromium, over the DevTools protocol; an element is named by its id."""

    def __init__(self, connection):
        self._connection, self._last = connection, 0

    def call(self, method, **parameters):
        self._last += 1
        self._connection.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(timeout=60))
            if told.get("id") == self._last:
                return told["result"]

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition):
        """Wait until a condition of the document is true."""
        poll = f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        for _ in range(3000):
            if self.evaluate(f"new Promise((done) => setTimeout(() => done({poll}), 20))"):
                return
        raise AssertionError(f"{condition}: {self.evaluate('document.body.innerText')}")

    def until_is(self, name, text):
        """Wait until an element shows just this."""
        self.until(f"document.getElementById('{name}').innerText === {json.dumps(text)}")

    def until_begins(self, name, text):
        self.until(f"document.getElementById('{name}').innerText.startsWith({json.dumps(text)})")

    def until_has(self, name, text):
        self.until(f"document.getElementById('{name}').innerText.includes({json.dumps(text)})")

    def open(self, running, width=1280):
        """Open the page, as wide as this, and wait until it is filled."""
        metrics = {"height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", width=width, **metrics)
        self.call("Page.navigate", url=f"{running.page}/")
        self.until_is("state", "Live")

    def press(self, key):
        how = {"key": key, "code": key, "windowsVirtualKeyCode": CODES[key]}
        for kind in ("keyDown", "keyUp"):
            text = {"Enter": "\r", " ": " "}.get(key, "")
            self.call("Input.dispatchKeyEvent", type=kind, text=text, **how)

    def shown(self, name):
        return str(self.evaluate(f"document.getElementById('{name}').innerText"))

    def fill(self, **values):
        for name, value in values.items():
            self.evaluate(f"document.getElementById('{name}').value = {json.dumps(value)}")

    def fire(self, name, event):
        self.evaluate(
            f"document.getElementById('{name}').dispatchEvent(new Event('{event}', {{bubbles: true}}))"
        )

    def click(self, selector):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def submit(self, name):
        self.evaluate(f"document.getElementById('{name}').requestSubmit()")

    def focus(self, name):
        self.evaluate(f"document.getElementById('{name}').focus()")

    def each(self, selector, of):
        """An expression of each element, `one`, that a selector finds."""
        return self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => {of})")

    def cells(self, name, of="innerText"):
        """The cells of a table, by its rows."""
        return self.each(f"#{name} tr", f"[...one.cells].map((cell) => cell.{of})")

    def style(self, selector, name):
        return self.evaluate(f"getComputedStyle(document.querySelector({json.dumps(selector)})).{name}")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """A tab of a browser."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium (Debian package chromium)")
    profile = tmp_path_factory.mktemp("chromium")
    command = [
        *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page = httpx.put(f"{_tools(profile)}/json/new?about:blank", trust_env=False, timeout=60).json()
        with connect(page["webSocketDebuggerUrl"], proxy=None, max_size=None) as connection:
            made = Browser(connection)
            made.call("Page.enable")
            made.call("Page.addScriptToEvaluateOnNewDocument", source=OFTEN)
            yield made
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def browser(tab):
    """The tab, which shows nothing yet."""
    tab.call("Page.navigate", url="about:blank")
    tab.call("Emulation.setEmulatedMedia", features=[])
    return tab


def _tools(profile):
    """The URL of the DevTools, once the browser has said where it listens."""
    told = profile / "DevToolsActivePort"
    for _ in range(600):
        if told.exists() and (lines := told.read_text().splitlines()):
            return f"http://127.0.0.1:{lines[0]}"
        time.sleep(0.1)
    raise AssertionError("chromium does not begin")


def test_the_page_comes_from_the_package_alone(shared, ask):
    page = ask(shared.admin, "/", "127.0.0.1")
    assert (page.status, page.value("content-type")) == (200, "text/html; charset=utf-8")
    policy = page.value("content-security-policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = page.body.decode()
    assert "<style" not in text
    assert not re.search(r"<script(?! src)|\son\w+=|style=|https?:", text)
    named = re.findall(r'(?:src|href)="([^"#:]+)"', text)
    assert named == ["-/page/page.css", "-/page/page.js"]  # relative: it may be mounted anywhere
    for path in [
        *(f"/{each}" for each in named),
        *(f"/-/page/{name}.js" for name in ("charts", "keys", "marks", "stages")),
    ]:
        asset = ask(shared.admin, path, "127.0.0.1")
        assert (asset.status, asset.value("content-security-policy")) == (200, policy)
        assert not re.search(rb"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", asset.body)


def test_the_page_weighs_60_kilobytes_at_most():
    assert sum(file.stat().st_size for file in (OBSERVE / "page").iterdir()) <= 60_000


def test_clients_that_may_not_purge_see_no_page(shared, ask):
    stranger = "X-Forwarded-For: 192.0.2.1\r\n"
    for path in ("/", "/-/spellings", "/-/purge-misses", "/-/config", "/-/page", "/metrics"):
        answer = ask(shared.admin, path, "127.0.0.1", fields=stranger)
        assert (answer.status, answer.value("content-type")) == (403, "application/problem+json")
    browsers = stranger + "Accept: text/html\r\n"
    answer = ask(shared.admin, "/", "127.0.0.1", fields=browsers)
    assert (answer.status, answer.value("content-type")) == (403, "text/html; charset=utf-8")
    assert answer.body == ask(shared.admin, "/", "127.0.0.1").body  # the document, which knows nothing
    answer = ask(shared.admin, "/-/stats", "127.0.0.1", fields=browsers)
    assert (answer.status, b"purge-forbidden" in answer.body) == (403, True)
    # The page's files are the package's.
    assert ask(shared.admin, "/-/page/page.js", "127.0.0.1", fields=stranger).status == 200
    assert ask(shared.admin, "/-/page/nothing.js", "127.0.0.1", fields=stranger).status == 404


def test_the_purge_token_typed_into_the_page_unlocks_it(start_with, origin, browser, ask):
    running = start_with(
        'access_log = "off"\n[purge]\nallow = []\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n',
        UNIVOCAL_PURGE_TOKEN="s3cret",
    )
    ask(running.proxy, "/wiki/A%28b%29", "en.example")
    browser.call("Page.navigate", url=f"{running.page}/")
    browser.until("document.activeElement.id === 'token'")
    assert "purge.allow" in browser.shown("locked")
    assert browser.style("main", "display") == "none"
    browser.call("Input.insertText", text="s3cre")
    browser.press("Enter")
    browser.until_is("unlocked", "That is not the token.")
    browser.fill(token="s3cret")
    browser.press("Enter")
    browser.until_is("state", "Live")
    assert "http://en.example/wiki/A(b)" in browser.shown("top")
    assert browser.style("#locked", "display") == "none"
    # It is sent with everything that the page asks for, and not known behind another tab.
    browser.fill(name="http://en.example/wiki/A(b)")
    browser.submit("purge")
    browser.until_is("confirm", "Purge 1")
    browser.click("#confirm")
    browser.until_begins("purged", "1 removed")
    assert browser.evaluate("localStorage.length + document.cookie.length") == 0


SPELLED = ("/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b)")


def test_a_phone_shows_what_happens_without_scrolling_sideways(running, browser, ask):
    for target in (*SPELLED, "/wiki/%00", f"{HOSTILE}%00".replace(" ", "+"), "/wiki/" + "long" * 100):
        ask(running.proxy, target, "en.example")
    browser.open(running, 390)
    everything = browser.evaluate("document.body.innerText")
    assert "http://en.example/wiki/A(b) 2 misses saved by 3 spellings, 3 requests" in everything
    assert browser.evaluate("document.documentElement.scrollHeight") <= 3000
    expanded = "document.querySelector('#h-refused button').getAttribute('aria-expanded')"
    assert browser.evaluate(expanded) == "false"
    assert browser.style("#refused", "display") != "none"
    assert browser.evaluate("document.getElementById('refused').offsetHeight") == 0
    browser.click("#h-refused button")
    assert browser.evaluate(expanded) == "true"
    assert "control-character" in browser.shown("refused")
    browser.click('nav a[href="#h-top"]')
    assert "/wiki/A(b)" in browser.shown("top")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("document.images.length") == 0
    # It needs nothing from anywhere else.
    assert browser.evaluate(
        "performance.getEntriesByType('resource').every(({ name }) => name.startsWith(location.origin))"
    )


def test_the_page_shows_the_spellings_of_each_url(running, browser, ask):
    browser.open(running)
    assert browser.shown("folding") == "None yet."
    for target in (*SPELLED, "/wiki/A%28b)", "/wiki/Other"):
        ask(running.proxy, target, "en.example")
    browser.until_begins("folding", "2 misses saved, at least")
    assert "4 spellings came for 2 pages" in browser.shown("folding")
    marks = "[...one.querySelectorAll('mark')].map((mark) => mark.textContent)"
    assert browser.each("#spellings li", f"[one.innerText.split(/\\s+/), {marks}]") == [
        [["/wiki/A%28b)", "2"], ["%28"]],
        [["/wiki/A(b)", "canonical", "1"], []],
        [["/wiki/A%28b%29", "1"], ["%28", "%29"]],
    ]
    browser.until_has("numbers", "in another spelling\n3")


@pytest.mark.parametrize("by", ["pointer", "keyboard"])
def test_a_list_continues_after_a_click_and_waits_for_keyboards(running, browser, ask, by):
    for target in SPELLED:
        ask(running.proxy, target, "en.example")
    browser.open(running)
    first = "document.querySelector('#spellings summary')"
    if by == "pointer":
        place = browser.evaluate(
            f"{first}.scrollIntoView(), (({{x, y}}) => [x, y])({first}.getBoundingClientRect())"
        )
        click = {"x": place[0] + 20, "y": place[1] + 8, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            browser.call("Input.dispatchMouseEvent", type=kind, **click)
    else:
        browser.press("Tab")
        browser.evaluate(f"{first}.focus()")
    assert browser.evaluate(f"document.activeElement === {first}")
    for target in ("/wiki/C(d)", "/wiki/C%28d%29"):
        ask(running.proxy, target, "en.example")
    browser.until_begins("folding", "3 misses saved")
    assert ("/wiki/C(d)" in browser.shown("spellings")) == (by == "pointer")


def test_rules_are_discovered_at_a_button_by_keyboard(running, browser, ask):
    for number in range(12):
        for target in (f"/w/p{number}/", f"/w/p{number}/", f"/w/p{number}/index.html"):
            ask(running.proxy, target, "en.example")
    browser.open(running)
    browser.focus("discover")
    browser.press("Enter")
    browser.until("document.querySelector('#discovered pre') !== null")
    assert "index.html" in browser.shown("discovered")


def test_a_search_for_rules_that_finds_none_says_so(shared, browser):
    browser.open(shared)
    nothing = "{ urls: 0, requests: 0, rules: [], folded: { urls: 0, requests: 0 } }"
    browser.evaluate(f"window.fetch = async () => Response.json({nothing})")
    browser.click("#discover")
    browser.until_begins("discovered", "Nothing found")


def test_a_purge_is_counted_before_it_is_confirmed(running, browser, ask):
    for target in ("/wiki/A(b)", "/wiki/C"):
        ask(running.proxy, target, "en.example")
    browser.open(running)
    browser.fill(name="http://en.example/wiki/None")
    browser.submit("purge")
    browser.until_begins("purged", "0 stored responses would go")
    assert browser.evaluate("document.getElementById('confirm').hidden")
    browser.fill(name="http://en.example/wik%69/", kind="prefix")
    browser.submit("purge")
    browser.until_is("purged", "2 stored responses would go: http://en.example/wiki/")
    assert "hit" in ask(running.proxy, "/wiki/C", "en.example").value("cache-status")
    # The number counted is of the URL to be purged: after a change it is counted anew.
    browser.fill(name="http://en.example/wiki/A%28b%29", kind="url")
    browser.fire("name", "input")
    assert browser.evaluate("document.getElementById('confirm').hidden")
    browser.submit("purge")
    browser.until_is("confirm", "Purge 1")
    browser.focus("confirm")
    browser.press("Enter")
    browser.until_is("purged", "1 removed: http://en.example/wiki/A(b)")
    assert "uri-miss" in ask(running.proxy, "/wiki/A(b)", "en.example").value("cache-status")
    assert "hit" in ask(running.proxy, "/wiki/C", "en.example").value("cache-status")
    browser.until_has("numbers", "Purges\n1")


def test_a_vain_purge_suggests_the_likely_name(shared, browser, ask):
    ask(shared.proxy, "/wiki/Vain", "en.example")
    ask(shared.proxy, "/wiki/vain/", "en.example", "PURGE")
    browser.open(shared)
    assert "http://en.example/wiki/vain/ once" in browser.shown("missed")
    assert "http://en.example/wiki/Vain 1 response; another path" in browser.shown("missed")


def test_a_url_is_explained_with_what_changed_and_who_asked(shared, browser, ask):
    for target in ("/wiki/E(b)", "/wiki/E%28b%29", "/wiki/E%28b%29"):
        ask(shared.proxy, target, "en.example")
    browser.open(shared)
    browser.fill(url="http://en.example/wiki/E%28b%29")
    browser.submit("explain")
    browser.until_has("asked", "3 requests")
    assert browser.shown("verdict") == "http://en.example/wiki/E(b)"
    assert browser.each("#stages mark", "one.textContent") == ["%28", "%29", "(", ")"]
    assert browser.shown("stages").startswith(
        "ring each octet is decoded or encoded as the application writes it"
    )
    assert "3 requests came for it by 2 spellings. 1 response is stored." in browser.shown("asked")
    browser.fill(url="http://en.example/wiki/%00")
    browser.submit("explain")
    browser.until_is("verdict", "Refused: control-character")


def test_each_stage_is_said_in_words():
    said = set(re.findall(r'(?m)^  "?([a-z-]+)"?: "', (OBSERVE / "page" / "stages.js").read_text()))
    sources = [
        Path(univocal.__file__).parent / "uri" / f"{name}.py" for name in ("segments", "query", "target")
    ]
    text = "".join(file.read_text() for file in [*sources, OBSERVE / "explain.py"])
    named = set(re.findall(r'yield \(?\s*"([a-z-]+)"|Stage\("([a-z-]+)"', text))
    assert said == {one or other for one, other in named}


def test_a_click_explains_a_rejected_example_as_text(running, browser, ask):
    ask(running.proxy, f"{HOSTILE}%00".replace(" ", "+"), "en.example")
    browser.open(running)
    browser.click("#refused button")
    browser.until_begins("verdict", "Refused: control-character")
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("document.images.length") == 0


PLOT = "document.querySelector('#tried .plot')"


def charted(browser, values):
    """Draw a chart of 60 values, beside those of the page, which pauses."""
    browser.click("#pause")
    browser.evaluate(
        "(async () => {"
        "const figure = document.getElementById('chart-requests').cloneNode(true);"
        "figure.id = 'tried';"
        "document.querySelector('.charts').append(figure);"
        "const { chart } = await import('/-/page/charts.js');"
        "const lines = [{ name: 'requests', colour: 'mark', write: String }];"
        "const seconds = [...Array(60).keys()];"
        "chart(figure, { lines, write: String, least: 4 })"
        f".show(seconds.map((each) => 1e9 + each), [seconds.map({values})]);"
        "})()"
    )


def test_charts_are_drawn_and_read_by_keyboard(shared, browser, ask):
    for _ in range(3):
        ask(shared.proxy, "/wiki/A", "en.example")
    browser.open(shared)
    for name in ("requests", "latency", "memory"):
        browser.until(f"document.querySelector('#chart-{name} figcaption').innerText.length > 8")
        browser.until(f"document.querySelector('#chart-{name} svg .line, #chart-{name} svg .dot')")
        browser.until(f"document.querySelectorAll('#chart-{name} tr').length > 1")
    (caption,) = browser.each("#chart-requests caption", "one.textContent")
    assert caption.startswith("Requests, hits and hit ratio")
    charted(browser, "(each) => each")
    browser.evaluate(f"{PLOT}.focus()")
    for key, said in (("End", 59), ("ArrowLeft", 58), ("PageUp", 48), ("Home", 0), ("ArrowRight", 1)):
        browser.press(key)
        assert browser.evaluate(f"{PLOT}.getAttribute('aria-valuetext')").endswith(f": requests {said}")
        assert len(browser.each("#tried .plot .cursor", "1")) == 1
    browser.press("Escape")
    assert browser.each("#tried .plot .cursor", "1") == []


def test_a_spike_does_not_flatten_a_chart(shared, browser):
    browser.open(shared)
    charted(browser, "(each) => (each === 30 ? 5000 : 10 + each % 3)")
    ticks = browser.each("#tried .plot .tick.end:not(.spike)", "Number(one.textContent)")
    assert 10 <= max(ticks) <= 30
    assert "5000" in browser.evaluate(f"{PLOT}.querySelector('.spike').textContent")


def test_the_numbers_of_nothing_and_of_two_requests(running, browser, ask):
    browser.open(running)
    values = dict(browser.each("#numbers div", "[...one.children].slice(0, 2).map((part) => part.innerText)"))
    assert set(TILES) == set(values)
    for name in ("Requests in another spelling", "Hits", "Requests a second", "Latency, median"):
        assert values[name] == "–"
    assert "Nothing has failed." in browser.shown("failed")
    assert "0.0 %" not in browser.evaluate("document.body.innerText")
    ask(running.proxy, "/wiki/A", "en.example")
    ask(running.proxy, "/wiki/%00", "en.example")
    browser.until_has("numbers", "ratio 0.0 %")
    browser.until_has("numbers", "Refused\n1")
    tiles = browser.each("#numbers div", "one.textContent")
    told = {name: tile for tile in tiles for name in TILES if tile.startswith(name)}
    # The page was opened before or after the second in which the first request was counted.
    assert re.fullmatch(r"Hits0since the start; ratio 0\.0 %, last 10 s (–|0\.0 %)", told["Hits"])
    assert told["Requests a second"].endswith(" sent since the start")
    assert told["Failed"] == "Failed0since the start"
    assert told["Running for"].startswith("Running for")
    assert told["Stored"].endswith(", 1 response, 0 evicted")
    assert told["Origin servers up"] == "Origin servers up1all that are configured"
    assert told["Refused"] == "Refused1since the start; most: control-character"
    assert told["Purges"] == "Purges0since the start"
    # A number's unit stays on its line.
    wholes = browser.each("#numbers .whole", "[one.textContent, getComputedStyle(one).whiteSpace]")
    assert ["0.0 %", "nowrap"] in wholes
    assert "Requests\n2\nsince the start" in browser.each("#numbers div", "one.innerText")


def test_failures_are_shown_with_their_reason(start_with, browser, ask):
    running = start_with(
        'access_log = "off"\n[[sites]]\nhosts = ["en.example"]\nupstream = "http://127.0.0.1:9"\n'
    )
    for number in range(25):
        assert ask(running.proxy, f"/{number}", "en.example").status == 502
    browser.open(running)
    rows = browser.cells("failed")
    assert len(rows) == 20
    time_of_day, url, reason, status = rows[0]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time_of_day)
    assert (url, status) == ("http://en.example/24", "502")
    assert reason.startswith("origin-unreachable http://127.0.0.1:9: refused: ")
    (site,) = browser.cells("sites")
    assert site[:7] == ["en.example", "25", "–", "–", "–", "25", "–"]
    assert "Failed\n25" in browser.shown("numbers")
    assert "Refused\n0" in browser.shown("numbers")
    state = browser.cells("origins")[0][2]
    assert (state[:14], state[-9:]) == ("failing since ", ": refused")
    assert "failing: en.example" in browser.each("#numbers .alarm", "one.innerText")[0]
    assert 'univocal_origin_up{origin="http://127.0.0.1:9",site="en.example"} 0.0' in (
        ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    )
    running.end()
    assert running.err.count("http://127.0.0.1:9 is failing: refused") == 1


CAT, EXACT = "http://en.example/wiki/Кошка", "http://en.example/wiki/%D0%9A%D0%BE%D1%88%D0%BA%D0%B0"


def test_keys_are_searched_read_decoded_and_copied_exactly(running, browser, ask):
    for target in ("/wiki/A", EXACT.removeprefix("http://en.example")):
        ask(running.proxy, target, "en.example")
    browser.open(running)
    for text, said in (("dog", "No key has that."), ("/wiki/a", "http://en.example/wiki/A"), ("кошк", CAT)):
        browser.fill(search=text)
        browser.fire("search", "input")
        browser.until_begins("top", said)
        assert len(browser.shown("top").splitlines()) == 1
    assert browser.each("#top .decoded", "one.title") == [EXACT]
    copied = browser.evaluate(
        "(() => { getSelection().selectAllChildren(document.querySelector('#top .decoded'));"
        "const data = new DataTransfer();"
        "document.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, cancelable: true }));"
        "return data.getData('text/plain'); })()"
    )
    assert copied == EXACT


def test_a_key_breaks_between_its_words(running, browser, ask):
    ask(running.proxy, "/wiki/" + "_".join(["Steve_Fuller_the_sociologist"] * 6), "en.example")
    browser.open(running)
    lines = browser.evaluate(
        "[...document.querySelector('#top .long').childNodes].filter((each) => each.data).map((each) => {"
        "const range = new Range(); range.selectNodeContents(each); return range.getClientRects().length; })"
    )
    assert len(lines) > 20
    assert set(lines) == {1}


READABLE = {
    "http://a.example/Z%C3%BCrich": "http://a.example/Zürich",
    "http://a.example/%E6%9D%B1%E4%BA%AC/x%2Fy": "http://a.example/東京/x%2Fy",
}
UNREADABLE = [
    "http://a.example/p%D0%B0ypal",  # a Cyrillic letter among Latin ones
    "http://a.example/%E2%80%AEgpj.exe",  # what turns the direction
    "http://a.example/%D7%90/%D7%91",  # read from the right
    "http://a.example/%E2%80%8B",  # nobody sees it
    "http://a.example/e%CC%81",  # a mark without its letter
    "http://a.example/%c3%bc",  # it could not be copied exactly
    "http://a.example/%C3%28",
    "http://a.example/%41%20",
]


def test_letters_are_decoded_where_that_is_safe(shared, browser):
    browser.open(shared)
    expected = READABLE | {url: url for url in UNREADABLE}
    read = f"import('/-/page/keys.js').then(({{ readable }}) => {json.dumps([*expected])}.map(readable))"
    assert dict(zip(expected, browser.evaluate(read), strict=True)) == expected


def test_fields_that_kept_responses_from_being_stored_are_listed(running, origin, browser, ask):
    origin.fields = "X-A: b"
    ask(running.proxy, "/own/a", "en.example", fields="X-Api-Key: a\r\n")
    browser.open(running)
    browser.fill(by="personal")
    browser.until_has("top", "x-api-key")
    assert "ordinary_fields = ['x-api-key']" in browser.shown("top")


def test_unknown_hosts_share_a_row_and_examples_leave_room(running, browser, ask):
    for number in range(5):
        ask(running.proxy, "/", f"h{number}.example")
    ask(running.proxy, "/wiki/%00" + "long" * 100, "en.example")
    browser.open(running)
    browser.until_has("refused", "5 hosts, most: h0.example")
    assert browser.shown("refused").count("unknown-host") == 1
    widths = browser.cells("refused", "offsetWidth")
    assert all(min(each) >= 60 for each in widths)
    assert all(each == widths[0] for each in widths)


def test_an_hour_is_shown_on_demand(shared, browser, ask):
    ask(shared.proxy, "/wiki/A", "en.example")
    browser.open(shared)
    browser.fill(span="15")
    browser.fire("span", "change")
    browser.until(
        "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/-/stats?step=15'))"
    )
    browser.until_is("state", "Live")


def test_origins_and_configuration_are_shown(running, browser, origin, ask):
    for _ in range(3):
        ask(running.proxy, "/wiki/A?action=purge", "en.example", "POST")
    browser.open(running)
    (row,) = browser.cells("origins")
    assert row[:2] == ["en.example", origin.url]
    assert re.fullmatch(r"up since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[2])
    assert row[3:] == ["3", "0", "0"]
    assert browser.style("#origins .up", "display") == "inline"
    browser.click("#config summary")
    browser.until_has("settings", "sites[0].profile")
    browser.fill(filter="hosts")
    browser.fire("filter", "input")
    assert "en.example" in browser.shown("settings")
    assert "sites[0].profile" not in browser.shown("settings")


def test_the_file_is_read_again_at_a_button(running, browser, ask, tmp_path):
    file = tmp_path / "univocal.toml"
    browser.open(running)
    file.write_text(file.read_text().replace("mediawiki", "rfc3986"))
    browser.click("#reload")
    browser.until_begins("reloaded", "Reloaded. What has changed")
    assert "sites[0].profile" in browser.shown("reloaded")
    ask(running.proxy, "/wiki/A%28b%29", "en.example")
    browser.until_has("top", "/wiki/A%28b%29")
    file.write_text(file.read_text().replace("rfc3986", "no-such-profile"))
    browser.click("#reload")
    browser.until_begins("reloaded", "Not reloaded: ")
    assert "sites[0].profile" in browser.shown("reloaded")


def test_the_keyboard_finds_the_way_and_sees_where_it_is(shared, browser):
    browser.open(shared)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.innerText") == "Skip to the spellings"
    outlines = {}
    for _ in range(40):
        browser.press("Tab")
        outlines |= browser.evaluate(
            "((one) => ({ [one.id]: getComputedStyle(one).outlineStyle }))(document.activeElement)"
        )
    assert {"pause", "discover", "url", "by", "kind", "name", "soft", "span", "search"} <= outlines.keys()
    assert all(outline == "solid" for name, outline in outlines.items() if name)
    assert set(browser.each("input, select", "one.labels.length")) == {1}


def test_colours_and_motion_are_as_the_reader_wants_them(shared, browser):
    browser.open(shared)
    for scheme, motion, scroll in (("light", "reduce", "auto"), ("dark", "no-preference", "smooth")):
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        browser.call("Emulation.setEmulatedMedia", features=features)
        red = int(re.findall(r"\d+", browser.style("body", "backgroundColor"))[0])
        assert ("light" if red > 128 else "dark", browser.style("html", "scrollBehavior")) == (scheme, scroll)


def test_it_stands_still_while_it_is_paused(shared, browser, ask):
    browser.open(shared)
    browser.click("#pause")
    assert browser.shown("state") == "Paused"
    browser.evaluate(
        "window.asked = 0; "
        "window.fetch = ((f) => (...all) => { window.asked += 1; return f(...all); })(fetch)"
    )
    ask(shared.proxy, "/wiki/While_paused", "en.example")
    browser.evaluate("new Promise((done) => setTimeout(done, 600))")
    assert browser.evaluate("window.asked") == 0
    browser.click("#pause")
    browser.until_has("top", "/wiki/While_paused")


def test_it_says_when_nobody_answers_and_goes_on_then(running, browser, start, tmp_path):
    browser.open(running)
    running.end()
    browser.until_begins("state", "No answer since ")
    assert "the server is not there. Trying again" in browser.shown("state")
    assert browser.evaluate("document.title") == "▲ No answer: univocal"
    assert browser.style("#numbers", "opacity") < "1"
    start("serve", "--config", str(tmp_path / "univocal.toml"), "--admin", "{}:{}".format(*running.admin))
    browser.until_is("state", "Live")
    assert browser.evaluate("document.title") == "univocal"
    assert browser.style("#numbers", "opacity") == "1"


def test_an_origin_server_is_drained_and_enabled(start_with, browser, origin):
    running = start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = ["{origin.url}", "http://127.0.0.1:9"]\n'
    )
    browser.open(running)
    browser.until("document.querySelectorAll('#origins button').length === 2")
    second = "document.querySelectorAll('#origins tr')[1].innerText"
    for label, state in (("drain", "draining since"), ("enable", "up since"), ("drain", "draining since")):
        browser.click(f'[aria-label="{label} http://127.0.0.1:9"]')
        browser.until(f"{second}.includes('{state}')")
    assert not browser.evaluate("document.querySelector('#numbers .alarm')")
    browser.click("#origins button")  # that of the first
    browser.until_begins("drained", "no other origin server")


HELD = """
  window.held = [];
  const real = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await real(...asked);
    if (asked[0] === "./-/origins" && !window.passes) await new Promise((done) => held.push(done));
    return answer;
  };
"""


def test_an_older_answer_takes_no_drain_back(start_with, browser, origin):
    running = start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = ["{origin.url}", "http://127.0.0.1:9"]\n'
    )
    browser.open(running)
    browser.evaluate(HELD)
    browser.until("held.length === 1")
    browser.evaluate("window.passes = true")
    browser.click('[aria-label="drain http://127.0.0.1:9"]')
    second = "document.querySelectorAll('#origins tr')[1].innerText"
    browser.until(f"{second}.includes('draining')")
    after = f"new Promise((done) => setTimeout(() => done({second}), 100))"
    assert "draining" in browser.evaluate(f"held[0](), {after}")


def test_the_origin_servers_health_is_among_the_numbers(start_with, browser, origin):
    running = start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
        '[[sites]]\nhosts = ["gone.example"]\nupstream = "http://127.0.0.1:9"\n'
        '[sites.origin]\nhealth = { path = "/", interval = 0.2, timeout = 0.1, falls = 1 }\n'
    )
    browser.open(running)
    alarm = "document.querySelector('#numbers .alarm').innerText"
    browser.until(f"{alarm}.includes('Origin servers up\\n1 of 2')")
    assert "down: gone.example" in browser.evaluate(alarm)


def test_a_refused_url_is_a_page_for_a_browser(shared, browser):
    host, port = shared.proxy
    browser.call("Page.navigate", url=f"http://{host}:{port}/")
    browser.until("document.querySelector('h1').innerText === '421 Misdirected Request'")
    assert "unknown-host" in browser.evaluate("document.body.innerText")
    # Its style is let through by its own policy.
    assert browser.evaluate("getComputedStyle(document.querySelector('main').parentNode).maxWidth") == "576px"
