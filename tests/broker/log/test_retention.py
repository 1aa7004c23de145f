"""The start of the log: DeleteRecords, retention by time and size, and over crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import Store, headers_of, read_all
from tests.records.batches import NOW_MS, batch


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, segment_bytes=500) as made:
        for number in range(10):  # a segment holds two batches
            made.log.append(batch(2, size=100, timestamp=NOW_MS + number * 1000))
        yield made


def bases(store: Store) -> list[int]:
    return [segment.base_offset for segment in store.log.segments]


def files_left(store: Store) -> list[int]:
    store.manager.housekeeper.run_due()
    return sorted(int(path.stem) for path in store.directory.glob("*.log"))


def test_delete_records_moves_the_start_and_drops_whole_segments(store: Store) -> None:
    assert bases(store) == list(range(0, 20, 2))
    assert store.log.delete_records_before(7) == 7
    assert (store.log.log_start_offset, bases(store)[0]) == (7, 6)
    assert files_left(store) == bases(store)
    assert {path.suffix for path in store.directory.glob("00000000000000000004.*")} == {".deleted"}
    with pytest.raises(KafkaError) as caught:
        store.log.read(6, 100)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_all(store.log)[0].base_offset == 6, "the batch that holds the start is given whole"


def test_files_of_deleted_segments_stay_for_file_delete_delay_ms(store: Store) -> None:
    store.log.update_config(LogConfig(file_delete_delay_ms=5000))
    reader = store.log.read(0, 100)
    store.log.delete_records_before(7)
    store.clock.advance(4.999)
    store.manager.housekeeper.run_due()
    assert len(list(store.directory.glob("*.log.deleted"))) == 3
    store.clock.advance(0.001)
    store.manager.housekeeper.run_due()
    assert not list(store.directory.glob("*.deleted"))
    assert headers_of(reader)[0].base_offset == 0, "who reads it still has the file"


def test_a_start_removes_files_that_waited_for_their_end(store: Store) -> None:
    store.log.delete_records_before(7)
    store.crash()
    assert not list(store.directory.glob("*.deleted"))


def test_the_start_never_goes_back(store: Store) -> None:
    assert store.log.delete_records_before(7) == 7
    assert store.log.delete_records_before(3) == 7


def test_minus_one_is_the_end_of_the_log(store: Store) -> None:
    assert store.log.delete_records_before(-1) == 20
    assert store.log.read(20, 100).records == b""
    assert store.log.append(batch(1)).base_offset == 20
    assert len(read_all(store.log)) == 1


@pytest.mark.parametrize("offset", [21, -2, 2**62])
def test_an_offset_that_is_not_there_is_out_of_range(store: Store, offset: int) -> None:
    with pytest.raises(KafkaError) as caught:
        store.log.delete_records_before(offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_refuses_delete_records(store: Store) -> None:
    store.log.update_config(LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(KafkaError) as caught:
        store.log.delete_records_before(1)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_the_start_is_kept_over_a_restart(store: Store, stop: str) -> None:
    """faults.md row 37: it never decreases, not even when the process is killed right after the answer."""
    store.log.delete_records_before(7)
    log = store.reopen() if stop == "clean" else store.crash()
    assert (log.log_start_offset, log.log_end_offset) == (7, 20)


def test_segments_that_a_crash_left_behind_go_with_the_next_check(store: Store) -> None:
    store.log.delete_records_before(15)
    store.crash()
    store.manager.housekeeper.apply_retention()
    assert files_left(store) == bases(store) == [14, 16, 18]


def test_retention_by_size_keeps_at_least_that_much(store: Store) -> None:
    size = store.log.size
    segment = size // 10
    store.log.update_config(LogConfig(segment_bytes=500, retention_bytes=3 * segment + 1, retention_ms=-1))
    assert store.manager.housekeeper.apply_retention() == 6
    assert store.log.size == 4 * segment
    assert store.log.log_start_offset == 12
    store.log.update_config(LogConfig(retention_bytes=0, retention_ms=-1))
    store.manager.housekeeper.apply_retention()
    assert bases(store) == [18], "the active segment stays"


def test_retention_by_time_looks_at_the_records(store: Store) -> None:
    store.log.update_config(LogConfig(segment_bytes=500, retention_ms=5000))
    store.clock.advance(5)
    assert store.manager.housekeeper.apply_retention() == 0
    store.clock.advance(0.001)
    assert store.manager.housekeeper.apply_retention() == 1
    store.clock.advance(3)
    assert store.manager.housekeeper.apply_retention() == 3
    assert store.log.log_start_offset == 8


def test_a_log_whose_every_record_is_old_becomes_empty_and_goes_on(store: Store) -> None:
    store.log.update_config(LogConfig(retention_ms=5000))
    store.clock.advance(60)
    store.manager.housekeeper.apply_retention()
    assert (store.log.log_start_offset, store.log.log_end_offset, bases(store)) == (20, 20, [20])
    assert store.log.append(batch(1, timestamp=NOW_MS + 60_000)).base_offset == 20
    assert store.manager.housekeeper.apply_retention() == 0
    assert len(read_all(store.reopen())) == 1


def test_a_clock_that_jumps_back_deletes_nothing(store: Store) -> None:
    store.log.update_config(LogConfig(retention_ms=5000))
    store.clock.jump_wall(-86_400)
    assert store.manager.housekeeper.apply_retention() == 0


def test_a_damaged_time_index_does_not_make_retention_delete(store: Store) -> None:
    store.log.update_config(LogConfig(retention_ms=10_000_000))
    store.close()
    for path in store.directory.glob("*.timeindex"):
        path.write_bytes(bytes(12))
    store.open()
    assert store.manager.housekeeper.apply_retention() == 0
    assert len(read_all(store.log)) == 10


def test_a_compacted_log_is_not_shortened(store: Store) -> None:
    store.log.update_config(LogConfig(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1))
    store.clock.advance(1000)
    assert store.manager.housekeeper.apply_retention() == 0


def test_tasks_run_when_they_are_due(store: Store) -> None:
    checkpoint = store.path / "recovery-point-offset-checkpoint"
    store.manager.housekeeper.run_due()
    assert checkpoint.read_text() == "0\n1\nt 0 0\n", "a new log is noted at once"
    store.log.flush()
    store.clock.advance(59)
    store.manager.housekeeper.run_due()
    assert checkpoint.read_text() == "0\n1\nt 0 0\n"
    store.clock.advance(1)
    store.manager.housekeeper.run_due()
    assert checkpoint.read_text() == "0\n1\nt 0 20\n"
    assert (store.path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 20\n"
    assert (store.path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
