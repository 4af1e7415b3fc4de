"""The times that an origin server may take."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from univocal.http.errors import ConfigurationError
from univocal.http.settings import duration, setting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the origin server, None without limit; `read` and `write` hold for each one.

    Raises ConfigurationError for an invalid time.
    """

    connect: float | None = setting(5, duration, "connect_timeout")
    read: float | None = setting(60, duration, "read_timeout")
    write: float | None = 60.0
    pool: float | None = 5.0

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (number and seconds > 0):
                raise ConfigurationError("Timeouts", name, seconds, "seconds, more than 0; None for ever")
