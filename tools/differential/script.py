"""Sequences of exchanges for one URL, drawn from a seed, and what the origin server answers. Pure."""

from __future__ import annotations

import random
import zlib
from email.utils import formatdate
from typing import NamedTuple, TypeAlias

Fields: TypeAlias = tuple[tuple[str, str], ...]
LONG_AGO = 1_700_000_000  # seconds: the Last-Modified date of the version 0


class Answer(NamedTuple):
    """The behaviour of the origin server from now on. `new` makes another version of the representation."""

    new: bool = True
    status: int = 200
    cache_control: str = ""
    vary: str = ""
    expires: int | None = None  # seconds after Date
    age: int = 0  # seconds; 0: no Age field
    etag: str = "strong"  # strong | weak | none
    last_modified: bool = False
    confirms: bool = True  # whether a condition that does not hold is answered with 304
    terse: bool = False  # whether a 304 has its validators alone
    confirms_vary: str | None = None  # of a 304, by software that never saw the content; None: `vary`
    ranges: bool = True
    chunked: bool = False
    set_cookie: bool = False
    dead: bool = False  # the connection is closed without an answer


class Ask(NamedTuple):
    """A client's request. In a condition, `current` and `old` stand for validators of the origin server."""

    method: str = "GET"
    fields: Fields = ()

    def field(self, name: str) -> str:
        """The combined value of a field, empty if there is none."""
        return ", ".join(value for key, value in self.fields if key == name)


class Step(NamedTuple):
    """The seconds before it, what the origin server changes before it, and the request.

    The requests `beside` it are made at the same time. With `half` the client closes its half behind it.
    """

    wait: float
    answer: Answer | None
    ask: Ask
    beside: tuple[Ask, ...] = ()
    half: bool = False


class Reply(NamedTuple):
    """A response of the origin server: of which version and variant of the representation it speaks."""

    status: int
    fields: Fields
    content: bytes
    version: int
    label: str


def label_of(vary: str, ask: Ask) -> str:
    """The name of the variant that a request selects, empty where nothing is selected."""
    names = [name.strip().lower() for name in vary.split(",") if name.strip() not in {"", "*"}]
    return ";".join(f"{name}={ask.field(name)}" for name in sorted(names))


def etag(answer: Answer, version: int, label: str) -> str:
    """The entity tag of a version and variant."""
    opaque = f'"{version}-{zlib.crc32(label.encode()) % 9973 if label else 0}"'
    return {"strong": opaque, "weak": f"W/{opaque}", "none": ""}[answer.etag]


def last_modified(version: int, label: str) -> str:
    """The Last-Modified date of a version and variant; no two have the same."""
    return formatdate(
        LONG_AGO + version * 10_000 + (zlib.crc32(label.encode()) % 9973 if label else 0), usegmt=True
    )


def content_of(path: str, version: int, label: str) -> bytes:
    """The content of a version and variant, which tells both and is of another length for most."""
    return f"{path} v{version} [{label}] ".encode() + b"." * (20 + version)


def resolved(ask: Ask, answer: Answer, version: int) -> Ask:
    """The request with a validator in place of `current` and `old`."""
    label = label_of(answer.vary, ask)
    fields = []
    for name, value in ask.fields:
        which = {"current": version, "old": version - 1}.get(value)
        if which is None:
            fields.append((name, value))
        elif name == "if-modified-since" or (name == "if-range" and answer.etag == "none"):
            fields.append((name, last_modified(which, label)))
        else:
            tagged = answer if answer.etag != "none" else answer._replace(etag="strong")
            fields.append((name, etag(tagged, which, label)))
    return ask._replace(fields=tuple(fields))


def reply(path: str, answer: Answer, version: int, ask: Ask, now: float) -> Reply:
    """The answer of the origin server to a request as it has received it (RFC 9110 §13.2.2)."""
    label = label_of(answer.vary, ask)
    content = content_of(path, version, label)
    fields = described(answer, version, label, now)
    if ask.method in {"GET", "HEAD"} and answer.status == 200:
        confirmed = confirmed_label(answer, version, label, ask) if answer.confirms else None
        if confirmed is not None:
            fields = described(answer, version, confirmed, now)
            if answer.confirms_vary is not None:
                fields = (*(pair for pair in fields if pair[0] != "vary"), ("vary", answer.confirms_vary))
            if answer.terse:
                fields = tuple(pair for pair in fields if pair[0] in {"date", "etag", "last-modified"})
            return Reply(304, fields, b"", version, confirmed)
        part = chosen_part(answer, version, label, ask, len(content)) if ask.method == "GET" else None
        if part is not None:
            first, last = part
            span = ("content-range", f"bytes {first}-{last}/{len(content)}")
            return Reply(206, (*fields, span), content[first : last + 1], version, label)
    return Reply(answer.status, fields, content, version, label)


def described(answer: Answer, version: int, label: str, now: float) -> Fields:
    """The fields of a response but those that frame it."""
    expires = None if answer.expires is None else formatdate(int(now) + answer.expires, usegmt=True)
    fields = [
        ("date", formatdate(int(now), usegmt=True)),
        ("cache-control", answer.cache_control),
        ("vary", answer.vary),
        ("expires", expires or ""),
        ("age", str(answer.age) if answer.age else ""),
        ("etag", etag(answer, version, label)),
        ("last-modified", last_modified(version, label) if answer.last_modified else ""),
        ("set-cookie", f"s={version}" if answer.set_cookie else ""),
        ("content-type", "text/plain"),
    ]
    return tuple((name, value) for name, value in fields if value)


def confirmed_label(answer: Answer, version: int, label: str, ask: Ask) -> str | None:
    """The variant that a condition of the request names and that is current; None if 304 is no answer.

    A response stored without a variant is still right for each, so that a 304 may change Vary.
    """
    tags = ask.field("if-none-match")
    for which in (label, ""):
        opaque = etag(answer, version, which).removeprefix("W/")
        if tags:
            if tags == "*" or (
                opaque and opaque in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
            ):
                return which
        elif answer.last_modified and ask.field("if-modified-since") == last_modified(version, which):
            return which
    return None


def chosen_part(answer: Answer, version: int, label: str, ask: Ask, length: int) -> tuple[int, int] | None:
    """The first and the last byte of a single range that can be satisfied and that If-Range lets through."""
    unit, _, spec = ask.field("range").partition("=")
    first, dash, last = spec.partition("-")
    if not answer.ranges or unit != "bytes" or not dash or "," in spec:
        return None
    strong = etag(answer, version, label) if answer.etag == "strong" else ""
    dated = last_modified(version, label) if answer.last_modified else ""
    if ask.field("if-range") and ask.field("if-range") not in {strong, dated} - {""}:
        return None
    start = max(0, length - int(last)) if not first else int(first)
    stop = min(length - 1, int(last)) if first and last else length - 1
    return (start, stop) if start <= stop else None


# Drawing ---------------------------------------------------------------------------------------------------

DIRECTIVES = {
    "max-age=1": 8,
    "max-age=60": 10,
    "max-age=2": 2,
    "s-maxage=60": 2,
    "s-maxage=1, max-age=60": 1,
    "max-age=1, stale-while-revalidate=30": 8,
    "max-age=0, stale-while-revalidate=30": 3,
    "max-age=1, stale-while-revalidate=1": 1,
    "max-age=1, stale-if-error=60": 5,
    "max-age=1, stale-while-revalidate=30, stale-if-error=60": 3,
    "max-age=1, must-revalidate": 3,
    "max-age=1, proxy-revalidate": 1,
    "max-age=1, stale-while-revalidate=30, must-revalidate": 1,
    "max-age=60, must-revalidate": 1,
    "no-store": 4,
    "no-store, max-age=60": 2,
    "private": 2,
    "private, max-age=60": 2,
    "no-cache": 3,
    "max-age=60, no-cache": 2,
    'max-age=60, no-cache="set-cookie"': 1,
    "public": 2,
    "public, max-age=60": 3,
    "max-age=0": 2,
    "": 6,
}
STATUSES = {200: 70, 404: 6, 410: 4, 500: 5, 503: 4, 301: 3, 403: 3, 401: 2, 429: 1, 451: 1}
VARIES = {"": 62, "X-Var": 18, "Accept-Language": 8, "Accept-Language, X-Var": 4, "*": 4, "Cookie": 4}
CLIENT_DIRECTIVES = {
    "no-cache": 10,
    "max-age=0": 6,
    "max-age=1": 2,
    "no-store": 2,
    "only-if-cached": 3,
    "max-stale": 2,
    "max-stale=1": 1,
    "min-fresh=5": 1,
}
FAILURES = (500, 502, 503, 504, 429)
RANGES = ("bytes=0-3", "bytes=5-", "bytes=-4", "bytes=10-1000", "bytes=5000-", "bytes=0-3,8-9")


def weighed(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def answer_of(chance: random.Random, before: Answer | None) -> Answer:
    """The next behaviour of the origin server: all of it anew, or the same version with other fields."""
    if before is not None and chance.random() < 0.12:
        return before._replace(new=False, dead=True)
    if before is not None and before.dead and chance.random() < 0.6:
        return before._replace(dead=False, new=chance.random() < 0.5)
    if before is None or before.dead or chance.random() < 0.6:
        before = representation(chance)
    else:
        before = before._replace(new=False)
    return before._replace(
        cache_control=weighed(chance, DIRECTIVES),
        vary=weighed(chance, VARIES),
        expires=chance.choice([None] * 8 + [1, 60, -10]),
        age=chance.choice([0] * 12 + [1, 30, 100]),
        terse=chance.random() < 0.2,
        confirms_vary=chance.choice([None] * 6 + ["X-Other", "X-Var", "X-Other, Accept-Language, X-Var"]),
        set_cookie=chance.random() < 0.08,
        dead=False,
    )


def representation(chance: random.Random) -> Answer:
    """A new version: its status, its validators, and how it is sent."""
    return Answer(
        status=int(chance.choices(list(STATUSES), list(STATUSES.values()))[0]),
        etag=chance.choices(["strong", "weak", "none"], [6, 2, 3])[0],
        last_modified=chance.random() < 0.4,
        confirms=chance.random() < 0.85,
        ranges=chance.random() < 0.7,
        chunked=chance.random() < 0.2,
    )


def ask_of(chance: random.Random) -> Ask:
    """A request: mostly a plain GET, else with one or several of what makes it another."""
    method = chance.choices(["GET", "HEAD", "POST"], [80, 13, 7])[0]
    fields: list[tuple[str, str]] = []
    if chance.random() < 0.3:
        fields.append(("x-var", chance.choice("ab")))
    if chance.random() < 0.15:
        fields.append(("accept-language", chance.choice(["de", "en"])))
    if chance.random() < 0.12:
        fields.append(("cookie", chance.choice(["c=1", "c=2"])))
    if chance.random() < 0.04:
        fields.append(("authorization", "Basic YTpi"))
    if method != "POST":
        if chance.random() < 0.25:
            fields.append(("cache-control", weighed(chance, CLIENT_DIRECTIVES)))
        elif chance.random() < 0.03:
            fields.append(("pragma", "no-cache"))
        if chance.random() < 0.17:
            condition = chance.choice(["if-none-match", "if-none-match", "if-modified-since"])
            fields.append((condition, chance.choice(["current", "current", "old"])))
        if chance.random() < 0.1:
            fields.append(("range", chance.choice(RANGES)))
            if chance.random() < 0.4:
                fields.append(("if-range", chance.choice(["current", "old"])))
    return Ask(method, tuple(fields))


def drawn(name: str) -> tuple[Step, ...]:
    """The sequence of this name: between three and eight steps, the same each time."""
    chance = random.Random(name)
    answer: Answer | None = None
    steps = []
    for number in range(chance.randint(3, 8)):
        changed = number == 0 or chance.random() < 0.4
        answer = answer_of(chance, answer) if changed else answer
        wait = chance.choices([0.0, 1.2, 2.4], [60, 12, 28])[0] if number else 0.0
        steps.append(Step(wait, answer if changed else None, ask_of(chance)))
    return moved(random.Random(f"{name} moves"), steps)


def moved(chance: random.Random, steps: list[Step]) -> tuple[Step, ...]:
    """The steps with further moves: failures for a time, simultaneous ranges, clients that close their half.

    They are drawn by themselves, so that a name stands for the same steps as without them.
    """
    found, answer, failing = list[Step](), Answer(), False
    for step in steps:
        answer, now = step.answer or answer, step.answer
        begins = bool(found) and not answer.dead and chance.random() < 0.12
        ends = failing and chance.random() < 0.4
        failing = (failing or begins) and not (ends or answer.dead)
        if failing:
            new = step.answer is not None and answer.new
            now = answer._replace(new=new, status=chance.choice(FAILURES))
        elif ends:
            now = now or answer._replace(new=False)
        plain = tuple(pair for pair in step.ask.fields if pair[0] not in {"range", "if-range"})
        simultaneous = step.ask.method == "GET" and chance.random() < 0.1
        beside = [Ask("GET", (*plain, ("range", chance.choice(RANGES)))) for _ in range(4 * simultaneous)]
        found.append(Step(step.wait, now, step.ask, tuple(beside), half=chance.random() < 0.1))
    return tuple(found)
