"""Which log is cleaned and when, what cannot be cleaned, and the cleaner's threads."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.log.cleanable import look_at
from barnabas.broker.log.compaction import CleaningAborted
from barnabas.broker.log.config import CleanerSettings, LogConfig, LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.pacing import Pacer, Throttle
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.clock import ManualClock, SystemClock
from barnabas.records.batch import HEADER, HEADER_SIZE, PREFIX, PREFIX_SIZE, crc32c
from barnabas.threads import ThreadFailedToStart
from tests.broker.log.compacted import CompactedStore, batches, keyed, latest, records
from tests.records.batches import NOW_MS
from tests.waiting import wait_until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CompactedStore]:
    with CompactedStore(tmp_path) as made:
        yield made


def dirty_segment(store: CompactedStore, timestamp: int = NOW_MS, key: bytes = b"k") -> None:
    for number in range(4):
        store.put((key, b"%d" % number), timestamp=timestamp)
    store.roll()


def another_log(store: CompactedStore, topic: str, rounds: int) -> PartitionLog:
    log = store.manager.create(topic, 0, uuid.uuid4(), store.config)
    for number in range(rounds):
        log.append(keyed([(b"k%d" % (number % 2), b"x" * 100)]))
    log.roll_when(lambda _end, _active: True)
    return log


def test_the_dirtiest_log_is_cleaned_first(store: CompactedStore) -> None:
    dirty_segment(store)
    store.clean()
    dirty_segment(store)
    other = another_log(store, "dirtier", 20)
    assert store.clean()
    assert len(records(other)) == 2
    assert len(records(store.log)) == 5
    assert store.clean()
    assert len(records(store.log)) == 1
    assert not store.clean()


def test_a_log_is_cleaned_when_more_of_it_is_dirty_than_the_ratio(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, min_cleanable_dirty_ratio=0.5) as store:
        for number in range(8):
            store.put((b"k%d" % number, b"x"))
        store.roll()
        assert store.clean(), "all of it is dirty"
        for number in range(4):
            store.put((b"k%d" % number, b"y"))
        store.roll()
        assert not store.clean(), "a third is dirty"
        for number in range(6):
            store.put((b"k%d" % number, b"z"))
        store.roll()
        assert store.clean()
        assert store.manager.cleaner.figures.max_dirty_ratio == pytest.approx(10 / 18)


def test_young_records_are_not_cleaned(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, min_compaction_lag_ms=60_000) as store:
        dirty_segment(store)
        store.clock.advance(59.999)
        dirty_segment(store, NOW_MS + 59_999)
        assert not store.clean()
        store.clock.advance(0.001)
        assert store.clean()
        assert [record.offset for record in records(store.log)] == [3, 4, 5, 6, 7], "the second segment is too young"


def test_old_records_are_cleaned_although_little_is_dirty_and_they_are_in_the_active_segment(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000) as store:
        store.put((b"k", b"1"))
        store.put((b"k", b"2"))
        store.clock.advance(60)
        assert not store.clean()
        assert store.log.segment_count == 1
        store.clock.advance(0.001)
        assert store.clean()
        assert [record.offset for record in records(store.log)] == [1]
        assert store.manager.cleaner.figures.max_delay_ms == 1
        store.clock.advance(61)
        store.put((b"k", b"3"), timestamp=store.clock.wall_ms())
        assert store.log.segment_count == 2, "an append does not go into a segment that is too old either"


def test_the_checkpoint_says_how_far_a_log_is_clean(store: CompactedStore) -> None:
    dirty_segment(store)
    store.clean()
    file = store.path / "cleaner-offset-checkpoint"
    assert file.read_text() == "0\n1\nt 0 4\n"
    store.crash()
    assert not store.clean(), "it was read again"
    dirty_segment(store)
    store.clean()
    assert file.read_text() == "0\n1\nt 0 8\n"


@pytest.mark.parametrize("text", ["0\n1\nt 0 99\n", "garbage", "0\n1\nt 0 -3\n"])
def test_a_checkpoint_that_cannot_be_makes_everything_dirty(store: CompactedStore, text: str) -> None:
    dirty_segment(store)
    store.clean()
    store.close()
    (store.path / "cleaner-offset-checkpoint").write_text(text)
    store.open()
    assert look_at(store.log, store.manager.directories[0].clean_offset(store.log), NOW_MS).first_dirty == 0
    assert store.clean()
    assert len(records(store.log)) == 1


def test_a_topic_of_the_same_name_is_not_taken_for_clean(store: CompactedStore) -> None:
    dirty_segment(store)
    store.clean()
    store.manager.delete("t", 0)
    store.log = store.manager.create("t", 0, uuid.uuid4(), store.config)
    dirty_segment(store)
    dirty_segment(store)
    assert store.clean()
    assert len(records(store.log)) == 1


def test_a_damaged_batch_makes_the_partition_uncleanable_and_others_go_on(
    store: CompactedStore, caplog: pytest.LogCaptureFixture
) -> None:
    dirty_segment(store)
    other = another_log(store, "other", 10)
    path = Path(store.log.segments[0].path)
    data = bytearray(path.read_bytes())
    (first, _), *_ = batches(store.log)
    data[first.size + 30] ^= 1
    path.write_bytes(data)
    while store.clean():
        pass
    directory = store.manager.directories[0]
    assert list(store.manager.cleaner.uncleanable()) == [store.log]
    assert store.manager.cleaner.uncleanable_count(directory) == 1
    assert store.manager.cleaner.uncleanable_bytes(directory) == len(data)
    (line,) = (record for record in caplog.records if "t-0 cannot be cleaned" in record.getMessage())
    assert f"{path}: the batch at position {first.size} is damaged" in line.getMessage()
    assert f"barnabas log repair --drop-damaged {store.directory}" in line.getMessage()
    assert "Traceback" not in caplog.text
    assert len(records(other)) == 2
    assert path.read_bytes() == data, "it is left as it is"
    assert not list(store.directory.glob("*.cleaned"))
    store.manager.delete("t", 0)
    store.clean()
    assert store.manager.cleaner.uncleanable_count(directory) == 0


def test_records_that_cannot_be_read_under_a_good_checksum_are_named_by_their_place(
    store: CompactedStore, caplog: pytest.LogCaptureFixture
) -> None:
    dirty_segment(store)
    path = Path(store.log.segments[0].path)
    data = path.read_bytes()
    (first, _), *_ = batches(store.log)
    header = first._replace(record_count=2, base_offset=1)  # the second batch, which has only one
    checked = HEADER.pack(*header)[PREFIX_SIZE:] + data[first.size + HEADER_SIZE : 2 * first.size]
    damaged = PREFIX.pack(*header[:4], crc32c(checked)) + checked
    path.write_bytes(data[: first.size] + damaged + data[2 * first.size :])
    while store.clean():
        pass
    assert list(store.manager.cleaner.uncleanable()) == [store.log]
    (line,) = (record for record in caplog.records if "t-0 cannot be cleaned" in record.getMessage())
    assert f"{path}: the batch at position {first.size} is damaged" in line.getMessage()
    assert "Traceback" not in caplog.text


def test_policies_that_change_at_run_time(store: CompactedStore) -> None:
    store.log.update_config(replace(store.config, cleanup_policy=("delete",)))
    dirty_segment(store)
    assert not store.clean()
    store.log.update_config(replace(store.config, cleanup_policy=("compact", "delete"), retention_ms=5000))
    assert store.clean()
    assert [record.offset for record in records(store.log)] == [3]
    store.clock.advance(6)
    store.put((b"new", b"1"), timestamp=store.clock.wall_ms())
    store.manager.housekeeper.apply_retention()
    assert (store.log.log_start_offset, [record.offset for record in records(store.log)]) == (4, [4])
    dirty_segment(store, store.clock.wall_ms())
    assert store.clean()
    assert [record.offset for record in records(store.log)] == [4, 8]


def test_retention_drops_what_compaction_left_empty(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, cleanup_policy=("compact", "delete"), retention_ms=10**9, segment_bytes=300) as store:
        for number in range(12):
            store.put((b"k", b"%d" % number * 100))
        store.clean_all()
        assert latest(store.log) == {b"k": b"11" * 100}
        store.manager.housekeeper.apply_retention()
        assert latest(store.log) == {b"k": b"11" * 100}
        assert all(segment.size for segment in store.log.segments[:-1])


def test_segments_that_go_while_a_log_is_cleaned_end_the_cleaning(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, cleanup_policy=("compact", "delete")) as store:
        dirty_segment(store)
        dirty_segment(store)
        seen: list[float] = []

        def delete_meanwhile() -> bool:
            seen.append(1)
            if len(seen) == 3:
                store.log.delete_records_before(5)
            return False

        store.manager.cleaner.clean_dirtiest(delete_meanwhile, lambda _seconds: None)
        assert not list(store.directory.glob("*.cleaned"))
        assert not store.manager.cleaner.uncleanable()
        assert [record.offset for record in records(store.log) if record.offset >= 5] == [5, 6, 7]
        assert store.clean()
        assert [record.offset for record in records(store.log)] == [7]


@pytest.mark.parametrize("turn", range(1, 7))
def test_segments_that_go_at_any_moment_of_a_cleaning_are_no_fault_of_the_disk(tmp_path: Path, turn: int) -> None:
    """Found by row 37: a file that retention took away between two reads took the log directory out of service."""
    with CompactedStore(tmp_path, cleanup_policy=("compact", "delete"), file_delete_delay_ms=0) as store:
        for _ in range(2):
            dirty_segment(store)
        asked = 0

        def delete_meanwhile() -> bool:
            nonlocal asked
            asked += 1
            if asked == turn:
                store.log.delete_records_before(store.log.log_end_offset)
                store.manager.housekeeper.run_due()
            return False

        assert store.manager.cleaner.clean_dirtiest(delete_meanwhile, lambda _seconds: None)
        assert not store.manager.directories[0].offline
        store.put((b"k", b"next"))
        assert not list(tmp_path.rglob("*.cleaned"))


def test_a_topic_that_is_deleted_while_it_is_cleaned_is_no_error(store: CompactedStore) -> None:
    dirty_segment(store)
    log = store.log
    count = 0

    def delete_meanwhile() -> bool:
        nonlocal count
        count += 1
        if count == 2:
            store.manager.delete("t", 0)
        return False

    store.manager.cleaner.clean_dirtiest(delete_meanwhile, lambda _seconds: None)
    assert not store.manager.cleaner.uncleanable()
    assert not store.manager.directories[0].offline
    assert not log.available


def test_a_cleaning_that_is_stopped_leaves_nothing(store: CompactedStore) -> None:
    dirty_segment(store)
    before = sorted(path.name for path in store.directory.iterdir())
    store.manager.cleaner.clean_dirtiest(lambda: True, lambda _seconds: None)
    assert sorted(path.name for path in store.directory.iterdir()) == before
    assert store.clean()


def test_memory_for_keys_is_bounded_by_the_setting_and_by_the_need(store: CompactedStore) -> None:
    from barnabas.broker.log.offset_map import OffsetMap

    assert len(OffsetMap(1 << 30, 0.9, 1000).table) < 50_000
    full = OffsetMap(10_000, 0.9, 10**9)
    assert len(full.table) <= 10_000
    assert full._most == int(full.slots * 0.9)
    assert OffsetMap(0, 0.9, 0).slots == 3


# Pace and threads.


def test_the_throttle_keeps_to_its_rate() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Throttle(clock, 1_000_000), lambda: False, lambda seconds: clock.advance(seconds))
    began = clock.monotonic_ns()
    for _ in range(100):
        pacer(50_000)
    assert 4.9 <= (clock.monotonic_ns() - began) / 1e9 <= 5.1


def test_a_cleaner_pauses_after_each_turn_and_ends_when_it_shall() -> None:
    clock = ManualClock()
    pauses: list[float] = []
    stop = threading.Event()
    pacer = Pacer(clock, Throttle(clock, 1e300), stop.is_set, pauses.append)
    for _ in range(20):
        clock.advance(0.001)
        pacer(100)
    assert len(pauses) == 5
    stop.set()
    with pytest.raises(CleaningAborted):
        pacer(100)


def test_threads_clean_by_themselves_and_follow_new_settings(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2000, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    settings = LogManagerSettings((str(tmp_path),), defaults=config, cleaner=CleanerSettings(backoff_ms=5))
    manager = LogManager(settings, SystemClock())
    manager.startup()
    try:
        log = manager.create("t", 0, uuid.uuid4())
        for number in range(200):
            log.append(keyed([(b"k%d" % (number % 3), b"x" * 50)], timestamp=NOW_MS))
        wait_until(lambda: len(records(log)) < 60, what="the first cleaning")
        manager.cleaner.reconfigure(CleanerSettings(backoff_ms=5, threads=2, dedupe_buffer_size=1 << 20))
        names = sorted(thread.name for thread in threading.enumerate() if "cleaner" in thread.name)
        assert names == ["barnabas-log-cleaner-0", "barnabas-log-cleaner-1"]
        assert manager.cleaner.dead_threads == 0
        done = manager.cleaner.figures.cleanings
        for number in range(200):
            log.append(keyed([(b"k%d" % (number % 3), b"y" * 50)], timestamp=NOW_MS))
        wait_until(lambda: manager.cleaner.figures.cleanings > done, what="a cleaning with the new settings")
    finally:
        manager.shutdown()


def test_a_cleaner_that_is_turned_off_does_nothing(tmp_path: Path) -> None:
    settings = LogManagerSettings((str(tmp_path),), cleaner=CleanerSettings(enabled=False))
    manager = LogManager(settings, SystemClock())
    manager.startup()
    try:
        assert not [thread for thread in threading.enumerate() if "cleaner" in thread.name]
    finally:
        manager.shutdown()


def test_a_cleaner_may_rest_for_longer_than_the_platform_can_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 18, C3: log.cleaner.backoff.ms=2^63-1 made the cleaner spin on OverflowError. New settings wake it up."""
    config = LogConfig(segment_bytes=2000, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    settings = LogManagerSettings((str(tmp_path),), defaults=config, cleaner=CleanerSettings(backoff_ms=2**63 - 1))
    manager = LogManager(settings, SystemClock())
    manager.startup()
    try:
        log = manager.create("t", 0, uuid.uuid4())
        for number in range(200):
            log.append(keyed([(b"k%d" % (number % 3), b"x" * 50)], timestamp=NOW_MS))
        manager.cleaner.reconfigure(CleanerSettings(backoff_ms=2**63 - 1, threads=2))
        wait_until(lambda: len(records(log)) < 60, what="the cleaning after the wake-up")
        assert manager.cleaner.dead_threads == 0
    finally:
        assert manager.shutdown(30)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_cleaner_that_cannot_be_started_leaves_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 18, C2."""
    manager = LogManager(LogManagerSettings((str(tmp_path),)), SystemClock())
    manager.startup()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _no_thread_left)
            with pytest.raises(ThreadFailedToStart, match="no thread left"):
                manager.cleaner.reconfigure(CleanerSettings(threads=4))
        assert manager.cleaner.dead_threads == 0
        manager.cleaner.reconfigure(CleanerSettings(threads=3))
        names = sorted(thread.name for thread in threading.enumerate() if "log-cleaner" in thread.name)
        assert names == [f"barnabas-log-cleaner-{number}" for number in range(3)]
        manager.cleaner.reconfigure(CleanerSettings(threads=1))
        wait_until(lambda: len([each for each in threading.enumerate() if "log-cleaner" in each.name]) == 1)
    finally:
        assert manager.shutdown(30)


def _no_thread_left(_: threading.Thread) -> None:
    raise RuntimeError("no thread left")


def test_a_cleaner_that_waits_for_its_rate_follows_a_higher_one() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 1)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)
        if len(waits) == 3:
            throttle.set_rate(1e9)

    pacer = Pacer(clock, throttle, lambda: False, wait)
    pacer(1_000_000)
    pacer(1_000_000)
    assert len(waits) < 6
