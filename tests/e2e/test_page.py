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

OBSERVE = Path(univocal_app.__file__).parent / "observe"
TILES = (
    *("Requests in another spelling", "Hits", "Requests", "Requests a second", "Latency, median", "Stored"),
    *("Origin servers up", "Failed", "Refused", "Connections", "Stale", "Purges", "Running for"),
)
# The page asks every two seconds: here ten times as often.
OFTEN = "setTimeout = ((later) => (call, time) => later(call, time === 2000 ? 200 : time))(setTimeout)"
HOSTILE = "/wiki/<img src=x onerror=document.title='owned'>"


@pytest.fixture
def running(start_with, origin):
    return start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n'
        '[[sites.routes]]\npath = "/own/"\ncache = { ttl = 60 }\n'
    )


class Browser:
    """A tab of chromium, over the DevTools protocol."""

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


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A browser; the URL of its DevTools."""
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
        yield _tools(profile)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def browser(chromium):
    """A tab of its own."""
    with httpx.Client(base_url=chromium, trust_env=False, timeout=60) as tools:
        tab = tools.put("/json/new?about:blank").json()
        with connect(tab["webSocketDebuggerUrl"], proxy=None, max_size=None) as connection:
            made = Browser(connection)
            made.call("Page.enable")
            made.call("Page.addScriptToEvaluateOnNewDocument", source=OFTEN)
            yield made
        tools.get(f"/json/close/{tab['id']}")


def _tools(profile):
    """The URL of the DevTools, once the browser has said where it listens."""
    told = profile / "DevToolsActivePort"
    for _ in range(600):
        if told.exists() and (lines := told.read_text().splitlines()):
            return f"http://127.0.0.1:{lines[0]}"
        time.sleep(0.1)
    raise AssertionError("chromium does not begin")


def test_the_page_comes_from_the_package_alone(running, ask):
    page = ask(running.admin, "/", "127.0.0.1")
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
        asset = ask(running.admin, path, "127.0.0.1")
        assert (asset.status, asset.value("content-security-policy")) == (200, policy)
        assert not re.search(rb"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", asset.body)


def test_the_page_weighs_60_kilobytes_at_most():
    assert sum(file.stat().st_size for file in (OBSERVE / "page").iterdir()) <= 60_000


def test_whoever_may_not_purge_sees_no_page(running, ask):
    stranger = "X-Forwarded-For: 192.0.2.1\r\n"
    for path in ("/", "/-/spellings", "/-/purge-misses", "/-/config", "/-/page", "/metrics"):
        answer = ask(running.admin, path, "127.0.0.1", fields=stranger)
        assert (answer.status, answer.value("content-type")) == (403, "application/problem+json")
    browsers = stranger + "Accept: text/html\r\n"
    answer = ask(running.admin, "/", "127.0.0.1", fields=browsers)
    assert (answer.status, answer.value("content-type")) == (403, "text/html; charset=utf-8")
    assert answer.body == ask(running.admin, "/", "127.0.0.1").body  # the document, which knows nothing
    answer = ask(running.admin, "/-/stats", "127.0.0.1", fields=browsers)
    assert (answer.status, b"purge-forbidden" in answer.body) == (403, True)
    # The page's files are the package's.
    assert ask(running.admin, "/-/page/page.js", "127.0.0.1", fields=stranger).status == 200
    assert ask(running.admin, "/-/page/nothing.js", "127.0.0.1", fields=stranger).status == 404


def test_whoever_has_the_token_types_it_into_the_page(start_with, origin, browser, ask):
    running = start_with(
        'access_log = "off"\n[purge]\nallow = []\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n',
        UNIVOCAL_PURGE_TOKEN="s3cret",
    )
    ask(running.proxy, "/wiki/A%28b%29", "en.example")
    browser.call("Page.navigate", url=f"{running.page}/")
    browser.until("document.activeElement.id === 'token'")
    assert "purge.allow" in shown(browser, "locked")
    assert browser.evaluate("getComputedStyle(document.querySelector('main')).display") == "none"
    browser.call("Input.insertText", text="s3cre")
    pressed(browser, "Enter")
    browser.until("document.getElementById('unlocked').innerText === 'That is not the token.'")
    fill(browser, token="s3cret")
    pressed(browser, "Enter")
    browser.until("document.getElementById('state').innerText === 'Live'")
    assert "http://en.example/wiki/A(b)" in shown(browser, "top")
    assert browser.evaluate("getComputedStyle(document.getElementById('locked')).display") == "none"
    # It is sent with everything that the page asks for, and not known behind another tab.
    fill(browser, name="http://en.example/wiki/A(b)")
    browser.evaluate("document.getElementById('purge').requestSubmit()")
    browser.until("document.getElementById('confirm').innerText === 'Purge 1'")
    browser.evaluate("document.getElementById('confirm').click()")
    browser.until("document.getElementById('purged').innerText.startsWith('1 removed')")
    assert browser.evaluate("localStorage.length + document.cookie.length") == 0


def opened(browser, running, width=1280):
    """Open the page, as wide as this, and wait until it is filled."""
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500
    )
    browser.call("Page.navigate", url=f"{running.page}/")
    browser.until("document.getElementById('state').textContent === 'Live'")


CODES = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27, "PageUp": 33, "End": 35, "Home": 36} | {
    "ArrowLeft": 37,
    "ArrowRight": 39,
}


def pressed(browser, key):
    text = {"Enter": "\r", " ": " "}.get(key, "")
    code = CODES[key]
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
        )


def shown(browser, name):
    return str(browser.evaluate(f"document.getElementById('{name}').innerText"))


def cells(browser, name, of="innerText"):
    """The cells of a table, by its rows."""
    rows = f"[...document.querySelectorAll('#{name} tr')]"
    return browser.evaluate(f"{rows}.map((each) => [...each.cells].map((one) => one.{of}))")


def fill(browser, **values):
    for name, value in values.items():
        browser.evaluate(f"document.getElementById('{name}').value = {json.dumps(value)}")


SPELLED = ("/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b)")


def test_a_phone_shows_what_happens_without_scrolling_sideways(running, browser, ask):
    for target in (*SPELLED, "/wiki/%00", f"{HOSTILE}%00".replace(" ", "+"), "/wiki/" + "long" * 100):
        ask(running.proxy, target, "en.example")
    opened(browser, running, 390)
    everything = browser.evaluate("document.body.innerText")
    assert "http://en.example/wiki/A(b) 2 misses saved by 3 spellings, 3 requests" in everything
    assert browser.evaluate("document.documentElement.scrollHeight") <= 3000
    touched = "document.querySelector('#h-refused button')"
    assert browser.evaluate(f"{touched}.getAttribute('aria-expanded')") == "false"
    assert browser.evaluate("getComputedStyle(document.getElementById('refused')).display") != "none"
    assert browser.evaluate("document.getElementById('refused').offsetHeight") == 0
    browser.evaluate(f"{touched}.click()")
    assert browser.evaluate(f"{touched}.getAttribute('aria-expanded')") == "true"
    assert "control-character" in shown(browser, "refused")
    browser.evaluate("document.querySelector('nav a[href=\"#h-top\"]').click()")
    assert "/wiki/A(b)" in shown(browser, "top")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("document.images.length") == 0
    # It needs nothing from anywhere else.
    assert browser.evaluate(
        "performance.getEntriesByType('resource').every(({ name }) => name.startsWith(location.origin))"
    )


def test_what_became_one_is_the_heart_of_the_page(running, browser, ask):
    opened(browser, running)
    assert shown(browser, "folding") == "None yet."
    for target in (*SPELLED, "/wiki/A%28b)", "/wiki/Other"):
        ask(running.proxy, target, "en.example")
    browser.until("document.getElementById('folding').innerText.startsWith('2 misses saved, at least')")
    assert "4 spellings came for 2 pages" in shown(browser, "folding")
    told = browser.evaluate(
        "[...document.querySelectorAll('#spellings li')].map((each) => "
        "[each.innerText.split(/\\s+/), [...each.querySelectorAll('mark')].map((one) => one.textContent)])"
    )
    assert told == [
        [["/wiki/A%28b)", "2"], ["%28"]],
        [["/wiki/A(b)", "canonical", "1"], []],
        [["/wiki/A%28b%29", "1"], ["%28", "%29"]],
    ]
    browser.until("document.getElementById('numbers').innerText.includes('in another spelling\\n3')")


@pytest.mark.parametrize("by", ["pointer", "keyboard"])
def test_a_list_continues_after_a_click_and_waits_for_keyboards(running, browser, ask, by):
    for target in SPELLED:
        ask(running.proxy, target, "en.example")
    opened(browser, running)
    first = "document.querySelector('#spellings summary')"
    if by == "pointer":
        place = browser.evaluate(
            f"{first}.scrollIntoView(), (({{x, y}}) => [x, y])({first}.getBoundingClientRect())"
        )
        click = {"x": place[0] + 20, "y": place[1] + 8, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            browser.call("Input.dispatchMouseEvent", type=kind, **click)
    else:
        pressed(browser, "Tab")
        browser.evaluate(f"{first}.focus()")
    assert browser.evaluate(f"document.activeElement === {first}")
    for target in ("/wiki/C(d)", "/wiki/C%28d%29"):
        ask(running.proxy, target, "en.example")
    browser.until("document.getElementById('folding').innerText.startsWith('3 misses saved')")
    assert ("/wiki/C(d)" in shown(browser, "spellings")) == (by == "pointer")


def test_rules_are_discovered_at_a_button_by_keyboard(running, browser, ask):
    for number in range(12):
        for target in (f"/w/p{number}/", f"/w/p{number}/", f"/w/p{number}/index.html"):
            ask(running.proxy, target, "en.example")
    opened(browser, running)
    browser.evaluate("document.getElementById('discover').focus()")
    pressed(browser, "Enter")
    browser.until("document.querySelector('#discovered pre') !== null")
    assert "index.html" in shown(browser, "discovered")


def test_a_purge_is_counted_before_it_is_confirmed(running, browser, ask):
    for target in ("/wiki/A(b)", "/wiki/C"):
        ask(running.proxy, target, "en.example")
    opened(browser, running)
    fill(browser, name="http://en.example/wik%69/", kind="prefix")
    browser.evaluate("document.getElementById('purge').requestSubmit()")
    browser.until(
        "document.getElementById('purged').textContent === "
        "'2 stored responses would go: http://en.example/wiki/'"
    )
    assert "hit" in ask(running.proxy, "/wiki/C", "en.example").value("cache-status")
    # What is counted is what is purged: after a change it is counted anew.
    fill(browser, name="http://en.example/wiki/A%28b%29", kind="url")
    browser.evaluate("document.getElementById('name').dispatchEvent(new Event('input', {bubbles: true}))")
    assert browser.evaluate("document.getElementById('confirm').hidden")
    browser.evaluate("document.getElementById('purge').requestSubmit()")
    browser.until("document.getElementById('confirm').textContent === 'Purge 1'")
    browser.evaluate("document.getElementById('confirm').focus()")
    pressed(browser, "Enter")
    browser.until(
        "document.getElementById('purged').textContent === '1 removed: http://en.example/wiki/A(b)'"
    )
    assert "uri-miss" in ask(running.proxy, "/wiki/A(b)", "en.example").value("cache-status")
    assert "hit" in ask(running.proxy, "/wiki/C", "en.example").value("cache-status")
    browser.until("document.getElementById('numbers').innerText.includes('Purges\\n1')")


def test_a_vain_purge_suggests_the_likely_name(running, browser, ask):
    ask(running.proxy, "/wiki/Page", "en.example")
    ask(running.proxy, "/wiki/page/", "en.example", "PURGE")
    opened(browser, running)
    told = shown(browser, "missed")
    assert "http://en.example/wiki/page/ once" in told
    assert "http://en.example/wiki/Page 1 response; another path" in told


def test_a_url_is_explained_with_what_changed_and_who_asked(running, browser, ask):
    for target in ("/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b%29"):
        ask(running.proxy, target, "en.example")
    opened(browser, running)
    fill(browser, url="http://en.example/wiki/A%28b%29")
    browser.evaluate("document.getElementById('explain').requestSubmit()")
    browser.until("document.getElementById('asked').innerText.includes('3 requests')")
    assert shown(browser, "verdict") == "http://en.example/wiki/A(b)"
    marks = browser.evaluate(
        "[...document.querySelectorAll('#stages mark')].map((each) => each.textContent).join(' ')"
    )
    assert marks == "%28 %29 ( )"
    assert shown(browser, "stages").startswith(
        "ring each octet is decoded or encoded as the application writes it"
    )
    assert "3 requests came for it by 2 spellings. 1 response is stored." in shown(browser, "asked")
    fill(browser, url="http://en.example/wiki/%00")
    browser.evaluate("document.getElementById('explain').requestSubmit()")
    browser.until("document.getElementById('verdict').innerText === 'Refused: control-character'")


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
    opened(browser, running)
    browser.evaluate("document.querySelector('#refused button').click()")
    browser.until("document.getElementById('verdict').innerText.startsWith('Refused: control-character')")
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("document.images.length") == 0


PLOT = "document.querySelector('#tried .plot')"


def charted(browser, values):
    """Draw a chart of 60 values, beside those of the page, which pauses."""
    browser.evaluate("document.getElementById('pause').click()")
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


def test_charts_are_drawn_and_tell_the_numbers(running, browser, ask):
    for _ in range(3):
        ask(running.proxy, "/wiki/A", "en.example")
    opened(browser, running)
    for name in ("requests", "latency", "memory"):
        browser.until(f"document.querySelector('#chart-{name} figcaption').innerText.length > 8")
        browser.until(f"document.querySelector('#chart-{name} svg .line, #chart-{name} svg .dot')")
        browser.until(f"document.querySelectorAll('#chart-{name} tr').length > 1")
    assert browser.evaluate("document.querySelector('#chart-requests caption').textContent").startswith(
        "Requests, hits and hit ratio"
    )


def test_a_chart_is_read_by_keyboard(running, browser):
    opened(browser, running)
    charted(browser, "(each) => each")
    browser.evaluate(f"{PLOT}.focus()")
    for key, said in (("End", 59), ("ArrowLeft", 58), ("PageUp", 48), ("Home", 0), ("ArrowRight", 1)):
        pressed(browser, key)
        assert browser.evaluate(f"{PLOT}.getAttribute('aria-valuetext')").endswith(f": requests {said}")
        assert browser.evaluate(f"{PLOT}.querySelectorAll('.cursor').length") == 1
    pressed(browser, "Escape")
    assert browser.evaluate(f"{PLOT}.querySelectorAll('.cursor').length") == 0


def test_a_spike_does_not_flatten_a_chart(running, browser):
    opened(browser, running)
    charted(browser, "(each) => (each === 30 ? 5000 : 10 + each % 3)")
    ticks = browser.evaluate(
        f"[...{PLOT}.querySelectorAll('.tick.end:not(.spike)')].map((each) => Number(each.textContent))"
    )
    assert 10 <= max(ticks) <= 30
    assert "5000" in browser.evaluate(f"{PLOT}.querySelector('.spike').textContent")


def test_the_note_of_a_number_is_about_it(running, browser, ask):
    ask(running.proxy, "/wiki/A", "en.example")
    ask(running.proxy, "/wiki/%00", "en.example")
    opened(browser, running)
    tiles = "[...document.querySelectorAll('#numbers div')].map((each) => each.textContent)"
    browser.until(f"{tiles}.some((tile) => tile.startsWith('Refused1'))")
    told = {name: tile for tile in browser.evaluate(tiles) for name in TILES if tile.startswith(name)}
    # The page was opened before or after the second in which the first request was counted.
    assert re.fullmatch(r"Hits0since the start; ratio 0\.0 %, last 10 s (–|0\.0 %)", told["Hits"])
    assert told["Requests a second"].startswith("Requests a second")
    assert told["Requests a second"].endswith(" sent since the start")
    assert told["Failed"] == "Failed0since the start"
    assert told["Running for"].startswith("Running for")
    assert told["Stored"].endswith(", 1 response, 0 evicted")
    assert told["Origin servers up"] == "Origin servers up1all that are configured"
    assert told["Refused"] == "Refused1since the start; most: control-character"
    assert told["Purges"] == "Purges0since the start"


def test_a_number_keeps_its_unit_on_its_line(running, browser, ask):
    ask(running.proxy, "/wiki/A", "en.example")
    opened(browser, running)
    browser.until("document.getElementById('numbers').innerText.includes('ratio 0.0 %')")
    wholes = browser.evaluate(
        "[...document.querySelectorAll('#numbers .whole')].map((each) =>"
        " [each.textContent, getComputedStyle(each).whiteSpace])"
    )
    assert ["0.0 %", "nowrap"] in wholes
    total = "[...document.querySelectorAll('#numbers div')].map((each) => each.innerText)"
    assert "Requests\n1\nsince the start" in browser.evaluate(total)


def test_a_page_without_requests_claims_no_numbers(running, browser):
    opened(browser, running)
    tiles = "[...document.querySelectorAll('#numbers div')].map(({ children }) => "
    told = browser.evaluate(tiles + "[...children].map((one) => one.innerText))")
    values = {name: value for name, value, _ in told}
    assert set(TILES) == set(values)
    for name in ("Requests in another spelling", "Hits", "Requests a second", "Latency, median"):
        assert values[name] == "–"
    assert "Nothing has failed." in shown(browser, "failed")
    assert "0.0 %" not in browser.evaluate("document.body.innerText")


def test_failures_are_shown_with_their_reason(start_with, browser, ask):
    running = start_with(
        'access_log = "off"\n[[sites]]\nhosts = ["en.example"]\nupstream = "http://127.0.0.1:9"\n'
    )
    for number in range(25):
        assert ask(running.proxy, f"/{number}", "en.example").status == 502
    opened(browser, running)
    rows = cells(browser, "failed")
    assert len(rows) == 20
    time_of_day, url, reason, status = rows[0]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time_of_day)
    assert (url, status) == ("http://en.example/24", "502")
    assert reason.startswith("origin-unreachable http://127.0.0.1:9: refused: ")
    (site,) = cells(browser, "sites")
    assert site[:7] == ["en.example", "25", "–", "–", "–", "25", "–"]
    assert "Failed\n25" in shown(browser, "numbers")
    assert "Refused\n0" in shown(browser, "numbers")
    assert cells(browser, "origins")[0][2].startswith("failing since ")
    assert cells(browser, "origins")[0][2].endswith(": refused")
    assert "failing: en.example" in browser.evaluate("document.querySelector('#numbers .alarm').innerText")
    assert 'univocal_origin_up{origin="http://127.0.0.1:9",site="en.example"} 0.0' in (
        ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    )
    running.end()
    assert running.err.count("http://127.0.0.1:9 is failing: refused") == 1


CAT, EXACT = "http://en.example/wiki/Кошка", "http://en.example/wiki/%D0%9A%D0%BE%D1%88%D0%BA%D0%B0"


def test_a_key_is_read_decoded_and_copied_exactly(running, browser, ask):
    ask(running.proxy, EXACT.removeprefix("http://en.example"), "en.example")
    opened(browser, running)
    assert shown(browser, "top").startswith(CAT)
    assert browser.evaluate("document.querySelector('#top .decoded').title") == EXACT
    copied = browser.evaluate(
        "(() => { getSelection().selectAllChildren(document.querySelector('#top .decoded'));"
        "const data = new DataTransfer();"
        "document.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, cancelable: true }));"
        "return data.getData('text/plain'); })()"
    )
    assert copied == EXACT


def test_a_key_breaks_between_its_words(running, browser, ask):
    ask(running.proxy, "/wiki/" + "_".join(["Steve_Fuller_the_sociologist"] * 6), "en.example")
    opened(browser, running)
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


def test_letters_are_decoded_where_that_is_safe(running, browser):
    opened(browser, running)
    expected = READABLE | {url: url for url in UNREADABLE}
    read = f"import('/-/page/keys.js').then(({{ readable }}) => {json.dumps([*expected])}.map(readable))"
    assert dict(zip(expected, browser.evaluate(read), strict=True)) == expected


def test_keys_are_searched(running, browser, ask):
    for target in ("/wiki/A", EXACT.removeprefix("http://en.example")):
        ask(running.proxy, target, "en.example")
    opened(browser, running)
    for text, said in (("кошк", CAT), ("/wiki/a", "http://en.example/wiki/A"), ("dog", "No key has that.")):
        fill(browser, search=text)
        browser.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")
        browser.until(f"document.getElementById('top').innerText.startsWith({json.dumps(said)})")
        assert len(shown(browser, "top").splitlines()) == 1


def test_a_purge_of_nothing_has_no_button(running, browser):
    opened(browser, running)
    fill(browser, name="http://en.example/wiki/None")
    browser.evaluate("document.getElementById('purge').requestSubmit()")
    browser.until("document.getElementById('purged').innerText.startsWith('0 stored responses would go')")
    assert browser.evaluate("document.getElementById('confirm').hidden")


def test_a_search_for_rules_that_finds_none_says_so(running, browser):
    opened(browser, running)
    browser.evaluate("document.getElementById('discover').click()")
    browser.until("document.getElementById('discovered').innerText.includes('found')")
    assert shown(browser, "discovered").startswith("Nothing found")


def test_fields_that_kept_responses_from_being_stored_are_listed(running, origin, browser, ask):
    origin.fields = "X-A: b"
    ask(running.proxy, "/own/a", "en.example", fields="X-Api-Key: a\r\n")
    opened(browser, running)
    browser.evaluate("document.getElementById('by').value = 'personal'")
    browser.until("document.getElementById('top').innerText.includes('x-api-key')")
    assert "ordinary_fields = ['x-api-key']" in shown(browser, "top")


def test_unknown_hosts_share_a_row_and_examples_leave_room(running, browser, ask):
    for number in range(5):
        ask(running.proxy, "/", f"h{number}.example")
    ask(running.proxy, "/wiki/%00" + "long" * 100, "en.example")
    opened(browser, running)
    browser.until("document.getElementById('refused').innerText.includes('5 hosts, most: h0.example')")
    assert shown(browser, "refused").count("unknown-host") == 1
    widths = cells(browser, "refused", "offsetWidth")
    assert all(min(each) >= 60 for each in widths)
    assert all(each == widths[0] for each in widths)


def test_an_hour_is_shown_on_demand(running, browser, ask):
    ask(running.proxy, "/wiki/A", "en.example")
    opened(browser, running)
    fill(browser, span="15")
    browser.evaluate("document.getElementById('span').dispatchEvent(new Event('change'))")
    browser.until(
        "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/-/stats?step=15'))"
    )
    browser.until("document.getElementById('state').textContent === 'Live'")


def test_origins_and_configuration_are_shown(running, browser, origin, ask):
    for _ in range(3):
        ask(running.proxy, "/wiki/A?action=purge", "en.example", "POST")
    opened(browser, running)
    (row,) = browser.evaluate(
        "[...document.querySelectorAll('#origins tr')].map((each) => "
        "[...each.cells].map((one) => one.innerText))"
    )
    assert row[:2] == ["en.example", origin.url]
    assert re.fullmatch(r"up since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[2])
    assert row[3:] == ["3", "0", "0"]
    assert browser.evaluate("getComputedStyle(document.querySelector('#origins .up')).display") == "inline"
    browser.evaluate("document.querySelector('#config summary').click()")
    browser.until("document.getElementById('settings').innerText.includes('sites[0].profile')")
    fill(browser, filter="hosts")
    browser.evaluate("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert "en.example" in shown(browser, "settings")
    assert "sites[0].profile" not in shown(browser, "settings")


def test_the_file_is_read_again_at_a_button(running, browser, ask, tmp_path):
    file = tmp_path / "univocal.toml"
    opened(browser, running)
    file.write_text(file.read_text().replace("mediawiki", "rfc3986"))
    browser.evaluate("document.getElementById('reload').click()")
    browser.until("document.getElementById('reloaded').textContent.startsWith('Reloaded. What has changed')")
    assert "sites[0].profile" in shown(browser, "reloaded")
    ask(running.proxy, "/wiki/A%28b%29", "en.example")
    browser.until("document.getElementById('top').innerText.includes('/wiki/A%28b%29')")
    file.write_text(file.read_text().replace("rfc3986", "no-such-profile"))
    browser.evaluate("document.getElementById('reload').click()")
    browser.until("document.getElementById('reloaded').textContent.startsWith('Not reloaded: ')")
    assert "sites[0].profile" in shown(browser, "reloaded")


def test_the_keyboard_finds_the_way_and_sees_where_it_is(running, browser):
    opened(browser, running)
    pressed(browser, "Tab")
    assert browser.evaluate("document.activeElement.innerText") == "Skip to the spellings"
    seen = []
    for _ in range(40):
        pressed(browser, "Tab")
        seen.append(
            browser.evaluate(
                "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    reached = {name for name, _ in seen}
    assert {"pause", "discover", "url", "by", "kind", "name", "soft"} <= reached
    assert all(outline == "solid" for name, outline in seen if name)
    assert {"span", "search"} <= reached
    named = browser.evaluate(
        "[...document.querySelectorAll('input, select')].every((each) => each.labels.length === 1)"
    )
    assert named


@pytest.mark.parametrize(("motion", "scroll"), [("reduce", "auto"), ("no-preference", "smooth")])
def test_less_motion_is_had_by_who_wants_it(running, browser, motion, scroll):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": motion}])
    opened(browser, running)
    assert browser.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == scroll


def test_it_stands_still_while_it_is_paused(running, browser, ask):
    opened(browser, running)
    browser.evaluate("document.getElementById('pause').click()")
    assert shown(browser, "state") == "Paused"
    browser.evaluate(
        "window.asked = 0; "
        "window.fetch = ((f) => (...all) => { window.asked += 1; return f(...all); })(fetch)"
    )
    ask(running.proxy, "/wiki/A", "en.example")
    browser.evaluate("new Promise((done) => setTimeout(done, 600))")
    assert browser.evaluate("window.asked") == 0
    browser.evaluate("document.getElementById('pause').click()")
    browser.until("document.getElementById('top').innerText.includes('/wiki/A')")


def test_it_says_when_nobody_answers(running, browser):
    opened(browser, running)
    running.end()
    browser.until("document.getElementById('state').textContent.startsWith('No answer since ')")
    assert "the server is not there. Trying again" in shown(browser, "state")
    assert browser.evaluate("document.title") == "▲ No answer: univocal"
    assert browser.evaluate("getComputedStyle(document.getElementById('numbers')).opacity") < "1"


def test_it_goes_on_when_the_server_is_back(running, browser, start, tmp_path):
    opened(browser, running)
    running.end()
    browser.until("document.getElementById('state').textContent.startsWith('No answer since ')")
    start("serve", "--config", str(tmp_path / "univocal.toml"), "--admin", "{}:{}".format(*running.admin))
    browser.until("document.getElementById('state').textContent === 'Live'")
    assert browser.evaluate("document.title") == "univocal"
    assert browser.evaluate("getComputedStyle(document.getElementById('numbers')).opacity") == "1"


def test_an_origin_server_is_drained_and_enabled(start_with, browser, origin):
    running = start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = ["{origin.url}", "http://127.0.0.1:9"]\n'
    )
    opened(browser, running)
    browser.until("document.querySelectorAll('#origins button').length === 2")
    for label, state in (("drain", "draining since"), ("enable", "up since")):
        browser.evaluate(f"document.querySelector('[aria-label=\"{label} http://127.0.0.1:9\"]').click()")
        browser.until(f"document.querySelectorAll('#origins tr')[1].innerText.includes('{state}')")
    browser.evaluate("document.querySelectorAll('#origins button')[1].click()")
    browser.until("document.querySelectorAll('#origins tr')[1].innerText.includes('draining')")
    assert not browser.evaluate("document.querySelector('#numbers .alarm')")
    browser.evaluate("document.querySelectorAll('#origins button')[0].click()")
    browser.until("document.getElementById('drained').textContent.startsWith('no other origin server')")


def test_the_origin_servers_health_is_among_the_numbers(start_with, browser, origin):
    running = start_with(
        'access_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
        '[[sites]]\nhosts = ["gone.example"]\nupstream = "http://127.0.0.1:9"\n'
        '[sites.origin]\nhealth = { path = "/", interval = 0.2, timeout = 0.1, falls = 1 }\n'
    )
    opened(browser, running)
    browser.until(
        "document.querySelector('#numbers .alarm').innerText.includes('Origin servers up\\n1 of 2')"
    )
    assert "down: gone.example" in browser.evaluate("document.querySelector('#numbers .alarm').innerText")


def test_a_refused_url_is_a_page_for_a_browser(running, browser):
    host, port = running.proxy
    browser.call("Page.navigate", url=f"http://{host}:{port}/")
    browser.until("document.querySelector('h1').innerText === '421 Misdirected Request'")
    assert "unknown-host" in browser.evaluate("document.body.innerText")
    # Its style is let through by its own policy.
    assert browser.evaluate("getComputedStyle(document.querySelector('main').parentNode).maxWidth") == "576px"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(running, browser, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    opened(browser, running)
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", colour)[0])
    assert (red > 128) == (scheme == "light")
