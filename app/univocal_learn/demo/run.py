"""`univocal demo`: the origins, the proxy before them and its admin listener in one process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from univocal_app.commands.settings import address, flag, option
from univocal_app.config import COMMAND_LINE
from univocal_app.config.tables import validate
from univocal_app.config.values import Address
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound, address_of, bind
from univocal_app.run.serve import Served, Serving, run
from univocal_learn.demo.origins import FileStore, ServletLike, Wiki
from univocal_learn.demo.tries import Ports, as_page, as_text, write_files
from univocal_learn.demo.visitors import Visitors


def demo_command(
    listen: Annotated[
        str, option("HOST:PORT", "The address for clients.", envvar="UNIVOCAL_LISTEN")
    ] = "127.0.0.1:8080",
    admin: Annotated[
        str, option("HOST:PORT", "The address of the admin listener.", envvar="UNIVOCAL_ADMIN")
    ] = "127.0.0.1:8081",
    visitors: Annotated[
        bool, flag("--visitors", "Send sample requests, so that the page shows something.")
    ] = False,
) -> None:
    """Run the proxy with four small origin servers, and print commands to try."""
    front_address, back_address = address(listen, "--listen"), address(admin, "--admin")
    with TemporaryDirectory(prefix="univocal-demo-") as directory:
        _demo(front_address, back_address, Path(directory), visited=visitors)


def _demo(listen: Address, admin: Address, directory: Path, *, visited: bool) -> None:
    """Serve until Ctrl-C, with visitors if wanted. Raises ConfigurationError for an unusable address."""
    front, back = bind(listen, COMMAND_LINE, "--listen"), bind(admin, COMMAND_LINE, "--admin")
    page = Starlette()
    origins = {
        name: Served(app, bind(Address("127.0.0.1", 0), COMMAND_LINE, f"the demo's {name}"))
        for name, app in (
            ("wiki", Wiki()),
            ("servlet", ServletLike()),
            ("files", FileStore()),
            ("page", page),
        )
    }
    addresses = {name: address_of(each.socket) for name, each in origins.items()}
    at = Ports(
        address_of(front), address_of(back), addresses["wiki"], addresses["servlet"], directory, _program()
    )
    write_files(directory)
    page.router.routes.append(Route("/", _answer(as_page(at))))
    proxy = Proxy(validate(settings(at, addresses), COMMAND_LINE))
    listeners = [*origins.values(), proxy.front(Bound(front)), proxy.back(Bound(back))]
    visitors = Visitors(at.proxy)

    def ready() -> None:
        typer.echo(as_text(at))
        if visited:
            visitors.begin()

    closes = [visitors.aclose, proxy.aclose]
    run(Serving(listeners, [proxy.start], closes, lambda _: proxy.events.close()), ready)


def settings(at: Ports, origins: dict[str, Address]) -> dict[str, Any]:
    """The demo's univocal.toml."""
    proxy = at.proxy
    profiles = {"wiki": "mediawiki", "servlet": "servlet", "files": "upload"}
    sites: list[dict[str, Any]] = [
        {"hosts": [f"{name}.localhost"], "profile": profile, "upstream": f"http://{origins[name]}"}
        for name, profile in profiles.items()
    ]
    own = sorted({"localhost", "127.0.0.1", f"[{proxy.host}]" if ":" in proxy.host else proxy.host})
    sites.append({"hosts": own, "profile": "asgi", "upstream": f"http://{origins['page']}"})
    return {"server": {"access_log": "off", "admin": str(at.admin)}, "sites": sites}


def _program() -> str:
    """The name by which the reader's shell finds univocal: with its folder where that is not in PATH."""
    own = Path(sys.argv[0])
    return str(own) if own.name == "univocal" and shutil.which("univocal") is None else "univocal"


def _answer(page: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return HTMLResponse(page, headers={"cache-control": "s-maxage=60"})

    return answer
