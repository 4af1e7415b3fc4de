"""The cost of one spelling: µs per URL, beside url-normalize, w3lib, yarl and ada-url on the same URLs.

    python benchmarks/uri.py [--seed N]          (pip install 'univocal[bench]' adds the rows of the others)

The URLs are titles of Wikipedia articles (titles.txt) as four writers spell them: browsers, JavaScript's
encodeURIComponent, PHP's rawurlencode, and MediaWiki itself; the seed decides which titles get a query, small
hexadecimal digits or a slash that is spelled %2F. For each profile the URLs are split into those that are
canonical already and those that are to be respelled; what the profile refuses is left out. The others get the
same URLs, absolute and as text. Each number is the best of seven rounds of CPU time.

First the claim is checked on which the hot path rests: what is canonical comes back as the same object, and
one match of one compiled pattern says so. Exit status 1 if it is not the same object.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile, parse
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.target import Rejected, _pipeline, canonical_target

TITLES = Path(__file__).with_name("titles.txt")
ESCAPE = re.compile("%[0-9A-F]{2}")
ROUNDS, CALLS = 7, 20_000
Lists = dict[str, tuple[list[bytes], list[bytes]]]  # by profile: canonical targets, and others

# The characters that each writer leaves bare besides letters, digits and "-._~".
WRITERS = {
    "browser": "!$&'()*+,/:;=@[]|^",
    "encodeURIComponent": "!*'()",
    "rawurlencode": "",
    "MediaWiki": ";@$!*(),/:",
}
# The most expensive settings: they may have to be applied again to their own result.
SETTINGS = """
extends = "mediawiki"
[path]
trailing_slash = "remove"
index_names = ["index.html"]
[query]
sort = true
drop = ["utm_*"]
[[rewrite]]
from = "/story_"
to = "/story?id="
at = "start"
"""
OTHERS = {
    "ada-url": ("ada_url", "normalize_url"),
    "yarl": ("yarl", "URL"),
    "w3lib": ("w3lib.url", "canonicalize_url"),
    "url-normalize": ("url_normalize", "url_normalize"),
}


def targets(seed: int) -> list[bytes]:
    """Every title as every writer spells it, a tenth of them each with a query, small digits or %2F."""
    chance = random.Random(seed)
    made = []
    for title in TITLES.read_text("utf-8").splitlines():
        for bare in WRITERS.values():
            path = quote(title, safe=bare)
            if chance.random() < 0.1:
                path = ESCAPE.sub(lambda escape: escape[0].lower(), path)
            if chance.random() < 0.1:
                path = path.replace("/", "%2F")
            query = f"?action=history&offset={chance.randrange(10**6)}" if chance.random() < 0.1 else ""
            made.append(f"/wiki/{path}{query}".encode())
    return list(dict.fromkeys(made))


def split(profile: Profile, received: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The targets that are canonical, and those that are to be respelled."""
    canonical, others = list[bytes](), list[bytes]()
    for target in received:
        result = canonical_target(target, profile)
        if not isinstance(result, Rejected):
            (canonical if result == target else others).append(target)
            canonical.append(result)
    return [bytes(bytearray(target)) for target in dict.fromkeys(canonical)], others


def microseconds(
    call: Callable[[object], object], arguments: Sequence[object], rounds: int, calls: int
) -> float:
    """CPU time of one call, over all arguments in turn."""
    turns = max(1, calls // len(arguments))
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(turns):
            for argument in arguments:
                call(argument)
        best = min(best, time.process_time() - begun)
    return best / turns / len(arguments) * 1e6


def claim(profile: Profile, canonical: list[bytes]) -> tuple[int, int]:
    """The numbers of canonical targets that come back as the same object, and that a pattern matches."""
    plain = _pipeline(profile, ("", "")).plain
    same = sum(canonical_target(target, profile) is target for target in canonical)
    return same, sum(plain.fullmatch(target) is not None for target in canonical)


def resolving(profile: Profile) -> Callable[[bytes], object]:
    """The way of a request's URL: host, site, route, target and key, most of them remembered."""
    route = Route(b"/", profile, "origin")
    sites = Sites([Site("en.example", ("en.example",), (route,))])
    hosts = [b"en.example"]
    return lambda target: resolve(target, hosts, b"http", sites)


def others() -> dict[str, Callable[[str], object] | str]:
    """The functions by which other libraries normalize a URL, or "not installed"."""
    found: dict[str, Callable[[str], object] | str] = {}
    for name, (module, function) in OTHERS.items():
        try:
            found[name] = getattr(import_module(module), function)
        except ImportError:
            found[name] = "not installed"
    return found


@dataclass(frozen=True)
class Row:
    """Microseconds for one canonical URL and for one that is respelled; or why there are none."""

    name: str
    canonical: float = 0.0
    respelled: float = 0.0
    missing: str = ""


def all_profiles() -> dict[str, Profile]:
    """The built-in ones and one with many settings."""
    profiles = builtin_profiles()
    profiles["many settings"] = parse({"many settings": SETTINGS}, profiles)["many settings"]
    return profiles


def rows(
    profiles: dict[str, Profile], lists: Lists, rounds: int = ROUNDS, calls: int = CALLS
) -> Iterator[Row]:
    """Every profile, a whole request's resolving, and the other libraries."""
    for name, profile in profiles.items():
        yield row(f"univocal {name}", partial(canonical_target, profile=profile), lists[name], rounds, calls)
    wiki = profiles["mediawiki"]
    yield row("univocal mediawiki, whole request", resolving(wiki), lists["mediawiki"], rounds, calls)
    canonical, respelled = (
        [f"http://en.example{target.decode()}" for target in each] for each in lists["mediawiki"]
    )
    for name, function in others().items():
        yield row(name, function, (canonical, respelled), rounds, calls)


def row(
    name: str,
    call: Callable[..., object] | str,
    lists: tuple[Sequence[object], Sequence[object]],
    rounds: int,
    calls: int,
) -> Row:
    """One line of the table."""
    if isinstance(call, str):
        return Row(name, missing=call)
    canonical, respelled = (microseconds(call, each, rounds, calls) for each in lists)
    return Row(name, canonical, respelled)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    received = targets(parser.parse_args().seed)
    profiles = all_profiles()
    lists = {name: split(profile, received) for name, profile in profiles.items()}
    print(f"{len(received)} URLs; Python {platform.python_version()}, {platform.machine()}\n")
    print("canonical targets: same object back, and known as such by one match")
    kept = True
    for name, (canonical, _) in lists.items():
        same, matched = claim(profiles[name], canonical)
        kept = kept and same == len(canonical)
        print(f"  {name:<14}{same:>6} of {len(canonical)}{matched:>8}")
    print(f"\n{'µs per URL':<34}{'canonical':>12}{'respelled':>12}")
    for each in rows(profiles, lists):
        numbers = [each.missing] * 2 if each.missing else [f"{each.canonical:.2f}", f"{each.respelled:.2f}"]
        print(f"{each.name:<34}" + "".join(f"{number:>12}" for number in numbers), flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
