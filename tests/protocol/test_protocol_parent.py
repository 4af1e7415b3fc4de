"""uvicorn's protocol classes are no public interface: of HTTP/2's one this fails when it changes.

If it does, read the new source beside h2.py, and only then set the digests.
"""

import hashlib
import inspect
from importlib.metadata import version

import pytest
from uvicorn.protocols.http import zttp_h2_impl as http2
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from univocal.server import h2


def digest(thing):
    return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()[:16]


def methods(cls):
    return {name for name, value in vars(cls).items() if inspect.isfunction(value)}


H2_DIGESTS = {
    "ZttpH2Protocol": "7d59ad12ce212bce",
    "RequestResponseCycle": "34962a235a6eb06e",
}


def test_what_is_used_for_http_2_is_named():
    unused = {
        *("_unset_keepalive_if_required", "eof_received", "handle_events", "on_stream_closed", "shutdown"),
        "timeout_keep_alive_handler",
    }
    ours = methods(h2.BoundedH2Protocol)
    assert ours & methods(ZttpH2Protocol) == set(h2.OVERRIDES)
    assert methods(ZttpH2Protocol) == set(h2.OVERRIDES) | set(h2.RELIES_ON) | unused


@pytest.mark.parametrize("name", H2_DIGESTS)
def test_what_is_used_for_http_2_is_what_we_know(name):
    assert digest(getattr(http2, name)) == H2_DIGESTS[name]


def test_the_version_of_zttp_is_the_pinned_one():
    assert version("zttp") == "0.0.35"
