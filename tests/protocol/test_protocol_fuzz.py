"""A short run of fuzz/protocol.py, and whether it would notice."""

import importlib.util
import logging
import sys
from pathlib import Path

import pytest

from univocal.http.framing import WATCHED
from univocal.server.protocol import ExactProtocol

SOURCE = Path(__file__).parents[2] / "fuzz" / "protocol.py"


@pytest.fixture(scope="module")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_protocol", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    level = logging.getLogger("uvicorn").level
    spec.loader.exec_module(module)
    yield module
    logging.getLogger("uvicorn").setLevel(level)
    del sys.modules[spec.name]


def test_h11_and_we_agree(fuzzer):
    found, seen = fuzzer.findings(1, streams=3000)
    assert found == []
    assert min(seen["requests"], seen["refused"], seen["more"], seen["closed"]) > 0


def no_faults(self, method, version):
    return ()


def content_ends_with_the_head(self):
    self._framing = b""
    super(ExactProtocol, self).on_message_complete()


def trailers_are_fields(self, name, value):
    self.headers.append((name.lower(), value.strip()))
    if name.lower() in WATCHED:
        self._watched.append(self.headers[-1])


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_faults", no_faults),
        ("on_message_complete", content_ends_with_the_head),
        ("on_header", trailers_are_fields),
    ],
)
def test_a_broken_protocol_is_noticed(fuzzer, monkeypatch, name, broken):
    monkeypatch.setattr(ExactProtocol, name, broken)
    found, _ = fuzzer.findings(1, streams=600)
    assert found
