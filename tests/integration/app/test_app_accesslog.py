"""The access log: one line for each Outcome, whatever octets a client sends."""

import asyncio
import io
import json
import logging
import math
import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from select import PIPE_BUF

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from examples import cases
from support import an_outcome, hurry
from univocal.cache.decide import Forward, Handling
from univocal.engine.outcome import NotedFields, Outcome, Purged, Times
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.judge.orders import Order
from univocal.judge.profiles import builtin_profiles
from univocal.store.purge_selectors import Keys
from univocal.uri.site import Route, Site
from univocal.uri.target import Canonical
from univocal_app.config.tables import validate
from univocal_app.observe import accesslog, log_lines
from univocal_app.observe.accesslog import BATCH, LAST, MOST, AccessLog, Outlet, check_log, outlet_of
from univocal_app.observe.log_lines import as_combined, as_json
from univocal_app.processes.commons import TURN
from univocal_app.run.assemble import Proxy

HOSTILE = b'/a"\\\x1b[2J\r\n\x00\xff{"b":1}'


def outcome(target=b"/a", **others):
    made = {"client": "192.0.2.1", "handling": Handling(fwd="uri-miss", stored=True), "decision": None}
    times = Times(1_700_000_000.25, 0.001, 0.0021234567)
    return an_outcome(target, **{**made, "times": times, "reasons": ("control-character",), **others})


def logging_to(where, form="json", source="here"):
    server = {"access_log": str(where), "access_log_format": form}
    return validate({"server": server, "sites": [{"hosts": ["a"], "upstream": "http://127.0.0.1:1"}]}, source)


def test_a_line_in_the_combined_format():
    assert (
        as_combined(outcome())
        == b'192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "GET /a HTTP/1.1" 200 12 "-" "-"\n'
    )
    assert b'" 499 12 ' in as_combined(outcome(status=0))


def test_both_log_forms_have_client_address_and_version():
    asked = replace(
        outcome(),
        received=Received(b"GET", b"/a", version=b"1.0"),
        noted=NotedFields(b'curl/8 "x"', b"http://a/\x1b"),
    )
    assert as_combined(asked).endswith(b'"GET /a HTTP/1.0" 200 12 "http://a/\\x1B" "curl/8 \\x22x\\x22"\n')
    line = json.loads(as_json(asked))
    assert (line["protocol"], line["user_agent"], line["referrer"]) == (
        "HTTP/1.0",
        'curl/8 "x"',
        "http://a/\x1b",
    )


@pytest.mark.parametrize("form", [as_json, as_combined])
def test_a_user_agent_takes_a_bounded_part_of_a_line(form):
    long = replace(outcome(), noted=NotedFields(b"a" * 60_000, b"b" * 60_000))
    assert form(long).count(b"a" * 512) == form(long).count(b"b" * 512) == 1
    assert len(form(long)) < 512 * 2 + 400


def test_few_texts_are_remembered():
    for number in range(2000):
        as_json(replace(outcome(), noted=NotedFields(b"a%d" % number)))
    assert len(log_lines.json_agents) <= log_lines.REMEMBERED
    assert json.loads(as_json(outcome()))["user_agent"] is None


def test_the_reason_for_not_storing_is_in_the_line():
    line = json.loads(as_json(outcome(handling=Handling(fwd="uri-miss", unstorable="no-store"))))
    assert (line["stored"], line["storable"], line["detail"]) == (False, "no-store", "no-store")
    assert json.loads(as_json(outcome(handling=Handling(hit=True))))["storable"] is None


URL = "http://en.example/a"


def purge(names=(URL,), *, soft=False, count=2):
    order = Order(Keys(frozenset(), soft=soft), "key", names)
    return replace(outcome(), decision=None, purged=Purged(order, count))


def test_the_line_of_a_purge_tells_what_was_purged():
    assert json.loads(as_json(purge()))["purge"] == {"by": "key", "names": [URL], "soft": False, "count": 2}
    assert as_combined(purge()).endswith(f' "-" "purge by key: {URL}: 2"\n'.encode())
    unconfirmed = purge(soft=True, count=None)
    assert json.loads(as_json(unconfirmed))["purge"]["count"] is None
    assert as_combined(unconfirmed).endswith(f' "-" "soft purge by key: {URL}: ?"\n'.encode())


def test_the_how_tos_line_has_all_parts_of_a_line():
    page = Path(__file__).parents[3] / "docs" / "how-to" / "purging.md"
    (shown,) = [line for line in page.read_text().splitlines() if line.startswith('{"time"')]
    assert list(json.loads(shown)) == list(json.loads(as_json(purge())))


@pytest.mark.parametrize("form", [as_json, as_combined])
def test_no_byte_of_a_tag_ends_a_line(form):
    assert callable(form)
    line = form(purge((HOSTILE.decode("latin-1"), "\u2028я")))
    assert all(0x20 <= octet < 0x7F for octet in line[:-1])
    assert line.count(b'"') == 6 or json.loads(line)


def test_purges_alone(capsysbinary):
    log = AccessLog(outlet_of(logging_to("off")))
    kept = Forward("uri-miss", may_store=True, fallback=None)
    for each in (replace(outcome(), decision=kept), purge(), replace(purge(), purged=None, status=403)):
        log(each)
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert [json.loads(line)["status"] for line in err.splitlines()] == [200, 403]


@cases("protocol, said", (b"1.0", "HTTP/1.0"), (b"1.1", "HTTP/1.1"), (b"2", "HTTP/2.0"))
def test_a_combined_line_names_the_protocol_as_nginx_does(protocol, said):
    one = replace(outcome(), received=Received(b"GET", b"/a", version=protocol))
    assert f'"GET /a {said}"'.encode() in as_combined(one)


class Narrowed:
    """A stream that takes so many octets of each write, as a pipe or a full disk does; 0: it fails."""

    takes = iter(())

    def write(self, octets):
        taken = next(self.takes, -1)
        if taken == 0:
            raise OSError(28, "No space left on device")
        return super().write(octets if taken == -1 else octets[:taken])


class Narrow(Narrowed, io.BytesIO):
    def __init__(self, *takes):
        super().__init__()
        self.takes = iter(takes)


class NarrowFile(Narrowed, io.FileIO):
    takes = iter((300, 0))


def test_a_stream_that_fails_is_said_once(caplog):
    log = AccessLog(Outlet(Narrow(0, 0), as_json))
    with caplog.at_level(logging.ERROR):
        log(outcome())
        log(outcome())
    assert [record.getMessage() for record in caplog.records] == [
        "the access log cannot be written: [Errno 28] No space left on device"
    ]


def test_a_stream_that_recovers_is_said_once(caplog):
    log = AccessLog(Outlet(Narrow(0), as_json))
    for _ in range(3):
        log(outcome())
    assert [record.getMessage() for record in caplog.records] == [
        "the access log cannot be written: [Errno 28] No space left on device",
        "the access log is written again after 0 s",
    ]


def test_a_log_is_relative_to_its_configuration(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    source = str(tmp_path / "univocal.toml")
    configuration = logging_to("access.log", source=source)
    check_log(configuration)
    log = AccessLog(outlet_of(configuration))
    log(outcome())
    log.close()
    assert (tmp_path / "access.log").read_bytes().count(b"\n") == 1
    with pytest.raises(ConfigurationError, match=r"found 'none/access\.log'"):
        check_log(logging_to("none/access.log", source=source))


def test_a_start_that_fails_leaves_no_log(tmp_path):
    site = {"hosts": ["a"], "upstream": "http://127.0.0.1:1"}
    settings = {"server": {"access_log": "access.log", "tls_cert": "none.pem"}, "sites": [site]}
    with pytest.raises(ConfigurationError, match=r"server\.tls_cert"):
        Proxy(validate(settings, str(tmp_path / "univocal.toml")))
    assert not (tmp_path / "access.log").exists()


@pytest.mark.pure("a function is replaced")
def test_a_start_opens_its_log_once(tmp_path, monkeypatch):
    opened = []
    appending = accesslog._appending
    monkeypatch.setattr(accesslog, "_appending", lambda file: opened.append(file) or appending(file))
    settings = {"sites": [{"hosts": ["a"], "upstream": "http://127.0.0.1:1"}]}
    log, source = tmp_path / "access.log", str(tmp_path / "univocal.toml")
    log.touch()
    proxy = Proxy(validate({**settings, "server": {"access_log": "access.log"}}, source))
    proxy.log.close()
    assert opened == [log]  # the reader of a named pipe takes a closing for the end
    with pytest.raises(ConfigurationError, match=r"\(No such file or directory\)"):
        Proxy(validate({**settings, "server": {"access_log": "none/access.log"}}, source))


def test_a_log_continues_in_its_file_or_is_refused(tmp_path):
    for _ in range(2):  # a second start goes on in the same file
        log = AccessLog(outlet_of(logging_to(tmp_path / "access.log", "combined")))
        assert log is not None
        log(outcome())
        log.close()
    assert (tmp_path / "access.log").read_bytes().count(b"\n") == 2
    with pytest.raises(ConfigurationError, match=r"server\.access_log"):
        AccessLog(outlet_of(logging_to(tmp_path / "nowhere" / "access.log")))


def test_a_file_is_opened_anew(tmp_path, caplog):
    file = tmp_path / "logs" / "access.log"
    file.parent.mkdir()
    log = AccessLog(outlet_of(logging_to(file, "combined")))
    log(outcome())
    file.rename(tmp_path / "moved")
    log.reopen()
    log(outcome())
    assert [each.read_bytes().count(b"\n") for each in (tmp_path / "moved", file)] == [1, 1]
    file.unlink()
    file.parent.rmdir()
    log.reopen()  # in vain: the old file goes on
    log(outcome())
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        "the access log cannot be reopened"
    ]
    log.close()


def test_a_pipe_without_a_reader_is_an_error_at_once(tmp_path, caplog):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(outlet_of(logging_to(pipe)))
    log.reopen()
    assert os.get_blocking(log._outlet.stream.fileno())  # a full pipe is waited for
    log(outcome())
    assert os.read(reader, 65536) == as_json(outcome())
    os.close(reader)
    for refused in (check_log, outlet_of):
        with pytest.raises(ConfigurationError, match="no process reads this pipe"):
            refused(logging_to(pipe))
    log.reopen()
    assert "the access log cannot be reopened: [Errno 6] no process reads this pipe" in caplog.text
    log.close()


# ── the form ────────────────────────────────────────────────────────────────────────────────────────────────

ROUTE = Route(b"/", builtin_profiles()["asgi"], "")
PAGE = Canonical(b"http", b"en.example", b"/", Site("en.example", (), (ROUTE,)), ROUTE)
OCTETS = st.binary(max_size=20) | st.sampled_from([b"GET", b"/a", HOSTILE])
TEXT = st.text(max_size=8)
OUTCOMES = st.builds(
    lambda url, status, start, total, **rest: Outcome(
        canonical=None if url is None else replace(PAGE, target=url),
        status=status,
        times=Times(start, 0.0, total),
        **rest,
    ),
    url=st.none() | OCTETS,
    status=st.integers(0, 999),
    start=st.integers(0, 4_000_000_000_000).map(lambda milliseconds: (milliseconds + 0.5) / 1000),
    total=st.floats(0, 1e6),
    site=TEXT,
    received=st.builds(Received, OCTETS, OCTETS, version=st.sampled_from([b"1.0", b"1.1", b"2", b"3"])),
    noted=st.builds(
        NotedFields, agent=st.none() | OCTETS | st.binary(max_size=2000), referrer=st.none() | OCTETS
    ),
    host=TEXT,
    decision=st.none(),
    bytes=st.integers(0, 2**63),
    client=st.none() | TEXT,
    handling=st.builds(
        Handling,
        hit=st.booleans(),
        fwd=TEXT,
        stored=st.booleans(),
        collapsed=st.booleans(),
        detail=TEXT,
        unstorable=TEXT,
    ),
    reasons=st.lists(TEXT, max_size=2).map(tuple),
    purged=st.none()
    | st.builds(
        lambda names, count: Purged(Order(Keys(frozenset()), "key", tuple(names)), count),
        st.lists(TEXT, max_size=2),
        st.none() | st.integers(0),
    ),
)


def as_written(value):
    return None if value is None else value[:512].strip(b" \t").decode("latin-1")


def unstorable_beside_fwd(handling):
    return "" if handling.unstorable == handling.fwd else handling.unstorable


def told(outcome):
    """The members of a line, in their order."""
    moment = datetime.fromtimestamp(int(outcome.times.start * 1000) // 1000, UTC)
    purged = outcome.purged
    return {
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{int(outcome.times.start * 1000) % 1000:03d}Z",
        "client": outcome.client,
        "method": outcome.received.method.decode("latin-1"),
        "target": outcome.received.target.decode("latin-1"),
        "url": outcome.canonical.url.decode("latin-1") if outcome.canonical else None,
        "site": outcome.site,
        "status": outcome.status,
        "bytes": outcome.bytes,
        "seconds": round(outcome.times.total, 6),
        "protocol": f"HTTP/{outcome.received.version.decode()}",
        "user_agent": as_written(outcome.agent),
        "referrer": as_written(outcome.referrer),
        "cache": "hit" if outcome.handling.hit else outcome.handling.fwd or None,
        "stored": outcome.handling.stored,
        "storable": "stored" if outcome.handling.stored else outcome.handling.unstorable or None,
        "collapsed": outcome.handling.collapsed,
        "detail": outcome.handling.detail or unstorable_beside_fwd(outcome.handling) or None,
        "reasons": list(outcome.reasons),
        **({"host": outcome.host} if outcome.host else {}),
        **(
            {"purge": {"by": "key", "names": list(purged.order.names), "soft": False, "count": purged.count}}
            if purged
            else {}
        ),
    }


@given(OUTCOMES)
def test_a_line_is_what_json_writes(outcome):
    """To the octet, but for the seconds, which have all six digits."""
    line, expected = as_json(outcome), told(outcome)
    assert json.loads(line) == expected
    digits, fewer = f'"seconds":{outcome.times.total:.6f}', f'"seconds":{round(outcome.times.total, 6)!r}'
    written = json.dumps(expected, separators=(",", ":")) + "\n"
    assert line == written.replace(f'{fewer},"protocol"', f'{digits},"protocol"').encode("ascii")


@example('/a"\\\x1b[2J\r\n\x00\x7f\xff')
@given(st.text(st.characters(max_codepoint=255)))
def test_hostile_characters_and_no_others_are_escaped(target):
    line = as_combined(outcome(target.encode("latin-1")))
    hostile = {octet: f"\\x{octet:02X}" for octet in (*range(0x20), 0x22, 0x5C, *range(0x7F, 0x100))}
    assert line.partition(b'"GET ')[2] == target.translate(hostile).encode() + b' HTTP/1.1" 200 12 "-" "-"\n'


# ── when lines are written ──────────────────────────────────────────────────────────────────────────────────

FORWARDED = Forward("uri-miss", may_store=True, fallback=None)
USUAL = replace(outcome(), decision=FORWARDED, reasons=())
OBSERVED = replace(USUAL, reasons=("control-character",))


def numbered(status):
    return replace(USUAL, status=status)


def statuses(stream):
    return [json.loads(line)["status"] for line in stream.getvalue().splitlines()]


@pytest.fixture
def stream():
    return io.BytesIO()


@pytest.fixture
def log(stream):
    return AccessLog(Outlet(stream, as_json))


async def test_lines_wait_for_one_another(log, stream):
    log(numbered(201))
    log(numbered(202))
    assert statuses(stream) == []
    log.flush()
    assert statuses(stream) == [201, 202]
    log(numbered(203))
    assert statuses(stream) == [201, 202]


def test_a_line_waits_a_fifth_of_a_second_at_most():
    assert accesslog.PATIENCE <= 0.2


async def test_no_line_waits_for_long(monkeypatch, log, stream):
    hurry(monkeypatch, accesslog.PATIENCE)
    for status in (201, 202):  # each with a timer of its own
        log(numbered(status))
        async with asyncio.timeout(5):
            while status not in statuses(stream):  # noqa: ASYNC110  (a timer does it)
                await asyncio.sleep(0)


async def test_no_more_waits_than_a_batch(log, stream):
    line = len(as_json(USUAL))
    for _ in range(BATCH // line):
        log(USUAL)
    assert stream.getvalue() == b""
    log(USUAL)
    assert len(stream.getvalue()) == (BATCH // line + 1) * line


@pytest.mark.parametrize(
    ("last", "at_once"),
    [
        (purge(), True),
        (replace(OBSERVED, status=400), True),
        (OBSERVED, False),
        (replace(USUAL, status=404), False),
    ],
    ids=["a purge", "a refusal", "what would have been one", "another error"],
)
async def test_a_purge_and_a_refusal_are_written_at_once(last, at_once, log, stream):
    """With what came before."""
    log(numbered(201))
    log(last)
    assert statuses(stream) == ([201, last.status] if at_once else [])


def test_without_an_event_loop_no_line_waits(log, stream):
    log(numbered(201))
    assert statuses(stream) == [201]


async def test_at_the_end_no_line_waits(log, stream):
    log(numbered(201))
    log.finish()
    assert statuses(stream) == [201]
    log(numbered(202))
    assert statuses(stream) == [201, 202]


async def test_lines_that_a_stream_takes_in_pieces_are_whole():
    stream = Narrow(1, 300, 20)
    log = AccessLog(Outlet(stream, as_json))
    for status in (201, 202, 203):
        log(numbered(status))
    log.flush()
    assert statuses(stream) == [201, 202, 203]


@cases("taken, left", (0, []), (10, [201]), (len(as_json(numbered(201))), [201]), (400, [201, 202]))
async def test_a_cut_line_is_ended_when_room_returns(taken, left, caplog):
    stream = Narrow(*([taken] if taken else []), 0)
    log = AccessLog(Outlet(stream, as_json))
    for status in (201, 202, 203):
        log(numbered(status))
    log.flush()
    log(numbered(204))
    log.flush()
    assert statuses(stream) == [*left, 204]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]  # it fails, and it is back


async def test_a_cut_line_in_a_file_leaves_others_whole(tmp_path):
    """Of two processes that write to it, the other one may be the first to find room."""
    file = tmp_path / "a.log"

    with NarrowFile(file, "ab") as full, io.FileIO(file, "ab") as other:
        first, second = (AccessLog(Outlet(each, as_json, file=str(file))) for each in (full, other))
        for log, number in ((first, 201), (first, 202), (second, 203), (first, 204)):
            log(numbered(number))
            if number > 201:
                log.flush()
        assert [json.loads(line)["status"] for line in file.read_text().splitlines()] == [203, 201, 204]


LONG = replace(USUAL, received=Received(b"GET", b"/" + b"a" * MOST))


class Standing:
    """The commons of processes, one of which stands still in its turn until `is_free`.

    `frees` are the seconds in which it gives the turn to one that waits.
    """

    is_free = False

    def __init__(self, frees=math.inf):
        self.frees, self.waited = frees, 0.0

    def alone(self, patience):
        waited, self.waited = self.waited, self.waited + patience
        return nullcontext(self.is_free or waited < self.frees <= self.waited)


class Pieces(io.BytesIO):
    """Keeps how many lines came in each write, none of which a pipe would mix with others."""

    def write(self, octets):
        assert octets.endswith(b"\n")
        assert len(octets) <= max(PIPE_BUF, len(octets.splitlines()[0]) + 1)
        return super().write(octets)


async def test_lines_for_a_pipe_wait_for_a_process_standing_still():
    stream, others = io.BytesIO(), Standing()
    log = AccessLog(Outlet(stream, as_json), others)
    log(numbered(201))
    log(purge())
    assert statuses(stream) == []
    others.is_free = True
    log(numbered(202))
    log.flush()
    assert statuses(stream) == [201, 200, 202]


@cases(
    "count, is_full, end",
    (1, False, AccessLog.finish),
    (1, False, lambda log: log.turn_to(Outlet(io.BytesIO(), as_json))),
    (1 + MOST // len(as_json(USUAL)), True, AccessLog.finish),
)
async def test_lines_waiting_for_a_process_are_bounded_and_whole(count, is_full, end):
    stream = Pieces()
    log = AccessLog(Outlet(stream, as_json), Standing())
    lines = [USUAL, replace(USUAL, received=Received(b"GET", b"/" + b"a" * 8000)), *[USUAL] * count]
    for each in lines:
        log(each)
    assert bool(stream.getvalue()) is is_full
    end(log)
    assert stream.getvalue() == b"".join(map(as_json, lines))


@cases("end", AccessLog.finish, lambda log: log.turn_to(Outlet(io.BytesIO(), as_json)), lambda log: log(LONG))
async def test_a_process_that_only_writes_much_is_waited_for(end):
    """Its turn is over in a second: lines that a pipe would mix with its own wait for that."""
    stream, others = io.BytesIO(), Standing(frees=1)
    log = AccessLog(Outlet(stream, as_json), others)
    for _ in range(2):
        log(USUAL)
        log.flush()
    assert (stream.getvalue(), others.waited) == (b"", TURN)
    end(log)
    assert others.waited >= others.frees
    assert stream.getvalue().startswith(as_json(USUAL) * 2)


async def test_a_process_that_stands_still_is_waited_for_once():
    stream, others = io.BytesIO(), Standing()
    log = AccessLog(Outlet(stream, as_json), others)
    for _ in range(3):
        log(LONG)
    assert stream.getvalue() == as_json(LONG) * 3
    log.finish()
    assert others.waited == LAST


async def test_lines_for_a_file_wait_for_no_process(tmp_path):
    file = tmp_path / "a.log"
    others = Standing()
    with file.open("ab", buffering=0) as stream:
        log = AccessLog(Outlet(stream, as_json, file=str(file)), others)
        log(USUAL)
        log.flush()
        assert file.read_bytes() == as_json(USUAL)
        log.finish()
        assert others.waited == TURN


async def test_a_stream_that_would_block_is_one_that_fails(caplog):
    class Blocking(io.BytesIO):
        def write(self, _):
            return None

    log = AccessLog(Outlet(Blocking(), as_json))
    log(USUAL)
    log.flush()
    assert "the access log cannot be written: " in caplog.text
