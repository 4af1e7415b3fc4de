"""Write the table of `uri/charset.py`: where a browser's charsets are not Python's codecs.

    PYTHONPATH=middleware python tools/charsets/write.py

It needs Chromium. `read_by_chromium` and `read_by_node` are also what the tests compare with.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from univocal.uri import charset as charsets

FILE = Path(__file__).parents[2] / "middleware" / "univocal" / "uri" / "charset.py"
WIDTH = 98  # characters of a string

# Each byte beyond ASCII, each pair whose first is none and, in EUC-JP, each triple. Decoders are strict.
_READ = """
const read = (names) => Object.fromEntries(names.map((name) => {
  const texts = {};
  let decoder;
  try { decoder = new TextDecoder(name, { fatal: true }); } catch { return [name, texts]; }
  const put = (octets) => {
    try {
      const text = decoder.decode(Uint8Array.from(octets));
      texts[octets.map((octet) => octet.toString(16).padStart(2, "0")).join("")] =
        [...text].map((character) => character.codePointAt(0));
      return true;
    } catch { decoder = new TextDecoder(name, { fatal: true }); }
  };
  for (let first = 0x80; first < 0x100; first++) {
    if (put([first])) continue;
    for (let second = 0; second < 0x100; second++) put([first, second]);
  }
  if (name === "euc-jp")
    for (let second = 0xa1; second < 0xff; second++)
      for (let third = 0xa1; third < 0xff; third++) put([0x8f, second, third]);
  return [name, texts];
}));
"""


def read_by_chromium() -> dict[str, dict[bytes, str]]:
    """The texts that Chromium's TextDecoder gives for sequences of bytes, by charset."""
    page = f'<!doctype html><pre id="o"></pre><script>{_READ}document.getElementById("o").textContent='
    page += f"JSON.stringify(read({json.dumps([*charsets.CHARSETS])}))</script>"
    with tempfile.TemporaryDirectory() as directory:
        return _tables(shown_by_chromium(page, Path(directory)))


def shown_by_chromium(page: str, directory: Path) -> str:
    """The text that an ASCII page puts into its element with the id "o" until it has loaded.

    Its frames, which it waits for, may call its functions: a message of theirs could come too late.
    """
    file = directory / "page.html"
    file.write_text(page)
    shown = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--allow-file-access-from-files",
         f"--user-data-dir={directory}/profile", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    content = re.search(r'<pre id="o">(.*?)</pre>', shown, re.DOTALL)
    assert content is not None, "Chromium shows no text"
    return html.unescape(content[1])


def read_by_node() -> dict[str, dict[bytes, str]]:
    """The same by Node's TextDecoder."""
    script = f"{_READ}console.log(JSON.stringify(read({json.dumps([*charsets.CHARSETS])})))"
    shown = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=120, check=True)
    return _tables(shown.stdout)


def _tables(text: str) -> dict[str, dict[bytes, str]]:
    return {
        charset: {bytes.fromhex(octets): "".join(map(chr, points)) for octets, points in texts.items()}
        for charset, texts in json.loads(text).items()
    }


def characters(texts: Mapping[bytes, str]) -> dict[bytes, str]:
    """The sequences of a table that are one character each."""
    # Chromium gives half a surrogate pair for what is two characters in Big5 (8862, 8864, 88A3, 88A5).
    return {octets: text for octets, text in texts.items() if not re.search("[\ud800-\udfff]", text)}


def differences(charset: str, texts: Mapping[bytes, str]) -> Iterator[tuple[bytes, str]]:
    """The first bytes of each row of characters that Python's codec has not, and the row."""
    own, known = dict(charsets._by_codec(charset)), characters(texts)
    first, row = b"", ""
    for octets in sorted(own.keys() | known.keys(), key=lambda octets: (len(octets), octets)):
        text = known.get(octets, charsets._NO_CHARACTER)
        if own.get(octets, charsets._NO_CHARACTER) == text or len(own.get(octets, "")) > 1:
            continue
        if octets[:-1] != first[:-1] or not row or octets[-1] != first[-1] + len(row):
            if row:
                yield first, row
            first, row = octets, ""
        row += text
    if row:
        yield first, row


def main() -> None:
    lines = ["_DIFFERENCES: Final[Mapping[str, str]] = {"]
    for charset, texts in read_by_chromium().items():
        rows = " ".join(f"{first.hex()} {row}" for first, row in differences(charset, texts))
        strings = [""]
        for unit in (ascii(unit)[1:-1] for unit in rows):
            if len(strings[-1]) + len(unit) > WIDTH:
                strings.append("")
            strings[-1] += unit
        if len(strings) == 1 and rows:
            lines.append(f'    "{charset}": "{strings[0]}",')
        elif rows:
            lines += [f'    "{charset}": (', *(f'        "{string}"' for string in strings), "    ),"]
    table = "\n".join([*lines, "}"]) + "\n"
    source = FILE.read_text()
    FILE.write_text(re.sub(r"^_DIFFERENCES.*?^}\n", lambda _: table, source, flags=re.DOTALL | re.MULTILINE))


if __name__ == "__main__":
    main()
