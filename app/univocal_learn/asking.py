"""One origin, asked politely: GET alone, spelled byte for byte, at most so many in any second."""

from __future__ import annotations

import base64
import json
import math
import re
import time
import zlib
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from univocal.origin.client_library import httpx
from univocal.uri.query import split
from univocal.uri.segments import routing_view
from univocal_app.commands.pace import Pace
from univocal_learn.likeness import Reply
from univocal_learn.verdicts import Fetch, led_to

if TYPE_CHECKING:
    from protego import Protego

AGENT: Final = "univocal-probe"

# Bytes of an answer that are read; what is longer is compared by its beginning and its length.
_READ: Final = 1 << 20
_LONGEST: Final = 20.0  # seconds that an answer may take
_TRIES: Final = 4
_SILENCE: Final = 40  # requests one after the other without an answer: the origin is gone
_REDIRECTS: Final = 5  # of robots.txt (RFC 9309 §2.3.1.2)
_LONGEST_WAIT: Final = 10.0  # seconds that a Retry-After is heeded for at most
# No window of a second holds more than the rate, even where the network bunches requests a little.
_MARGIN: Final = 1.05


class OriginError(Exception):
    """An origin that cannot be asked at all."""


class Forbidden(Exception):  # noqa: N818 - it is no error
    """The target is one that robots.txt asks not to be fetched."""


class Asker:
    """Asks `origin` (scheme and authority) for targets, one after the other.

    A failed request is tried four times in all: an origin server may fail now and then. `asked` counts
    requests.
    """

    def __init__(
        self,
        origin: str,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.origin = origin
        self.asked = 0
        self._clock, self._sleep = clock, sleep
        spacing = _MARGIN / (math.floor(rate) if rate >= 1 else rate)
        self._pace = Pace(spacing, clock, sleep)
        self._transport = transport or httpx.HTTPTransport(
            limits=httpx.Limits(max_connections=1, keepalive_expiry=5)
        )
        self._url = httpx.URL(origin + "/")
        self._host = urlsplit(origin).netloc.rpartition("@")[2]
        self._robots: Protego | None = None
        self._silent = 0  # requests since the last answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def named(self, origin: str) -> Asker:
        """Another asker of the same server, under the name of `origin`, that keeps to the same pace."""
        other = copy(self)
        other.origin, other._host = origin, urlsplit(origin).netloc
        other.asked, other._robots = 0, None
        return other

    def get(self, target: bytes) -> Reply:
        """The answer to a GET of `target`.

        Raises Forbidden for what robots.txt keeps to itself, OriginError where nothing answers any more.
        """
        urls = [self.origin + each.decode("latin-1") for each in _readings(target)]
        if self._robots is not None and not all(self._robots.can_fetch(url, AGENT) for url in urls):
            raise Forbidden(target)
        answer = Reply(0)
        for _ in range(_TRIES):
            answer = self._once(target)
            if not answer.failed:
                break
            self._heed(answer)
        return answer

    def read_robots(self) -> None:
        """Fetch robots.txt (RFC 9309). Raises OriginError where the origin does not answer at all."""
        try:
            import protego  # noqa: PLC0415 - the extra `learn`
        except ModuleNotFoundError:
            raise OriginError("robots.txt is read by protego: pip install 'univocal[learn]'") from None
        here = b"/robots.txt"
        answer = self.get(here)
        for _ in range(_REDIRECTS):
            there = led_to(self.origin, answer, here)
            if there is None:
                break
            here, answer = there, self.get(there)
        if answer.status == 0:
            raise OriginError(f"{self.origin} does not answer")
        if answer.failed:  # §2.3.1.4: unreachable: complete disallow
            raise OriginError(
                f"{self.origin}/robots.txt answers {answer.status}, so probe may send no requests (RFC 9309)"
            )
        kind = answer.value(b"content-type")
        readable = answer.status == 200 and not kind.startswith(b"text/html")
        robots = protego.Protego.parse(answer.body.decode("utf-8", "replace") if readable else "")
        delay = robots.crawl_delay(AGENT)
        if delay is not None:
            self._pace.slow_down(float(delay))
        self._robots = robots

    def _once(self, target: bytes) -> Reply:
        self._pace.wait()
        if self._silent >= _SILENCE:
            raise OriginError(f"{self.origin} no longer answers")
        self.asked += 1
        self._silent += 1
        request = httpx.Request(
            "GET",
            self._url,
            headers=[
                ("Host", self._host),
                ("User-Agent", f"{AGENT} (one resource, one URL)"),
                ("Accept", "*/*"),
                ("Accept-Encoding", "identity"),
            ],
            extensions={
                "target": target,
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), 15.0),
            },
        )
        try:
            response = self._transport.handle_request(request)
            try:
                body = self._content(response)
            finally:
                response.close()
        except (httpx.TransportError, httpx.StreamError):
            return Reply(0)
        self._silent = 0
        fields = tuple((name.lower(), value) for name, value in response.headers.raw)
        return _unpacked(Reply(response.status_code, fields, body))

    def _content(self, response: httpx.Response) -> bytes:
        body, end = bytearray(), self._clock() + _LONGEST
        for chunk in response.iter_raw():
            body += chunk
            if self._clock() > end:
                raise httpx.ReadTimeout("the answer does not end")
            if len(body) > _READ:
                return bytes(body[:_READ]) + str(response.headers.get("content-length", "")).encode()
        return bytes(body)

    def _heed(self, answer: Reply) -> None:
        seconds = answer.value(b"retry-after")
        if seconds.isdigit():
            self._sleep(min(float(seconds), _LONGEST_WAIT))


def _unpacked(answer: Reply) -> Reply:
    """The answer without the gzip that an origin server applies unasked, as far as it is compared."""
    if answer.value(b"content-encoding").lower() not in {b"gzip", b"x-gzip"}:
        return answer
    try:
        body = zlib.decompressobj(wbits=31).decompress(answer.body, _READ)
    except zlib.error:
        return answer
    fields = tuple(field for field in answer.fields if field[0] != b"content-encoding")
    return Reply(answer.status, fields, body)


def _readings(target: bytes) -> set[bytes]:
    """The target as it is spelled, and as an origin may read it: robots.txt speaks of the page."""
    path, query = split(target)
    return {target, re.sub(b"//+", b"/", routing_view(path)) + query}


class Remembered:
    """Answers kept in a file, a line each, so that an interrupted run goes on where it was.

    Raises OriginError for a file that belongs to another run.
    """

    def __init__(self, path: Path, about: str) -> None:
        self.answers: dict[tuple[bytes, int], Reply] = {}
        whole = 0
        if path.exists():
            whole = self._read(path, about)
        self._stream = path.open("r+b" if whole else "wb")
        self._stream.truncate(whole)
        self._stream.seek(whole)
        if not whole:
            self._write({"about": about})

    def _read(self, path: Path, about: str) -> int:
        """Take in what is there; bytes up to the last whole line."""
        whole = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                try:
                    entry = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    entry = None
                if number == 0 and (not isinstance(entry, dict) or entry.get("about") != about):
                    raise OriginError(f"{path} belongs to another origin or sample")
                if entry is None:
                    break
                if number and not self._takes(entry):
                    break
                whole += len(line)
        return whole

    def _takes(self, entry: dict[str, object]) -> bool:
        """Take in a line; False for one that is damaged."""
        try:
            fields = tuple((_o(name), _o(value)) for name, value in entry["fields"])  # type: ignore[attr-defined]
            body = zlib.decompress(base64.b64decode(str(entry["body"])))
            answer = Reply(int(entry["status"]), fields, body)  # type: ignore[call-overload]
            self.answers[_o(entry["target"]), int(entry["time"])] = answer  # type: ignore[call-overload]
        except (KeyError, TypeError, ValueError, zlib.error):
            return False
        return True

    def keep(self, target: bytes, number: int, answer: Reply) -> None:
        """Write an answer down."""
        self.answers[target, number] = answer
        self._write(
            {
                "target": target.decode("latin-1"),
                "time": number,
                "status": answer.status,
                "fields": [
                    (name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.fields
                ],
                "body": base64.b64encode(zlib.compress(answer.body, 1)).decode(),
            }
        )

    def _write(self, entry: dict[str, object]) -> None:
        self._stream.write(json.dumps(entry).encode() + b"\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _o(text: object) -> bytes:
    return str(text).encode("latin-1")


def remembering(get: Callable[[bytes], Reply], kept: Remembered | None = None) -> Fetch:
    """A fetch that asks once for each target and number; forbidden targets are answered with status 0."""
    known: dict[tuple[bytes, int], Reply] = dict(kept.answers) if kept else {}

    def fetch(target: bytes, number: int) -> Reply:
        if (target, number) not in known:
            try:
                answer = get(target)
            except Forbidden:
                answer = Reply(0)
            known[target, number] = answer
            if kept is not None and not answer.failed:  # what failed is asked again when the run goes on
                kept.keep(target, number, answer)
        return known[target, number]

    return fetch
