"""Questions to the admin listener of a running univocal, and the stream of its events."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from univocal_app.commands.server import Server, credentials, trust
from univocal_app.commands.settings import usage_errors
from univocal_app.terminal import printable

_LONGEST: Final = 1 << 20  # bytes of a line of events


class AdminError(Exception):
    """The admin listener does not answer, or refuses: why, and what to do about it."""


class AdminEvent(NamedTuple):
    """A server-sent event: its name, and the JSON of its data; None is a sign of life."""

    name: str
    data: Any


class AdminClient:
    """Asks one admin listener, over a connection of its own for each question."""

    def __init__(self, address: str, token_env: str, ca: Path | None, *, insecure: bool) -> None:
        """End the program with status 2 for an invalid address, token or file of certificates."""
        with usage_errors():
            self._server = Server(address, trust(ca, insecure=insecure))
            self._fields = credentials(token_env)
        self.url, self._token_env = self._server.url, token_env

    def get(self, path: str) -> Any:
        """The JSON of an answer. Raises AdminError."""
        return self._json("GET", path)

    def post(self, path: str, document: object) -> Any:
        """Send JSON; the JSON of the answer. Raises AdminError."""
        return self._json("POST", path, json.dumps(document).encode())

    def _json(self, method: str, path: str, content: bytes | None = None) -> Any:
        try:
            with self._ask(method, path, content) as response:
                return json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None
        except ValueError:
            raise AdminError(f"{self.url}{path} did not answer with JSON") from None

    def events(self, path: str) -> Iterator[AdminEvent]:
        """The events of a stream as they come, until its end. Raises AdminError."""
        try:
            with self._ask("GET", path) as response:
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

    def _ask(self, method: str, path: str, content: bytes | None = None) -> http.client.HTTPResponse:
        connection = self._server.connect()
        try:
            connection.request(method, path, content, headers={**self._fields, "Connection": "close"})
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if response.status != 200:
            with response:
                raise self._refused(path, response.status, response.read(65536))
        return response

    def _silent(self, error: Exception) -> AdminError:
        advice = "Is univocal serve running there? --admin or UNIVOCAL_ADMIN names another address."
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "--ca FILE names the certificate authority to trust."
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return AdminError(f"the admin listener at {self.url} does not answer: {reason}\n{advice}")

    def _refused(self, path: str, status: int, content: bytes) -> AdminError:
        try:
            answer = json.loads(content)
            reason = str(answer.get("reason") or answer.get("detail") or "")
        except (ValueError, AttributeError):
            reason = ""
        detail = printable(reason.encode("utf-8", "backslashreplace"))
        advice = {
            "purge-forbidden": f"You are not in purge.allow, and {self._token_env} holds no valid token.",
            "unknown-host": "Call it by its address, or add the name to server.admin_hosts.",
            "overloaded": "Too many clients follow its events already.",
        }.get(detail, "Is this the admin listener of a univocal?" if status == 404 else "")
        return AdminError(f"{self.url}{path} answers {status} {detail}".rstrip() + (advice and f"\n{advice}"))
