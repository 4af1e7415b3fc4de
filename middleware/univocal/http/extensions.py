"""Names of the extensions by which this program and ASGI servers tell one another more than ASGI does."""

from __future__ import annotations

from typing import Final

EXTENSION: Final = "univocal.target"  # {"target": bytes}: what was received, or what is canonical
EARLY_HINT: Final = "http.response.early_hint"  # {"links": […]}: the ASGI extension for 103
INTERIM: Final = "http.response.informational"  # {"status": 103, "headers": […]}: a message for any 1xx
