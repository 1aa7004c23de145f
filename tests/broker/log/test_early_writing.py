"""The disk begins with large groups before they are flushed (RP-41, ADR 8): only where producers wait for it, and only as advice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.broker.log import files
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.flusher import SLOW_FLUSH_NS
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.segment import EARLY_BYTES
from barnabas.clock import ManualClock
from tests.broker.log.stores import Store, read_all
from tests.records.batches import batch

SIZE = 16_000
GROUP = 2 * (EARLY_BYTES // SIZE + 1)
"""Batches that are a large group: the disk has reason to begin twice."""


class Asked(FileSystem):
    """Notes what the disk was asked to begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, int]] = []

    def start_writing(self, fd: int, position: int, length: int) -> None:
        self.begun.append((position, length))
        super().start_writing(fd, position, length)


def append_group(log: PartitionLog, waits: bool = True, count: int = GROUP) -> None:
    for _ in range(count):
        last = log.append(batch(1, SIZE)).last_offset
    if waits:
        log.on_durable(last + 1, lambda _: None)
    log.flush()


def test_after_a_large_group_the_disk_begins_with_the_next_before_it_is_whole(tmp_path: Path) -> None:
    asked = Asked()
    with Store(tmp_path, asked) as store:
        append_group(store.log)
        assert asked.begun == []  # nobody could know that somebody would wait
        before = store.log.size
        append_group(store.log)
        (first, length), (second, again) = asked.begun
        assert (first, second) == (before, before + length)
        assert min(length, again) >= EARLY_BYTES
        assert second + again <= store.log.size
        assert len(read_all(store.log)) == 2 * GROUP
        log = store.crash()
        assert log.log_end_offset == 2 * GROUP


def test_where_nobody_waits_the_operating_system_chooses_its_time(tmp_path: Path) -> None:
    asked = Asked()
    with Store(tmp_path, asked) as store:
        append_group(store.log)
        append_group(store.log, waits=False)
        begun = len(asked.begun)
        append_group(store.log, waits=False)
        assert len(asked.begun) == begun


def test_small_groups_have_zeros_instead(tmp_path: Path) -> None:
    asked = Asked()
    with Store(tmp_path, asked) as store:
        append_group(store.log)
        append_group(store.log, count=1)
        begun = len(asked.begun)
        append_group(store.log)
        assert len(asked.begun) == begun


def test_a_new_segment_begins_at_its_beginning(tmp_path: Path) -> None:
    asked = Asked()
    with Store(tmp_path, asked, segment_bytes=4 * EARLY_BYTES) as store:
        append_group(store.log)
        append_group(store.log, count=3 * GROUP)
        assert 0 in [position for position, _ in asked.begun]
        assert all(position + length <= 4 * EARLY_BYTES for position, length in asked.begun)
        assert len(read_all(store.log)) == 4 * GROUP


def test_a_slow_disk_is_left_alone(tmp_path: Path) -> None:
    class Slow(Asked):
        clock: ManualClock | None = None

        def sync(self, fd: int) -> None:
            super().sync(fd)
            if self.clock is not None:
                self.clock.advance(2 * SLOW_FLUSH_NS / 1e9)

    asked = Slow()
    with Store(tmp_path, asked) as store:
        asked.clock = store.clock
        append_group(store.log)
        append_group(store.log)
        assert asked.begun == []


def test_advice_that_fails_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(FileSystem):
        def start_writing(self, fd: int, position: int, length: int) -> None:
            raise OSError("no")

    with Store(tmp_path / "failing", Failing()) as store:
        append_group(store.log)
        append_group(store.log)
        assert len(read_all(store.log)) == 2 * GROUP
    monkeypatch.setattr(files, "_sync_file_range", lambda: None)  # a system that does not have it
    with Store(tmp_path / "without", FileSystem()) as store:
        append_group(store.log)
        append_group(store.log)
        assert store.log.durable_offset == 2 * GROUP


def test_the_call_itself_takes_any_place_of_a_file(tmp_path: Path) -> None:
    system = FileSystem()
    with system.open(str(tmp_path / "file"), create=True) as file:
        os.pwrite(file.fileno(), b"x" * 9000, 2**33)
        system.start_writing(file.fileno(), 2**33, 9000)
        system.start_writing(file.fileno(), 2**40, 1)
    system.start_writing(-1, 0, 1)
