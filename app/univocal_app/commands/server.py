"""The server that a command asks: the proxy or its admin listener, by address, with or without TLS."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeGuard, TypeVar
from urllib.parse import urlsplit

from univocal_app.commands.settings import flag, option, usage_errors
from univocal_app.config.tables import PurgeTable, ServerTable
from univocal_app.terminal import printable

Answer = TypeVar("Answer")

TIMEOUT: Final = 30.0  # seconds: twice as long as a stream of events is silent
LONGEST: Final = 1 << 20  # bytes of a line of events

ADMIN: Final = f"http://{ServerTable.defaults().admin[0]}"
TOKEN_ENV: Final = PurgeTable.defaults().token_env

Admin = Annotated[
    str, option("ADDRESS", "The admin listener: a URL, HOST:PORT or unix:///PATH.", envvar="UNIVOCAL_ADMIN")
]
TokenEnv = Annotated[str, option("NAME", "The environment variable with the token.")]
Ca = Annotated[Path | None, option("FILE", "For https: trust only the certificates in this PEM file.")]
Insecure = Annotated[bool, flag("--insecure", "For https: do not verify the certificate.")]

_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+):[0-9]{1,5}")


class _SocketConnection(http.client.HTTPConnection):
    """A connection to a Unix socket, whose path stands in the place of a host until it is connected."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        """Connect. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def _is_host(name: str | None) -> TypeGuard[str]:
    """Tell whether a name can be looked up: no label of it is empty or has more than 63 bytes."""
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


class Server:
    """The server at an address: a URL, HOST:PORT, or the URL of a Unix socket.

    `ask` keeps one connection, which is opened when needed; `connection` makes another.
    """

    def __init__(
        self, address: str, context: ssl.SSLContext | None = None, role: str = "an admin listener"
    ) -> None:
        """Raise ValueError for an invalid address."""
        url = f"http://{address}" if _HOST_AND_PORT.fullmatch(address) else address
        parts = urlsplit(url)
        is_socket = parts.scheme == "unix"
        if is_socket and not parts.netloc and parts.path.strip("/"):
            self.host, self._path = "localhost", parts.path
        elif parts.scheme in {"http", "https"} and _is_host(parts.hostname) and not parts.path.strip("/"):
            self.host, self._path = parts.hostname, ""
        else:
            examples = f"such as {ADMIN} or unix:///run/univocal.sock"
            raise ValueError(f"{address!r} is not the address of {role} {examples}")
        self.url, self.scheme = url.rstrip("/"), parts.scheme
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context
        self._kept = self.connection()

    @property
    def neighbour(self) -> str | None:
        """The following port, where the admin listener is by default; None if there is none."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_last = self._path or self.port == 65535
        return None if is_last else f"{self.scheme}://{host}:{self.port + 1}"

    def connection(self) -> http.client.HTTPConnection:
        """A new connection, which the caller closes; it is opened by its first request."""
        if self._path:
            return _SocketConnection(self._path)
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT, context=self._context)
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the kept connection; the next question opens another."""
        self._kept.close()

    def ask(
        self, method: str, target: str, fields: dict[str, str], content: bytes = b""
    ) -> tuple[int, bytes]:
        """Status and content of the answer. Raises OSError or http.client.HTTPException.

        A kept connection that fails is opened again: the server may have closed it, and a purge may be
        carried out twice (RFC 9110 §9.2.2).
        """
        fields = fields | {"Content-Length": str(len(content))}
        return self._asked(
            lambda response: (response.status, response.read()), method, target, fields, content
        )

    def fetch(self, target: str, fields: dict[str, str], most: int) -> tuple[int, str, bytes]:
        """Status, Cache-Status and at most so many first bytes of the answer to a GET. Raises as `ask`."""

        def read(response: http.client.HTTPResponse) -> tuple[int, str, bytes]:
            content = response.read(most)
            while response.read(65536):
                pass  # it is stored once it has come whole
            if response.length:  # `read` with a size raises nothing
                raise http.client.HTTPException(f"the response was cut: {response.length} bytes are missing")
            return response.status, response.getheader("Cache-Status", ""), content

        return self._asked(read, "GET", target, fields)

    def _asked(
        self,
        read: Callable[[http.client.HTTPResponse], Answer],
        method: str,
        target: str,
        fields: dict[str, str],
        content: bytes = b"",
    ) -> Answer:
        is_kept = self._kept.sock is not None
        try:
            return read(self._send(method, target, fields, content))
        except (OSError, http.client.HTTPException) as error:
            self._kept.close()
            if not (is_kept and isinstance(error, ConnectionError | http.client.HTTPException)):
                raise
        return self._asked(read, method, target, fields, content)

    def _send(
        self, method: str, target: str, fields: dict[str, str], content: bytes
    ) -> http.client.HTTPResponse:
        # By hand, for a Host of our own and for targets that urllib would respell.
        self._kept.putrequest(method, target, skip_host="Host" in fields, skip_accept_encoding=True)
        for name, value in fields.items():
            self._kept.putheader(name, value)
        self._kept.endheaders(content or None)
        return self._kept.getresponse()


def trust(ca: Path | None, *, insecure: bool) -> ssl.SSLContext | None:
    """The certificates to trust; None: those of the system. Raises ValueError."""
    if insecure and ca is not None:
        raise ValueError("either --ca or --insecure")
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        return None if ca is None else ssl.create_default_context(cafile=ca)
    except OSError as error:  # an SSLError, too, is one
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ValueError(f"--ca {str(ca)!r} is no file of certificates in PEM: {reason}") from None


def credentials(variable: str) -> dict[str, str]:
    """The field with the token that an environment variable holds, if it holds one.

    Raises ValueError for one that cannot be sent.
    """
    token = os.environ.get(variable, "")
    if not token.isascii() or not token.isprintable():
        raise ValueError(f"the token in {variable} is not printable ASCII")
    return {"Authorization": f"Bearer {token}"} if token else {}


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
            self.server = Server(address, trust(ca, insecure=insecure))
            self.fields = credentials(token_env)
        self.url, self._token_env = self.server.url, token_env

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
                while line := response.readline(LONGEST):
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
        connection = self.server.connection()
        try:
            connection.request(method, path, content, headers={**self.fields, "Connection": "close"})
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
            is_problem = answer.get("status") == status
        except (ValueError, AttributeError):
            reason, is_problem = "", False
        detail = printable(reason.encode("utf-8", "backslashreplace"))
        advice = {
            "purge-forbidden": f"You are not in purge.allow, and {self._token_env} holds no valid token.",
            "unknown-host": "Call it by its address, or add the name to server.admin_hosts.",
            "overloaded": "Too many clients follow its events already.",
        }.get(detail, "" if status != 404 or is_problem else "Is this the admin listener of a univocal?")
        return AdminError(f"{self.url}{path} answers {status} {detail}".rstrip() + (advice and f"\n{advice}"))
