"""`univocal demo`: the proxy before three small origin servers."""

from __future__ import annotations

from typing import Annotated

import typer

from univocal_app.commands.settings import address
from univocal_app.demo import demo

__all__ = ["demo_command"]


def demo_command(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_LISTEN", help="Where clients connect.")
    ] = "127.0.0.1:8080",
    admin: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_ADMIN", help="Where the admin listener is.")
    ] = "127.0.0.1:8081",
    visitors: Annotated[bool, typer.Option("--visitors", help="Send sample requests for the page.")] = False,
) -> None:
    """Run the proxy before three small origins, and print what to try."""
    demo(address(listen, "--listen"), address(admin, "--admin"), visited=visitors)
