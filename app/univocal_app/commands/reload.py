"""The client side of a reload: the proxy's admin listener is asked, and its answer told."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Final, NamedTuple

from univocal_app.commands.purge import Server, token_in

__all__ = ["Reloaded", "reload"]

_REFUSED: Final = 422


class Reloaded(NamedTuple):
    """The end of a reload: what is told of it, and the program's exit status."""

    text: str
    status: int


def reload(admin: str, token_env: str) -> Reloaded:
    """Ask for a reload. Raises ValueError for an address that is none and a token that cannot be sent."""
    token = token_in(token_env)
    fields = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(Server(admin)) as server:
        try:
            status, content = server.ask("POST", "/-/reload", fields)
        except (OSError, http.client.HTTPException) as error:
            return Reloaded(f"univocal: {admin} did not answer: {error or type(error).__name__}", 1)
    try:
        answer = json.loads(content)
        if status == 200:
            changed = [str(key) for key in answer["changed"]]
            return Reloaded("\n".join(changed) or "nothing has changed", 0)
        lines = str(answer["detail"]).splitlines()
    except (ValueError, TypeError, KeyError):
        return Reloaded(f"univocal: {admin} answered {status}, not as univocal does", 1)
    return Reloaded("\n".join(f"univocal: {line}" for line in lines), 2 if status == _REFUSED else 1)
