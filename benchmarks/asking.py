"""One request at a time, read whole: whether a server's answer is what it claims to be."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contents import content_of


class WrongAnswerError(Exception):
    """An answer is not what it claims to be; its measurement counts for nothing."""


@dataclass(frozen=True)
class Answer:
    """A response: its status, its fields by lower-case name, its content."""

    status: int
    fields: Mapping[str, str]
    content: bytes


def ask(port: int, path: str, fields: Sequence[str] = (), *, has_tls: bool = False) -> Answer:
    """The response to a GET with these further field lines and Host, as wrk spells it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    if has_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # its own certificate
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    try:
        connection.putrequest("GET", path, skip_accept_encoding=True)
        for field in fields:
            name, _, value = field.partition(": ")
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, told, response.read())
    finally:
        connection.close()


def right(port: int, path: str, fields: Sequence[str] = (), *, has_tls: bool = False) -> Answer:
    """The response, which has to be 200 with the path's content. Raises WrongAnswerError."""
    answer = ask(port, path, fields, has_tls=has_tls)
    if answer.status != 200 or answer.content != content_of(path):
        told = f"{answer.status} with {len(answer.content)} octets, {dict(answer.fields)}"
        raise WrongAnswerError(f"{path}: {told}")
    return answer


@dataclass
class Counter:
    """Counts the requests that have arrived at the origin, or at the application behind a middleware."""

    port: int
    is_application: bool
    asked: int = 0

    def read(self) -> int:
        """The number so far, without this request for it and those before."""
        text = ask(self.port, "/count").content.decode()
        if self.is_application:
            return int(text)
        self.asked += 1
        found = re.search(r"^\s*\d+ \d+ (\d+)", text, re.MULTILINE)  # nginx: accepts, handled, requests
        if found is None:
            raise WrongAnswerError(f"/count of the origin: {text}")
        return int(found[1]) - self.asked
