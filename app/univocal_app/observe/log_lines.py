"""The forms of a line of the access log: JSON, combined, cached, and templates of one's own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from string import Formatter
from typing import Final, NamedTuple, TypeAlias

from univocal.engine.outcome import Outcome, Purged
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal.http.tables import remember
from univocal.judge.hits import Hit, Tally
from univocal.uri.target import Canonical
from univocal_app.observe.handled import cache_word

Form: TypeAlias = Callable[[Outcome], bytes]
"""Makes a line of an outcome, with its end."""

# Bytes that end a quoted string or a line, or steer a terminal, as nginx escapes them.
_HOSTILE: Final = re.compile(r"[^ !#-\[\]-~]")

LONGEST: Final = 512  # bytes of a user agent, and of a referrer, that are written
REMEMBERED: Final = 512  # texts of each
PAGES: Final = 4_096  # that are remembered as they are written, each in as many bytes as a user agent at most

# nginx's status for a client that did not wait, for programs that expect three digits.
CLIENT_LEFT: Final = 499


def as_json(outcome: Outcome) -> bytes:
    """One JSON object; bytes outside ASCII and control characters are escaped."""
    received, handling, times = outcome.received, outcome.handling, outcome.times
    noted = outcome.noted
    unusual = (
        handling.stored or handling.collapsed or handling.detail or handling.unstorable or not handling.hit
        or outcome.reasons or outcome.purged or outcome.host or outcome.failure or noted.user
    )  # fmt: skip
    name = f',"request_id":"{received.request_id.decode("ascii")}"' if received.request_id else ""
    return (
        f'{{"time":"{iso(int(times.start * 1000))}"'
        f',"client":{json_address(outcome.client)}'
        f"{json_named(received, outcome.canonical, outcome.site)}"
        f',"status":{outcome.status},"bytes":{outcome.bytes}'
        f',"seconds":{times.total:.6f},"protocol":{json_version(received.version)}'
        f',"user_agent":{json_agents[noted.agent]},"referrer":{json_referrers[noted.referrer]}'
        f"{name},{_handled(outcome) if unusual else USUAL}}}\n"
    ).encode("ascii")


def json_address(client: str | None) -> str:
    """The client's address as a JSON text."""
    return "null" if client is None else quoted(client)


_Named: TypeAlias = tuple[bytes, bytes, bytes | None, str]
"""A method, a target as it was received, the key, the site."""

_named: Final[dict[_Named, str]] = {}


def json_named(received: Received, canonical: Canonical | None, site: str) -> str:
    """The members of the object that say what was asked for: a few pages are asked for most."""
    method, target = received.method, received.target
    named = method, target, None if canonical is None else canonical.key, site
    remembered = _named.get(named)
    if remembered is not None:
        return remembered
    text = (
        f',"method":{quoted(method.decode("latin-1"))}'
        f',"target":{quoted(target.decode("latin-1"))}'
        f',"url":{"null" if canonical is None else quoted(canonical.url.decode("latin-1"))}'
        f',"site":{quoted(site)}'
    )
    if len(text) <= LONGEST:
        if len(_named) >= PAGES:  # as `remember` has it; a call less for each URL that is new
            _named.clear()
        _named[named] = text
    return text


def json_version(version: bytes) -> str:
    """The version of HTTP as a JSON text."""
    return _VERSIONS.get(version) or quoted(f"HTTP/{version.decode('latin-1')}")


# The last members of the object for nearly every hit.
USUAL: Final = '"cache":"hit","stored":false,"storable":null,"collapsed":false,"detail":null,"reasons":[]'
# And for every hit that a store behind memory had.
_SHARED: Final = USUAL.replace('"detail":null', '"detail":"shared"')


class _Texts(dict[bytes | None, str]):
    """The text of a field's value, as far as it is written: most are the same again and again."""

    def __init__(self, write: Callable[[bytes | None], str]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, value: bytes | None) -> str:
        text = self._write(value)
        if value is None or len(value) <= LONGEST:
            remember(self, value, text, REMEMBERED)
        return text


def _text(value: bytes | None) -> str:
    """A field's value as far as it is written; empty if there is none."""
    return "" if value is None else value[:LONGEST].strip(b" \t").decode("latin-1")


def _json_value(value: bytes | None) -> str:
    return "null" if value is None else quoted(_text(value))


json_agents: Final = _Texts(_json_value)
json_referrers: Final = _Texts(_json_value)
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_VERSIONS: Final = {b"1.0": '"HTTP/1.0"', b"1.1": '"HTTP/1.1"', b"2": '"HTTP/2"'}


def _handled(outcome: Outcome) -> str:
    """The last members of the object; `USUAL` are those of nearly every hit."""
    handling, purged = outcome.handling, outcome.purged
    members: dict[str, object] = {
        "cache": cache_word(handling) or None,
        "stored": handling.stored,
        "storable": "stored" if handling.stored else handling.unstorable or None,
        "collapsed": handling.collapsed,
        "detail": handling.reported_detail or None,
        "reasons": outcome.reasons,
    }
    if outcome.noted.user:
        members["user"] = _text(outcome.noted.user)
    if outcome.host:
        members["host"] = outcome.host
    if outcome.personal:
        members["personal"] = [name.decode("latin-1") for name in sorted(outcome.personal)]
    if outcome.server:
        members["server"] = outcome.server
        members["origin"] = {"url": outcome.server.partition(" ")[0], "address": _server(outcome)}
    if outcome.failure is not None:
        url, address, reason, error = outcome.failure
        members["origin"] = {"url": url, "address": address, "reason": reason, "error": error}
    if "origin" in members:
        members["origin_seconds"] = round(outcome.origin_seconds, 6)
    if purged is not None:
        order, count = purged.order, purged.count
        members["purge"] = {"by": order.by, "names": order.names, "soft": order.selector.soft, "count": count}
    return _encode(members)[1:-1]


def as_combined(outcome: Outcome) -> bytes:
    """The "combined" format of Apache httpd and nginx.

    Where the user agent would stand, the line of a purge tells what was purged.
    """
    return f"{_combined(outcome)}{_failure(outcome.failure)}\n".encode("ascii", "backslashreplace")


def _combined(outcome: Outcome) -> str:
    noted = outcome.noted
    agent = written_values[noted.agent] if outcome.purged is None else escaped(_purge(outcome.purged))
    user = address_text(_text(noted.user))
    return (
        f"{address_text(outcome.client)} - {user} [{clf(int(outcome.times.start))}] "
        f'"{request_text(outcome.received)}" {outcome.status or CLIENT_LEFT} {outcome.bytes} '
        f'"{written_values[noted.referrer]}" "{agent}"'
    )


def request_text(received: Received) -> str:
    """The request line, escaped; nginx and Apache httpd write HTTP/2.0 for HTTP/2."""
    method, target = received.method.decode("latin-1"), received.target.decode("latin-1")
    version = "2.0" if received.version == b"2" else received.version.decode("latin-1")
    return escaped(f"{method} {target} HTTP/{version}")


def as_cached(outcome: Outcome) -> bytes:
    """The "combined" format, then host, cache status, seconds, and the origin server's address."""
    host = host_text(_host(outcome))
    cache, server = cache_word(outcome.handling) or "-", _server(outcome)
    fields = f"{host} {cache} {outcome.times.total:.6f} {server}{_failure(outcome.failure)}\n"
    return f"{_combined(outcome)} {fields}".encode("ascii", "backslashreplace")


def host_text(host: str) -> str:
    """A host as one column."""
    return escaped(host).replace(" ", "\\x20") or "-"


def _host(outcome: Outcome) -> str:
    canonical = outcome.canonical
    return outcome.host if canonical is None else canonical.authority.decode("ascii")


def _moment(outcome: Outcome) -> str:
    return iso(int(outcome.times.start * 1000))


def _server(outcome: Outcome) -> str:
    """The address and port of the origin server that answered, or else of the one that failed."""
    if not outcome.server:
        return address_text(outcome.failure.address) if outcome.failure is not None else "-"
    url, _, address = outcome.server.partition(" ")
    if url.startswith("srv+") and address:
        return address  # with the port of its record
    place = url.removeprefix("http://").removeprefix("https://")
    if not address:
        return place
    host = f"[{address}]" if ":" in address else address
    _, colon, port = place.rpartition(":")
    return f"{host}:{port}" if colon else host


def _origin_seconds(outcome: Outcome) -> str:
    is_asked = outcome.server or outcome.failure is not None
    return f"{outcome.origin_seconds:.6f}" if is_asked else ""


def address_text(client: str | None) -> str:
    """The client as one column: what a server in front of the middleware says of it may be anything."""
    return escaped(client).replace(" ", "\\x20") if client else "-"


written_values: Final = _Texts(lambda value: escaped(_text(value)) or "-")


def _failure(failure: Failure | None) -> str:
    """One field more: the origin server's failure, which nginx would write to its error log."""
    if failure is None:
        return ""
    url, address, reason, error = failure
    text = f"origin {url} at {address or '-'}: {reason}: {error}"
    return f' "{escaped(text)}"'


def _purge(purged: Purged) -> str:
    order, count = purged.order, "?" if purged.count is None else purged.count
    names = " ".join(order.names)
    return f"{'soft purge' if order.selector.soft else 'purge'} by {order.by}: {names}: {count}"


def escaped(text: str) -> str:
    """A text between quotation marks: whatever could end it or the line is written as hexadecimal digits."""
    return _HOSTILE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    octet = ord(match[0])
    return f"\\x{octet:02X}" if octet < 0x100 else match[0]


class TemplateError(ValueError):
    """A template cannot be; the text says what is allowed."""


# The values of a template's names, as texts that are not escaped yet; None is "-".
_NAMES: Final[Mapping[str, Callable[[Outcome], object]]] = {
    "time": _moment,
    "client": lambda outcome: outcome.client,
    "user": lambda outcome: _text(outcome.noted.user),
    "method": lambda outcome: outcome.received.method.decode("latin-1"),
    "target": lambda outcome: outcome.received.target.decode("latin-1"),
    "url": lambda outcome: outcome.canonical and outcome.canonical.url.decode("latin-1"),
    "site": lambda outcome: outcome.site,
    "host": _host,
    "status": lambda outcome: outcome.status,
    "bytes": lambda outcome: outcome.bytes,
    "seconds": lambda outcome: f"{outcome.times.total:.6f}",
    "protocol": lambda outcome: f"HTTP/{outcome.received.version.decode('latin-1')}",
    "user_agent": lambda outcome: _text(outcome.agent),
    "referrer": lambda outcome: _text(outcome.referrer),
    "cache": lambda outcome: cache_word(outcome.handling),
    "stored": lambda outcome: str(outcome.handling.stored).lower(),
    "storable": lambda outcome: "stored" if outcome.handling.stored else outcome.handling.unstorable,
    "collapsed": lambda outcome: str(outcome.handling.collapsed).lower(),
    "detail": lambda outcome: outcome.handling.reported_detail,
    "reasons": lambda outcome: ",".join(outcome.reasons),
    "server": lambda outcome: outcome.server,
    "request_id": lambda outcome: outcome.received.request_id.decode("ascii"),
    "origin_seconds": _origin_seconds,
    "origin": lambda outcome: _server(outcome).removeprefix("-"),
    "personal": lambda outcome: ",".join(name.decode("latin-1") for name in sorted(outcome.personal)),
    "origin.url": lambda outcome: outcome.failure and outcome.failure.origin,
    "origin.address": lambda outcome: outcome.failure and outcome.failure.address,
    "origin.reason": lambda outcome: outcome.failure and outcome.failure.reason,
    "origin.error": lambda outcome: outcome.failure and outcome.failure.error,
    "purge": lambda outcome: outcome.purged and _purge(outcome.purged),
}
_FORMATS: Final[Mapping[str, Form]] = {"json": as_json, "combined": as_combined, "cached": as_cached}


def form_of(setting: str) -> Form:
    """The form that `access_log_format` names, or that its template describes. Raises TemplateError."""
    if setting in _FORMATS:
        return _FORMATS[setting]
    if "{" not in setting:
        example = "{client} {url}"
        raise TemplateError(f'{", ".join(_FORMATS)}, or a template with names in braces: "{example}"')
    if any(not letter.isprintable() and letter != "\t" for letter in setting):
        raise TemplateError("a template of one line, without control characters")
    parts = list[tuple[str, Callable[[Outcome], object] | None]]()
    try:
        parsed = list(Formatter().parse(setting))
    except ValueError:
        raise TemplateError("a template in which each name is in braces; {{ and }} are braces") from None
    for literal, name, spec, conversion in parsed:
        if name is not None and (name not in _NAMES or spec or conversion):
            raise TemplateError(f"a template of the names {', '.join(_NAMES)}")
        parts.append((literal, None if name is None else _NAMES[name]))
    return _templated(parts)


def _templated(parts: Sequence[tuple[str, Callable[[Outcome], object] | None]]) -> Form:
    def line(outcome: Outcome) -> bytes:
        texts = list[str]()
        for literal, value in parts:
            texts.append(literal)
            if value is not None:
                text = value(outcome)
                texts.append("-" if text in (None, "") else escaped(str(text)))
        return ("".join(texts) + "\n").encode("utf-8", "backslashreplace")

    return line


@lru_cache(maxsize=2)
def iso(millisecond: int) -> str:
    """The time, by milliseconds since the epoch."""
    second, rest = divmod(millisecond, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"  # strftime's %b would follow the locale


@lru_cache(maxsize=2)
def clf(second: int) -> str:
    """The time as the common log format has it, by seconds since the epoch."""
    moment = time.gmtime(second)
    month = _MONTHS[3 * moment.tm_mon - 3 : 3 * moment.tm_mon]
    return f"{moment.tm_mday:02d}/{month}/{time.strftime('%Y:%H:%M:%S', moment)} +0000"


LONGEST_ADDRESS: Final = 64  # characters of a client's address that is remembered
LONGEST_PAGE: Final = 1024  # characters of a page's part of a line that is remembered


class PageParts(NamedTuple):
    """The parts of a line that the hits of one stored response by one spelling have in common.

    They hold for one `status`, for one number of bytes (`octets`), and for one `version` of HTTP.
    """

    status: int
    octets: int
    version: bytes
    before: str
    after: str


class HitLines:
    """Makes the line of a hit as `form` makes it of the hit's Outcome.

    It makes once the parts that the hits of one page, one client or one moment have in common.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._is_json, self._is_cached = form is as_json, form is as_cached
        self._is_joined = form in (as_json, as_combined, as_cached)
        self._pages: dict[Tally, PageParts] = {}
        self._addresses: dict[str, str] = {}
        self._at = -1  # the moment that `_moment` tells
        self._moment = ""

    def line(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line, with its end; `begun` is in seconds since the epoch."""
        plan, values = hit.plan, hit.values
        if not self._is_joined or plan.credentials >= 0:
            return self._form(Outcome.of_hit(hit, received, begun, seconds))
        page, address = self._page(hit, received), self._address(hit.client)
        if not self._is_json:
            if int(begun) != self._at:
                self._at = int(begun)
                self._moment = f' - - [{clf(self._at)}] "'
            agent = "-" if plan.agent < 0 else written_values[values[plan.agent]]
            referrer = "-" if plan.referrer < 0 else written_values[values[plan.referrer]]
            end = f"{seconds_text(seconds)} -\n" if self._is_cached else "\n"
            line = f'{address}{self._moment}{page.before}{referrer}" "{agent}"{page.after}{end}'
            return line.encode("ascii")
        millisecond = int(begun * 1000)
        if millisecond != self._at:
            self._at, self._moment = millisecond, f'{{"time":"{iso(millisecond)}","client":'
        agent = "null" if plan.agent < 0 else json_agents[values[plan.agent]]
        referrer = "null" if plan.referrer < 0 else json_referrers[values[plan.referrer]]
        name, request_ids = "", hit.tally.request_ids
        if request_ids is not None:
            name = f',"request_id":"{request_ids.planned(received, plan.names, values).decode("ascii")}"'
        handled = _SHARED if hit.hit_fields.handling.detail else USUAL
        return (
            f"{self._moment}{address}{page.before}{seconds_text(seconds)}"
            f'{page.after}{agent},"referrer":{referrer}{name},{handled}}}\n'
        ).encode("ascii")

    def _page(self, hit: Hit, received: Received) -> PageParts:
        page, version = self._pages.get(hit.tally), received.version
        status, octets = hit.stored.status, len(hit.stored.body)
        if page is not None and page.octets == octets and page.status == status and page.version == version:
            return page
        if self._is_json:
            named = json_named(received, hit.canonical, hit.canonical.site.name)
            before = f'{named},"status":{status},"bytes":{octets},"seconds":'
            after = f',"protocol":{json_version(version)},"user_agent":'
        else:
            before = f'{request_text(received)}" {status} {octets} "'
            host = hit.canonical.authority.decode("ascii")
            after = f" {host_text(host)} hit " if self._is_cached else ""
        page = PageParts(status, octets, version, before, after)
        if len(before) + len(after) <= LONGEST_PAGE:
            remember(self._pages, hit.tally, page, PAGES)
        return page

    def _address(self, client: str | None) -> str:
        text = None if client is None else self._addresses.get(client)
        if text is not None:
            return text
        if self._is_json:
            text = json_address(client)
        else:
            text = address_text(client).encode("ascii", "backslashreplace").decode("ascii")
        if client is not None and len(client) <= LONGEST_ADDRESS:
            remember(self._addresses, client, text, PAGES)
        return text


_MICROSECONDS: Final = [f"0.{number:06d}" for number in range(1000)]


def seconds_text(seconds: float) -> str:
    """Six digits behind the point, as `format` rounds them, which takes longer."""
    micros = seconds * 1e6
    if 0.0 < micros < 999.0:
        whole = int(micros)
        rest = micros - whole
        # The product may be off by its last bit, so what lies near the middle is left to `format`.
        if rest < 0.499:
            return _MICROSECONDS[whole]
        if rest > 0.501:
            return _MICROSECONDS[whole + 1]
    return f"{seconds:.6f}"
