"""Servers on this machine, and what they answer."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

PATIENCE = 120  # seconds; whatever else the machine does


@dataclass(frozen=True)
class Answer:
    """An answer, whose content is read as text."""

    status: int
    fields: http.client.HTTPMessage
    text: str

    @property
    def cache(self) -> str:
        """Cache-Status without the cache's name."""
        return self.fields.get("cache-status", "").partition("; ")[2]

    @property
    def hit(self) -> bool:
        return self.cache.startswith("hit")

    @property
    def stored(self) -> bool:
        return "stored" in self.cache.split("; ")

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.text)


@dataclass(frozen=True)
class Place:
    """A server on this machine; a target is asked for exactly as it is."""

    port: int
    host: str = "en.example"

    def __str__(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        target: str,
        method: str = "GET",
        body: str | None = None,
        *,
        host: str = "",
        client: str = "",
        **fields: str,
    ) -> Answer:
        """The answer to a request, which `client` (an address of this machine) sends."""
        source = (client, 0) if client else None
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=source
        )
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        if body is not None and "Content-Type" not in named:
            named["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            content = None if body is None else body.encode()
            length = {} if content is None else {"Content-Length": str(len(content))}
            for name, value in {"Host": host or self.host, **named, **length}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode("utf-8", "replace"))
        finally:
            connection.close()
