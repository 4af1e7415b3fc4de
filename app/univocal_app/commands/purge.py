"""`univocal purge`: by `POST /-/purge` at an admin listener, or by PURGE at the proxy."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import typer

from univocal.http.grammar import without_port
from univocal_app.commands.progress import progress
from univocal_app.commands.server import TOKEN_ENV, Ca, Insecure, Server, TokenEnv, credentials, trust
from univocal_app.commands.settings import Texts, flag, option, usage_errors
from univocal_app.commands.urls import VIA, Files, Rate, Urls, Via, loopback, read_urls, request_of, sendable
from univocal_app.commands.warm import Warmer
from univocal_app.observe.explain import Url

ADDRESSES: Final = "--via ADDRESS names another proxy, --admin ADDRESS its admin listener"

Tags = Annotated[Texts, option("TAG", "Purge responses with this tag. Repeatable.")]
Prefixes = Annotated[Texts, option("URL", "Purge URLs that begin with this one. Repeatable.")]
Patterns = Annotated[Texts, option("RE2", "Purge URLs that match. Repeatable.")]

By = Literal["url", "tag", "prefix", "pattern", "all"]
Values = Sequence[str]
_DEFAULT_PORTS: Final = (80, 443)
_UNSENDABLE_TAG: Final = re.compile(r"[^!-+\--~]").search


def purge_command(
    context: typer.Context,
    urls: Urls = None,
    *,
    file: Files = None,
    tag: Tags = None,
    prefix: Prefixes = None,
    pattern: Patterns = None,
    soft: Annotated[bool, flag("--soft", "Mark stale instead of removing.")] = False,
    refetch: Annotated[
        bool, flag("--refetch", "Request each purged URL anew, so that it is stored again.")
    ] = False,
    rate: Rate = 20,
    everything: Annotated[bool, flag("--all", "Purge everything.")] = False,
    via: Via = None,
    admin: Annotated[
        str | None, option("ADDRESS", "Send every purge to this admin listener.", envvar="UNIVOCAL_ADMIN")
    ] = None,
    token_env: TokenEnv = TOKEN_ENV,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Remove stored responses from a running proxy by URL, tag, prefix or pattern.

    The address is that of --admin, --via or UNIVOCAL_ADMIN, in this order, then the URL's own if that is a
    loopback one, then 127.0.0.1:8080: one for all that is to be purged. A proxy gets PURGE requests for URLs,
    tags and prefixes. Patterns, tags with blanks or commas and --all go to its admin listener, at the next
    port unless --admin names it.

    Exit status: 0 if every purge was confirmed, 1 if not, 2 usage error.
    """
    if refetch and not (urls or file):
        raise typer.BadParameter("--refetch needs URLs: nobody knows those that a tag or a pattern means")
    if not (urls or file or tag or prefix or pattern or everything):
        raise typer.BadParameter("nothing to purge: give a URL, --file, --tag, --prefix, --pattern or --all")
    source = context.get_parameter_source("admin")
    if via is not None and source is not None and source.name == "ENVIRONMENT":
        admin = None  # the variable may name another proxy's
    with usage_errors():
        context_of_tls = trust(ca, insecure=insecure)
        listed = jobs(read_urls(urls, file), tag or [], prefix or [], pattern or [], everything=everything)
        purger = PurgeClient(via, admin, token_env, context_of_tls, soft=soft, refetch=refetch, listed=listed)
    results = _all_results(purger, listed)
    is_done = all(result.confirmed for result in results)
    if refetch and (via is not None or admin is None):
        purged = [each.job.value for each in results if each.confirmed and each.job.by == "url"]
        is_done = Warmer(via, context_of_tls, rate).warm(purged, [{}]) and is_done
    raise typer.Exit(0 if is_done else 1)


def _all_results(purger: PurgeClient, listed_jobs: Sequence[Job]) -> list[Result]:
    """Carry out each job and print its result."""
    results = list[Result]()
    with closing(purger), progress("purging", len(listed_jobs)) as tell:
        for job in listed_jobs:
            results.append(purger.carry_out(job))
            tell(results[-1].line())
    for line in filter(None, (advice(results, purger.port), summary(results))):
        typer.echo(line, err=True)
    return results


@dataclass(frozen=True)
class Job:
    """One thing to purge."""

    by: By
    value: str

    @property
    def is_for_admin(self) -> bool:
        """True if PURGE cannot name it; a tag field's members are parted by blanks and commas."""
        if self.by == "tag":
            return _UNSENDABLE_TAG(self.value) is not None
        return self.by in {"pattern", "all"}

    def document(self, *, soft: bool, refetch: bool = False) -> bytes:
        """The content of `POST /-/purge`. Raises ValueError for a URL that has no host."""
        value: object = True if self.by == "all" else self.value
        if self.by in {"url", "prefix"}:
            value = sendable(self.value)
        again = {"refetch": True} if refetch and self.by == "url" else {}
        return json.dumps({self.by: value, "soft": soft, **again}).encode()


@dataclass(frozen=True)
class Result:
    """The proxy's answer to one job; the `count` of a pattern, which works lazily, is 0."""

    job: Job
    said: str
    confirmed: bool = False
    count: int = 0
    key: str = ""  # the canonical URL that the proxy looked for

    def line(self) -> str:
        """The line that is printed: what was to be purged, a tab, and what came of it."""
        return f"{self.job.value}\t{self.said}"


def jobs(urls: Values, tags: Values, prefixes: Values, patterns: Values, *, everything: bool) -> list[Job]:
    """Raises ValueError for what cannot be asked for."""
    for text in [*urls, *prefixes]:
        request_of(text)
    if "" in tags:
        raise ValueError("--tag '': a tag has at least one character")
    named: dict[By, Values] = {"url": urls, "tag": tags, "prefix": prefixes, "pattern": patterns}
    named["all"] = ["everything"] if everything else []
    return [Job(by, value) for by, values in named.items() for value in values]


def summary(results: Sequence[Result]) -> str:
    """One line over all results."""
    confirmed = [result for result in results if result.confirmed]
    failed = len(results) - len(confirmed)
    count = sum(result.count for result in confirmed)
    noun = "response" if count == 1 else "responses"
    return f"{count} stored {noun}; {len(confirmed)} confirmed, {failed} failed"


def advice(results: Sequence[Result], port: int | None) -> str:
    """A line on keys without a port under which nothing was stored; "" if there is none.

    `port` is the proxy's, None if it is not known.
    """
    keys = [result.key for result in results if result.confirmed and result.count == 0 and result.key]
    urls = filter(None, map(_url, keys))
    bare = next((url for url in urls if without_port(url.authority) == url.authority), None)
    if bare is None or port in _DEFAULT_PORTS:
        return ""
    named = b"%b:%b" % (bare.authority, b"PORT" if port is None else b"%d" % port)
    with_port = Url(bare.scheme, named, bare.target)
    return (
        f"Nothing was stored under {_text(bare)}. If clients name a port in Host, it is part of the key: "
        f"purge {_text(with_port)}"
    )


def _url(text: str) -> Url | None:
    try:
        return Url.parse(text)
    except ValueError:
        return None


def _text(url: Url) -> str:
    return url.absolute.decode("latin-1")


class PurgeClient:
    """Sends jobs one after the other: to the admin listener alone, or to the proxy where PURGE can name them.

    Without `admin` it is looked for on the port that follows the proxy's. Without either, a URL of a loopback
    address is its own proxy, and that of all of `listed` that names none.
    """

    def __init__(
        self,
        via: str | None,
        admin: str | None,
        token_env: str,
        context: ssl.SSLContext | None = None,
        *,
        soft: bool,
        refetch: bool = False,
        listed: Sequence[Job] = (),
    ) -> None:
        """Raise ValueError for an invalid address, and for a token that cannot be sent."""
        self._refetch = refetch
        self._named = sorted({address for job in listed if (address := _own_address(job)) is not None})
        self._proxy = None if via is None else Server(via, context, "a proxy")
        self._admin = None if admin is None else Server(admin, context)
        self._context = context
        self._is_said = not (via is None and admin is None)
        self._own: dict[str, Server] = {}  # by address: those that no option names
        self._fields, self._soft = credentials(token_env), soft

    @property
    def port(self) -> int | None:
        """The proxy's port, None if it is not known."""
        if self._is_said:
            return None if self._proxy is None else self._proxy.port
        return next((server.port for server in self._own.values()), None)

    def close(self) -> None:
        """Close the connections."""
        for server in (self._proxy, self._admin, *self._own.values()):
            if server is not None:
                server.close()

    def carry_out(self, job: Job) -> Result:
        """Send one job; every failure is a Result, too."""
        url = ""
        try:
            proxy = self._proxy_of(job)
            if proxy is None or job.is_for_admin or (job.by == "prefix" and self._admin is not None):
                server = self._listener(proxy)
                url, document = server.url, job.document(soft=self._soft, refetch=self._refetch)
                status, content = server.ask("POST", "/-/purge", self._fields, document)
            else:
                url = proxy.url
                status, content = proxy.ask("PURGE", *self._request(job))
        except ValueError as error:
            return Result(job, str(error))
        except (OSError, http.client.HTTPException) as error:
            said = f"{url} did not answer: {error or type(error).__name__}"
            return Result(job, said if self._is_said else f"{said}. {ADDRESSES}")
        result = _result(job, status, content)
        if result.confirmed or self._is_said:
            return result
        return replace(result, said=f"{result.said} ({url} was asked). {ADDRESSES}")

    def _proxy_of(self, job: Job) -> Server | None:
        """The proxy for a job, None if the admin listener gets everything."""
        if self._is_said:
            return self._proxy
        return self._at(_own_address(job) or self._address())

    def _address(self) -> str:
        """The address of what names none itself. Raises ValueError if the URLs name several."""
        if len(self._named) > 1:
            raise ValueError(f"the URLs name {' and '.join(self._named)}: name the listener with --admin")
        return next(iter(self._named), VIA)

    def _listener(self, proxy: Server | None) -> Server:
        """The admin listener. Raises ValueError if it is not known and no port follows the proxy's."""
        if self._admin is not None:
            return self._admin
        assert proxy is not None
        if proxy.neighbour is None:
            raise ValueError(f"no port follows that of {proxy.url}: name the admin listener with --admin")
        return self._at(proxy.neighbour)

    def _at(self, address: str) -> Server:
        if address not in self._own:
            self._own[address] = Server(address, self._context)
        return self._own[address]

    def _request(self, job: Job) -> tuple[str, dict[str, str]]:
        fields = dict(self._fields)
        if self._soft:
            fields["Soft-Purge"] = "1"
        if job.by == "tag":
            return "/", fields | {"Surrogate-Key": job.value}
        target, host = request_of(job.value)
        if job.by == "prefix":
            return sendable(job.value), fields | host | {"X-Purge-Method": "prefix"}
        return target, fields | host


def _own_address(job: Job) -> str | None:
    return loopback(job.value) if job.by in {"url", "prefix"} else None


def _result(job: Job, status: int, content: bytes) -> Result:
    try:
        answer = json.loads(content)
        if not isinstance(answer, dict):
            raise ValueError
    except ValueError:
        return Result(job, f"failed: {status}, which is not an answer of univocal")
    verbs = (verb for verb in ("purged", "softened", "banned") if isinstance(answer.get(verb), int))
    verb = next(verbs, None)
    if status != 200 or verb is None:
        return Result(job, f"failed: {status} {answer.get('reason') or answer.get('detail') or ''}".rstrip())
    about = answer.get("key") or answer.get("value")
    if verb == "banned":
        return Result(job, f"{verb}\t{about}", confirmed=True)
    key = str(about) if job.by in {"url", "prefix"} else ""
    return Result(job, f"{verb} {answer[verb]}\t{about}", confirmed=True, count=answer[verb], key=key)
