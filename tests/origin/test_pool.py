"""Who gets which connection: no sockets, no waiting."""

import asyncio

import httpx
import pytest

from univocal.origin.connection import Phase
from univocal.origin.pool import Pool
from univocal.origin.timeouts import Timeouts


class Connection:
    """A connection as a pool sees it, which keeps what it is told."""

    def __init__(self, pool):
        self.pool, self.closed, self.phase, self.seconds = pool, False, Phase.BUSY, None
        self.ended = False  # something has arrived that nobody asked for
        self.sent = []

    def send(self, request):
        self.sent.append(request)
        self.phase = Phase.BUSY

    def stand_by(self, seconds):
        self.phase, self.seconds = Phase.IDLE, seconds

    def has_ended(self):
        return self.ended

    def fail(self, error):
        self.close()

    def close(self):
        if not self.closed:
            self.closed = True
            self.pool.withdraw(self)
            asyncio.get_running_loop().call_soon(self.pool.lost, self)


class Opening:
    """Opens connections when told to."""

    def __init__(self):
        self.asked = []

    async def __call__(self, factory):
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def make(size, **how):
    opening = Opening()
    pool = Pool(opening, size, 4.0, **how)
    return pool, opening


async def turns(number=5):
    for _ in range(number):
        await asyncio.sleep(0)


async def opened(pool, opening):
    task = asyncio.ensure_future(pool.connect(None, None))
    await turns()
    opening.asked[-1].set_result(Connection(pool))
    return await task


def waiting(pool, number, **how):
    return [asyncio.ensure_future(pool.connect(None, None, **how)) for _ in range(number)]


async def test_a_connection_put_back_goes_to_who_has_waited_longest():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    tasks = waiting(pool, 3)
    await turns()
    for task in tasks:
        pool.put_back(connection)
        assert await task is connection
    pool.put_back(connection)
    assert (connection.phase, connection.seconds) == (Phase.IDLE, 4.0)
    assert pool.take_idle() is connection
    assert pool.take_idle() is None
    assert len(opening.asked) == len(pool) == 1


async def test_last_in_first_out():
    pool, opening = make(3)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    assert [pool.take_idle() for _ in range(4)] == [*reversed(connections), None]


async def test_a_lost_connection_is_the_right_to_open_one():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    first, second = waiting(pool, 2)
    await turns()
    connection.close()
    await turns()
    assert len(opening.asked) == 2
    new = Connection(pool)
    opening.asked[1].set_result(new)
    assert await first is new
    pool.put_back(new)
    assert await second is new


@pytest.mark.parametrize("given", ["connection", "room"])
async def test_a_cancelled_turn_is_passed_on(given):
    pool, opening = make(1)
    connection = await opened(pool, opening)
    first, second = waiting(pool, 2)
    await turns()
    pool.put_back(connection) if given == "connection" else pool.lost(connection)
    first.cancel()
    await turns()
    assert first.cancelled()
    if given == "room":
        connection = Connection(pool)
        opening.asked[-1].set_result(connection)
    assert await second is connection


async def test_a_cancelled_only_turn_is_returned():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    pool.put_back(connection)
    task.cancel()
    await turns()
    assert pool.take_idle() is connection


async def test_a_connection_that_dies_on_its_way_to_who_waits():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    pool.put_back(connection)
    connection.close()
    await turns()
    new = Connection(pool)
    opening.asked[1].set_result(new)
    assert await task is new
    assert len(pool) == 1


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), asyncio.CancelledError()])
async def test_whoever_fails_to_open_one_makes_room(error):
    pool, opening = make(1)
    first, second = waiting(pool, 2)
    await turns()
    if isinstance(error, asyncio.CancelledError):
        first.cancel()
    else:
        opening.asked[0].set_exception(error)
    with pytest.raises(type(error)):
        await first
    await turns()
    connection = Connection(pool)
    opening.asked[1].set_result(connection)
    assert await second is connection


async def test_a_connection_closed_before_use_makes_room():
    pool, opening = make(1)
    for _ in range(3):
        [task] = waiting(pool, 1)
        await turns()
        connection = Connection(pool)
        connection.closed = True
        opening.asked[-1].set_result(connection)
        assert await task is connection
        assert len(pool) == 0


async def test_connecting_and_waiting_end_in_time():
    pool, opening = make(1)
    with pytest.raises(httpx.ConnectTimeout):
        await pool.connect(0.001, None)
    connection = await opened(pool, opening)
    with pytest.raises(httpx.PoolTimeout):
        await pool.connect(None, 0.001)
    pool.put_back(connection)
    assert pool.take_idle() is connection


async def test_fresh_takes_the_place_of_the_oldest_idle_one():
    pool, opening = make(2)
    connections = [await opened(pool, opening) for _ in range(2)]
    for connection in connections:
        pool.put_back(connection)
    [task] = waiting(pool, 1, fresh=True)
    await turns()
    opening.asked[-1].set_result(new := Connection(pool))
    assert await task is new
    assert [connection.closed for connection in connections] == [True, False]
    assert len(pool) == 2


async def test_a_closed_pool_serves_nobody():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    pool.close()
    for attempt in (task, pool.connect(None, None)):
        with pytest.raises(httpx.ConnectError):
            await attempt
    await turns()
    assert connection.closed
    assert len(pool) == 0


async def test_what_comes_back_to_a_closed_pool_is_closed():
    pool, opening = make(2)
    connection = await opened(pool, opening)
    late = Connection(pool)
    pool.close()
    pool.put_back(late)
    assert connection.closed
    assert late.closed
    assert pool.take_idle() is None


async def test_what_has_ended_in_the_meantime_is_not_taken():
    pool, opening = make(3)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    connections[2].ended = connections[1].ended = True
    assert pool.take_idle() is connections[0]
    assert [connection.closed for connection in connections] == [False, True, True]


async def test_what_has_ended_goes_to_nobody_who_waits():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    connection.ended = True
    pool.put_back(connection)
    await turns()
    assert connection.closed
    opening.asked[-1].set_result(new := Connection(pool))
    assert await task is new


class Request:
    """A request as a pool sees it."""

    def __init__(self):
        self.timeouts, self.opening, self.error = Timeouts(None, None, None, None), None, None

    def fail(self, error):
        self.error = error


async def test_an_idle_connection_sends_the_request_within_the_call():
    pool, opening = make(1)
    connection = await opened(pool, opening)
    pool.put_back(connection)
    pool.send(request := Request())
    assert connection.sent == [request]
    assert request.opening is None


async def test_a_request_waits_for_its_connection():
    pool, opening = make(1)
    pool.send(request := Request())
    await turns()
    opening.asked[0].set_result(connection := Connection(pool))
    await turns()
    assert connection.sent == [request]
    assert request.opening is None


async def test_a_request_fails_where_no_connection_can_be_opened():
    pool, opening = make(1)
    pool.send(request := Request())
    await turns()
    opening.asked[0].set_exception(httpx.ConnectError("refused"))
    await turns()
    assert isinstance(request.error, httpx.ConnectError)


async def test_a_request_is_repeated_over_an_unused_connection():
    pool, opening = make(2)
    pool.put_back(idle := await opened(pool, opening))
    pool.repeat(request := Request())
    await turns()
    opening.asked[-1].set_result(connection := Connection(pool))
    await turns()
    assert (idle.sent, connection.sent) == ([], [request])


async def test_a_closed_pool_fails_requests_that_wait():
    pool, _ = make(1)
    requests = [Request(), Request()]
    for request in requests:
        pool.send(request)
    await turns()
    pool.close()
    await turns()
    assert all(isinstance(request.error, httpx.ConnectError) for request in requests)
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
        self.pool = Pool(self.open, size, 4.0, loop=clock, **how)

    async def open(self, keeper):
        self.opened += 1
        connection = Worked(keeper, self)
        self.queue.append(connection)
        return connection

    def begun(self, connection):
        """A request has come, or a worker."""
        if connection in self.served and connection.request is not None:
            self.due.append((self.clock.now + self.seconds, connection))

    async def go_on(self):
        """Let the next thing happen: an answer, or a timer."""
        while True:
            await turns()
            self.served = [each for each in self.served if not each.closed]
            if not self.queue or len(self.served) >= self.workers:
                break
            self.served.append(self.queue.pop(0))
            self.begun(self.served[-1])
        self.due.sort(key=lambda each: each[0])
        timers = [when for when, _ in self.clock.timers]
        if self.due and self.due[0][0] <= min(timers, default=self.due[0][0]):
            self.clock.now, connection = self.due.pop(0)
            connection.answer()
        else:
            self.clock.pass_to(min(timers))

    async def answers(self, count):
        """Send so many requests at once; the seconds until all are answered."""
        begun, self.done = self.clock.now, []
        for _ in range(count):
            self.pool.send(Request())
        while len(self.done) < count:
            await self.go_on()
        return self.clock.now - begun


class Worked(Connection):
    """A connection to such a server."""

    def __init__(self, pool, server):
        super().__init__(pool)
        self.server, self.request, self.idle = server, None, None

    def send(self, request):
        self.request = request
        self.phase = Phase.BUSY
        self.server.begun(self)

    def stand_by(self, seconds):
        super().stand_by(seconds)
        clock, since = self.server.clock, self.server.clock.now
        self.idle = since
        clock.call_at(since + seconds, lambda: self.idle == since and not self.request and self.close())

    def answer(self):
        self.server.done.append(self.request)
        self.request = None
        self.pool.answered(self)
        self.pool.put_back(self)


@pytest.mark.parametrize("seconds", [0.02, 0.05, 1.0])
@pytest.mark.parametrize("count", [40, 400])
async def test_many_requests_at_once_take_no_longer_than_they_must(clock, seconds, count):
    server = Few(clock, 10, seconds)
    for _ in range(5):
        assert await server.answers(count) < seconds * (count / 10 + 2.5)


async def test_few_connections_that_serve_all_are_kept(clock):
    server = Few(clock, 10, 0.05, size=8)
    for _ in range(3):
        assert await server.answers(40) == pytest.approx(0.25)
    assert server.opened == 8


async def test_requests_in_turn_share_a_connection(clock):
    server = Few(clock, 10, 0.05)
    for _ in range(20):
        await server.answers(1)
    assert server.opened == 1


async def test_a_server_that_serves_all_at_once_keeps_its_connections(clock):
    server = Few(clock, 1000, 0.05)
    for _ in range(20):
        assert await server.answers(40) == pytest.approx(0.05)
    assert server.opened == 40


async def test_an_answer_that_takes_long_costs_a_connection_or_two(clock):
    server = Few(clock, 1000, 0.05)
    await server.answers(1)
    server.seconds = 30
    for _ in range(2):
        server.pool.send(Request())  # the second over a new connection
    await turns()
    server.seconds = 0.05
    for _ in range(100):
        await server.answers(4)
    assert server.opened <= 2 + 4 + 2


async def test_permanently_slower_answers_do_not_end_keeping(clock):
    server = Few(clock, 1000, 0.001)
    await server.answers(10)
    server.seconds = 0.5
    for _ in range(10):
        await server.answers(20)
    opened = server.opened
    for _ in range(10):
        await server.answers(20)
    assert server.opened == opened


async def test_an_unread_answer_waits_for_no_worker(clock):
    pool, opening = make(9, loop=clock)
    first = await opened(pool, opening)
    clock.now = 1
    pool.answered(first)
    second = await opened(pool, opening)
    clock.now, second.ended = 9, True
    pool.put_back(first)
    assert not first.closed
    second.ended = False
    clock.pass_to(11)
    assert first.closed


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
    opening.asked[-1].set_result(third := Connection(pool))
    assert await task is third


async def test_no_more_are_idle_than_may_be():
    pool, opening = make(5, max_idle=2)
    connections = [await opened(pool, opening) for _ in range(3)]
    for connection in connections:
        pool.put_back(connection)
    assert [connection.closed for connection in connections] == [True, False, False]
    await turns()
    assert len(pool) == 2


async def test_none_is_idle_where_none_may_be():
    pool, opening = make(1, max_idle=0)
    connection = await opened(pool, opening)
    [task] = waiting(pool, 1)
    await turns()
    pool.put_back(connection)
    assert await task is connection
    pool.put_back(connection)
    assert connection.closed


async def test_a_request_whose_connection_fails_takes_a_free_one(clock):
    pool, opening = make(9, loop=clock)
    first = await opened(pool, opening)
    clock.now = 1
    pool.answered(first)
    requests = [Request(), Request()]
    for request in requests:
        pool.send(request)
    await turns()
    pool.put_back(first)
    assert first.sent == []
    clock.pass_to(2)  # the patience is a second at most
    assert first.sent == requests[:1]
    pool.put_back(first)
    assert first.sent == requests
    await turns()
    assert [each.cancelled() for each in opening.asked[1:]] == [True, True]
    pool.put_back(first)
    assert pool.take_idle() is first
    assert len(pool) == 1


async def test_a_repeated_request_waits_for_a_connection_of_its_own(clock):
    pool, opening = make(9, loop=clock)
    first = await opened(pool, opening)
    pool.answered(first)
    pool.repeat(request := Request())
    await turns()
    clock.now = 9
    pool.put_back(first)
    clock.pass_to(10)
    assert first.sent == []
    opening.asked[-1].set_result(second := Connection(pool))
    await turns()
    assert second.sent == [request]
