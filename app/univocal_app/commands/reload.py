"""`univocal reload`: have a running proxy read its configuration again."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from typing import Final, NamedTuple

import typer

from univocal_app.commands.server import (
    ADMIN,
    TOKEN_ENV,
    Admin,
    Ca,
    Insecure,
    Server,
    TokenEnv,
    token_in,
    trust,
)

_REFUSED: Final = 422


class Reloaded(NamedTuple):
    """The end of a reload: what is told of it, and the program's exit status."""

    text: str
    status: int


def reload(admin: str, token_env: str, context: ssl.SSLContext | None = None) -> Reloaded:
    """Ask for a reload. Raises ValueError for an invalid address and a token that cannot be sent."""
    token = token_in(token_env)
    fields = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(Server(admin, context)) as server:
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
        return Reloaded(f"univocal: {admin} answered {status}, which is not an answer of univocal", 1)
    return Reloaded("\n".join(f"univocal: {line}" for line in lines), 2 if status == _REFUSED else 1)


def reload_command(
    admin: Admin = ADMIN, token_env: TokenEnv = TOKEN_ENV, ca: Ca = None, insecure: Insecure = False
) -> None:
    """Make a running proxy reload its configuration, and print the changed keys.

    Exit status: 0 reloaded, 1 no answer or no rights, 2 usage error or invalid configuration.
    """
    try:
        result = reload(admin, token_env, trust(ca, insecure=insecure))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(result.text, err=result.status != 0)
    raise typer.Exit(result.status)
