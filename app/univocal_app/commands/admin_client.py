"""Questions to the admin listener of a running univocal, and the stream of its events."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

import typer

from univocal_app.config.tables import PurgeTable, ServerTable
from univocal_app.terminal import printable

__all__ = ["Admin", "AdminClient", "AdminError", "AdminEvent", "TokenEnv"]

TIMEOUT: Final = 30.0  # seconds: twice as long as a stream of events is silent

Admin = Annotated[str, typer.Option(metavar="URL", help="The admin listener.")]
TokenEnv = Annotated[str, typer.Option(metavar="NAME", help="The environment variable that holds the token.")]
ADMIN: Final = f"http://{ServerTable().admin}"
TOKEN_ENV: Final = PurgeTable().token_env

_LONGEST: Final = 1 << 20  # octets of a line of events


class AdminError(Exception):
    """The admin listener does not answer, or refuses: why, and what to do about it."""


class AdminEvent(NamedTuple):
    """A server-sent event: its name, and the JSON of its data; None is a sign of life."""

    name: str
    data: Any


class AdminClient:
    """Asks one admin listener, over a connection of its own for each question."""

    def __init__(self, url: str, token: str = "", token_env: str = TOKEN_ENV) -> None:
        """Raises ValueError for an address that is none."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no address of an admin listener such as {ADMIN}")
        self.url = url.rstrip("/")
        self._place = parts.hostname, parts.port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._fields = {"Authorization": f"Bearer {token}"} if token else {}
        self._token_env = token_env

    @classmethod
    def from_options(cls, url: str, token_env: str) -> AdminClient:
        """Raises ValueError for an address that is none, and for a token that cannot be sent."""
        token = os.environ.get(token_env, "")
        if not token.isascii() or not token.isprintable():
            raise ValueError(f"the token in {token_env} is not printable ASCII")
        return cls(url, token, token_env)

    def get(self, path: str) -> Any:
        """The JSON of an answer. Raises AdminError."""
        try:
            with self._ask(path) as response:
                return json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None
        except ValueError:
            raise AdminError(f"{self.url}{path} did not answer with JSON") from None

    def events(self, path: str) -> Iterator[AdminEvent]:
        """The events of a stream as they come, until its end. Raises AdminError."""
        try:
            with self._ask(path) as response:
                yield AdminEvent("open", None)
                name, data = "message", b""
                while line := response.readline(_LONGEST):
                    text = line.rstrip(b"\r\n")
                    field, _, value = text.partition(b":")
                    if field == b"event":
                        name = value.strip().decode("latin-1")
                    elif field == b"data":
                        data += value.strip()
                    elif not text and data:
                        yield AdminEvent(name, json.loads(data))
                        name, data = "message", b""
                    elif not field and text:
                        yield AdminEvent("alive", None)
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None
        except ValueError:
            raise AdminError(f"{self.url}{path} did not answer with server-sent events") from None

    def _ask(self, path: str) -> http.client.HTTPResponse:
        connection = self._kind(*self._place, timeout=TIMEOUT)
        try:
            connection.request("GET", path, headers={**self._fields, "Connection": "close"})
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if response.status != 200:
            with response:
                raise self._refused(path, response.status, response.read(65536))
        return response

    def _silent(self, error: Exception) -> AdminError:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return AdminError(
            f"the admin listener at {self.url} does not answer: {said}\n"
            "Is univocal serve running there? --admin URL names another address."
        )

    def _refused(self, path: str, status: int, content: bytes) -> AdminError:
        try:
            answer = json.loads(content)
            reason = str(answer.get("reason") or answer.get("detail") or "")
        except (ValueError, AttributeError):
            reason = ""
        said = printable(reason.encode("utf-8", "backslashreplace"))
        advice = {
            "purge-forbidden": f"You are not in purge.allow, and {self._token_env} holds no right token.",
            "unknown-host": "Call it by its address, or add the name to server.admin_hosts.",
            "overloaded": "Too many follow its events already.",
        }.get(said, "Is this the admin listener of a univocal?" if status == 404 else "")
        return AdminError(f"{self.url}{path} answers {status} {said}".rstrip() + (advice and f"\n{advice}"))
