"""`univocal` without the extra `proxy`: the commands that need the library alone."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from univocal.http.errors import UnivocalError
from univocal.judge.profiles import builtin_profiles, profile_at
from univocal.uri.sites import Sites
from univocal_app.commands.service_files import SERVICE_FILES
from univocal_app.observe.explain import explain
from univocal_app.terminal import describe, table, version_text

_ADVICE: Final = "pip install 'univocal[proxy]'"


def main(missing: str) -> None:
    """Run one of the few commands, or say how to get the others; `missing` is a module that they need."""
    arguments = sys.argv[1:2]
    if arguments and arguments[0] not in _COMMANDS and not arguments[0].startswith("-"):
        sys.exit(f"univocal: {arguments[0]} needs {missing}: {_ADVICE}")
    options = _parser().parse_args()
    if options.command is None:
        _parser().print_help()
        return
    try:
        sys.exit(_COMMANDS[options.command](options))
    except (UnivocalError, ValueError) as error:
        sys.exit(f"univocal: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="univocal",
        description="One resource, one URL. The library is installed, the proxy is not.",
        epilog=f"The proxy and all other commands: {_ADVICE}",
    )
    parser.add_argument("--version", action="version", version=version_text())
    commands = parser.add_subparsers(dest="command")
    about = commands.add_parser("explain", help="show what becomes of a URL, stage by stage")
    about.add_argument("url")
    about.add_argument(
        "--profile", default="rfc3986", metavar="NAME|FILE", help="the profile to read it by (rfc3986)"
    )
    about.add_argument("--json", action="store_true", help="for programs")
    listed = commands.add_parser("profiles", help="list the profiles, or show one")
    listed.add_argument("name", nargs="?", choices=sorted(builtin_profiles()), metavar="NAME")
    files = commands.add_parser(
        "files", help="list the files for systemd, logrotate and Grafana, or print one"
    )
    files.add_argument("name", nargs="?", choices=sorted(SERVICE_FILES), metavar="NAME")
    return parser


def _explain(options: argparse.Namespace) -> int:
    profile = profile_at(options.profile, "command line", "--profile")
    explanation = explain(options.url, Sites.everywhere(profile))
    _print(explanation.as_json() if options.json else explanation.as_text())
    return 0 if explanation.accepted else 1


def _profiles(options: argparse.Namespace) -> int:
    known = builtin_profiles()
    if options.name is not None:
        _print(describe(known[options.name]))
    else:
        _print(table([(each.name, each.summary) for each in known.values()]))
    return 0


def _files(options: argparse.Namespace) -> int:
    if options.name is not None:
        sys.stdout.write(SERVICE_FILES[options.name].text())
    else:
        _print(table([(each.name, each.place, each.summary) for each in SERVICE_FILES.values()]))
    return 0


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


_COMMANDS: Final = {"explain": _explain, "profiles": _profiles, "files": _files}
