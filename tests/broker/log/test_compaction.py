"""One cleaning: what stays, what goes, and that offsets, sequences and times stay what they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.log.compaction import CleaningLimits
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.results import AppendOrigin, IsolationLevel
from barnabas.records.batch import DELETE_HORIZON_BIT
from tests.broker.log.compacted import CompactedStore, Model, batches, keyed, latest, records, records_of
from tests.records.batches import NOW_MS, Batch, end_marker

DAY_MS = 86_400_000
CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CompactedStore]:
    with CompactedStore(tmp_path) as made:
        yield made


@CODECS
def test_the_newest_record_of_each_key_stays_at_its_offset(store: CompactedStore, codec: int) -> None:
    model = Model()
    for number in range(60):
        pairs = [(b"k%d" % ((number * 3 + i) % 7), b"v%d-%d" % (number, i)) for i in range(3)]
        times = [NOW_MS + number, NOW_MS + number + 5, NOW_MS + number - 5]
        model.write(store.put(*pairs, timestamps=times, codec=codec), pairs)
    before = {record.offset: record for record in records(store.log)}
    end = store.log.log_end_offset
    store.clean_all()
    kept = records(store.log)
    assert [record.offset for record in kept] == [record.offset for record in model.cleaned_up_to(end)]
    assert all(record == before[record.offset] for record in kept), "key, value and time are what they were"
    assert all(header.codec == codec for header, _ in batches(store.log) if header.record_count)
    for header, data in batches(store.log):
        times = [record.timestamp for record in records_of(header, data)]
        assert not times or header.max_timestamp == max(times)


def test_nothing_changes_in_a_batch_of_which_everything_stays(store: CompactedStore) -> None:
    store.put((b"a", b"1"), (b"b", b"2"), codec=1)
    before = batches(store.log)
    store.clean_all()
    assert batches(store.log) == before


def test_the_active_segment_is_never_cleaned(store: CompactedStore) -> None:
    for number in range(5):
        store.put((b"k", b"%d" % number))
    assert not store.clean()
    assert len(records(store.log)) == 5


def test_offsets_inside_a_gap_are_answered_with_what_follows(store: CompactedStore) -> None:
    for number in range(20):
        store.put((b"k", b"%d" % number * 50))
    store.clean_all()
    assert [record.offset for record in records(store.log)] == [19]
    for offset in range(20):
        [(header, _)] = [each for each in batches(store.log) if each[0].last_offset >= offset][:1]
        assert header.last_offset >= offset
    assert store.log.offset_for_timestamp(0).offset == 19
    assert (store.log.log_start_offset, store.log.log_end_offset) == (0, 20)
    assert store.put((b"k", b"next")) == 20


def test_small_segments_become_one(store: CompactedStore) -> None:
    for number in range(30):
        store.put((b"k%d" % number, b"x" * 100))
        if number % 2:
            store.roll()
    assert store.log.segment_count == 16
    store.clean()
    assert all(segment.size <= 1000 for segment in store.log.segments)
    assert store.log.segment_count == 9, "two of 352 bytes fit into segment.bytes"
    assert len(records(store.log)) == 30


def test_a_tombstone_stays_for_delete_retention_ms_after_the_cleaning_that_first_met_it(store: CompactedStore) -> None:
    store.put((b"a", b"1"), (b"b", b"1"))
    store.put((b"a", None), (b"c", b"1"), timestamps=[NOW_MS + 1, NOW_MS + 2])
    store.clean_all()
    assert [(record.key, record.value) for record in records(store.log)] == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    header, data = batches(store.log)[1]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == store.clock.wall_ms() + DAY_MS
    assert [record.timestamp for record in records_of(header, data)] == [NOW_MS + 1, NOW_MS + 2]
    assert header.max_timestamp == NOW_MS + 2

    store.clock.advance(86_399)
    store.put((b"d", b"1"))
    store.clean_all()
    assert (b"a", None) in [record[1:3] for record in records(store.log)]
    store.clock.advance(1)
    store.put((b"d", b"2"))
    store.clean_all()
    assert [record.key for record in records(store.log)] == [b"b", b"c", b"d"]
    assert latest(store.log) == {b"b": b"1", b"c": b"1", b"d": b"2"}


def test_records_without_a_key_go(store: CompactedStore) -> None:
    store.log.update_config(LogConfig(cleanup_policy=("delete",)))
    store.put((None, b"1"), (b"a", b"2"))
    store.log.update_config(store.config)
    store.clean_all()
    assert [record.key for record in records(store.log)] == [b"a"]
    assert store.manager.cleaner.figures.last.records_without_key == 1


def test_the_last_batch_of_a_producer_stays_empty_for_its_sequence(store: CompactedStore) -> None:
    store.put((b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=0)
    store.put((b"a", b"2"), producer_id=7, producer_epoch=2, base_sequence=1)
    store.put((b"a", b"3"))
    store.put((b"z", b"3"))
    store.clean_all()
    kept = [(header.base_offset, header.record_count, header.producer_id) for header, _ in batches(store.log)]
    assert kept == [(1, 0, 7), (2, 1, -1), (3, 1, -1)]
    header = batches(store.log)[0][0]
    assert (header.producer_epoch, header.base_sequence, header.last_offset_delta) == (2, 1, 0)
    for path in store.directory.glob("*.snapshot"):
        path.unlink()
    log = store.crash()
    again = log.append(keyed([(b"a", b"2")], producer_id=7, producer_epoch=2, base_sequence=1))
    assert (again.duplicate, again.base_offset) == (True, 1)
    store.put((b"a", b"4"), producer_id=7, producer_epoch=2, base_sequence=2)


def test_a_producer_that_is_forgotten_keeps_nothing(store: CompactedStore) -> None:
    store.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    store.put((b"a", b"2"))
    store.log.expire_producers(0)
    store.clean_all()
    assert [header.base_offset for header, _ in batches(store.log)] == [1]


def test_the_last_batch_of_the_cleaning_stays_so_that_its_offset_is_not_lost(store: CompactedStore) -> None:
    store.put((b"a", b"1"))
    store.put((b"a", None))
    store.clean_all()
    store.clock.advance(2 * 86_400)
    store.clean_with()
    assert [(header.base_offset, header.record_count) for header, _ in batches(store.log)] == [(1, 0)]
    assert store.log.log_end_offset == 2


def test_keys_that_do_not_fit_into_the_memory_are_cleaned_in_several_passes(store: CompactedStore) -> None:
    model = Model()
    for number in range(40):
        pairs = [(b"k%d" % ((number * 5 + i) % 20), b"v%d" % number) for i in range(5)]
        model.write(store.put(*pairs), pairs)
    store.roll()
    small = CleaningLimits(map_memory=24 * 11, map_load_factor=0.9, buffer_bytes=300)
    end, passes = 0, 0
    while end < 200:
        clean = store.clean_with(small, end)
        assert clean > end, "each pass gets on"
        end, passes = clean, passes + 1
        assert latest(store.log) == model.latest()
    assert passes > 2
    end = store.clean_with(first_dirty=0)
    assert [record.offset for record in records(store.log)] == [each.offset for each in model.cleaned_up_to(end)]


def test_a_batch_with_more_keys_than_fit_is_cleaned_too(store: CompactedStore) -> None:
    store.put(*[(b"k%d" % (i % 30), b"x") for i in range(35)])
    store.roll()
    small = CleaningLimits(map_memory=24 * 7, map_load_factor=0.9, buffer_bytes=300)
    end = 0
    while end < 35:
        end = store.clean_with(small, end)
    assert sorted(record.offset for record in records(store.log)) == list(range(5, 35))


def test_whatever_was_accepted_can_be_cleaned_and_looked_up_also_under_a_smaller_limit(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, max_message_bytes=2_000_000) as store:
        store.put((b"large", bytes(18_000_000)), (b"k", b"old"), codec=4)  # some hundred bytes in zstd
        store.put((b"k", b"new"))
        store.log.config = replace(store.log.config, max_message_bytes=1000)
        assert store.log.offset_for_timestamp(NOW_MS).offset == 0
        store.clean_all()
        assert [header.record_count for header, _ in batches(store.log)] == [1, 1]


def test_a_log_append_time_stays(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, timestamp_type="LogAppendTime") as store:
        store.put((b"a", b"1"), (b"b", None), timestamp=5)
        store.clock.advance(60)
        store.put((b"a", b"2"))
        store.clean_all()
        assert [record.timestamp - NOW_MS for record in records(store.log)] == [0, 60_000]


def test_time_lookups_are_right_after_a_cleaning(store: CompactedStore) -> None:
    for number in range(50):
        store.put((b"k%d" % (number % 10), b"x" * 40), timestamp=NOW_MS + number * 10)
    store.clean_all()
    left = records(store.log)
    for time in range(NOW_MS - 5, NOW_MS + 505, 5):
        wanted = next((record.offset for record in left if record.timestamp >= time), -1)
        assert store.log.offset_for_timestamp(time).offset == wanted
    assert store.log.offset_for_timestamp(-3).offset == 49


def test_a_recovery_takes_no_gap_of_a_compaction_for_the_work_of_a_power_cut(store: CompactedStore) -> None:
    """Not even a segment of which nothing is left, nor when the topic is not compacted any more."""
    for number in range(12):
        store.put((b"k" if number < 9 else b"last", b"%d" % number * 120))
    store.log.update_config(replace(store.config, segment_bytes=200))
    for number in range(4):
        store.put((b"last", b"%d" % number * 120))
    store.clean_with()
    wanted = records(store.log)
    assert any(not segment.size for segment in store.log.segments[:-1]), "a segment is empty"
    store.config = replace(store.config, cleanup_policy=("delete",))
    log = store.crash()
    assert (records(log), log.log_end_offset) == (wanted, 16)
    store.manager.shutdown()
    (store.path / "recovery-point-offset-checkpoint").unlink()
    (store.path / ".kafka_cleanshutdown").unlink()
    store.config = replace(store.config, cleanup_policy=("compact",))
    store.open()
    assert (records(store.log), store.log.log_end_offset) == (wanted, 16)


# Transactions.


def transactional(store: CompactedStore, producer_id: int, sequence: int, key: bytes, value: bytes) -> int:
    batch = Batch(
        [value], [key], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, attributes=0x10
    ).build()
    return store.log.append(batch, origin=AppendOrigin.COORDINATOR).base_offset


def end(store: CompactedStore, producer_id: int, commit: bool) -> int:
    return store.log.append(end_marker(producer_id, commit), origin=AppendOrigin.COORDINATOR).base_offset


def test_aborted_records_go_and_do_not_count_as_newest(store: CompactedStore) -> None:
    store.put((b"a", b"good"))
    transactional(store, 5, 0, b"a", b"aborted")
    transactional(store, 5, 1, b"b", b"aborted")
    end(store, 5, commit=False)
    transactional(store, 6, 0, b"b", b"committed")
    end(store, 6, commit=True)
    store.put((b"c", b"1"))
    store.log.expire_producers(0)
    store.clean_all()
    assert [(record.key, record.value) for record in records(store.log)] == [
        (b"a", b"good"),
        (b"b", b"committed"),
        (b"c", b"1"),
    ]
    assert [header.base_offset for header, _ in batches(store.log) if header.control] == [3, 5]
    aborted = store.log.read(0, 5000, isolation=IsolationLevel.READ_COMMITTED).aborted
    assert [each.producer_id for each in aborted] == [5], "readers of the old file may still have the records"


def test_a_marker_goes_a_delete_horizon_after_its_transaction(store: CompactedStore) -> None:
    store.put((b"a", b"good"))
    transactional(store, 5, 0, b"a", b"aborted")
    end(store, 5, commit=False)
    store.put((b"b", b"1"))
    store.log.expire_producers(0)
    for round_, markers in enumerate([1, 1, 0]):
        store.clean_all()
        assert len([1 for header, _ in batches(store.log) if header.control]) == markers, f"cleaning {round_}"
        store.clock.advance(86_401 if round_ == 1 else 10)
        store.put((b"b", b"%d" % round_))
    assert not store.log.read(0, 5000, isolation=IsolationLevel.READ_COMMITTED).aborted


def test_nothing_beyond_an_open_transaction_is_cleaned(store: CompactedStore) -> None:
    store.put((b"a", b"1"))
    store.roll()
    transactional(store, 5, 0, b"b", b"open")
    store.put((b"a", b"2"))
    store.clean_all()
    assert [record.offset for record in records(store.log)] == [0, 1, 2]
    end(store, 5, commit=True)
    store.clean_all()
    assert [record.offset for record in records(store.log)] == [1, 2]


def test_a_transaction_over_several_segments_is_dropped_as_a_whole(store: CompactedStore) -> None:
    for number in range(6):
        transactional(store, 5, number, b"k%d" % number, b"x" * 50)
        store.roll()
        store.put((b"other%d" % number, b"y"))
    end(store, 5, commit=False)
    store.clean_all()
    assert [record.key for record in records(store.log)] == [b"other%d" % n for n in range(6)]
