"""The time and the memory that `univocal discover` takes for a log with rules in it, and for one without.

    python benchmarks/learning.py [--lines 1000000] [--pages 25000]

Each log is written to a temporary directory: a page is asked for by one of its spellings (with rules), or by
a language, a version or a page number that make it another (without). Printed are lines, distinct URLs,
seconds of processor time, the largest resident size in MiB, and what was found.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def ruled(pages: int, chance: random.Random) -> tuple[str, int]:
    page = int(pages * chance.random() ** 2)
    size, kind, way = 2000 + page * 7919 % 60_013, page % 4, chance.random()
    url = (f"/story?id={page}", f"/docs/p{page}.html", f"/shelf{page}/", f"/wiki/A_{page}")[kind]
    if way < 0.6:
        return url, size
    if way < 0.8:
        return (url.replace("?id=", "_"), "/" + url, url + "index.html", "/index.php" + url)[kind], size
    session = f"{chance.getrandbits(64):016x}"
    more = (f"&sid={session}", f"?utm_source=s{chance.randrange(40)}", f"?ref=f{chance.randrange(30)}", "?")
    return url + more[kind], size


def clean(pages: int, chance: random.Random) -> tuple[str, int]:
    page, other = int(4 * pages * chance.random() ** 2), chance.randrange(3)
    prefix = ("", f"/{('en', 'de', 'fr')[other]}", f"/v{other}")[page % 3]
    url = f"{prefix}/item/t{page}" + ("" if page % 3 else f"?page={other}")
    return url, 2000 + (page * 3 + other) * 7919 % 60_013


def lines(count: int, pages: int, kind: str) -> Iterator[str]:
    chance = random.Random(1)
    for number in range(count):
        target, size = (ruled if kind == "with rules" else clean)(pages, chance)
        time = f"22/Nov/2026:{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d} +0000"
        yield f'192.0.2.7 - - [{time}] "GET {target} HTTP/1.1" 200 {size} "-" "Mozilla/5.0"\n'


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--pages", type=int, default=25_000)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("with rules", "without"):
            log = Path(directory) / "log"
            with log.open("w") as stream:
                stream.writelines(lines(asked.lines, asked.pages, kind))
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            ended = subprocess.run(
                [sys.executable, "-m", "univocal_app", "discover", str(log), "--json"],
                capture_output=True,
                check=False,
                text=True,
            )
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            told = json.loads(ended.stdout)
            print(
                f"{kind}: {told['requests']} lines, {told['urls']} URLs, {used.ru_utime - before:.1f} s, "
                f"at most {used.ru_maxrss / 1024:.0f} MiB, {told['folded']['urls']} URLs fold, "
                f"hit ratio {told['hit_ratio']['before']:.3f} to {told['hit_ratio']['after']:.3f}"
            )


if __name__ == "__main__":
    main()
