"""A browser writes a query in a legacy charset as `encoded` does."""

import json
import shutil
from urllib.parse import unquote_to_bytes

import pytest

from charsets import units
from tools.charsets.write import shown_by_chromium
from univocal.uri.charset import encoded


@pytest.mark.parametrize("name", ["gbk", "big5", "euc-jp", "shift_jis", "euc-kr", "windows-1252"])
def test_a_browser_writes_what_a_legacy_origin_gets(name, tmp_path):
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium (Debian package chromium)")
    texts = sorted({text for text in units(name).values() if len(text) == 1})
    page = f"""<!doctype html><meta charset="{name}"><pre id="o"></pre><script>
        const link = document.createElement("a"), points = {[ord(text) for text in texts]};
        const written = (point) => {{
            link.href = "http://a.example/?" + String.fromCodePoint(point);
            return link.search; }};
        document.getElementById("o").textContent = JSON.stringify(points.map(written));</script>"""
    written = json.loads(shown_by_chromium(page, tmp_path))
    assert len(written) == len(texts)
    compared = 0
    for text, query in zip(texts, written, strict=True):
        if "%26%23" in query:
            continue  # a character reference: WHATWG's encoder has nothing for it
        octets = unquote_to_bytes(query[1:])
        assert encoded(text, name) == octets, text
        compared += 1
    assert compared > 0.5 * len(texts)
