"""A path ends like a static file, and the response is none."""

import pytest

from univocal.cache.deception import contradicts


@pytest.mark.parametrize(
    ("target", "content_type", "expected"),
    [
        (b"/account", b"text/html", False),
        (b"/account?x=a.css", b"text/html", False),
        (b"/account/x.css", b"text/html", True),
        (b"/account/x.CSS", b"Text/HTML; charset=utf-8", True),
        (b"/account/x.css", None, True),
        (b"/account/x.css", b"text/css", False),
        (b"/account/x.css", b"application/octet-stream", False),
        (b"/account;x.css", b"text/html", True),
        (b"/account%3Bx.css", b"text/html", True),
        (b"/account/x%2Ecss", b"text/html", True),
        (b"/account/x.css/", b"text/html", True),
        (b"/account/x.css%20", b"text/html", True),
        (b"/x.css/account", b"text/html", False),
        (b"/a.zip", b"application/xhtml+xml", True),
        (b"/a.zip", b"application/zip", False),
        (b"/a.unknown", b"text/html", False),
        (b"/%2", b"text/html", False),
        (b"", b"text/html", False),
    ],
)
def test_an_extension_and_a_content_type(target, content_type, expected):
    assert contradicts(target, content_type) is expected
