"""Web cache deception: a path ends like a static file, and the response is none."""

from __future__ import annotations

import re
from typing import Final

_JAVASCRIPT: Final = (
    b"text/javascript",
    b"application/javascript",
    b"application/x-javascript",
    b"text/ecmascript",
)
_SOUND: Final = (b"audio/", b"video/", b"application/ogg")
_ANY: Final = (b"application/",)
_TYPES: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"css": (b"text/css",),
    b"js": _JAVASCRIPT,
    b"mjs": _JAVASCRIPT,
    b"map": (b"application/json", *_JAVASCRIPT),
    b"json": (b"application/", b"text/json", b"text/plain"),
    b"txt": (b"text/plain",),
    b"csv": (b"text/csv", b"text/plain", b"application/"),
    b"xml": (b"application/", b"text/xml"),
    b"pdf": (b"application/pdf",),
    b"wasm": (b"application/wasm",),
    **dict.fromkeys((b"png", b"jpg", b"jpeg", b"gif", b"webp", b"avif"), (b"image/",)),
    **dict.fromkeys((b"bmp", b"ico", b"svg", b"svgz"), (b"image/",)),
    **dict.fromkeys((b"woff", b"woff2", b"ttf", b"otf", b"eot"), (b"font/", b"application/")),
    **dict.fromkeys((b"mp4", b"webm", b"mkv", b"mov", b"m4v", b"ogv"), (b"video/",)),
    **dict.fromkeys((b"mp3", b"ogg", b"oga", b"wav", b"flac", b"m4a", b"aac"), _SOUND),
    **dict.fromkeys((b"zip", b"gz", b"tgz", b"bz2", b"xz", b"zst", b"7z", b"rar", b"tar", b"jar"), _ANY),
    **dict.fromkeys((b"doc", b"docx", b"xls", b"xlsx", b"ppt", b"pptx"), _ANY),
    **dict.fromkeys((b"exe", b"msi", b"dmg", b"iso"), _ANY),
}


# The bytes at which some server ends a name, as they are or escaped: anything but letters, digits and
# "-._~".
_DELIMITER: Final = re.compile(rb"%[0-9A-Fa-f]{2}|[^0-9A-Za-z._~-]")
_DOT: Final = re.compile(rb"%2[Ee]")


def contradicts(target: bytes, content_type: bytes | None) -> bool:
    """The Content-Type is none of those that an extension at the end of the path stands for.

    The end is the last segment with a name, with what follows it: "/a.css/", "/a;x.css", "/a.css%20".
    """
    path = target.partition(b"?")[0]
    if b"%2" in path:
        path = _DOT.sub(b".", path)
    if b"." not in path:
        return False
    names = _last_names(path)
    essence = (content_type or b"").partition(b";")[0].strip(b" \t").lower()
    return any(_is_none_of(_TYPES.get(name.rpartition(b".")[2].lower()), essence) for name in names)


def _last_names(path: bytes) -> list[bytes]:
    names: list[bytes] = []
    for segment in reversed(path.split(b"/")):
        pieces = _DELIMITER.split(segment)
        names += [piece for piece in pieces if b"." in piece]
        if pieces[0]:
            break
    return names


def _is_none_of(expected: tuple[bytes, ...] | None, essence: bytes) -> bool:
    if expected is None:
        return False
    html = essence in {b"application/xhtml+xml", b"text/html"}
    return html or not (essence.startswith(expected) or essence == b"application/octet-stream")
