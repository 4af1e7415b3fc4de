"""`python -m univocal_app` is `univocal`, the program; its libraries are an extra."""

from __future__ import annotations

import gc
import signal
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the program, or the few commands that need no extra.

    Interrupted before a command has begun, it ends quietly.
    """
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _run() -> None:
    gc.disable()  # importing makes many objects and no garbage; `cli` enables it when a command is there
    if sys.argv[1:2] == ["serve"]:
        # They would end it before it hears them; `run.serve.run` does, as soon as it serves.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM))
    try:
        for library in ("prometheus_client", "pydantic", "uvicorn"):  # each is imported when it is used
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        from univocal_app.commands.cli import main as run  # noqa: PLC0415  this is what may fail
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("univocal"):
            raise
        from univocal_app.commands.library_alone import main as few  # noqa: PLC0415

        few(error.name or "more")
        return
    run()


if __name__ == "__main__":
    main()
