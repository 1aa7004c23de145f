"""Zeros ahead of the batches of logs whose producers wait for the disk (RP-41): there while it runs, never seen by anybody else."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.segment import FILL_LIMIT
from barnabas.records.batch import Buffer
from tests.broker.log.stores import Store, read_all
from tests.records.batches import batch

MEBIBYTE = 1 << 20


def append_durably(log: PartitionLog, count: int = 1, size: int = 20) -> int:
    """The bytes of the batches. Each waits for the disk, so the next ones go over zeros."""
    total = 0
    for _ in range(count):
        records = batch(1, size)
        log.on_durable(log.append(records).last_offset + 1, lambda _: None)
        log.flush()
        total += len(records)
    return total


def file_of(store: Store) -> Path:
    return store.directory / "00000000000000000000.log"


def test_zeros_are_written_ahead_once_somebody_waits_for_the_disk(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(1))
        assert file_of(store).stat().st_size == store.log.size
        append_durably(store.log)
        written = store.log.size + append_durably(store.log)
        assert file_of(store).read_bytes()[written:].strip(b"\0") == b""
        assert MEBIBYTE <= file_of(store).stat().st_size <= written + MEBIBYTE
        assert store.log.size == written
        assert len(read_all(store.log)) == 3


def test_a_clean_stop_and_a_roll_cut_the_zeros_off(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=100_000) as store:
        append_durably(store.log, 30, 10_000)
        first = file_of(store)
        assert store.log.segment_count > 1
        assert first.stat().st_size == store.log.segments[0].size
        log = store.reopen()
        for segment in log.segments:
            assert Path(segment.path).stat().st_size == segment.size
        assert len(read_all(log, 50_000)) == 30


def test_segments_are_not_filled_beyond_their_size(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=50_000) as store:
        append_durably(store.log, 3)
        assert file_of(store).stat().st_size == 50_000


def test_recovery_cuts_the_zeros_of_a_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(tmp_path) as store:
        append_durably(store.log, 5)
        store.log.flush()
        size = store.log.size
        log = store.crash()
        assert log.log_end_offset == 5
        assert file_of(store).stat().st_size == size == log.size
        assert not [line for line in caplog.messages if "not valid" in line]  # zeros are no damage
        append_durably(log, 2)
        assert len(read_all(log)) == 7


def test_many_batches_per_flush_are_simply_appended(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for _ in range(3):
            for _ in range(20):
                last = store.log.append(batch(1, 10_000)).last_offset
            store.log.on_durable(last + 1, lambda _: None)
            store.log.flush()
        assert file_of(store).stat().st_size == store.log.size


def test_where_nobody_waits_nothing_is_written_ahead(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for _ in range(5):
            store.log.append(batch(1))
            store.log.flush()
        assert file_of(store).stat().st_size == store.log.size


def test_large_batches_are_simply_appended(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        append_durably(store.log, 3, FILL_LIMIT)
        assert file_of(store).stat().st_size == store.log.size


def test_a_disk_that_has_no_room_for_zeros_still_takes_batches(tmp_path: Path) -> None:
    class Full(FileSystem):
        def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
            if sum(map(len, buffers)) > 10_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwritev(fd, buffers, position)

    with Store(tmp_path, Full()) as store:
        append_durably(store.log, 4)
        assert len(read_all(store.log)) == 4
        assert file_of(store).stat().st_size == store.log.size
