"""Readers without a lock beside appenders, rolls, deletes and flushes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import TOPIC_ID, headers_of
from tests.records.batches import batch, sequenced

DEADLINE = 30


def run_together(*workers: threading.Thread) -> None:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE)
        assert not worker.is_alive()


class Follower(threading.Thread):
    """Reads from the start to `end` and keeps what it saw, or what went wrong."""

    def __init__(self, log: PartitionLog, end: int, max_bytes: int) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.end = end
        self.max_bytes = max_bytes
        self.seen: list[int] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self.failure = error

    def _follow(self) -> None:
        offset = 0
        while offset < self.end:
            try:
                result = self.log.read(offset, self.max_bytes)
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                offset = max(offset, self.log.log_start_offset)
                continue
            for header in headers_of(result):  # checks each checksum
                assert header.next_offset <= self.log.log_end_offset
                if header.next_offset > offset:
                    self.seen.append(header.base_offset)
                    offset = header.next_offset


def test_readers_see_every_batch_once_while_it_is_written(tmp_path: Path) -> None:
    manager = LogManager(
        LogManagerSettings((str(tmp_path),), defaults=LogConfig(segment_bytes=20_000), flush_interval_ms=5),
        SystemClock(),
    )
    manager.startup()
    try:
        log = manager.create("t", 0, TOPIC_ID)
        total = 3000
        records = [batch(1, size=size, timestamp=-1) for size in (10, 200, 1500)]

        def write() -> None:
            for number in range(total):
                log.append(records[number % 3])

        followers = [Follower(log, total, size) for size in (100, 3000, 50_000)]
        run_together(threading.Thread(target=write, daemon=True), *followers)
        for follower in followers:
            assert follower.failure is None
            assert follower.seen == list(range(total))
    finally:
        manager.shutdown()


def test_readers_survive_deletes_under_their_feet(tmp_path: Path) -> None:
    """faults.md row 37: no error but OFFSET_OUT_OF_RANGE, nothing below the start, in order."""
    manager = LogManager(LogManagerSettings((str(tmp_path),), defaults=LogConfig(segment_bytes=3000)), SystemClock())
    manager.startup()
    try:
        log = manager.create("t", 0, TOPIC_ID)
        total = 1500

        def write() -> None:
            for number in range(total):
                log.append(batch(1, size=200, timestamp=-1))
                if number % 100 == 99:
                    log.delete_records_before(number - 50)

        followers = [Follower(log, total, size) for size in (300, 5000)]
        run_together(threading.Thread(target=write, daemon=True), *followers)
        for follower in followers:
            assert follower.failure is None
            assert follower.seen == sorted(set(follower.seen))
    finally:
        manager.shutdown()


def test_several_appenders_and_their_retries_write_each_batch_once(tmp_path: Path) -> None:
    manager = LogManager(LogManagerSettings((str(tmp_path),), defaults=LogConfig(segment_bytes=10_000)), SystemClock())
    manager.startup()
    try:
        log = manager.create("t", 0, TOPIC_ID)
        offsets: dict[int, list[int]] = {}

        def write(producer: int) -> None:
            mine = offsets[producer] = []
            for sequence in range(300):
                records = sequenced(producer, 0, sequence)
                first = log.append(records).base_offset
                assert log.append(records).base_offset == first
                mine.append(first)

        run_together(*(threading.Thread(target=write, args=(producer,), daemon=True) for producer in range(4)))
        everything = sorted(offset for mine in offsets.values() for offset in mine)
        assert everything == list(range(1200))
        assert all(mine == sorted(mine) for mine in offsets.values())
    finally:
        manager.shutdown()


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_segment_is_read_and_synced_while_others_give_up_its_file(native: str) -> None:
    """Who looks at many segments closes them behind him; who uses one meanwhile has its file open, and never another's. In a process of its
    own, because compiled code counts references in another order than the interpreter."""
    command = [sys.executable, "-m", "tests.broker.log.contended_file"]
    environment = {**os.environ, "BARNABAS_NATIVE": native, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
