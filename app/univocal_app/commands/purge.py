"""The client side of PURGE: what it can name goes to the proxy, patterns to its admin listener."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from univocal_app.observe.explain import Url

__all__ = ["Job", "Purger", "Result", "Server", "jobs", "read_urls", "summary", "token_in"]

TIMEOUT: Final = 30  # seconds

_UNSENDABLE: Final = re.compile(rb"[^!-~]")
_UNSENDABLE_TAG: Final = re.compile(r"[^!-~]").search


@dataclass(frozen=True)
class Job:
    """One thing to purge."""

    by: Literal["url", "tag", "prefix", "pattern"]
    value: str

    @property
    def by_name(self) -> bool:
        """True if it takes `POST /-/purge`; a tag field's members are parted by blanks."""
        return self.by == "pattern" or (self.by == "tag" and _UNSENDABLE_TAG(self.value) is not None)


@dataclass(frozen=True)
class Result:
    """The proxy's answer to one job; the `count` of a pattern, which works lazily, is 0."""

    job: Job
    said: str
    confirmed: bool = False
    count: int = 0

    def line(self) -> str:
        """The line that is printed: what was to be purged, a tab, and what came of it."""
        return f"{self.job.value}\t{self.said}"


def read_urls(names: Sequence[str]) -> list[str]:
    """The URLs in these files, one a line; "-" is standard input, blank lines and those with # are skipped.

    Raises ValueError for a file that cannot be read.
    """
    lines: list[str] = []
    for name in names:
        try:
            octets = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            lines += octets.decode("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name!r} is no file of URLs in UTF-8: {error}") from None
    urls = (line.strip() for line in lines)
    return [url for url in urls if url and not url.startswith("#")]


def jobs(
    urls: Sequence[str], tags: Sequence[str], prefixes: Sequence[str], patterns: Sequence[str] = ()
) -> list[Job]:
    """Raises ValueError for what cannot be asked for."""
    for text in [*urls, *prefixes]:
        if _UNSENDABLE.search(Url.parse(text).authority):
            raise ValueError(f"{text!r} names no host")
    if "" in tags:
        raise ValueError("'' is no tag")
    listed = [Job("url", url) for url in urls]
    listed += [Job("tag", tag) for tag in tags]
    listed += [Job("prefix", prefix) for prefix in prefixes]
    return listed + [Job("pattern", pattern) for pattern in patterns]


def summary(results: Sequence[Result]) -> str:
    """One line over all results."""
    confirmed = [result for result in results if result.confirmed]
    failed = len(results) - len(confirmed)
    count = sum(result.count for result in confirmed)
    return f"{count} stored responses; {len(confirmed)} confirmed, {failed} failed"


class Server:
    """One connection, opened when needed and kept."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no address of a proxy such as http://127.0.0.1:8080")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.url, self.scheme, self.host = url, parts.scheme, parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self._connection = kind(self.host, self.port, timeout=TIMEOUT)

    def neighbour(self) -> str:
        """The address on the following port: where the admin listener is by default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port + 1}"

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        self._connection.close()

    def ask(
        self, method: str, target: str, fields: dict[str, str], content: bytes = b""
    ) -> tuple[int, bytes]:
        """Status and content. Raises OSError or http.client.HTTPException.

        Once more on a new connection if a kept one fails: the server may have closed it, and a purge may be
        carried out twice (RFC 9110 §9.2.2).
        """
        kept = self._connection.sock is not None
        try:
            return self._ask(method, target, fields, content)
        except (ConnectionError, http.client.HTTPException):
            if not kept:
                raise
        return self._ask(method, target, fields, content)

    def _ask(self, method: str, target: str, fields: dict[str, str], content: bytes) -> tuple[int, bytes]:
        try:
            # By hand, for a Host of our own and for targets that urllib would respell.
            self._connection.putrequest(method, target, skip_host="Host" in fields, skip_accept_encoding=True)
            for name, value in fields.items():
                self._connection.putheader(name, value)
            self._connection.putheader("Content-Length", str(len(content)))
            self._connection.endheaders(content)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


def token_in(variable: str) -> str:
    """The token that an environment variable holds. Raises ValueError for one that cannot be sent."""
    token = os.environ.get(variable, "")
    if not token.isascii() or not token.isprintable():
        raise ValueError(f"the token in {variable} is not printable ASCII")
    return token


class Purger:
    """Sends jobs one after the other."""

    def __init__(self, proxy: Server, admin: Server | None, token: str, *, soft: bool) -> None:
        self._proxy, self._admin = proxy, admin
        self._named = admin is not None  # else it is guessed, for what the proxy itself does not take
        self._fields = {"Authorization": f"Bearer {token}"} if token else {}
        self._soft = soft

    @classmethod
    def from_options(cls, via: str, admin: str | None, token_env: str, *, soft: bool) -> Purger:
        """Raises ValueError for an address that is none, and for a token that cannot be sent."""
        return cls(Server(via), Server(admin) if admin else None, token_in(token_env), soft=soft)

    def close(self) -> None:
        """Close the connections."""
        self._proxy.close()
        if self._admin is not None:
            self._admin.close()

    def carry_out(self, job: Job) -> Result:
        """Send one job; every failure is a Result, too."""
        server = self._proxy
        try:
            if job.by_name or (job.by == "prefix" and self._named):
                server = self._neighbour()
                value = _sendable(job.value) if job.by == "prefix" else job.value
                body = json.dumps({job.by: value, "soft": self._soft}).encode()
                status, content = server.ask("POST", "/-/purge", self._fields, body)
            else:
                status, content = server.ask("PURGE", *self._request(job))
        except ValueError as error:
            return Result(job, str(error))
        except (OSError, http.client.HTTPException) as error:
            return Result(job, f"{server.url} did not answer: {error or type(error).__name__}")
        return _result(job, status, content)

    def _neighbour(self) -> Server:
        """The admin listener. Raises ValueError if none is told and the proxy's port is the last."""
        if self._admin is None:
            if self._proxy.port == 65535:
                raise ValueError(
                    f"no port follows that of {self._proxy.url}: name the admin listener with --admin"
                )
            self._admin = Server(self._proxy.neighbour())
        return self._admin

    def _request(self, job: Job) -> tuple[str, dict[str, str]]:
        fields = dict(self._fields)
        if self._soft:
            fields["Soft-Purge"] = "1"
        if job.by == "tag":
            return "/", fields | {"Surrogate-Key": job.value}
        url = Url.parse(_sendable(job.value))
        fields["Host"] = url.authority.decode("latin-1")
        if job.by == "prefix":
            return url.absolute.decode("ascii"), fields | {"X-Purge-Method": "prefix"}
        return url.origin_form.decode("ascii"), fields


def _sendable(text: str) -> str:
    """The URL with what no request line can hold percent-encoded, as every client does."""
    url = Url.parse(text)
    target = _UNSENDABLE.sub(lambda octet: b"%%%02X" % octet[0][0], url.target)
    return Url(url.scheme, url.authority, target).absolute.decode("latin-1")


def _result(job: Job, status: int, content: bytes) -> Result:
    try:
        answer = json.loads(content)
        if not isinstance(answer, dict):
            raise ValueError
    except ValueError:
        return Result(job, f"failed: {status}, not an answer of univocal's")
    verb = next(
        (verb for verb in ("purged", "softened", "banned") if isinstance(answer.get(verb), int)), None
    )
    if status != 200 or verb is None:
        return Result(job, f"failed: {status} {answer.get('reason') or answer.get('detail') or ''}".rstrip())
    about = answer.get("key") or answer.get("value")
    if verb == "banned":
        return Result(job, f"{verb}\t{about}", confirmed=True)
    return Result(job, f"{verb} {answer[verb]}\t{about}", confirmed=True, count=answer[verb])
