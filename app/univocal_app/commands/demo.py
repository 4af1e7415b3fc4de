"""`univocal demo`: the proxy before four small origin servers."""

from __future__ import annotations

from typing import Annotated

import typer

from univocal_app.commands.settings import address
from univocal_app.demo import demo


def demo_command(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_LISTEN", help="The address for clients.")
    ] = "127.0.0.1:8080",
    admin: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_ADMIN", help="The address of the admin listener."),
    ] = "127.0.0.1:8081",
    visitors: Annotated[
        bool, typer.Option("--visitors", help="Send sample requests, so that the page shows something.")
    ] = False,
) -> None:
    """Run the proxy with four small origin servers, and print commands to try."""
    demo(address(listen, "--listen"), address(admin, "--admin"), visited=visitors)
