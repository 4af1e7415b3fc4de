"""uvicorn's protocol classes are no public interface: this fails when what we use of them changes.

If it does, read the new source beside bounds.py, cycle.py and protocol.py, and only then set the digests.
"""

import hashlib
import inspect
import re
from importlib.metadata import version

import pytest
import uvicorn
from uvicorn.protocols.http import flow_control
from uvicorn.protocols.http import zttp_h2_impl as http2
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from univocal.server import h2
from univocal.server.bounds import OVERRIDES, RELIES_ON, BoundedConnection, Flow
from univocal.server.cycle import ExactCycle
from univocal.server.delivery import Delivering
from univocal.server.direct import DirectProtocol
from univocal.server.protocol import ExactProtocol
from univocal.server.turn import Turn

DIGESTS = {
    "HttpToolsProtocol.__init__": "4f08999410347141",
    "HttpToolsProtocol._get_upgrade": "7b1305aac7b87064",
    "HttpToolsProtocol._should_upgrade": "8fcad1ab8e096739",
    "HttpToolsProtocol._should_upgrade_to_ws": "d580849b4df878c3",
    "HttpToolsProtocol._start_asgi_task": "9c08c2571ae9b038",
    "HttpToolsProtocol.connection_lost": "c91a4c9bf2e29c55",
    "HttpToolsProtocol.connection_made": "6efb565ff3d36b91",
    "HttpToolsProtocol.data_received": "010a7ae59a5d3b1a",
    "HttpToolsProtocol.eof_received": "5652627579a02369",
    "HttpToolsProtocol.handle_websocket_upgrade": "179c4f769386ab89",
    "HttpToolsProtocol.on_body": "dba9c32aeba35b6a",
    "HttpToolsProtocol.on_header": "65d62c044f61fdbd",
    "HttpToolsProtocol.on_headers_complete": "1ea8589acfad92d8",
    "HttpToolsProtocol.on_message_begin": "96d377fdc7c2baef",
    "HttpToolsProtocol.on_message_complete": "1fbad42dc31fc01f",
    "HttpToolsProtocol.on_response_complete": "64e254f28e389e76",
    "HttpToolsProtocol.on_url": "37be44e962b04ca8",
    "HttpToolsProtocol.pause_writing": "17a8fd215d96a13c",
    "HttpToolsProtocol.resume_writing": "7844bbaa8cceb1ef",
    "HttpToolsProtocol.shutdown": "d7351fa33f00d430",
    "RequestResponseCycle": "e67d470d435dcc1c",
    "FlowControl": "126debcdaa894c83",
}


def digest(thing):
    return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()[:16]


def methods(cls):
    return {name for name, value in vars(cls).items() if inspect.isfunction(value)}


def test_the_version_is_the_pinned_one():
    assert uvicorn.__version__.split(".")[:2] == ["0", "54"]


def test_all_that_is_overridden_is_named():
    classes = (Delivering, BoundedConnection, ExactProtocol, DirectProtocol)
    ours = set().union(*map(methods, classes)) & methods(HttpToolsProtocol) - {"_start_asgi_task"}
    assert ours == set(OVERRIDES)
    assert methods(ExactCycle) & methods(RequestResponseCycle) == {"send", "receive"}
    assert methods(Flow) & methods(flow_control.FlowControl) == {"pause_reading", "resume_reading"}


def test_all_that_goes_to_an_engine_instead_of_an_application_is_named():
    ours = methods(DirectProtocol) & methods(HttpToolsProtocol)
    # A turn is begun where an application would be called.
    instead = {"_start_asgi_task"}
    assert instead <= set(RELIES_ON)
    assert ours - set(OVERRIDES) == instead
    assert ours - instead == {
        *("__init__", "connection_lost", "connection_made"),
        *("data_received", "on_body", "on_message_complete", "resume_writing", "shutdown"),
    }


def test_a_turn_has_what_uvicorn_reads_of_its_own_cycles():
    source = inspect.getsource(HttpToolsProtocol)
    read = set(re.findall(r"self\.cycle\.(\w+)", source))
    assert read >= {"response_complete", "keep_alive", "disconnected", "message_event"}
    # `body` is filled by the parent's on_body alone, which is overridden.
    assert read - {"body"} <= set(Turn.__slots__)


def test_every_method_of_the_parent_is_accounted_for():
    unused = {
        *("_unsupported_upgrade_warning", "send_400_response"),
        *("_unset_keepalive_if_required", "timeout_keep_alive_handler"),
    }
    assert methods(HttpToolsProtocol) == set(OVERRIDES) | set(RELIES_ON) | unused


@pytest.mark.parametrize("name", [*OVERRIDES, *RELIES_ON])
def test_the_parents_methods_are_those_we_know(name):
    assert digest(getattr(HttpToolsProtocol, name)) == DIGESTS[f"HttpToolsProtocol.{name}"]


@pytest.mark.parametrize(
    "thing", [RequestResponseCycle, flow_control.FlowControl], ids=lambda thing: thing.__name__
)
def test_the_classes_we_extend_are_those_we_know(thing):
    assert digest(thing) == DIGESTS[thing.__name__]


# HTTP/2: a class of uvicorn's that is experimental, and will change.

H2_DIGESTS = {
    "ZttpH2Protocol": "7d59ad12ce212bce",
    "RequestResponseCycle": "34962a235a6eb06e",
}


def test_what_is_used_for_http_2_is_named():
    unused = {
        *("_unset_keepalive_if_required", "eof_received", "handle_events", "on_stream_closed", "shutdown"),
        "timeout_keep_alive_handler",
    }
    ours = methods(h2.BoundedH2Protocol) | methods(Delivering)
    assert ours & methods(ZttpH2Protocol) == set(h2.OVERRIDES)
    assert methods(ZttpH2Protocol) == set(h2.OVERRIDES) | set(h2.RELIES_ON) | unused


@pytest.mark.parametrize("name", H2_DIGESTS)
def test_what_is_used_for_http_2_is_what_we_know(name):
    assert digest(getattr(http2, name)) == H2_DIGESTS[name]


def test_the_version_of_zttp_is_the_pinned_one():
    assert version("zttp") == "0.0.35"
