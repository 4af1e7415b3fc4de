"""A build hook of hatchling: it compiles what is on the way of a request with mypyc.

    HATCH_BUILD_HOOKS_ENABLE=1 pip wheel .

The wheel has the sources, too, for tracebacks and type checkers. Without that variable and in a checkout, the
same files run as they are. The plugin hatch-mypyc is for a project with one source root, and writes what it
compiles beside the sources.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOMS = ("http", "uri", "cache", "origin", "store", "forward", "judge", "engine", "asgi", "server")
# These run as they are: mypyc has no asynchronous generators and no classes that extend Mapping, foreign
# transports are awaited, other stores wait for Redis or for room on a disk and extend their roles, and
# the mark of what may be subclassed is our own. Users subclass the ASGI applications, and frameworks
# inspect their __call__. Settings of an application may be lists for tuples, and mistakes in them are
# named: compiled, both are a TypeError.
INTERPRETED = (
    "asgi/handlers.py",
    "asgi/messages.py",
    "asgi/middleware.py",
    "asgi/reverse_proxy.py",
    "cache/rules.py",
    "http/compiling.py",
    "judge/profiles.py",
    "origin/client_library.py",
    "origin/failures.py",
    "store/roles.py",
    "store/redis/*.py",
)
# The program counts and logs each request.
OBSERVERS = ("accesslog", "counts", "figures", "handled", "last_failures", "log_lines", "top")
# No other library calls a function of ours: so calls between modules are direct, and may be inlined.
FLAGS = ["-fvisibility=hidden"] if os.name == "posix" else []
# Type checks stop the build, but for those that another release of mypy or of a dependency may add.
MYPY = ("--no-warn-unused-ignores", "--no-warn-unreachable")


class CompiledBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds one shared library, and for each compiled module a small one that imports it from there."""

    PLUGIN_NAME = "custom"
    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say that the wheel is for this platform."""
        if version == "editable":
            return
        look_for_compiler()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="univocal-compiled-"))
        for library in compiled(self._sources(), folder):
            build_data["force_include"][str(library)] = library.relative_to(folder / "libraries").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled: it is in the wheel."""
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def _sources(self) -> list[str]:
        library = Path(self.root, "middleware", "univocal")
        interpreted = {file for pattern in INTERPRETED for file in library.glob(pattern)}
        files = sorted(file for room in ROOMS for file in library.glob(f"{room}/**/*.py"))
        files = [file for file in files if file not in interpreted]
        files += [Path(self.root, "app", "univocal_app", "observe", f"{name}.py") for name in OBSERVERS]
        return [str(file.relative_to(self.root)) for file in files]


def look_for_compiler() -> None:
    """Raise RuntimeError if this machine has no C compiler: mypyc would work for minutes before that."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    if command and shutil.which(command[0]) is None:
        raise RuntimeError(
            f"no C compiler: there is no program {command[0]!r}. Install one (Debian: gcc, python3-dev), "
            "or unset HATCH_BUILD_HOOKS_ENABLE for the pure wheel."
        )


def compiled(sources: list[str], folder: Path) -> list[Path]:
    """Compile modules of the working directory; the libraries, below `folder`/libraries."""
    # mypyc asks which of setuptools and distutils was imported before it.
    from setuptools import Distribution  # noqa: PLC0415, I001  needed for this alone
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415
    from mypyc.build import mypycify  # noqa: PLC0415

    extensions = mypycify(
        [f"--cache-dir={folder / 'cache'}", *MYPY, *sources],
        debug_level="0",
        multi_file=True,
        group_name="univocal",
        target_dir=str(folder / "c"),
    )
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]
    command = build_ext(Distribution({"name": "univocal", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(folder / "libraries"), str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return [Path(output) for output in command.get_outputs()]
