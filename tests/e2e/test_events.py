"""`GET /-/events` of a running program: one process, and several."""

import contextlib
import json
import signal
import socket
import time

import pytest

from support import until

ALONE = 'access_log = "off"'


class Stream:
    """One who follows: blocks as they come, of a response that was read up to its head."""

    def __init__(self, address, path="/-/events", room=0):
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.connect(address)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.rest = b""
        self.head = self._until(b"\r\n\r\n").decode()

    def _until(self, end):
        while end not in self.rest:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.rest += data
        found, _, self.rest = self.rest.partition(end)
        return found

    def event(self):
        """The next event's name and data; comments come for ever, without one."""
        limit = time.monotonic() + 60
        while True:
            assert time.monotonic() < limit
            lines = [line for line in self._until(b"\n\n").split(b"\n") if b": " in line and line[:1] != b":"]
            fields = dict(
                line.strip(b"\r").split(b": ", 1) for line in lines if line.startswith((b"ev", b"da"))
            )
            if fields:
                return fields.get(b"event", b"message").decode(), json.loads(fields[b"data"])


@pytest.fixture
def follow():
    with contextlib.ExitStack() as stack:

        def follow(*arguments):
            stream = Stream(*arguments)
            stack.enter_context(stream.socket)
            return stream

        yield follow


@pytest.fixture
def running(inside, origin):
    """Start the program with these settings."""

    def running(server=ALONE):
        return inside(
            f"{server}\n"
            f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n'
            f'[[sites]]\nhosts = ["de.example"]\nprofile = "mediawiki"\nupstream = "{origin.url}"\n'
        )

    return running


def test_an_event_equals_its_access_log_line(running, ask, follow):
    program = running('access_log = "stdout"')
    stream = follow(program.admin)
    assert stream.head.startswith("HTTP/1.1 200 OK")
    assert "content-type: text/event-stream" in stream.head
    assert "cache-control: no-store" in stream.head
    ask(program.proxy, "/wiki/A%28b%29", "en.example", fields="User-Agent: \x9b31m\r\n")
    ask(program.proxy, "/wiki/A(b)", "en.example")
    ask(program.proxy, "/wiki/%00", "de.example")
    ask(program.proxy, "/wiki/A", "en.example", method="PURGE")
    told = [stream.event() for _ in range(4)]
    assert [name for name, _ in told] == ["message"] * 4
    events = [event for _, event in told]
    assert [event["cache"] for event in events] == ["uri-miss", "hit", None, None]
    assert [event["status"] for event in events] == [200, 200, 400, 200]
    assert events[0]["user_agent"] == "Â\x9b31m"
    assert events[3]["purge"]["by"] == "key"
    assert program.end() == 0
    assert [json.loads(line) for line in program.out.splitlines()] == events


def test_filters_choose_by_site_status_and_cache(running, ask, follow):
    program = running()
    hits = follow(program.admin, "/-/events?site=en.example&cache=hit")
    refused = follow(program.admin, "/-/events?status=400&status=421")
    unfiltered = follow(program.admin, "/-/events?site=&status=&cache=")
    missed = follow(program.admin, "/-/events?site=&status=2xx&cache=uri-miss")
    for target, host in (
        ("/wiki/A", "en.example"),
        ("/wiki/A", "de.example"),
        ("/wiki/A", "de.example"),
        ("/wiki/%00", "de.example"),
        ("/wiki/A?x=1", "en.example"),
        ("/wiki/A", "en.example"),
    ):
        ask(program.proxy, target, host)
    _, event = hits.event()
    assert (event["site"], event["target"], event["cache"]) == ("en.example", "/wiki/A", "hit")
    assert refused.event()[1]["target"] == "/wiki/%00"
    assert [unfiltered.event()[1]["status"] for _ in range(6)] == [200, 200, 200, 400, 200, 200]
    assert [missed.event()[1]["site"] for _ in range(3)] == ["en.example", "de.example", "en.example"]


@pytest.mark.parametrize("query", ["status=abc", "status=40", "status=1000"])
def test_a_filter_that_is_none_is_400(running, ask, query):
    answer = ask(running().admin, f"/-/events?{query}", "localhost")
    assert answer.status == 400
    assert json.loads(answer.body)["detail"].startswith("status must be a number")


def test_only_purgers_follow_and_only_a_few_at_once(running, ask, follow):
    program = running()
    forwarded = "X-Forwarded-For: 192.0.2.7\r\n"
    assert ask(program.admin, "/-/events", "localhost", fields=forwarded).status == 403
    streams = [follow(program.admin) for _ in range(16)]
    refused = ask(program.admin, "/-/events", "localhost")
    assert (refused.status, json.loads(refused.body)["reason"]) == (503, "overloaded")
    streams[0].socket.close()
    again = until(lambda: None if "200 OK" not in (stream := follow(program.admin)).head else stream)
    ask(program.proxy, "/wiki/A", "en.example")
    assert again.event()[1]["target"] == streams[7].event()[1]["target"] == "/wiki/A"


def test_a_slow_reader_loses_some_and_is_told_how_many(running, follow, origin):
    program, count, burst = running(), 40, 40
    origin.fields = "Cache-Control: max-age=600"
    slow = follow(program.admin, "/-/events", 4096)  # for which the system keeps little
    target = "/wiki/" + "x" * 7000
    request = f"GET {target} HTTP/1.1\r\nHost: en.example\r\nUser-Agent: {'y' * 500}\r\n\r\n".encode()
    total = count * burst
    with socket.create_connection(program.proxy, timeout=20) as connection:
        for _ in range(count):
            connection.sendall(request * burst)
            heads = b""
            while heads.count(b"answer") < burst:
                piece = connection.recv(1 << 20)
                assert piece, heads
                heads += piece
    messages, lost = 0, 0
    while messages + lost < total:
        name, data = slow.event()
        if name == "lost":
            assert set(data) == {"lost"}
            lost += data["lost"]
        else:
            messages += 1
    assert lost > 0
    assert messages + lost == total


def test_followers_do_not_hold_up_the_shutdown(start, origin, follow):
    program = start("serve", "--upstream", origin.url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    stream = follow(program.admin)
    begun = time.monotonic()
    assert program.end(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 8  # the grace of responses under way is 10 seconds
    with pytest.raises(EOFError):
        stream.event()


def test_events_of_all_workers(start_with, origin, ask, follow):
    program = start_with(
        f'workers = 2\n{ALONE}\n[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
    )
    for _ in range(2):  # and again, after nobody has followed
        stream = follow(program.admin, "/-/events?site=en.example")
        for number in range(20):
            ask(program.proxy, f"/wiki/{number}", "en.example")
        ask(program.proxy, "/wiki/0", "en.example", method="PURGE")
        events = [stream.event()[1] for _ in range(21)]
        assert {event["target"] for event in events} == {f"/wiki/{number}" for number in range(20)}
        assert sum(event["method"] == "PURGE" for event in events) == 1
        stream.socket.close()
