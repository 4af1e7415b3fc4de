"""The mapped journal: every process sees a purge at once, and what is damaged or gone means everything."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.store.file.ring import Ring
from univocal.store.roles import BeyondHorizonError, StoreUnavailableError

CAPACITY = 4096


@pytest.fixture
def ring(tmp_path):
    opened = Ring(tmp_path / "journal", CAPACITY)
    yield opened
    opened.close()


@given(st.lists(st.binary(max_size=600), max_size=60), st.data())
def test_a_reader_gets_all_purges_in_order_or_is_told(purges, data):
    with tempfile.TemporaryDirectory() as name:
        writer = Ring(Path(name) / "journal", CAPACITY, is_durable=False)
        reader = Ring(Path(name) / "journal", CAPACITY, is_durable=False)
        try:
            followed = [0]
            read = list[bytes]()
            for payload in purges:
                number = writer.append(payload)
                assert reader.last == number > followed[-1]
                if data.draw(st.booleans()):
                    try:
                        new = list(reader.follow(followed[-1]))
                    except BeyondHorizonError:
                        assert reader.first > followed[-1]
                        new = list(reader.follow(reader.first))
                        read = purges[: purges.index(payload) + 1]
                        read = list(purges[: len(read)])
                    else:
                        read += [each for _, each in new]
                    if new:
                        followed.append(new[-1][0])
            listed = list(reader.follow(reader.first))
            assert [each for _, each in listed] == purges[len(purges) - len(listed) :]
            assert not purges or listed[-1][0] == reader.last
        finally:
            writer.close()
            reader.close()


def test_a_ring_goes_on_where_it_was(tmp_path):
    first = Ring(tmp_path / "journal", CAPACITY)
    assert first.is_new
    number = first.append(b"a")
    first.close()
    again = Ring(tmp_path / "journal", CAPACITY)
    assert not again.is_new
    assert list(again.follow(0)) == [(number, b"a")]
    again.close()


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, bytes(9000)])
def test_a_file_that_is_no_journal_is_begun_anew(tmp_path, content):
    (tmp_path / "journal").write_bytes(content)
    ring = Ring(tmp_path / "journal", CAPACITY)
    assert (ring.is_new, ring.first, ring.last) == (True, 0, 0)
    ring.close()


def test_a_damaged_purge_is_one_of_everything(ring, tmp_path):
    ring.append(b"first")
    ring.append(b"second")
    file = tmp_path / "journal"
    octets = bytearray(file.read_bytes())
    octets[octets.index(b"second")] ^= 1
    file.write_bytes(octets)
    assert [payload for _, payload in ring.follow(0)] == [b"first", b""]


def test_an_unfinished_purge_of_a_killed_process_does_not_count(ring):
    number = ring.append(b"first")
    ring._write(number, b"half a record")
    assert list(ring.follow(0)) == [(number, b"first")]
    assert ring.append(b"second") > number
    assert [payload for _, payload in ring.follow(0)] == [b"first", b"second"]


def test_a_reader_that_was_overtaken_is_told(ring):
    number = ring.append(b"x" * 500)
    for _ in range(20):
        ring.append(b"x" * 500)
    with pytest.raises(BeyondHorizonError):
        list(ring.follow(number))


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_forgotten_purge_is_lost_unless_it_is_carried_out(ring, is_settled):
    for _ in range(20):
        number = ring.append(b"x" * 500)
        if is_settled:
            ring.settle([number])
    assert ring.first > 0
    assert ring.lost == (0 if is_settled else ring.first)


def test_a_purge_longer_than_the_journal_is_refused(ring):
    with pytest.raises(StoreUnavailableError):
        ring.append(bytes(CAPACITY))


def test_a_process_that_stands_still_does_not_stop_others(ring, tmp_path):
    other = Ring(tmp_path / "journal", CAPACITY)
    with other.alone(), pytest.raises(StoreUnavailableError):
        ring.append(b"late")
    assert ring.append(b"in time") == ring.last
    other.close()


def test_a_thread_that_ends_its_turn_leaves_another_threads(ring, tmp_path):
    """The system's lock on the file is one for all threads of a process: two would write one record each."""
    other = Ring(tmp_path / "journal", CAPACITY)
    with ThreadPoolExecutor(1) as pool:
        with ring.alone():
            number = pool.submit(ring.append, b"second")
            with pytest.raises(TimeoutError):
                number.result(0.05)
            with pytest.raises(StoreUnavailableError):
                other.append(b"third")
        assert number.result(5) == ring.last
    other.close()
