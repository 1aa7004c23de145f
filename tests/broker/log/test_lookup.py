"""Time look-ups: special values, boundaries, exact records."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.log import lookup
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.results import AppendOrigin, IsolationLevel, TimestampOffset
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import Store
from tests.records.batches import NOW_MS, Batch

NOTHING = TimestampOffset(-1, -1, -1)
COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, segment_bytes=2000, index_interval_bytes=150) as made:
        yield made


def test_an_empty_log_answers_the_special_values(store: Store) -> None:
    assert store.log.offset_for_timestamp(-1) == TimestampOffset(-1, 0, 0)
    assert store.log.offset_for_timestamp(-2) == TimestampOffset(-1, 0, 0)
    assert store.log.offset_for_timestamp(-3) == NOTHING
    assert store.log.offset_for_timestamp(-4) == TimestampOffset(-1, 0, 0)
    assert store.log.offset_for_timestamp(-5) == NOTHING
    assert store.log.offset_for_timestamp(0) == NOTHING


@pytest.mark.parametrize("codec", range(5))
def test_the_exact_record_is_found(store: Store, codec: int) -> None:
    times = [NOW_MS, NOW_MS + 10, NOW_MS + 5, NOW_MS + 20]
    store.log.append(Batch([b"v"] * 4, timestamps=times, codec=codec).build())
    assert store.log.offset_for_timestamp(0) == TimestampOffset(NOW_MS, 0, 0)
    assert store.log.offset_for_timestamp(NOW_MS) == TimestampOffset(NOW_MS, 0, 0)
    assert store.log.offset_for_timestamp(NOW_MS + 1) == TimestampOffset(NOW_MS + 10, 1, 0)
    assert store.log.offset_for_timestamp(NOW_MS + 11) == TimestampOffset(NOW_MS + 20, 3, 0)
    assert store.log.offset_for_timestamp(NOW_MS + 21) == NOTHING
    assert store.log.offset_for_timestamp(-3) == TimestampOffset(NOW_MS + 20, 3, 0)


def test_the_largest_timestamp_is_the_first_of_its_kind(store: Store) -> None:
    for times in ([5, 9], [9, 3], [2, 1]):
        store.log.append(Batch([b"v"] * 2, timestamps=times).build())
    assert store.log.offset_for_timestamp(-3) == TimestampOffset(9, 1, 0)


def test_batches_that_are_appended_during_a_look_up_are_no_damage(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader has seen the end of the log; the indexes that it asks then may be newer already."""
    log = store.log
    for number in range(3):
        log.append(Batch([b"v" * 60], timestamp=NOW_MS + number).build())
    before = log._tail
    for number in range(3, 8):
        log.append(Batch([b"v" * 60], timestamp=NOW_MS + number).build())
    assert log._tail[1] is before[1], "the same segment"
    for number in range(8):
        found = lookup.offset_for_timestamp(log._reader, log.epochs, NOW_MS + number, 0, before, before[0])
        assert found == (TimestampOffset(NOW_MS + number, number, 0) if number < 3 else NOTHING)
        place = log._reader.find(number, before)
        assert (place is not None) == (number < 3)
    assert not caplog.records, "no index was taken for damaged"


def test_records_below_the_start_are_not_found(store: Store) -> None:
    for number in range(10):
        store.log.append(Batch([b"v", b"w"], timestamps=[100 - number, 100 - number]).build())
    store.log.delete_records_before(7)
    assert store.log.offset_for_timestamp(0).offset == 7
    assert store.log.offset_for_timestamp(100) == NOTHING
    assert store.log.offset_for_timestamp(-2).offset == 7


def test_a_header_that_claims_a_time_no_record_has_is_passed_over(store: Store) -> None:
    store.log.append(Batch([b"v"], timestamp=10, changes={"max_timestamp": 1000}).build())
    store.log.append(Batch([b"v"], timestamp=500).build())
    assert store.log.offset_for_timestamp(400) == TimestampOffset(500, 1, 0)


def test_log_append_time_is_found_by_the_time_of_the_append(tmp_path: Path) -> None:
    with Store(tmp_path, timestamp_type="LogAppendTime") as store:
        for _ in range(5):
            store.log.append(Batch([b"v", b"w"], timestamp=1).build())
            store.clock.advance(1)
        assert store.log.offset_for_timestamp(NOW_MS + 1500) == TimestampOffset(NOW_MS + 2000, 4, 0)


def test_records_that_cannot_be_decompressed_are_an_error(store: Store) -> None:
    store.log.append(Batch([b"garbage"]).build())
    with open(store.log.segments[0].path, "r+b") as file:
        file.seek(22)
        file.write(b"\x03")  # from now on the batch claims to be compressed
    with pytest.raises(KafkaError) as caught:
        store.log.offset_for_timestamp(5)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_look_up_needs_no_memory_of_its_own_for_what_it_decompresses(store: Store) -> None:
    """90 partitions with 15 MB in 500 bytes each are looked into by one small request."""
    store.log.append(Batch([bytes(15_000_000)], codec=4).build())
    assert store.log.offset_for_timestamp(NOW_MS).offset == 0
    tracemalloc.start()
    try:
        assert store.log.offset_for_timestamp(NOW_MS).offset == 0
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


batches = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.sampled_from(range(5)), st.booleans()),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=40)
@given(made=batches, restart=st.sampled_from(["no", "clean", "crash"]), start=st.integers(0, 130))
def test_every_boundary_equals_a_plain_search(
    made: list[tuple[list[int], int, bool]], restart: str, start: int
) -> None:
    """Equal and out-of-order times, every codec, segment edges, a start inside a batch, an open transaction."""
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-lookup-") as path,
        Store(Path(path), segment_bytes=2000, index_interval_bytes=150) as store,
    ):
        times, first_open = _fill(store, made)
        start = min(start, len(times))
        store.log.delete_records_before(start)
        log = {"no": lambda: store.log, "clean": store.reopen, "crash": store.crash}[restart]()
        stable = max(start, first_open)
        rows = [(time, offset) for offset, time in enumerate(times) if offset >= start]
        for wanted in range(62):
            expected = next((row for row in rows if row[0] >= wanted), (-1, -1))
            assert _found(log, wanted) == expected
            assert _found(log, wanted, COMMITTED) == (expected if expected[1] < stable else (-1, -1))
        largest = max(rows, key=lambda row: (row[0], -row[1]), default=(-1, -1))
        assert _found(log, -3) == largest
        assert _found(log, -3, COMMITTED) == (largest if largest[1] < stable else (-1, -1))
        assert [_found(log, -1)[1], _found(log, -1, COMMITTED)[1]] == [len(times), stable]
        assert {_found(log, special, level)[1] for special in (-2, -4) for level in IsolationLevel} == {start}


def _fill(store: Store, made: list[tuple[list[int], int, bool]]) -> tuple[list[int], int]:
    """The time of each record, and the first offset of the open transaction; without one, the end."""
    times: list[int] = []
    first_open = None
    for batch_times, codec, opens in made:
        batch = Batch([b"v" * 40] * len(batch_times), timestamps=batch_times, codec=codec)
        if opens and len(times) > 10 and first_open is None:
            first_open = len(times)
            batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.attributes = 1, 0, 0, 0x10
        store.log.append(batch.build(), origin=AppendOrigin.COORDINATOR if batch.attributes else AppendOrigin.CLIENT)
        times += batch_times
    return times, len(times) if first_open is None else first_open


def _found(
    log: PartitionLog, wanted: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> tuple[int, int]:
    found = log.offset_for_timestamp(wanted, isolation)
    return found.timestamp, found.offset
