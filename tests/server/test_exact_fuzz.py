"""A short run of fuzz/protocol.py, and whether it would notice."""

import importlib.util
import itertools
import logging
import sys
from pathlib import Path

import pytest

from examples import LONG, cases
from univocal.http.content import ChunksInSteps
from univocal.http.framing import WATCHED
from univocal.judge.admission import plan_of
from univocal.server.http1.messages import Glance, Glimpse, HeadReader, RequestReader, RequestState
from univocal.server.listener import Listener
from univocal.server.turn import Turn

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


@pytest.mark.long
def test_h11_and_we_agree(fuzzer):
    found, seen = fuzzer.findings(1, streams=3000 if LONG else 300)
    assert found == []
    assert min(seen["requests"], seen["refused"], seen["more"], seen["closed"], seen["at a glance"]) > 0


def no_faults(self, *_):
    return []


def content_ends_with_the_head(self):
    self.state = RequestState.BETWEEN
    return False


def trailers_are_fields(self, name, value):
    field = (name.lower(), value.strip())
    self.known.fields.append(field)
    if field[0] in WATCHED:
        self.known.watched.append(field)


def loses_repeated_fields(self, data):
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if rest or not first.startswith(b"GET /") or not first.endswith(b" HTTP/1.1") or first.count(b" ") > 2:
        return None
    fields = dict(line.split(b": ", 1) for line in lines if b": " in line)
    plan = plan_of(tuple(fields))
    return None if plan is None else Glimpse(first[4:-9], plan, tuple(fields.values()))


def loses_an_octet(self, octets, at, read=ChunksInSteps.read):
    content, at = read(self, octets, at)
    return content[1:], at


@pytest.mark.pure("the fuzzer is tried on code with a mistake, and compiled code cannot be given one")
@cases(
    "owner, name, broken",
    (Listener, "faults", no_faults),
    (RequestReader, "accept", content_ends_with_the_head),
    (HeadReader, "on_header", trailers_are_fields),
    (Glance, "read", loses_repeated_fields),
    (Turn, "receive", lambda self, chunk: None),
    (ChunksInSteps, "read", loses_an_octet),
)
def test_a_mistake_is_noticed(fuzzer, monkeypatch, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    found, _ = fuzzer.findings(1, streams=600, most=1)
    assert found


HEAD = b" /b HTTP/1.1\r\nHost: a.example\r\n"
KINDS = {
    "g": b"GET" + HEAD + b"\r\n",
    "p": b"POST" + HEAD + b"Content-Length: 3\r\n\r\nabc",
    "c": b"POST" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize(
    "kinds", ["".join(each) for each in itertools.product(KINDS, repeat=4 if LONG else 3)]
)
async def test_nothing_is_forgotten_behind_many_steps(fuzzer, kinds):
    harness = fuzzer.DirectHarness()
    harness.glances = False
    for length in range(1, 9):
        data = b"".join(KINDS[kind] for kind in (kinds * 3)[:length])
        reading = await harness.read([data])
        assert (len(reading.requests), reading.end) == (length, "more")
        refused = await harness.read([data + b"\0"])
        assert (len(refused.requests), refused.end) == (length, "refused")
