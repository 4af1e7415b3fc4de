"""Probe on origins that are functions: what it must not be taken in by."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import pytest

from univocal.uri.profile import parse
from univocal_app.learn.likeness import Answer, Template
from univocal_app.learn.probe import Report, probe

HTML = ((b"content-type", b"text/html"),)
NOT_FOUND = Answer(404, HTML, b"no such page")


def probed(origin: Callable[[bytes], Answer], sample: list[bytes]) -> Report:
    known: dict[tuple[bytes, int], Answer] = {}

    def fetch(target: bytes, number: int) -> Answer:
        if (target, number) not in known:
            known[target, number] = origin(target)
        return known[target, number]

    return probe("http://en.example", sample, fetch, lambda: len(known), lambda _: None)


def verdicts(report: Report) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in report.findings}


def text(seed: object, words: int) -> str:
    chance = random.Random(repr(seed))
    return " ".join(str(chance.randrange(10_000)) for _ in range(words))


def parameters(target: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    path, _, query = target.partition(b"?")
    pairs = (part.partition(b"=") for part in query.split(b"&") if part)
    return path, {name: value for name, _, value in pairs}


@pytest.mark.parametrize("words", [100, 3000, 30_000])
def test_a_long_page_with_a_clock_and_a_token_is_still_told_from_others(words: int) -> None:
    """Between the clock at its head and the token at its end is what the page is about."""
    count = itertools.count()

    def origin(target: bytes) -> Answer:
        path, asked = parameters(target)
        if path != b"/story":
            return NOT_FOUND
        body = f"clock {next(count)} {text(asked.get(b'id'), words)} token {random.random()} the end"
        return Answer(200, HTML, body.encode())

    found = verdicts(probed(origin, [b"/story?id=%d" % number for number in range(8)]))
    assert found["unused:id"] == "different"
    assert found["unused:utm_source"] == "same"


def test_what_two_long_texts_share_is_found() -> None:
    one, other = text("a", 3000).encode().split(), text("b", 9).encode().split()
    template = Template.of([b"x", *one, b"y"]).widened(
        [*other[:4], *one[:1500], *other[4:], *one[1500:], b"z"]
    )
    assert template.words > 2900
    assert template.fits([b"x", *one, b"y"])
    assert not template.fits([b"x", *text("c", 3000).encode().split(), b"y"])


@pytest.mark.parametrize("seed", range(10))
def test_pages_of_which_only_the_frame_stays_show_no_equality(seed: int) -> None:
    """What is served under another name would fit as well, but for words that come again by chance."""
    chance = random.Random(seed)

    def origin(target: bytes) -> Answer:
        path, _ = parameters(target)
        if not path.startswith(b"/feed/") or len(path) > 9:
            return NOT_FOUND
        return Answer(200, HTML, f"<html> latest {text(chance.random(), 50)} </html>".encode())

    found = verdicts(probed(origin, [b"/feed/%d?page=%d" % (number, number % 3) for number in range(9)]))
    assert "same" not in found.values()


def test_a_name_that_reads_as_a_glob_is_never_dropped() -> None:
    """`drop = ["*"]` would drop every parameter."""

    def origin(target: bytes) -> Answer:
        path, asked = parameters(target)
        names = {unquote_to_bytes(name): value for name, value in asked.items()}
        known = path == b"/list" and b"q" in names
        return Answer(200, HTML, text(names[b"q"], 50).encode()) if known else NOT_FOUND

    sample = [b"/list?q=%d&*=%d&a%%5Bb%%5D=%d" % (number, number, number) for number in range(6)]
    sample += [b"/list?q=%d&*=%d&a%%5Bb%%5D=%d" % (number, number + 1, number + 2) for number in range(6)]
    report = probed(origin, sample)
    assert verdicts(report)["unused:*"] == "same"
    dropped = parse({"learned": report.profile})["learned"].query.drop
    assert b"*" not in dropped
    assert b"a[b]" in dropped


def test_a_section_with_another_program_behind_it_is_asked_as_well() -> None:
    """Of six sections five take an encoded slash for a slash, and the last one tells them apart."""
    sections = [b"a", b"b", b"c", b"d", b"e", b"last"]
    sample = [b"/%b/deep/page%d" % (section, number) for section in sections for number in range(9)]

    def origin(target: bytes) -> Answer:
        path, _ = parameters(target)
        read = path if path.startswith(b"/last") else unquote_to_bytes(path)
        return Answer(200, HTML, text(read, 50).encode()) if read in sample else NOT_FOUND

    five = [target for target in sample if not target.startswith(b"/last")]
    assert verdicts(probed(origin, five))["ring:2F"] == "same"
    report = probed(origin, sample)
    assert verdicts(report)["ring:2F"] == "different"
    assert "/" not in parse({"learned": report.profile})["learned"].settings["path"]["decode"]
