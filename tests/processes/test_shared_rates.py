"""One limit for several processes: two tables of rates on one file."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.judge.access import OwnRates, Rate, paced
from univocal.store.file.own_files import ByteLocks
from univocal_app.processes import shared_rates
from univocal_app.processes.shared_rates import SharedRates

RATES = [Rate(0.1, 1), Rate(0.5, 3), Rate(1 / 7, 20), Rate(3600, 2)]
NAMES = ["en.example", "en.example/wiki/"]
ONE_HOUR = Rate(3600, 1)

numbers = itertools.count()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rates"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    file = tmp_path_factory.mktemp("shared") / "rates"
    return SharedRates(file), SharedRates(file)


requests = st.tuples(
    st.integers(0, 1),
    st.sampled_from(NAMES),
    st.integers(0, 3),
    st.one_of(st.just(0.0), st.floats(-1, 5, allow_nan=False), st.sampled_from([-1e6, 3600.0])),
)


@given(st.lists(requests, max_size=100))
def test_two_tables_limit_as_one_process_does(pair, sequence):
    """Whichever process a request meets, and whether the clock goes on or is set back."""
    own, example, now = OwnRates(), next(numbers), 1.7e9
    for table, name, client, pause in sequence:
        now += pause
        request = name, f"client {client} of {example}", RATES[client], now
        assert pair[table].wait(*request) == own.wait(*request)


def test_requests_at_the_same_time_are_all_counted(file, monkeypatch):
    tables, rate = [SharedRates(file) for _ in range(4)], Rate(3600, 100)

    def slowly(due, rate, now):
        result = paced(due, rate, now)
        time.sleep(1e-6)  # others run meanwhile
        return result

    def ask(table):
        return sum(table.wait("site", "a", rate, 0) == 0 for _ in range(100))

    monkeypatch.setattr(shared_rates, "paced", slowly)
    with ThreadPoolExecutor(len(tables)) as threads:
        assert sum(threads.map(ask, tables)) == rate.burst


def test_the_rates_of_many_clients_take_bounded_memory(file):
    rates = SharedRates(file, most=160)
    size = file.stat().st_size
    for number in range(2000):
        assert rates.wait("site", str(number), ONE_HOUR, 0) == 0
    assert file.stat().st_size == size < 16_384
    remembered = sum(rates.wait("site", str(number), ONE_HOUR, 0) > 0 for number in range(1999, 1899, -1))
    assert remembered > 80


def test_the_documented_number_of_clients_takes_less_than_two_mebibytes(file):
    SharedRates(file)
    assert file.stat().st_size < 2 << 20


def test_the_client_that_was_counted_longest_ago_makes_room(file):
    rates, rate = SharedRates(file, most=16), Rate(3600, 2)
    for client in [*range(16), 0, 16]:
        assert rates.wait("site", str(client), rate, 0) == 0
    assert rates.wait("site", "0", rate, 0) == 3600  # it was counted twice
    assert [rates.wait("site", "1", rate, 0) for _ in range(3)] == [0, 0, 3600]  # it was forgotten


def test_a_process_that_stands_still_lets_clients_wait(file):
    rates, other = SharedRates(file, most=16), ByteLocks(file)
    assert other.take(0)
    assert rates.wait("site", "a", ONE_HOUR, 0) == 1
    other.close()  # as the system does it for a process that is killed
    assert rates.wait("site", "a", ONE_HOUR, 0) == 0
    assert rates.wait("site", "a", ONE_HOUR, 0) == 3600


def test_nobody_can_compute_which_clients_displace_one_another(tmp_path):
    remembered = set()
    for start in ("one", "another"):
        rates = SharedRates(tmp_path / start, most=160)
        clients = [str(number) for number in range(400)]
        for client in clients:
            rates.wait("site", client, ONE_HOUR, 0)
        remembered.add(tuple(rates.wait("site", client, ONE_HOUR, 0) > 0 for client in reversed(clients)))
    assert len(remembered) == 2
