"""nginx's rules of caching as the table `cache` of a route: whatever they keep apart stays apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from univocal_learn.importers.imported import Note, Table
from univocal_learn.importers.nginx_syntax import Directive, note, words_of
from univocal_learn.importers.nginx_values import duration

# The rule that nothing is stored nor answered from the cache.
_BYPASS: Final[dict[str, Any]] = {"bypass": ["*"]}

_GRACE: Final = 60  # seconds for which nginx's "updating" stands, which has no bound
_STATUSES: Final = ("200", "301", "302")  # of a proxy_cache_valid that names none
_STATUS: Final = re.compile(r"[2-5][0-9]{2}")
_VARIABLE: Final = re.compile(r"\$\{?([a-z0-9_]+)\}?", re.IGNORECASE)
_COOKIE: Final = re.compile(r"\$\{?cookie_([A-Za-z0-9_]+)\}?")
# Variables whose values are the URL's and the method's, by which every key differs anyway.
_OF_THE_URL: Final = words_of(
    """
    args document_uri host http_host https is_args proxy_host proxy_port query_string request_method
    request_uri scheme server_name server_port slice_range uri
    """
)
# Fields by which a client asks for a fresh response: they say nothing of who it is.
_OF_A_RELOAD: Final = frozenset({"http_cache_control", "http_pragma"})


class Caching(Protocol):
    """The directives about caching that are in force."""

    def listed(self, name: str) -> Sequence[Directive]:
        """The directives of this name."""
        ...

    def argument(self, name: str) -> str:
        """The first argument of the directive of this name."""
        ...

    @property
    def last(self) -> Mapping[str, Directive]:
        """The directives of which one is in force."""
        ...


def cache_table(caching: Caching, notes: list[Note], *, is_guarded: bool) -> Table:
    """The table `cache`. Responses that nginx does not store, or that are guarded, bypass it."""
    if caching.argument("proxy_cache") in {"", "off"}:
        return _BYPASS
    zone = caching.last["proxy_cache"]
    if is_guarded or "$" in caching.argument("proxy_cache"):
        text = "a guarded route bypasses the cache: what is stored would be for all who pass"
        notes.append(note(zone, text))
        return _BYPASS
    ttl = _lifetimes(caching.listed("proxy_cache_valid"), notes)
    ignored = {
        each.lower() for directive in caching.listed("proxy_ignore_headers") for each in directive.arguments
    }
    if {"cache-control", "expires"} <= ignored and not ttl:
        return _BYPASS
    cookies = set[str]()
    for directive in _conditions(caching):
        own = _cookies_of(directive)
        if own is None:
            notes.append(note(directive, "no setting says this: the route bypasses the cache"))
            return _BYPASS
        cookies |= own
    stale = caching.last.get("proxy_cache_use_stale")
    grace = {"grace": _GRACE} if stale is not None and "updating" in stale.arguments else {}
    return {**ttl, **grace, **({"bypass_cookies": sorted(cookies)} if cookies else {})}


def cookies_of_maps(directives: Sequence[Directive]) -> None:
    """Have conditions of caching name the cookie that a map asks for, in the place of the map's variable."""
    every = list(_each(directives))
    cookies = {each.arguments[1]: each.arguments[0] for each in every if _asks_for_a_cookie(each)}
    for directive in every:
        if directive.name in {"proxy_no_cache", "proxy_cache_bypass"}:
            directive.arguments = [cookies.get(argument, argument) for argument in directive.arguments]


def _each(directives: Sequence[Directive]) -> Iterator[Directive]:
    for directive in directives:
        yield directive
        yield from _each(directive.block or [])


def _asks_for_a_cookie(directive: Directive) -> bool:
    """Tell whether a directive is a map whose value is false where a cookie is absent, and true elsewhere."""
    if (
        directive.name != "map"
        or len(directive.arguments) != 2
        or not _COOKIE.fullmatch(directive.arguments[0])
    ):
        return False
    values = {each.name: each.arguments in (["0"], [""]) for each in directive.block or []}
    return values.pop("", False) and "default" in values and not any(values.values())


def _conditions(caching: Caching) -> Iterator[Directive]:
    yield from caching.listed("proxy_no_cache")
    yield from caching.listed("proxy_cache_bypass")
    if "proxy_cache_key" in caching.last:
        yield caching.last["proxy_cache_key"]


def _cookies_of(directive: Directive) -> set[str] | None:
    """The cookies that decide whether, or under what, a response is stored; None: more than cookies do."""
    cookies = set[str]()
    is_key = directive.name == "proxy_cache_key"
    for argument in directive.arguments:
        rest = _COOKIE.sub("", argument)
        variables = {name.lower() for name in _VARIABLE.findall(rest)}
        known = _OF_THE_URL if is_key else _OF_A_RELOAD
        constant = not is_key and not variables and rest not in {"", "0"}
        if constant or variables - known:
            return None
        cookies |= set(_COOKIE.findall(argument))
    return cookies


def _lifetimes(directives: Sequence[Directive], notes: list[Note]) -> dict[str, Any]:
    """The settings `ttl` and `ttl_by_status` that proxy_cache_valid amounts to."""
    by_status: dict[str, int] = {}
    everything = 0
    for directive in directives:
        *statuses, time = directive.arguments or [""]
        seconds = duration(time)
        if seconds is None:
            notes.append(note(directive, "left out: see [cache] ttl"))
            continue
        for status in statuses or _STATUSES:
            if status == "any":
                everything = int(seconds)
            elif _STATUS.fullmatch(status):
                by_status.setdefault(status, int(seconds))
    ttl = by_status.pop("200", everything)
    made: dict[str, Any] = {"ttl": ttl} if ttl else {}
    rest = {status: time for status, time in by_status.items() if time != ttl or status >= "400"}
    return made | ({"ttl_by_status": rest} if rest else {})
