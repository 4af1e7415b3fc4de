"""nginx's rules of caching as the table `cache` of a route: whatever they keep apart stays apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from univocal_learn.importers.imported import Notes, Table, words_of
from univocal_learn.importers.nginx_directives import TABLE
from univocal_learn.importers.nginx_syntax import Directive, duration, within

# The rule that nothing is stored nor answered from the cache.
_BYPASS: Final[dict[str, Any]] = {"bypass": ["*"]}

_GRACE: Final = 60  # seconds for which nginx's "updating" stands, which has no bound
_STATUSES: Final = ("200", "301", "302")  # of a proxy_cache_valid that names none
_STATUS: Final = re.compile(r"[2-5][0-9]{2}")
_VARIABLE: Final = re.compile(r"\$\{?([a-z0-9_]+)\}?", re.IGNORECASE)
_COOKIE: Final = re.compile(r"\$\{?cookie_([A-Za-z0-9_]+)\}?")
# Variables whose values are the URL's and the method's, by which every key differs anyway.
_OF_THE_URL: Final = words_of(TABLE["variables"]["of_the_url"])
# Fields by which a client asks for a fresh response: they say nothing of who it is.
_OF_A_RELOAD: Final = frozenset({"http_cache_control", "http_pragma"})


def cache_table(in_force: Mapping[str, Sequence[Directive]], notes: Notes, *, is_guarded: bool) -> Table:
    """The table `cache`. Responses that nginx does not store, or that are guarded, bypass it.

    `in_force` are directives by name, of which the last one counts where there may be but one.
    """
    zone = next(reversed(in_force.get("proxy_cache", ())), None)
    if zone is None or not zone.arguments or zone.first == "off":
        return _BYPASS
    if is_guarded or "$" in zone.first:
        notes.say(zone, "a guarded route bypasses the cache: what is stored would be for all who pass")
        return _BYPASS
    ttl = _lifetimes(in_force.get("proxy_cache_valid", ()), notes)
    ignored = {word.lower() for each in in_force.get("proxy_ignore_headers", ()) for word in each.arguments}
    if "cache-control" in ignored and not ttl:
        return _BYPASS
    if {"cache-control", "expires"} & ignored:
        text = "univocal still heeds the origin server's Cache-Control and Expires, for every status"
        notes.say(in_force["proxy_ignore_headers"][0], text)
    cookies = set[str]()
    key = in_force.get("proxy_cache_key", ())[-1:]
    for directive in (*in_force.get("proxy_no_cache", ()), *in_force.get("proxy_cache_bypass", ()), *key):
        own = _cookies_of(directive)
        if own is None:
            notes.say(directive, "no setting says this: the route bypasses the cache")
            return _BYPASS
        cookies |= own
        if _OF_A_RELOAD & {name.lower() for name in _VARIABLE.findall(" ".join(directive.arguments))}:
            text = "Cache-Control and Pragma of clients are passed over: see [cache] client_directives"
            notes.say(directive, text)
    stale = in_force.get("proxy_cache_use_stale", ())[-1:]
    grace = {"grace": _GRACE} if any("updating" in each.arguments for each in stale) else {}
    return {**ttl, **grace, **({"bypass_cookies": sorted(cookies)} if cookies else {})}


def cookies_of_maps(directives: Sequence[Directive]) -> None:
    """Have conditions of caching name the cookie that a map asks for, in the place of the map's variable."""
    maps = filter(_asks_for_a_cookie, within(directives, "map"))
    cookies = {each.arguments[1]: each.arguments[0] for each in maps}
    for directive in within(directives, "proxy_no_cache", "proxy_cache_bypass"):
        directive.arguments = [cookies.get(argument, argument) for argument in directive.arguments]


def _asks_for_a_cookie(directive: Directive) -> bool:
    """Tell whether the value of a map is false where a cookie is absent, and true elsewhere."""
    if len(directive.arguments) != 2 or not _COOKIE.fullmatch(directive.arguments[0]):
        return False
    values = {each.name: each.arguments in (["0"], [""]) for each in directive.block}
    return values.pop("", False) and "default" in values and not any(values.values())


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


def _lifetimes(directives: Sequence[Directive], notes: Notes) -> dict[str, Any]:
    """The settings `ttl` and `ttl_by_status` that proxy_cache_valid amounts to."""
    by_status: dict[str, int] = {}
    for directive in directives:
        *statuses, time = directive.arguments or [""]
        seconds = duration(time)
        if seconds is None:
            notes.say(directive, "left out: see [cache] ttl")
            continue
        if "any" in statuses:
            notes.say(directive, "any: of others than 200, 301 and 302 see [cache] ttl_by_status")
            statuses += _STATUSES
        for status in filter(_STATUS.fullmatch, statuses or _STATUSES):
            by_status.setdefault(status, int(seconds))
    ttl = by_status.pop("200", 0)
    made: dict[str, Any] = {"ttl": ttl} if ttl else {}
    return made | ({"ttl_by_status": by_status} if by_status else {})
