"""`python -m univocal_app` is `univocal`, the program; its libraries are an extra."""

from __future__ import annotations

import gc
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the program, or say what it lacks; interrupted before a command has begun, it ends quietly."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _run() -> None:
    gc.disable()  # importing makes many objects and no garbage
    if sys.argv[1:2] == ["serve"]:
        # They would end it before it hears them; `run.serve.run` does, as soon as it serves.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM))
    try:
        from univocal_app.commands.cli import main as run  # noqa: PLC0415  this is what may fail
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("univocal"):
            raise
        sys.exit(f"univocal: the program needs {error.name}: pip install 'univocal[proxy]'")
    gc.enable()
    run()


if __name__ == "__main__":
    main()
