"""A browser writes a query in a legacy charset as `encoded` does."""

import json
import shutil
from urllib.parse import unquote_to_bytes

import pytest

from charsets import units
from tools.charsets.write import shown_by_chromium
from univocal.uri.charset import encoded

CHARSETS = ["gbk", "big5", "euc-jp", "shift_jis", "euc-kr", "windows-1252"]
# A frame for each charset tells the page around it which queries it writes, before the page has loaded.
PAGE = """<!doctype html><pre id="o"></pre><script>
    const all = %s, told = {};
    window.tell = (name, queries) => {
        told[name] = queries;
        document.getElementById("o").textContent = JSON.stringify(told); };
    const write = (name, points) => {
        const link = document.createElement("a");
        const queries = points.map((point) => {
            link.href = "http://a.example/?" + String.fromCodePoint(point);
            return link.search; });
        parent.tell(name, queries); };
    for (const name in all) {
        const script = `(${write})("${name}", [${all[name]}])`;
        const page = new Blob([`<!doctype html><script>${script}</` + "script>"],
            {type: "text/html;charset=" + name});
        const frame = document.body.appendChild(document.createElement("iframe"));
        frame.src = URL.createObjectURL(page); }</script>"""


def texts_of(name):
    return sorted({text for text in units(name).values() if len(text) == 1})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The queries that a browser writes for each text of a charset, by charset."""
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium (Debian package chromium)")
    points = {name: [ord(text) for text in texts_of(name)] for name in CHARSETS}
    return json.loads(shown_by_chromium(PAGE % json.dumps(points), tmp_path_factory.mktemp("chromium")))


@pytest.mark.parametrize("name", CHARSETS)
def test_a_browser_writes_what_a_legacy_origin_gets(name, written):
    texts, compared = texts_of(name), 0
    for text, query in zip(texts, written[name], strict=True):
        if "%26%23" in query:
            continue  # a character reference: WHATWG's encoder has nothing for it
        octets = unquote_to_bytes(query[1:])
        assert encoded(text, name) == octets, text
        compared += 1
    assert compared > 0.5 * len(texts)
