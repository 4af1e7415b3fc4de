"""`univocal reload`: have a running proxy read its configuration again."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from typing import Final

import typer

from univocal_app.commands import server
from univocal_app.commands.settings import usage_errors

_REFUSED: Final = 422


def reload(admin: str, token_env: str, context: ssl.SSLContext | None = None) -> tuple[str, int]:
    """Ask for a reload: what is told of it, and the program's exit status.

    Raises ValueError for an invalid address and a token that cannot be sent.
    """
    fields = server.credentials(token_env)
    with closing(server.Server(admin, context)) as asked:
        try:
            status, content = asked.ask("POST", "/-/reload", fields)
        except (OSError, http.client.HTTPException) as error:
            return f"univocal: {admin} did not answer: {error or type(error).__name__}", 1
    try:
        answer = json.loads(content)
        if status == 200:
            return "\n".join(map(str, answer["changed"])) or "nothing has changed", 0
        lines = str(answer["detail"]).splitlines()
    except (ValueError, TypeError, KeyError):
        return f"univocal: {admin} answered {status}, which is not an answer of univocal", 1
    return "\n".join(f"univocal: {line}" for line in lines), 2 if status == _REFUSED else 1


def reload_command(
    admin: server.Admin = server.ADMIN,
    token_env: server.TokenEnv = server.TOKEN_ENV,
    ca: server.Ca = None,
    insecure: server.Insecure = False,
) -> None:
    """Make a running proxy reload its configuration, and print the changed keys.

    Exit status: 0 reloaded, 1 no answer or no rights, 2 usage error or invalid configuration.
    """
    with usage_errors():
        text, status = reload(admin, token_env, server.trust(ca, insecure=insecure))
    typer.echo(text, err=status != 0)
    raise typer.Exit(status)
