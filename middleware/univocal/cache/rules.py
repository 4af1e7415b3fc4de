"""The operator of one site sets rules for the cache, beyond RFC 9111: a frozen value per site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from univocal.cache.personal import ORDINARY, PERSONAL
from univocal.http.errors import ConfigurationError
from univocal.http.grammar import compile_globs, is_token
from univocal.http.intermediary import HOP_BY_HOP, METHOD_OVERRIDES, speaks_for_another
from univocal.http.messages import (
    CODINGS,
    ENCODINGS,
    RETRIEVAL,
    Fields,
    Request,
    cookie_names,
    first,
    values,
    without,
)
from univocal.http.settings import SettingError, flag, one_of, seconds, setting, settings_in, texts

# The request fields that the policy reads whatever the rules: a GET or HEAD with none of them is plain, and
# is answered with the stored response as it is.
READS: Final = frozenset(
    {
        b"cache-control",
        b"content-length",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"pragma",
        b"range",
        b"transfer-encoding",
    }
)

# A browser keeps a few hundred for a site. With more than these a request goes past the cache where the rules
# are about cookies: to read their names would keep others waiting.
_MOST_COOKIES: Final = 1000
# Cookies of a preference, which profiles name: that says nothing of the cookies that identify a client.
_PREFERENCES: Final = frozenset(("django_language",))
# The fields that are no part of a key: the request is judged by them, or they are written anew.
_UNKEYED: Final = (
    READS
    | PERSONAL
    | HOP_BY_HOP
    | METHOD_OVERRIDES
    | {b"expect", b"host", b"max-forwards", b"via", *ENCODINGS}
)
_COMPRESSING: Final = tuple(coding.decode() for coding in CODINGS)


def _seconds(value: object, place: str = "") -> int:
    try:
        whole = seconds(value)
    except ValueError:
        whole = None
    if type(whole) is int and whole >= 0:
        return whole
    allowed = 'an integer that is greater than or equal to 0, or a text such as "15s", "5m", "2h" or "1d"'
    raise SettingError(place, value, allowed)


def _paths(value: object) -> tuple[str, ...]:
    globs = texts(value)
    for number, glob in enumerate(globs):
        if not glob.startswith(("/", "*", "?")):
            allowed = f'a glob on the path, which begins with "/" or "*", such as "/{glob}"'
            raise SettingError(f"[{number}]", glob, allowed)
    return globs


def _codings(value: object) -> tuple[bytes, ...]:
    names = texts(value)
    for number, name in enumerate(names):
        if name not in _COMPRESSING or name in names[:number]:
            allowed = f"{', '.join(map(repr, _COMPRESSING[:-1]))} and {_COMPRESSING[-1]!r}, each once"
            raise SettingError(f"[{number}]", name, allowed)
    return tuple(name.encode() for name in names)


def _field_names(value: object) -> tuple[bytes, ...]:
    names = texts(value)
    for number, name in enumerate(names):
        if not (name.isascii() and is_token(name.encode())):
            allowed = 'the name of a field, such as "CDN-Cache-Control"'
            raise SettingError(f"[{number}]", name, allowed)
    return tuple(name.lower().encode() for name in names)


def _ordinary_fields(value: object) -> tuple[bytes, ...]:
    names = _field_names(value)
    for number, name in enumerate(names):
        if name in PERSONAL:
            raise SettingError(f"[{number}]", name.decode(), "no field that identifies a client")
    return names


def _key(value: object) -> tuple[str, ...]:
    for number, part in enumerate(texts(value)):
        kind, _, name = part.partition(":")
        low = name.lower().encode("ascii", "replace")
        if kind != "header" or not is_token(low) or low in _UNKEYED or speaks_for_another({low}):
            allowed = (
                '"header:NAME" with a field that concerns neither framing, the method, credentials, cookies, '
                "the cache nor the sender"
            )
            raise SettingError(f"[{number}]", part, allowed)
    return tuple(texts(value))


def _seconds_by_status(value: object) -> dict[int, float]:
    if not isinstance(value, dict):
        raise SettingError("", value, "a table")
    for status in value:
        if not re.fullmatch(r"[2-5][0-9]{2}", status):
            raise SettingError(f".{status}", status, 'a status code as key, such as "404"')
    return {int(status): _seconds(limit, f".{status}") for status, limit in value.items()}


_setting: Final = partial(setting, keeps=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of the cache for a profile, a site or a route; times are seconds.

    - `ttl` and `ttl_by_status` give a lifetime to responses without explicit freshness.
    - `heuristic` does so to responses with Last-Modified that answer ordinary requests. The fields of these
      are browsers' own or in `ordinary_fields` (lower case).
    - These lifetimes apply only to requests whose fields identify no client.
    - `errors`: with "safe", the cache stores only 404, 410 and the errors in `ttl_by_status`. With "explicit"
      it stores each error that has explicit freshness, except errors about one request.
    - `bypass` are globs on the path: such requests bypass the cache.
    - `bypass_cookies`, `strip_cookies` and `keep_cookies` are globs on cookie names ("*" any run of
      characters, "?" one). A request with one of the first bypasses the cache. The second are removed from
      requests. With the third, all others are removed, except the first.
    - `cookies`: with "ignore", a GET or HEAD loses all cookies, and its response every Set-Cookie, before the
      cache decides.
    - `accept_encoding`: with "reduce", the Accept-Encoding of a GET or HEAD names which of zstd, br and gzip
      it takes. With `compress`, text is sent in the first of these codings that a client takes.
    - `set_cookie`: a response with Set-Cookie is stored "never"; with "public", if it is public or has
      s-maxage; with "explicit", if it has explicit freshness.
    - `strip_tags` hides the fields that name tags from clients; stored responses keep them.
    - `targeted` are our targeted cache control fields: the first valid one wins (RFC 9213).
    - `key` names parts of the key beside the URL: "header:NAME". Each response is for requests with the same
      value, and says so in Vary. Such a field reaches the origin server, even one that is removed by default.

    Raises ConfigurationError for an invalid value.
    """

    ttl: float = _setting(0, _seconds)
    ttl_by_status: Mapping[int, float] = _setting({}, _seconds_by_status)
    heuristic: bool = _setting(False, flag)
    ordinary_fields: tuple[bytes, ...] = _setting([], _ordinary_fields)
    set_cookie: Literal["never", "public", "explicit"] = _setting(
        "never", one_of("never", "public", "explicit")
    )
    errors: Literal["safe", "explicit"] = _setting("safe", one_of("safe", "explicit"))
    grace: float = _setting(0, _seconds)
    bypass: tuple[str, ...] = _setting([], _paths)
    bypass_cookies: tuple[str, ...] = _setting([], texts)
    cookies: Literal["honour", "ignore"] = _setting("honour", one_of("honour", "ignore"))
    strip_cookies: tuple[str, ...] = _setting([], texts)
    keep_cookies: tuple[str, ...] = _setting([], texts)
    accept_encoding: Literal["reduce", "keep"] = _setting("reduce", one_of("reduce", "keep"))
    compress: tuple[bytes, ...] = _setting([], _codings)
    strip_tags: bool = _setting(False, flag)
    client_directives: Literal["honour", "ignore"] = _setting("honour", one_of("honour", "ignore"))
    targeted: tuple[bytes, ...] = _setting(["CDN-Cache-Control"], _field_names)
    key: tuple[str, ...] = _setting([], _key)
    own_fields: frozenset[bytes] = frozenset()  # request fields that the operator sets: they are ordinary
    reads: frozenset[bytes] = field(init=False, repr=False, compare=False)
    ordinary: frozenset[bytes] = field(init=False, repr=False, compare=False)
    keyed: frozenset[bytes] = field(init=False, repr=False, compare=False)  # the fields that `key` names
    removes_cookies: bool = field(init=False, repr=False, compare=False)  # some are removed from requests
    has_forms: bool = field(init=False, repr=False, compare=False)  # a client gets the form that it takes
    # The cookies that matter are named as those that go past the cache: no other has a say in a response.
    tells_cookies: bool = field(init=False, repr=False, compare=False)
    _bypass: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)
    _bypass_cookies: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)
    _strip_cookies: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)
    _keep_cookies: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # what may be given; the attributes have one type each

        def __init__(
            self,
            ttl: float | str = 0,
            ttl_by_status: Mapping[int, float | str] = {},
            heuristic: bool = False,
            ordinary_fields: Iterable[str | bytes] = (),
            set_cookie: Literal["never", "public", "explicit"] = "never",
            errors: Literal["safe", "explicit"] = "safe",
            grace: float | str = 0,
            bypass: Iterable[str] = (),
            bypass_cookies: Iterable[str] = (),
            cookies: Literal["honour", "ignore"] = "honour",
            strip_cookies: Iterable[str] = (),
            keep_cookies: Iterable[str] = (),
            accept_encoding: Literal["reduce", "keep"] = "reduce",
            compress: Iterable[str | bytes] = (),
            strip_tags: bool = False,
            client_directives: Literal["honour", "ignore"] = "honour",
            targeted: Iterable[str | bytes] = (b"cdn-cache-control",),
            key: Iterable[str] = (),
            own_fields: frozenset[bytes] = frozenset(),
        ) -> None: ...

    def __post_init__(self) -> None:
        for key, each in SETTINGS.items():
            given = getattr(self, key)
            try:
                value = each.read(_as_written(given))
            except SettingError as error:
                raise ConfigurationError("Rules", key + error.place, error.value, error.allowed) from None
            if isinstance(value, tuple) or _has_text(given) != _has_text(value):
                object.__setattr__(self, key, value)  # a tuple of a list, seconds of a text
        removes_cookies = bool(self.strip_cookies or self.keep_cookies) or self.cookies == "ignore"
        about_cookies = removes_cookies or self.bypass_cookies
        object.__setattr__(self, "reads", READS | ({b"cookie"} if about_cookies else set()))
        keyed = frozenset([part.partition(":")[2].lower().encode() for part in self.key])
        object.__setattr__(self, "keyed", keyed)
        own = set(self.ordinary_fields) | self.own_fields | keyed
        object.__setattr__(self, "ordinary", ORDINARY | own - PERSONAL)
        object.__setattr__(self, "removes_cookies", removes_cookies)
        object.__setattr__(self, "has_forms", bool(self.compress))
        telling = set(self.bypass_cookies) - _PREFERENCES
        object.__setattr__(self, "tells_cookies", bool(telling) and not self.keep_cookies)
        object.__setattr__(self, "_bypass", _globs(self.bypass))
        # In any case, as nginx and PHP have it: a session of another spelling is a session.
        bypassing = compile_globs(map(str.encode, self.bypass_cookies), ignores_case=True)
        object.__setattr__(self, "_bypass_cookies", bypassing)
        object.__setattr__(self, "_strip_cookies", _globs(self.strip_cookies))
        # A cookie that sends a request past the cache matters to its answer.
        kept = _globs(self.keep_cookies)
        if kept is not None and bypassing is not None:
            kept = re.compile(kept.pattern + b"|" + bypassing.pattern, re.DOTALL)
        object.__setattr__(self, "_keep_cookies", kept)

    def __reduce__(self) -> tuple[type[Rules], tuple[object, ...]]:
        """Be made anew in another process: a frozen class cannot be filled there."""
        return Rules, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    @classmethod
    def read(cls, settings: Mapping[str, Any], source: str = "rules") -> Rules:
        """Make rules of settings as a file has them. Raises ConfigurationError, which names `source`."""
        values = {}
        for key, value in settings.items():
            if key not in SETTINGS:
                allowed = "the keys " + ", ".join(SETTINGS)
                raise ConfigurationError(source, f"cache.{key}", value, allowed)
            try:
                values[key] = SETTINGS[key].read(value)
            except SettingError as error:
                place = f"cache.{key}{error.place}"
                raise ConfigurationError(source, place, error.value, error.allowed) from None
        return cls(**values)

    def changed(self) -> dict[str, Any]:
        """The settings that are not the default."""
        settings = {name: (getattr(self, name), getattr(DEFAULTS, name)) for name in SETTINGS}
        return {name: value for name, (value, default) in settings.items() if value != default}

    @property
    def looks_at_cookies(self) -> bool:
        """The answer to a request may depend on its cookies."""
        return self.removes_cookies or bool(self.bypass_cookies)

    @property
    def changes_messages(self) -> bool:
        """Requests or responses go on otherwise than they came."""
        return self.removes_cookies or self.has_forms or self.strip_tags or bool(self.keyed)

    @property
    def gives_lifetimes(self) -> bool:
        """Responses without a lifetime of their own may get one."""
        return bool(self.ttl or self.ttl_by_status or self.heuristic)

    def bypasses_path(self, target: bytes) -> bool:
        """Requests for this target bypass the cache."""
        return self._bypass is not None and bool(self._bypass.fullmatch(target.partition(b"?")[0]))

    def bypasses_cookies(self, fields: Fields) -> bool:
        """A cookie of the request sends it past the cache, or it has too many for their names to be read."""
        pattern = self._bypass_cookies
        if pattern is None and not self.removes_cookies:
            return False
        if _has_too_many_cookies(fields):
            return True
        if pattern is None:
            return False
        # Origin servers and nginx take "," between cookies, too: what may be a session is one.
        lines = [(b"cookie", line.replace(b",", b";")) for line in values(fields, b"cookie")]
        return any(pattern.fullmatch(name) for name in cookie_names(lines))

    def ignores_cookies(self, method: bytes) -> bool:
        """Cookies of requests with this method go no further, nor do those that their responses set."""
        return self.cookies == "ignore" and method in RETRIEVAL

    def strips(self, cookie: bytes) -> bool:
        """The cookie of this name is removed from requests."""
        if self._strip_cookies is not None and self._strip_cookies.fullmatch(cookie):
            return True
        return self._keep_cookies is not None and not self._keep_cookies.fullmatch(cookie)


SETTINGS: Final = settings_in(Rules)
"""The settings that files may have."""


def _as_written(value: object) -> object:
    """A value as a file has it, where times are whole seconds."""
    match value:
        case tuple() | list():
            return [_as_written(each) for each in value]
        case bytes():
            return value.decode("latin-1")
        case Mapping():
            return {str(key): _as_written(each) for key, each in value.items()}
        case float() if abs(value) < float("inf"):
            return int(value // 1)
        case _:
            return value


def _has_text(value: object) -> bool:
    return any(isinstance(each, str) for each in (value.values() if isinstance(value, dict) else (value,)))


def _globs(patterns: Iterable[str]) -> re.Pattern[bytes] | None:
    return compile_globs(pattern.encode() for pattern in patterns)


def _has_too_many_cookies(fields: Fields) -> bool:
    return sum(value.count(b";") + 1 for value in values(fields, b"cookie")) > _MOST_COOKIES


def strip_cookies(request: Request, rules: Rules) -> Request:
    """The request without the cookies that the rules strip; this comes before every decision.

    One with too many cookies keeps them, and goes past the cache.
    """
    if not rules.removes_cookies or first(request.fields, b"cookie") is None:
        return request
    if rules.ignores_cookies(request.method):
        return replace(request, fields=without(request.fields, (b"cookie",)))
    if not (rules.strip_cookies or rules.keep_cookies):
        return request
    if _has_too_many_cookies(request.fields):
        return request
    names = cookie_names(request.fields)
    stripped = {name for name in {*names} if rules.strips(name)}
    if names and not stripped:
        return request
    fields: Fields = []
    for name, value in request.fields:
        if name != b"cookie":
            fields.append((name, value))
            continue
        pairs = [pair.strip(b" \t") for pair in value.split(b";")]
        kept = [pair for pair in pairs if pair and pair.partition(b"=")[0].strip(b" \t") not in stripped]
        if kept:
            fields.append((name, b"; ".join(kept)))
    return replace(request, fields=fields)


DEFAULTS: Final = Rules()
