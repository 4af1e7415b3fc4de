"""`univocal origins` and `univocal reload`: what an operator has a running proxy do."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from typing import Annotated, Any, Final, Literal

import typer

from univocal_app.commands.endings import ending_cleanly
from univocal_app.commands.server import ADMIN, TOKEN_ENV, Admin, AdminClient, Ca, Insecure, TokenEnv
from univocal_app.commands.settings import argument, flag, option
from univocal_app.terminal import printable, table

LOOK: Final = 0.5  # seconds between two looks at what is under way

Action = Annotated[
    Literal["list", "drain", "enable"], argument("ACTION", "list, drain (take out) or enable (put back).")
]
Url = Annotated[str | None, argument("URL", "The origin server's URL, as configured.")]
Wait = Annotated[float, option("SECONDS", "After drain, wait for requests under way there.", min=0)]


def origins_command(
    action: Action = "list",
    url: Url = None,
    *,
    wait: Wait = 0.0,
    admin: Admin = ADMIN,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    token_env: TokenEnv = TOKEN_ENV,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Show the state of the origin servers, take one out, or put it back.

    Exit status: 0 done; 1 rejected, no answer, or requests still under way after --wait; 2 usage error.
    """
    if (action == "list") is not (url is None) or (wait and action != "drain"):
        raise typer.BadParameter("use origins, origins drain URL [--wait SECONDS], or origins enable URL")
    client = AdminClient(admin, token_env, ca, insecure=insecure)
    with ending_cleanly():
        if url is None:
            rows = client.get("/-/origins")
        else:
            rows = client.post(f"/-/origins/{action}", {"url": url})["origins"]
        rows = _waited(client, rows, wait)
        typer.echo(json.dumps(rows, indent=2) if as_json else _text(rows))
    if wait and _under_way(rows):
        typer.echo(f"univocal: requests are still under way after {wait:g} seconds", err=True)
        raise typer.Exit(1)


def _waited(client: AdminClient, rows: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The rows of these origin servers once nothing is under way there, or when the time is over."""
    end = time.monotonic() + seconds
    places = {(each["site"], each["url"]) for each in rows}
    while _under_way(rows) and time.monotonic() < end:
        time.sleep(LOOK)
        rows = [each for each in client.get("/-/origins") if (each["site"], each["url"]) in places]
    return rows


def _under_way(rows: list[dict[str, Any]]) -> int:
    return sum(int(each["under_way"]) for each in rows)


def _text(rows: list[dict[str, Any]]) -> str:
    head = ("STATE", "SITE", "URL", "REQUESTS", "FAILURES", "UNDER WAY", "SINCE", "REASON")
    return table([head, *map(_row, rows)])


def _row(each: dict[str, Any]) -> list[str]:
    address = f" ({each['address']})" if "address" in each else ""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each["since"]))
    place = each["site"] if each["path"] == "/" else each["site"] + each["path"]
    cells = [each["state"], place, each["url"] + address, each["requests"], each["failures"]]
    cells += [each["under_way"], since, each["reason"] or ""]
    return [printable(str(cell).encode("utf-8", "backslashreplace")) for cell in cells]


def reload_command(
    admin: Admin = ADMIN, token_env: TokenEnv = TOKEN_ENV, ca: Ca = None, insecure: Insecure = False
) -> None:
    """Make a running proxy reload its configuration, and print the changed keys.

    Exit status: 0 reloaded, 1 no answer or no rights, 2 usage error or invalid configuration.
    """
    text, status = _reloaded(AdminClient(admin, token_env, ca, insecure=insecure), admin)
    typer.echo(text, err=status != 0)
    raise typer.Exit(status)


def _reloaded(client: AdminClient, address: str) -> tuple[str, int]:
    """The text about a reload, and the exit status of the program."""
    try:
        with closing(client.server) as server:
            status, content = server.ask("POST", "/-/reload", client.fields)
    except (OSError, http.client.HTTPException) as error:
        return f"univocal: {address} did not answer: {error or type(error).__name__}", 1
    try:
        answer = json.loads(content)
        if status == 200:
            return "\n".join(map(str, answer["changed"])) or "nothing has changed", 0
        lines = str(answer["detail"]).splitlines()
    except (ValueError, TypeError, KeyError):
        return f"univocal: {address} answered {status}, which is not an answer of univocal", 1
    return "\n".join(f"univocal: {line}" for line in lines), 2 if status == 422 else 1
