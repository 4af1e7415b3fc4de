"""The files that a service needs around the program: units, rules of logrotate, a dashboard."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final, NamedTuple

_PACKAGED: Final = Path(__file__).parents[1] / "deploy"
_DIRECTORY: Final = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "deploy"


class ServiceFile(NamedTuple):
    """A file below deploy/, and where it goes."""

    path: str
    place: str
    summary: str

    @property
    def name(self) -> str:
        """The name that it has there."""
        return self.path.rpartition("/")[2]

    def text(self) -> str:
        """The file's content."""
        return (_DIRECTORY / self.path).read_text("utf-8")


SERVICE_FILES: Final = {
    each.name: each
    for each in (
        ServiceFile("systemd/univocal.service", "/etc/systemd/system", "systemd: the proxy as a service"),
        ServiceFile("systemd/univocal.socket", "/etc/systemd/system", "systemd binds the proxy's listener"),
        ServiceFile(
            "systemd/univocal-admin.socket", "/etc/systemd/system", "systemd binds the admin listener"
        ),
        ServiceFile("logrotate/univocal", "/etc/logrotate.d", "logrotate: fourteen days of the access log"),
        ServiceFile("grafana/univocal.json", "Grafana, Import dashboard", "the metrics as a dashboard"),
    )
}


def written_to(directory: Path, files: list[ServiceFile], *, anew: bool) -> list[Path]:
    """Write files into a directory; the paths that they have there.

    Raises FileExistsError before any is written, unless `anew`, and OSError where none can be written.
    """
    paths = [directory / each.name for each in files]
    for path in paths:
        if path.exists() and not anew:
            raise FileExistsError(errno.EEXIST, "the file exists", str(path))
    for path, each in zip(paths, files, strict=True):
        path.write_text(each.text(), "utf-8")
    return paths
