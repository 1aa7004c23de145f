"""Durability: group commit, the flush interval, and a disk that fails (RP-41)."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogManagerSettings
from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.manager import LogManager
from barnabas.clock import ManualClock, SystemClock
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import TOPIC_ID, Store
from tests.records.batches import batch
from tests.waiting import wait_until


class SlowDisk(FileSystem):
    """Counts syncs of files; one can be held back or made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.directory_syncs: list[str] = []
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.entered.set()
        assert self.gate.wait(10)
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        self.directory_syncs.append(path)
        super().sync_directory(path, opened)


def test_one_flush_serves_all_who_wait(tmp_path: Path) -> None:
    """RP-41: group commit."""
    disk = SlowDisk()
    with Store(tmp_path, disk) as store:
        store.log.append(batch(1))
        store.log.flush()  # the first one also syncs the topic's id
        told: list[tuple[int, ErrorCode]] = []
        for number in range(50):
            offset = store.log.append(batch(1)).last_offset + 1
            store.log.on_durable(offset, lambda code, number=number: told.append((number, code)))
        assert told == []
        before = disk.syncs
        store.manager.flusher.flush_now()
        assert told == [(number, ErrorCode.NONE) for number in range(50)]
        assert disk.syncs - before == 1
        assert store.log.durable_offset == 51
        assert store.manager.flush_stats.count == 2


def test_a_thread_that_commits_for_itself_does_not_wake_the_flusher(tmp_path: Path) -> None:
    """RP-41: a processor brings to disk what its turn has written; what others ask for is the flusher's."""
    disk = SlowDisk()
    with Store(tmp_path, disk) as store:
        flusher = store.manager.flusher
        flusher.join()
        told: list[ErrorCode] = []
        store.log.on_durable(store.log.append(batch(2)).last_offset + 1, told.append)
        assert (flusher.wanted, flusher._rung) == (True, False)
        flusher.commit()
        assert told == [ErrorCode.NONE]
        assert (flusher.wanted, flusher._rung) == (False, False)
        flusher.leave()
        store.log.on_durable(store.log.append(batch(2)).last_offset + 1, told.append)
        assert flusher._rung


@pytest.mark.parametrize("sync_seconds", [0.006, 0.5])
def test_a_slow_disk_is_left_to_the_flusher_for_a_while(tmp_path: Path, sync_seconds: float) -> None:
    """For ten times as long as the flush took, and a second at most."""

    class Slow(FileSystem):
        clock = ManualClock()

        def sync(self, fd: int) -> None:
            self.clock.advance(seconds=sync_seconds)
            super().sync(fd)

    disk = Slow()
    with Store(tmp_path, disk) as store:
        disk.clock = store.clock
        flusher = store.manager.flusher
        flusher.join()
        store.log.on_durable(store.log.append(batch(1)).last_offset + 1, lambda _: None)
        began = store.clock.monotonic_ns()
        flusher.commit()
        pause = min((store.clock.monotonic_ns() - began) / 1e8, 1.0)
        store.log.on_durable(store.log.append(batch(1)).last_offset + 1, lambda _: None)
        assert (flusher.wanted, flusher._rung) == (False, True)
        store.clock.advance(seconds=0.9 * pause)
        assert not flusher.wanted
        store.clock.advance(seconds=0.2 * pause)
        assert flusher.wanted


def test_what_a_thread_forgot_to_commit_is_flushed_in_the_next_round(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        flusher = store.manager.flusher
        flusher.join()
        told: list[ErrorCode] = []
        store.log.on_durable(store.log.append(batch(1)).last_offset + 1, told.append)
        flusher.run_once()
        assert told == [ErrorCode.NONE]


def test_who_comes_when_the_bytes_are_on_disk_is_told_at_once(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(3))
        store.log.flush()
        told: list[ErrorCode] = []
        store.log.on_durable(3, told.append)
        assert told == [ErrorCode.NONE]


def test_the_disk_works_outside_every_lock_that_appends_and_reads_need(tmp_path: Path) -> None:
    """RP-41: while a flush is stuck, appends and reads go on, and what they write is not yet called durable."""
    disk = SlowDisk()
    with Store(tmp_path, disk) as store:
        store.log.append(batch(1))
        disk.gate.clear()
        disk.entered.clear()
        flush = threading.Thread(target=store.log.flush)
        flush.start()
        try:
            assert disk.entered.wait(10)
            assert store.log.append(batch(1)).base_offset == 1
            assert store.log.read(1, 1000).high_watermark == 2
            assert store.log.offset_for_timestamp(-1).offset == 2
            assert store.log.durable_offset == 0
        finally:
            disk.gate.set()
            flush.join(10)
        assert store.log.durable_offset == 1, "the second batch came after the flush began"


def test_a_roll_is_durable_with_its_directory_and_indexes(tmp_path: Path) -> None:
    disk = SlowDisk()
    with Store(tmp_path, disk, segment_bytes=300) as store:
        for _ in range(5):
            store.log.append(batch(1, size=100))
        disk.directory_syncs.clear()
        store.log.flush()
        assert disk.directory_syncs == [str(store.directory), str(tmp_path)]
        assert [segment.synced for segment in store.log.segments] == [True, True, True, True, False]
        before = disk.syncs
        store.log.flush()
        assert disk.syncs == before, "nothing new, nothing to sync"


def test_a_failed_sync_takes_the_directory_offline_for_ever(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = Store(tmp_path, disk)
    told: list[ErrorCode] = []
    end = store.log.append(batch(1)).last_offset + 1
    store.log.on_durable(end, told.append)
    disk.fails = True
    store.manager.flusher.flush_now()
    disk.fails = False
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    store.manager.flusher.flush_now()
    store.log.flush()
    assert store.log.durable_offset == 0, "a failed sync is never repeated as if nothing had happened"
    for call in (lambda: store.log.append(batch(1)), lambda: store.log.read(0, 100)):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    store.log.on_durable(end, told.append)
    assert told[1:] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [each.offline for each in store.manager.describe_dirs()] == [True]
    with pytest.raises(KafkaError):
        store.manager.create("u", 0, TOPIC_ID)
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store.open()
    assert store.log.log_end_offset == 1
    store.close()


def test_another_directory_goes_on_when_one_fails(tmp_path: Path) -> None:
    disk = SlowDisk()
    settings = LogManagerSettings((str(tmp_path / "a"), str(tmp_path / "b")))
    manager = LogManager(settings, SystemClock(), disk)
    manager.startup(threads=False)
    logs = [manager.create("t", number, TOPIC_ID) for number in range(4)]
    assert {log.log_dir for log in logs} == {str(tmp_path / "a"), str(tmp_path / "b")}
    for log in logs:
        log.append(batch(1))
    disk.fails = True
    logs[0].flush()
    disk.fails = False
    manager.flusher.flush_now()
    assert [log.available for log in logs] == [log.log_dir != logs[0].log_dir for log in logs]
    assert manager.create("t", 9, TOPIC_ID).log_dir == logs[1].log_dir
    manager.shutdown()


def test_everything_is_flushed_once_per_interval(tmp_path: Path) -> None:
    """RP-41: without durable acks no more than log.flush.interval.ms is at risk."""
    with Store(tmp_path) as store:
        store.log.append(batch(1))
        store.clock.advance(0.9)
        store.manager.flusher.flush_now()
        assert store.log.durable_offset == 0
        store.clock.advance(0.1)
        store.manager.flusher.flush_now()
        assert store.log.durable_offset == 1


def test_a_topic_may_ask_for_more_flushes(tmp_path: Path) -> None:
    with Store(tmp_path, flush_messages=3, flush_ms=100) as store:
        store.log.append(batch(1))
        store.log.append(batch(1))
        assert store.log.durable_offset == 0
        store.log.append(batch(1))
        assert store.log.durable_offset == 3
        store.log.append(batch(1))
        store.clock.advance(0.1)
        store.manager.flusher.flush_now()
        assert store.log.durable_offset == 4


def test_one_waiter_with_a_bug_does_not_keep_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(tmp_path) as store:
        told: list[ErrorCode] = []

        def broken(_: ErrorCode) -> None:
            raise ValueError("bug")

        store.log.append(batch(1))
        store.log.on_durable(1, broken)
        store.log.on_durable(1, told.append)
        store.log.flush()
        assert told == [ErrorCode.NONE]
        assert "bug" in caplog.text


def test_deleting_a_partition_tells_who_waits(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        told: list[ErrorCode] = []
        store.log.append(batch(1))
        store.log.on_durable(1, told.append)
        store.manager.delete("t", 0)
        assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_thread_flushes_what_is_asked_for(tmp_path: Path) -> None:
    manager = LogManager(LogManagerSettings((str(tmp_path),)), SystemClock())
    manager.startup()
    try:
        log = manager.create("t", 0, TOPIC_ID)
        told = threading.Event()
        log.append(batch(1))
        log.on_durable(1, lambda _: told.set())
        assert told.wait(10)
        log.append(batch(1))
        wait_until(lambda: log.durable_offset == 2, what="the flush of the interval")
    finally:
        manager.shutdown()
