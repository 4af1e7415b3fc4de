"""The connection that a request gets, and origin servers whose new connections are late: no waiting."""

import asyncio
import math
import socket

import pytest

from examples import cases
from tests.origin.conftest import Told, turns
from univocal.http.bonds import Bond
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin.connection import Connection, Idle, PendingRequest, Requested
from univocal.origin.failures import ConnectError, ConnectTimeoutError, PoolTimeoutError, Timeouts
from univocal.origin.http1 import spell
from univocal.origin.pool import LONGEST, SHORTEST, FirstAnswers, Pool, PoolSettings

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
OPEN = []  # sockets


@pytest.fixture(autouse=True)
def closed_sockets():
    yield
    while OPEN:
        OPEN.pop().close()


class Line:
    """The transport of a connection to an origin server that says nothing by itself."""

    def __init__(self):
        self.near, self.far = socket.socketpair()
        OPEN.extend((self.near, self.far))
        self.closing, self.connection = False, None

    def get_extra_info(self, name):
        return self.near if name == "socket" else None

    def write(self, data):
        pass

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


def connected(pool, line=None, loop=None):
    """A connection that has just been opened."""
    line = line or Line()
    line.connection = connection = Connection(loop or asyncio.get_running_loop(), pool, 1000)
    connection.connection_made(line)
    return connection


def far_end(connection):
    """The origin server's socket of a connection."""
    return connection._transport.far


class Opening:
    """Opens connections when told to."""

    def __init__(self):
        self.asked = []

    async def __call__(self, factory):
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def make(size, loop=None, **how):
    opening = Opening()
    pool = Pool(opening, PoolSettings(size, **how), loop)
    return pool, opening


async def opened(pool, opening, **how):
    task = asyncio.ensure_future(pool.connect(None, None))
    await turns()
    opening.asked[-1].set_result(connected(pool, **how))
    return await task


@pytest.fixture
def opening():
    return Opening()


@pytest.fixture
async def pool(opening):
    """A pool of one connection."""
    return Pool(opening, PoolSettings(1))


@pytest.fixture
async def connection(pool, opening):
    """The only one that the pool may open."""
    return await opened(pool, opening)


def waiting(pool, number, **how):
    return [asyncio.ensure_future(pool.connect(None, None, **how)) for _ in range(number)]


async def test_a_connection_put_back_goes_to_who_has_waited_longest(pool, opening, connection):
    tasks = waiting(pool, 3)
    await turns()
    for task in tasks:
        pool.put_back(connection)
        assert await task is connection
    pool.put_back(connection)
    assert isinstance(connection.state, Idle)
    assert pool.take_idle() is connection
    assert pool.take_idle() is None
    assert len(opening.asked) == len(pool) == 1


async def test_a_connection_set_apart_serves_its_client_alone():
    pool, opening = make(2)
    bond, connection = Bond(), await opened(pool, opening)
    pool.set_apart(connection, bond)
    assert pool.take_idle() is None
    send(pool, bond=bond)
    assert isinstance(connection.state, Requested)
    await turns()  # it is sent
    connection.data_received(EMPTY)
    assert isinstance(connection.state, Idle)


async def test_a_connection_set_apart_gives_way_to_who_waits(pool, opening):
    bond, connection = Bond(), await opened(pool, opening)
    pool.set_apart(connection, bond)
    (waiter,) = waiting(pool, 1)
    await turns()
    assert (connection.closed, bond.holds, len(opening.asked)) == (True, False, 2)
    opening.asked[1].set_result(new := connected(pool))
    assert await waiter is new


async def test_last_in_first_out():
    pool, opening = make(3)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    assert [pool.take_idle() for _ in range(4)] == [*reversed(connections), None]


async def test_a_lost_connection_is_the_right_to_open_one(pool, opening, connection):
    first, second = waiting(pool, 2)
    await turns()
    connection.close()
    await turns()
    assert len(opening.asked) == 2
    new = connected(pool)
    opening.asked[1].set_result(new)
    assert await first is new
    pool.put_back(new)
    assert await second is new


@pytest.mark.parametrize("given", ["connection", "room"])
async def test_a_cancelled_turn_is_passed_on(given, pool, opening, connection):
    first, second = waiting(pool, 2)
    await turns()
    pool.put_back(connection) if given == "connection" else pool.lost(connection)
    first.cancel()
    await turns()
    assert first.cancelled()
    if given == "room":
        connection = connected(pool)
        opening.asked[-1].set_result(connection)
    assert await second is connection


async def test_a_cancelled_only_turn_is_returned(pool, connection):
    [task] = waiting(pool, 1)
    await turns()
    pool.put_back(connection)
    task.cancel()
    await turns()
    assert pool.take_idle() is connection


@pytest.mark.parametrize("error", [ConnectError("refused"), asyncio.CancelledError()])
async def test_a_failed_opening_makes_room(error, pool, opening):
    first, second = waiting(pool, 2)
    await turns()
    if isinstance(error, asyncio.CancelledError):
        first.cancel()
    else:
        opening.asked[0].set_exception(error)
    with pytest.raises(type(error)):
        await first
    await turns()
    connection = connected(pool)
    opening.asked[1].set_result(connection)
    assert await second is connection


async def test_a_connection_closed_before_use_makes_room(pool, opening):
    for _ in range(3):
        [task] = waiting(pool, 1)
        await turns()
        connection = connected(pool)
        connection.close()
        opening.asked[-1].set_result(connection)
        assert await task is connection
        assert len(pool) == 0


async def test_connecting_and_waiting_end_in_time(pool, opening):
    with pytest.raises(ConnectTimeoutError):
        await pool.connect(0.001, None)
    connection = await opened(pool, opening)
    with pytest.raises(PoolTimeoutError):
        await pool.connect(None, 0.001)
    pool.put_back(connection)
    assert pool.take_idle() is connection


async def test_a_closed_pool_serves_nobody(pool, connection):
    [task] = waiting(pool, 1)
    await turns()
    pool.close()
    for attempt in (task, pool.connect(None, None)):
        with pytest.raises(ConnectError):
            await attempt
    await turns()
    assert connection.closed
    assert len(pool) == 0


async def test_a_connection_returned_to_a_closed_pool_is_closed():
    pool, opening = make(2)
    connection = await opened(pool, opening)
    late = connected(pool)
    pool.close()
    pool.put_back(late)
    assert connection.closed
    assert late.closed
    assert pool.take_idle() is None


async def test_idle_connections_that_have_ended_are_not_taken():
    pool, opening = make(3)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    far_end(connections[1]).close()
    far_end(connections[2]).send(b"HTTP/1.1 ")
    assert pool.take_idle() is connections[0]
    assert [connection.closed for connection in connections] == [False, True, True]


async def test_an_ended_connection_goes_to_no_waiting_request(pool, opening, connection):
    [task] = waiting(pool, 1)
    await turns()
    far_end(connection).close()
    pool.put_back(connection)
    await turns()
    assert connection.closed
    opening.asked[-1].set_result(new := connected(pool))
    assert await task is new


PATIENT = Timeouts(None, None, None, None)


class Asked(Told):
    """The answer to a request, and who hears of its end."""

    def __init__(self, then=lambda _: None):
        super().__init__()
        self.then = then

    def finish(self):
        super().finish()
        self.then(self)


def pending():
    """A request that is to be repeated."""
    spell(asked := OriginRequest(b"GET", b"/", [(b"host", b"a")], Received(b"GET", b"/")))
    return PendingRequest(asked, Asked(), PATIENT)


def send(pool, then=lambda _: None, bond=None):
    """Send a request, whose answer may take any time."""
    asked = OriginRequest(b"GET", b"/", [(b"host", b"a")], Received(b"GET", b"/"))
    asked.bond = bond
    return pool.send(asked, Asked(then), PATIENT)


def failure(request):
    """The kind of error that a request has failed with, if it has."""
    return next((call[1] for call in request.answer.calls if call[0] == "fail"), None)


async def test_a_request_waits_for_its_connection(pool, opening):
    request = send(pool)
    await turns()
    opening.asked[0].set_result(connection := connected(pool))
    await turns()
    assert request.connection is connection
    assert request.opening is None


async def test_a_request_fails_where_no_connection_can_be_opened(pool, opening):
    request = send(pool)
    await turns()
    opening.asked[0].set_exception(ConnectError("refused"))
    await turns()
    assert failure(request) is ConnectError


async def test_a_request_is_repeated_over_an_unused_connection():
    pool, opening = make(2)
    pool.put_back(idle := await opened(pool, opening))
    pool.repeat(request := pending())
    await turns()
    opening.asked[-1].set_result(connection := connected(pool))
    await turns()
    assert request.connection is connection
    assert isinstance(idle.state, Idle)


async def test_a_repeated_request_takes_the_place_of_a_used_connection(pool, opening):
    used = await opened(pool, opening)
    pool.repeat(request := pending())
    await turns()
    pool.put_back(used)
    await turns()
    assert used.closed
    opening.asked[-1].set_result(connection := connected(pool))
    await turns()
    assert request.connection is connection
    assert len(pool) == 1
    pool.repeat(request := pending())
    pool.lost(connection)
    await turns()
    opening.asked[-1].set_exception(ConnectError("refused"))
    await turns()
    assert failure(request) is ConnectError
    assert (await opened(pool, opening)) is not connection


async def test_a_closed_pool_fails_requests_that_wait():
    pool, _ = make(1)
    requests = [send(pool), send(pool)]
    await turns()
    pool.close()
    await turns()
    assert all(failure(request) is ConnectError for request in requests)
    assert all(request.opening is None for request in requests)


async def test_a_retired_pool_serves_requests_and_keeps_no_connection():
    pool, opening = make(2)
    used, idle = await opened(pool, opening), await opened(pool, opening)
    pool.put_back(idle)
    pool.retire()
    assert (used.closed, idle.closed) == (False, True)
    await turns()
    late = await opened(pool, opening)
    (waiter,) = waiting(pool, 1)
    await turns()
    pool.put_back(late)
    assert await waiter is late
    for connection in (late, used):
        pool.put_back(connection)
        assert connection.closed
    await turns()
    assert len(pool) == 0


# Origin servers with few workers, of which a connection that is kept holds one


class Few:
    """An origin server with a few workers; each serves one connection until that is closed, in order.

    Its time is the clock's: it answers each request after `seconds`.
    """

    def __init__(self, clock, workers, seconds, size=1000, **how):
        self.clock, self.workers, self.seconds = clock, workers, seconds
        self.queue, self.served, self.due, self.done = [], [], [], []
        self.opened = 0
        self.sockets = socket.socketpair()  # hundreds of connections share them: nothing comes over these
        OPEN.extend(self.sockets)
        self.pool = Pool(self.open, PoolSettings(size, **how), loop=clock)

    async def open(self, keeper):
        self.opened += 1
        self.queue.append(line := Worked(self))
        return connected(keeper, line, self.clock)

    def begun(self, line):
        """A request has come, or a worker."""
        if line in self.served and line.waits:
            self.due.append((self.clock.now + self.seconds, line))

    async def go_on(self):
        """Have the next thing happen: an answer, or a timer."""
        while True:
            await turns()
            self.served = [each for each in self.served if not each.closing]
            if not self.queue or len(self.served) >= self.workers:
                break
            self.served.append(self.queue.pop(0))
            self.begun(self.served[-1])
        self.due.sort(key=lambda each: each[0])
        timers = [timer.due for timer in self.clock.timers]
        if self.due and self.due[0][0] <= min(timers, default=self.due[0][0]):
            self.clock.now, line = self.due.pop(0)
            line.answer()
        else:
            self.clock.pass_to(min(timers))

    async def answers(self, count):
        """Send so many requests at once; the seconds until all are answered."""
        begun, self.done = self.clock.now, []
        for _ in range(count):
            send(self.pool, self.done.append)
        while len(self.done) < count:
            await self.go_on()
        return self.clock.now - begun


class Worked(Line):
    """A line to such a server."""

    def __init__(self, server):
        self.server, self.waits = server, False
        self.near, self.far = server.sockets
        self.closing, self.connection = False, None

    def write(self, data):
        self.waits = True
        self.server.begun(self)

    def answer(self):
        self.waits = False
        self.connection.data_received(EMPTY)


@pytest.mark.parametrize("seconds", [0.02, 0.05, 1.0])
@pytest.mark.parametrize("count", [40, 400])
async def test_many_requests_at_once_take_no_longer_than_they_must(clock, seconds, count):
    server = Few(clock, 10, seconds)
    for _ in range(5):
        assert await server.answers(count) < seconds * (count / 10 + 2.5)


async def test_requests_in_turn_share_a_connection(clock):
    server = Few(clock, 10, 0.05)
    for _ in range(20):
        await server.answers(1)
    assert server.opened == 1


async def test_an_answer_that_takes_long_costs_a_connection_or_two(clock):
    server = Few(clock, 1000, 0.05)
    await server.answers(1)
    server.seconds = 30
    for _ in range(2):
        send(server.pool)  # the second over a new connection
    await turns()
    server.seconds = 0.05
    for _ in range(100):
        await server.answers(4)
    assert server.opened <= 2 + 4 + 2


async def test_queued_connections_go_before_waiting_requests(clock):
    pool, opening = make(2, loop=clock)
    first = await opened(pool, opening)
    clock.now = 1
    pool.answered(first)
    second = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    clock.now = 9
    pool.put_back(first)
    await turns()
    assert (first.closed, second.closed) == (True, False)
    opening.asked[-1].set_result(third := connected(pool))
    assert await task is third


@pytest.mark.parametrize(("most", "closed"), [(2, [True, False, False]), (0, [True, True, True])])
async def test_no_more_are_idle_than_may_be(most, closed):
    pool, opening = make(5, max_idle=most)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    assert [connection.closed for connection in connections] == closed
    await turns()
    assert len(pool) == most


async def test_a_request_whose_connection_fails_takes_a_free_one(clock):
    pool, opening = make(9, loop=clock)
    first = await opened(pool, opening, loop=clock)
    clock.now = 1
    pool.answered(first)
    requests = [send(pool), send(pool)]
    await turns()
    pool.put_back(first)
    assert [request.connection for request in requests] == [None, None]
    clock.pass_to(2)  # the patience is a second at most
    for request in requests:
        assert request.connection is first
        first.data_received(EMPTY)
        assert request.answer.names == ["start", "finish"]
    await turns()
    assert [each.cancelled() for each in opening.asked[1:]] == [True, True]
    assert pool.take_idle() is first
    assert len(pool) == 1


async def test_a_repeated_request_waits_for_a_connection_of_its_own(clock):
    pool, opening = make(9, loop=clock)
    first = await opened(pool, opening)
    pool.answered(first)
    pool.repeat(request := pending())
    await turns()
    clock.now = 9
    pool.put_back(first)
    clock.pass_to(10)
    assert request.connection is None
    opening.asked[-1].set_result(second := connected(pool))
    await turns()
    assert request.connection is second


# New connections that wait for their first answer: which of them the origin server does not serve yet


def known(seconds):
    """The knowledge after a first answer that took so long."""
    answers = FirstAnswers()
    answers.sent("first", 0)
    answers.answered("first", seconds)
    return answers


def test_nobody_is_held_up_before_any_answer_is_known():
    answers = FirstAnswers()
    answers.sent("a", 0)
    assert (answers.due, answers.held_up(1e9)) == (math.inf, 0)


@cases("seconds, patience", (0, SHORTEST), (0.004, SHORTEST), (0.05, 0.1), (0.5, LONGEST), (60, LONGEST))
def test_patience_is_twice_the_usual_time_within_bounds(seconds, patience):
    answers = known(seconds)
    assert answers.patience == patience
    answers.sent("a", 100)
    assert answers.due == 100 + patience
    assert answers.held_up(100 + patience) == 1


def test_first_answers_that_take_too_long_are_counted():
    answers = known(0.05)
    for number in range(10):
        answers.sent(number, number)
    assert [answers.held_up(now) for now in (0.09, 0.11, 4.11, 99)] == [0, 1, 5, 10]


def test_an_answer_shows_that_the_server_has_all_older_connections():
    answers = known(0.05)
    for name in "abcd":
        answers.sent(name, 0)
    answers.answered("c", 0.05)
    assert list(answers.waiting) == ["d"]
    answers.answered("a", 30)  # it was only slow
    assert (list(answers.waiting), answers.patience) == (["d"], pytest.approx(0.1))


def test_an_answer_after_a_closing_took_the_time_since_that():
    answers = known(0.05)
    for round_ in range(1, 100):
        answers.sent(round_, round_)
        answers.relieved(round_ + 0.7)
        answers.answered(round_, round_ + 0.75)
    assert answers.patience == pytest.approx(0.1)


@pytest.mark.parametrize("relieved", [False, True], ids=["nothing closed", "closed in vain"])
def test_permanently_slower_answers_become_usual(relieved):
    answers = known(0.01)
    for round_ in range(1, 200):
        answers.sent(round_, round_)
        if relieved:
            answers.relieved(round_ + 0.2999)
        answers.answered(round_, round_ + 0.3)
    assert answers.patience > 0.3
