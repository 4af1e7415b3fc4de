"""The states of origin servers that the processes of one program have in common."""

import math

import pytest

from examples import cases
from univocal.forward.upstream import Upstream
from univocal.origin.servers import Balancing, MemberState, OriginServer
from univocal.origin.upkeep import StateChange
from univocal_app.processes.commons import Commons
from univocal_app.processes.states import SharedStates, UpstreamServer

UP, FAILING, EJECTED, DOWN = MemberState.UP, MemberState.FAILING, MemberState.EJECTED, MemberState.DOWN


class Process:
    """A process that asks some origin servers, at a time that the test says."""

    def __init__(self, directory, name, count=2):
        servers = [OriginServer(f"http://{host}.example") for host in "abc"[:count]]
        self.upstream = Upstream.of(servers, balancing=Balancing(fails=1, eject=10))
        assert self.upstream.upkeep is not None
        self.balance, self.upkeep = self.upstream.balance, self.upstream.upkeep
        self.told = list[StateChange]()
        self.upkeep.tell = self.told.append
        self.shared = SharedStates(Commons(directory, name), lambda: 1e9)

    def settle(self):
        members = self.balance.members
        self.shared.settle([UpstreamServer(each.name, each, self.upkeep.adopt) for each in members])

    def fails(self, number, now, reason="refused"):
        self.balance.failed(self.balance.members[number], now, reason)

    def answers(self, number, now):
        self.balance.answered(self.balance.members[number], now)

    @property
    def states(self):
        return [each.state for each in self.balance.members]


@pytest.fixture
def processes(tmp_path):
    return [Process(tmp_path, name) for name in ("parent", "1", "2")]


def settle(*processes):
    for process in processes:
        process.settle()


async def test_a_state_that_one_process_finds_is_that_of_all(processes):
    settle(*processes)
    now = processes[0].balance.members[0].since
    processes[1].fails(0, now + 1, "timeout")
    settle(processes[1], processes[2], processes[0])
    assert [each.states for each in processes] == [[EJECTED, UP]] * 3
    member = processes[2].balance.members[0]
    assert (member.reason, member.since, member.until) == ("timeout", now + 1, now + 11)
    assert processes[0].told == [StateChange("http://a.example", EJECTED, "timeout")]


async def test_a_server_that_is_back_is_up_everywhere(processes):
    now = processes[0].balance.members[0].since
    settle(*processes)
    processes[1].fails(0, now + 1)
    settle(*processes, *processes)
    assert processes[2].states == [EJECTED, UP]
    processes[2].answers(0, now + 2)  # the other process gets no request
    settle(processes[2], processes[1], processes[0])
    assert [each.states for each in processes] == [[UP, UP]] * 3
    assert [each.balance.members[0].reason for each in processes] == [""] * 3


async def test_the_latest_change_decides_for_all_processes(processes):
    now = processes[0].balance.members[0].since
    settle(*processes)
    processes[1].fails(0, now + 3)
    processes[2].fails(0, now + 1)
    processes[2].answers(0, now + 2)
    settle(*processes, *processes)
    assert [each.states for each in processes] == [[EJECTED, UP]] * 3


async def test_a_replaced_process_knows_what_the_others_know(processes, tmp_path):
    settle(*processes)
    processes[1].balance.mark(processes[1].balance.members[0], 2.0, up=False, reason="status 503")
    settle(processes[1])
    new = Process(tmp_path, "1")
    settle(new, processes[2])
    assert new.states == processes[2].states == [DOWN, UP]
    assert new.told == [StateChange("http://a.example", DOWN, "status 503", is_checked=True)]


async def test_early_failures_of_a_new_process_count(tmp_path, processes):
    settle(*processes)
    new = Process(tmp_path, "2")
    new.fails(1, new.balance.members[1].since + 1)
    settle(new, *processes)
    assert [each.states for each in processes] == [[UP, EJECTED]] * 3


async def test_the_last_of_an_upstream_is_failing_everywhere(tmp_path):
    one, other = (Process(tmp_path, name, count=1) for name in "12")
    settle(one, other)
    one.fails(0, one.balance.members[0].since + 1)
    settle(one, other)
    assert other.states == [FAILING]
    other.answers(0, one.balance.members[0].since + 1)
    settle(other, one)
    assert one.states == [UP]


def test_a_drain_is_known_to_all_processes(processes):
    settle(*processes)
    processes[0].shared.drain(frozenset({"http://a.example"}))
    settle(*processes)
    assert [each.shared.drained for each in processes] == [{"http://a.example"}] * 3


async def test_states_of_removed_servers_are_forgotten(tmp_path):
    many, few = Process(tmp_path, "1", count=3), Process(tmp_path, "2", count=2)
    settle(many)
    many.fails(2, many.balance.members[2].since + 1)
    settle(many)
    few.fails(0, few.balance.members[0].since + 1)
    settle(few)
    assert list(few.shared._known) == ["http://a.example"]


@cases(
    "content",
    *("", "nonsense", "[]", '{"drained": [], "states": []}', '{"drained": [1], "states": {}}'),
    '{"drained": [], "states": {"http://a.example": ["gone", 1, ""]}}',
    '{"drained": [], "states": {"http://a.example": ["down", 2e9, ""]}}',
    '{"drained": [], "states": {"http://a.example": ["down", NaN, ""]}}',
    '{"drained": [], "states": {"http://a.example": ["down", 1, "\\n"]}}',
    '{"drained": [], "states": {"http://a.example": ["down", 1]}}',
    '{"drained": [], "states": {"http://a.example": ["down", "1", ""]}}',
    "[" * 100_000,
)
def test_a_file_that_none_of_them_has_written_changes_nothing(tmp_path, content):
    process = Process(tmp_path, "1")
    (tmp_path / "origins").write_text(content)
    process.settle()
    assert (process.states, process.shared.drained) == ([UP, UP], frozenset())
    assert process.balance.members[0].until == math.inf


def test_a_directory_that_is_gone_changes_nothing(processes, tmp_path):
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    processes[0].fails(0, 1e6)
    settle(*processes)
    assert [each.states for each in processes] == [[EJECTED, UP], [UP, UP], [UP, UP]]
    tmp_path.mkdir()
    settle(*processes, *processes)
    assert [each.states for each in processes] == [[EJECTED, UP]] * 3
