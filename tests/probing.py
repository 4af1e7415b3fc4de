"""Samples of URLs for probe, and random spellings that check what it learned."""

import random
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from urllib.parse import quote

from examples import examples
from univocal.uri.profile import parse
from univocal.uri.target import canonical_target
from univocal_learn.probe import Report
from univocal_learn.verdicts import Fetch

NAMES = [
    *("A(b)", "C!d", "E:f", "x,y", "it's", "a+b", "a=b", "p@q", "m*n", "[z]", "$5", "R&D", "s;t"),
    *("plain", "other", "third", "é"),
]
RESERVED = ":[]@!$&'()*+,;="
SAMPLE = [f"/wiki/{quote(name, safe=RESERVED)}".encode() for name in NAMES]
RINGS = [f"ring:{octet:02X}" for octet in RESERVED.encode()]
ALWAYS = ["unreserved", "escape-case", *RINGS]  # what an origin server that decodes paths takes for one


def verdicts(report: Report) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in report.findings}


def agrees(report: Report, same: Collection[str], different: Collection[str]) -> None:
    """No false `same`, and at least four fifths of the true ones."""
    told = verdicts(report)
    assert not [name for name, verdict in told.items() if verdict == "same" and name in different]
    found = [name for name in same if told[name] == "same"]
    assert len(found) >= 0.8 * len(same), {*same} - {*found}
    assert not [name for name in same if told[name] == "different"]


PUTS = b"/ /. /%2e /zq/.. /zq/%2E. //.. /zq//.. ;x=1 %2F %2f.. /..; /..".split()
ENDS = b"/ ? index.html /index.html ?utm_source=x ;jsessionid=1 /. /.. // &a=1".split()


def respelled(target: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        path, mark, query = target.partition(b"?")
        way = chance.random()
        at = chance.randrange(len(path))
        if way < 0.35 and path[at : at + 1] not in (b"/", b"%"):
            escape = b"%%%02x" if chance.random() < 0.5 else b"%%%02X"
            path = path[:at] + escape % path[at] + path[at + 1 :]
        elif way < 0.5 and (found := re.search(rb"%[0-9A-Fa-f]{2}", path)):
            octet = bytes.fromhex(found[0][1:].decode())
            path = (
                path[: found.start()] + (octet if octet.isascii() else found[0].lower()) + path[found.end() :]
            )
        elif way < 0.8:
            slashes = [place for place, octet in enumerate(path) if octet == 0x2F]
            place = chance.choice(slashes)
            path = path[:place] + chance.choice(PUTS) + path[place:]
        elif mark and way < 0.9:
            query = b"&".join(chance.sample(query.split(b"&"), query.count(b"&") + 1))
        else:
            target = path + mark + query + chance.choice(ENDS)
            continue
        target = path + mark + query
    return target


def escaped(sample: list[bytes]) -> Iterator[bytes]:
    """Each reserved octet of a path, escaped alone: of few draws none may be that."""
    for target in sample:
        for found in re.finditer(rb"[]:[@!$&'()*+,;=]", target.partition(b"?")[0]):
            yield target[: found.start()] + b"%%%02X" % found[0][0] + target[found.end() :]


def are_one(fetch: Fetch, text: str, sample: Sequence[bytes], least: float = 0, origin: str = "") -> None:
    """Check that the spellings that a profile folds are one to the origin server, and at least this share."""
    number = examples(2000)
    profile = parse({"learned": text})["learned"]
    chance = random.Random(7)
    draws = (respelled(chance.choice(sample), chance) for _ in range(number))
    folded = 0

    def seen(target: bytes) -> tuple[int, bytes]:
        answer = fetch(target, 0)
        for _ in range(3):
            location = answer.value(b"location").removeprefix(origin.encode())
            if not answer.redirects or not location.startswith(b"/"):
                break
            answer = fetch(location, 0)
        # Both are refusals: which error page comes with them is nobody's page.
        return answer.status, answer.body if answer.status < 400 else b""

    for target in dict.fromkeys(chain(escaped(sample), draws)):
        if not re.fullmatch(rb"/[!-~]*", target):
            continue
        canonical = canonical_target(target, profile)
        if not isinstance(canonical, bytes) or canonical == target:
            continue
        folded += 1
        one, other = seen(target), seen(canonical)
        assert one == other or (one[0] >= 400 and other[0] >= 400), (target, canonical)
    assert folded >= least * number
