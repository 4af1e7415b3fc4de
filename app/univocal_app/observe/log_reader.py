"""Access logs and lists of URLs, line by line: what was asked, by whom, and how it was answered."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from univocal.http.grammar import parse_authority

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class LogError(Exception):
    """A log that cannot be read."""


class LogEntry(NamedTuple):
    """One request of a log, or `times` like it; b"" and -1 are unknown, `time` is as it is written."""

    host: bytes
    target: bytes
    method: bytes
    status: int
    size: int
    time: bytes
    client: bytes
    times: int = 1


# host ident user [time] "request" status bytes; before it a virtual host, as in vhost_combined.
_COMBINED: Final = re.compile(
    rb"(\S+) (\S+) (\S+) (?:([^\[]*?) )?\[([^\]]*)\] \"((?>(?:[^\"\\]|\\.)*))\" (\d{3}) (\d{1,18}(?!\d)|-)"
)
# docker compose writes the service's name before each line.
_SERVICE: Final = re.compile(rb"[\w.-]+ +\| ")
# Nginx Proxy Manager: [time] … status - method scheme host "target" [Client address] [Length bytes]
_PROXY_MANAGER: Final = re.compile(
    rb"\[(?P<time>[^\]]*)\] (?:\S+ )*?(?P<status>\d{3}) - (?P<method>[A-Z]+) https?(?: |://)"
    rb"(?P<host>[^\s\"]+) \"(?P<target>[^\"]*)\"(?: \[Client (?P<client>[^\]]*)\])?"
    rb"(?: \[Length (?P<size>\d{1,18}|-)\])?"
)
# HAProxy's `option httplog`, behind syslog's own: address:port [time] frontend backend/server times status …
# {host} "request". The first captured field is the host, if it is one.
_HAPROXY: Final = re.compile(
    rb"(?:.*?\s)?(?P<client>[0-9a-fA-F:.]+):\d+ \[(?P<time>[^\].]*)[^\]]*\] \S+ \S+/\S+ [-+\d/]+ "
    rb"(?P<status>\d{3}|-1) \+?(?P<size>\d{1,18}) \S+ \S+ \S+ \S+ \S+ "
    rb"(?:\{(?P<host>[^}|\s]*)[^}]*\} )?(?:\{[^}]*\} )?\"(?P<method>[A-Z]+) (?P<target>\S+)[^\"]*\""
)
# An Application Load Balancer of AWS: type time balancer client target, three times, two statuses, two sizes,
# "request"
_BALANCER: Final = re.compile(
    rb"(?:https?|h2|grpcs|wss?) (?P<time>\S+) \S+ (?P<client>\S+?)(?::\d+)? \S+ (?:-?[\d.]+ ){3}"
    rb"(?P<status>\d{3}|-) \S+ \d+ (?P<size>\d{1,18}) \"(?P<method>[A-Z]+) (?P<target>\S+)[^\"]*\""
)
_ADDRESS: Final = re.compile(rb"[0-9a-fA-F:.]+")
_ESCAPED: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))")
# Apache httpd writes these letters for bytes that would break a line; it and nginx write "\\xHH" for others.
_LETTERS: Final = {b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_ABSOLUTE: Final = re.compile(rb"(?i)https?://([^/?#]*)")

_LONGEST: Final = 1 << 20  # bytes of a line; what is longer is skipped, and never held as a whole
_LARGEST: Final = 1 << 60  # what a log tells beyond is no size

_TARGETS: Final = ("request_uri", "target", "uri", "request", "url", "path", "RequestPath")
_HOSTS: Final = ("host", "http_host", "vhost", "server_name", "RequestHost")
_METHODS: Final = ("method", "request_method", "RequestMethod")
_STATUSES: Final = ("status", "DownstreamStatus")
_SIZES: Final = ("bytes", "body_bytes_sent", "bytes_sent", "size", "DownstreamContentSize")
_TIMES: Final = ("time", "time_iso8601", "time_local", "@timestamp", "timestamp", "ts", "msec", "StartUTC")
_CLIENTS: Final = ("client", "remote_addr", "client_ip", "remote_ip", "ClientHost")


def entry_of_combined(line: bytes) -> LogEntry | None:
    """A line of the common or combined format of Apache httpd and nginx."""
    match = _COMBINED.match(line)
    if match is None:
        return None
    first, second, _, fourth, time, request, status, size = match.groups()
    vhost = fourth is not None and _ADDRESS.fullmatch(second) is not None
    words = request.split(b" ")
    if len(words) < 2:
        return None
    target = b"%20".join(words[1:-1]) if len(words) > 3 else words[1]
    if b"\\" in target:
        target = _ESCAPED.sub(_unescaped, target)
    host, target = _located(target, host_of(first) if vhost else b"")
    client = second if vhost else first
    return LogEntry(host, target, words[0], int(status), -1 if size == b"-" else int(size), time, client)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escape[1].decode()) if escape[1] else _LETTERS.get(escape[2], escape[2])


@lru_cache(maxsize=1024)
def host_of(text: bytes) -> bytes:
    """A host as others are compared with it, without the port that its scheme has; b"" for what is none."""
    authority = parse_authority(text)
    if authority is None:
        return b""
    name, port = authority
    return name if port in {None, 80, 443} else b"%b:%d" % (name, port)


def _located(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """The host and the target in origin form; an absolute form brings its own host."""
    if target[:1] == b"/":
        return host, target
    if absolute := _ABSOLUTE.match(target):
        rest = target[absolute.end() :]
        return host_of(absolute[1].rpartition(b"@")[2]), rest if rest.startswith(b"/") else b"/" + rest
    return host, target


def entry_of_json(line: bytes) -> LogEntry | None:
    """A JSON object with names that univocal, nginx and Caddy give."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    if isinstance(entry.get("request"), dict):
        entry = {**entry, **entry.pop("request")}
    text = _first(entry, _TARGETS)
    if not isinstance(text, str):
        return None
    words = text.split(" ")
    method = _first(entry, _METHODS)
    if len(words) == 3:
        method, text = method or words[0], words[1]
    host = _first(entry, _HOSTS) or _host_in(entry.get("url")) or entry.get("site") or ""
    host, target = _located(_octets(text), host_of(_octets(str(host))))
    named = next((name for name in _STATUSES if name in entry), None)
    return LogEntry(
        host,
        target,
        method=_octets(str(method or "GET")),
        status=200 if named is None else _number(entry[named], 0),
        size=_number(_first(entry, _SIZES), -1),
        time=_octets(str(_first(entry, _TIMES) or "")),
        client=_octets(str(_first(entry, _CLIENTS) or "")),
    )


def _octets(text: str) -> bytes:
    # univocal writes bytes as latin-1; whatever is no latin-1 came from a program that wrote UTF-8.
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _first(entry: dict[str, Any], names: Iterable[str]) -> Any:
    plain = (entry[name] for name in names if isinstance(entry.get(name), str | int | float))
    return next((value for value in plain if value != ""), None)


def _host_in(url: object) -> str:
    match = _ABSOLUTE.match(url.encode("latin-1", "replace")) if isinstance(url, str) else None
    return match[1].decode("latin-1") if match else ""


def _number(value: object, otherwise: int) -> int:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if 0 <= number < _LARGEST else otherwise


def entry_of_url(line: bytes) -> LogEntry | None:
    """A URL or a target alone."""
    words = line.split()
    if not words:
        return None
    host, target = _located(words[0].partition(b"#")[0], b"")
    return LogEntry(host, target, b"GET", 200, -1, b"", b"") if target.startswith(b"/") else None


def entry_of_count(line: bytes) -> LogEntry | None:
    """A line of `uniq -c`: how often a URL was requested, and the URL."""
    count, _, url = line.partition(b" ")
    entry = entry_of_url(url)
    return entry._replace(times=int(count)) if entry and re.fullmatch(rb"\d{1,18}", count) else None


def _reader(form: re.Pattern[bytes], zone: bytes = b"") -> Callable[[bytes], LogEntry | None]:
    """A reader of lines of a form, whose groups are called as an entry's values; `zone` is that of times."""

    def entry(line: bytes) -> LogEntry | None:
        match = form.match(line)
        if match is None:
            return None
        named = match.groupdict(b"")
        host, target = _located(named["target"], host_of(named.get("host", b"")))
        status, size = _number(named["status"], 0), _number(named["size"], -1)
        return LogEntry(host, target, named["method"], status, size, named["time"] + zone, named["client"])

    return entry


entry_of_proxy_manager, entry_of_balancer = _reader(_PROXY_MANAGER), _reader(_BALANCER)
entry_of_haproxy: Final = _reader(_HAPROXY, b" +0000")


def entry_of_any(line: bytes) -> LogEntry | None:
    """A line in whichever format it is."""
    service = _SERVICE.match(line)
    line = line[service.end() :] if service else line
    if line.startswith(b"{"):
        return entry_of_json(line)
    if line.startswith(b"/") or _ABSOLUTE.match(line):
        return entry_of_url(line)
    readers = (entry_of_combined, entry_of_proxy_manager, entry_of_balancer, entry_of_haproxy)
    return next((entry for read in readers if (entry := read(line)) is not None), None)


COUNTED: Final = "counted"
FORMATS: Final[dict[str, Callable[[bytes], LogEntry | None]]] = {
    "auto": entry_of_any,
    "alb": entry_of_balancer,
    "combined": entry_of_combined,
    COUNTED: entry_of_count,
    "haproxy": entry_of_haproxy,
    "json": entry_of_json,
    "proxy-manager": entry_of_proxy_manager,
    "urls": entry_of_url,
}


def entries(
    paths: Iterable[str], form: str = "auto", unread: Callable[[bytes], None] = lambda _: None
) -> Iterator[LogEntry | None]:
    """Every line of the logs, "-" being standard input; None for one that is no request.

    `unread` hears of each line that the format does not read. Raises LogError for a format that there is not,
    and for a file that cannot be read to its end.
    """
    if form not in FORMATS:
        raise LogError(f"there is no format {form!r}; the formats are {', '.join(FORMATS)}")
    parse = FORMATS[form]
    for path in paths:
        with opened(path) as stream:
            for line in lines(stream):
                if line is None:
                    yield None
                elif (text := line.strip()) and not text.startswith(b"#"):
                    entry = parse(text)
                    if entry is None:
                        unread(text)
                    yield entry


def lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one of more than a MiB, which is no request."""
    inside = False
    for line in iter(partial(stream.readline, _LONGEST), b""):
        whole = len(line) < _LONGEST or line.endswith(b"\n")
        if not inside:
            yield line if whole else None
        inside = not whole


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A log as it reads uncompressed, whatever its name says.

    Raises LogError, also for what fails while it is read.
    """
    try:
        with cast("BinaryIO", sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
            yield _unpacked(stream, path)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}") from None
    except _broken() as error:
        raise LogError(f"{path}: {error}") from None


def _broken() -> tuple[type[Exception], ...]:
    """The errors that compressed files are found damaged by."""
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error)
    return (*errors, import_module("zstandard").ZstdError) if find_spec("zstandard") else errors


def _unpacked(stream: BinaryIO, path: str) -> BinaryIO:
    magic = cast("io.BufferedReader[Any]", stream).peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return cast("BinaryIO", gzip.open(stream, "rb"))
    if magic != b"\x28\xb5\x2f\xfd":
        return stream
    if find_spec("zstandard") is None:
        raise LogError(f"{path}: needs zstandard (pip install 'univocal[zstd]')")
    return io.BufferedReader(_Zstandard(stream), 256 << 10)


class _Zstandard(io.RawIOBase):
    """Zstandard frames, one after the other, read uncompressed. Raises EOFError where the last one is cut.

    zstandard's own reader takes a file that ends anywhere for whole.
    """

    _TAKEN = 512  # bytes at a time: of one byte 32 KiB may come, and no more than this is held

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._maker: Any = import_module("zstandard").ZstdDecompressor()
        self._frame: Any = None
        self._packed = self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, room: WriteableBuffer) -> int:
        while not self._plain and (packed := self._packed or self._stream.read(self._TAKEN)):
            self._frame = self._frame or self._maker.decompressobj()
            self._plain = self._frame.decompress(packed)
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        if not self._plain and self._frame is not None:
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        view = memoryview(room).cast("B")
        plain = self._plain[: len(view)]
        view[: len(plain)] = plain
        self._plain = self._plain[len(plain) :]
        return len(plain)


_CLF: Final = "%d/%b/%Y:%H:%M:%S %z"


@lru_cache(maxsize=64)
def seconds(time: bytes) -> float | None:
    """Seconds since the epoch of a time as logs write it: common log format, ISO 8601, or a number."""
    text = time.decode("latin-1")
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return number if math.isfinite(number) else None
    for form in (_CLF, ""):
        try:
            moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except ValueError:
            continue
        return moment.timestamp() if moment.tzinfo else moment.replace(tzinfo=UTC).timestamp()
    return None
