"""Compaction while others append and read: nothing is missed, nobody waits long."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.log.config import CleanerSettings, LogConfig, LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.clock import SystemClock
from tests.broker.log.compacted import keyed, latest
from tests.broker.log.stores import headers_of
from tests.records.batches import NOW_MS
from tests.waiting import wait_until

CONFIG = LogConfig(
    segment_bytes=100_000,
    index_interval_bytes=1000,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=20,
)
ROUNDS = 3


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    settings = LogManagerSettings((str(tmp_path),), defaults=CONFIG, cleaner=CleanerSettings(backoff_ms=1))
    made = LogManager(settings, SystemClock())
    made.startup()
    yield made
    made.shutdown()


class Reader(threading.Thread):
    """Reads the log from its start to its end, again and again, and notes what cannot be."""

    def __init__(self, log: PartitionLog) -> None:
        super().__init__(name="reader")
        self.log = log
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.slowest = 0.0
        self.rounds = 0

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._read_all()
                self.rounds += 1
        except BaseException as error:
            self.errors.append(error)

    def _read_all(self) -> None:
        offset = 0
        while offset < self.log.log_end_offset and not self.stop.is_set():
            began = time.perf_counter()
            result = self.log.read(offset, 20_000)
            self.slowest = max(self.slowest, time.perf_counter() - began)
            batches = [header for header in headers_of(result) if header.last_offset >= offset]
            if not batches:
                return
            assert [header.base_offset for header in batches] == sorted(header.base_offset for header in batches)
            offset = batches[-1].next_offset
            self.log.offset_for_timestamp(NOW_MS + offset)


def append(log: PartitionLog, count: int) -> float:
    """Many batches; the longest that one append took."""
    slowest = 0.0
    for number in range(count):
        pairs = [(b"k%d" % ((number * 10 + i) % 700), b"%d" % number * 20) for i in range(10)]
        data = keyed(pairs, timestamp=NOW_MS + log.log_end_offset)
        began = time.perf_counter()
        log.append(data)
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def with_readers(manager: LogManager, log: PartitionLog, count: int) -> tuple[float, float]:
    """Append while two readers read and the cleaner cleans; the slowest append and the slowest read in seconds."""
    readers = [Reader(log) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        done = manager.cleaner.figures.cleanings
        slowest = append(log, count)
        wait_until(lambda: manager.cleaner.figures.cleanings > done, 20, "a cleaning")
        wait_until(lambda: all(reader.rounds or reader.errors for reader in readers), 20, "whole reads")
    finally:
        for reader in readers:
            reader.stop.set()
        for reader in readers:
            reader.join(20)
    assert not [error for reader in readers for error in reader.errors]
    return slowest, max(reader.slowest for reader in readers)


@pytest.mark.serial
def test_nobody_waits_for_longer_than_50_ms_while_a_log_is_compacted(manager: LogManager) -> None:
    """The best of some rounds: on a shared machine anybody is interrupted now and then, but a lock that is held too long always shows."""
    log = manager.create("t", 0, uuid.uuid4(), CONFIG)
    figures = []
    for _ in range(ROUNDS):
        figures.append(with_readers(manager, log, 600))
        if max(figures[-1]) <= 0.05:
            break
    assert min(max(each) for each in figures) <= 0.05, f"slowest appends and reads: {figures}"


def test_readers_and_writers_never_notice_that_segments_are_swapped(manager: LogManager) -> None:
    log = manager.create("t", 0, uuid.uuid4(), replace(CONFIG, segment_bytes=20_000))
    while manager.cleaner.figures.cleanings < 5:
        with_readers(manager, log, 500)
    wanted = {b"k%d" % ((number * 10 + i) % 700): b"%d" % number * 20 for number in range(500) for i in range(10)}
    assert latest(log) == wanted
    assert not manager.cleaner.uncleanable()
