"""The options that several commands have, and a configuration of one profile for every host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from univocal.http.errors import ConfigurationError, Objections
from univocal.judge.profiles import profile_at
from univocal_app.config import COMMAND_LINE
from univocal_app.config.tables import Configuration, validate
from univocal_app.config.values import Address, Place, parse_address, parse_place

Texts = list[str] | None


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """An option with a value."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def config_option(**more: str) -> Any:
    """The option that names a configuration file; errors of that file are lines, and no usage errors."""
    return option("FILE", "The configuration file, a univocal.toml.", "--config", readable=False, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


Config = Annotated[Path | None, config_option()]
Listen = Annotated[Texts, option("ADDRESS", "An address for clients. Repeatable.", envvar="UNIVOCAL_LISTEN")]
Admin = Annotated[
    Texts, option("ADDRESS", "An address of the admin listener. Repeatable.", envvar="UNIVOCAL_ADMIN")
]


def address(text: str | None, option: str) -> Address:
    """The address that an option gives. Raises ConfigurationError."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigurationError(COMMAND_LINE, option, text, str(error)) from None


def place(text: str, key: str) -> Place:
    """The place of a listener, by its setting; the admin listener's may be a URL, as for other commands.

    Raises ConfigurationError.
    """
    written = text.removeprefix("http://").rstrip("/") if key == "server.admin" else text
    try:
        return parse_place(written)
    except ValueError as error:
        raise ConfigurationError(COMMAND_LINE, key, text, str(error)) from None


def usage(message: str) -> NoReturn:
    """End the program with status 2 and a message."""
    raise typer.BadParameter(message)


@contextmanager
def usage_errors(*errors: type[Exception], of: str = "") -> Iterator[None]:
    """Have these errors, ValueError by default, end the program with status 2 and their words."""
    errors = errors or (ValueError,)
    try:
        yield
    except errors as error:
        usage(of + (str(error) or type(error).__name__))


def write_file(file: Path, content: bytes) -> None:
    """Write a file that an option names. Raises ConfigurationError."""
    try:
        file.write_bytes(content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(str(file), "", reason, "a file that can be written") from None


def everywhere(upstreams: list[str], profile: str | None) -> Configuration:
    """The configuration of one site, which has every host. Raises ConfigurationError."""
    site = {"hosts": ["*"], "profile": profile or "rfc3986"}
    objections = Objections()
    with objections:
        profile_at(str(site["profile"]), COMMAND_LINE, "sites[0].profile")
    with objections:
        upstream = upstreams if len(upstreams) > 1 else upstreams[0]
        configuration = validate({"sites": [{**site, "upstream": upstream}]}, COMMAND_LINE)
    objections.conclude()
    return configuration
