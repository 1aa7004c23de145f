"""Row 2 of faults.md once more, with the real threads: producers that append and wait for the disk at the same time, the flusher, the
housekeeper, and somebody who deletes records. The power may go inside any call of any of them."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode
from tests.broker.log.stores import TOPIC_ID, read_all
from tests.faults.conftest import Report
from tests.faults.power_cut import PowerCutDisk
from tests.records.batches import sequenced
from tests.waiting import wait_until

PRODUCERS = 4
PARTITIONS = 2
STEPS_BETWEEN_CUTS = 40
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)


@dataclass
class Told:
    """What the producers and the one who deletes were told: where each partition ends at least, and where it starts."""

    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    starts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def copy(self) -> Told:
        return Told(list(self.ends), list(self.starts))


class ThreadedCutter:
    """Takes pictures at random steps of any thread."""

    def __init__(self, disk: PowerCutDisk, target: Path, wanted: int, told: Told) -> None:
        self._disk = disk
        self._target = target
        self._wanted = wanted
        self._told = told
        self._rng = random.Random(11)
        self._lock = threading.Lock()
        self.pictures: list[tuple[Path, Told]] = []

    @property
    def done(self) -> bool:
        return len(self.pictures) >= self._wanted

    def __call__(self) -> None:
        if self._rng.random() * STEPS_BETWEEN_CUTS > 1 or not self._lock.acquire(blocking=False):
            return
        try:
            if not self.done:
                # First what was told, then the disk: whatever was told is on it.
                told = self._told.copy()
                picture = self._target / str(len(self.pictures))
                self._disk.cut(picture)
                self.pictures.append((picture, told))
        finally:
            self._lock.release()


def produce(producer: int, log: PartitionLog, told: Told, cutter: ThreadedCutter) -> None:
    """Append; wait for the disk with every third batch, as a client does whose requests are full."""
    sequence = 0
    while not cutter.done:
        count = 1 + sequence % 3
        result = log.append(sequenced(producer, 0, sequence, count))
        sequence += count
        durable = threading.Event()

        def tell(code: ErrorCode, end: int = result.last_offset + 1, durable: threading.Event = durable) -> None:
            if code == ErrorCode.NONE:
                told.ends[log.partition] = max(told.ends[log.partition], end)
            durable.set()

        log.on_durable(result.last_offset + 1, tell)
        if count == 3:
            assert durable.wait(30)


def delete_records(logs: list[PartitionLog], told: Told, cutter: ThreadedCutter) -> None:
    pause = threading.Event()
    while not cutter.done:
        pause.wait(0.02)
        for log in logs:
            told.starts[log.partition] = log.delete_records_before(max(0, told.ends[log.partition] - 150))


def run(live: Path, cutter: ThreadedCutter, disk: PowerCutDisk, told: Told) -> None:
    manager = LogManager(LogManagerSettings((str(live / "a"),), defaults=CONFIG), SystemClock(), disk)
    manager.startup()
    try:
        logs = [manager.create("t", number, TOPIC_ID) for number in range(PARTITIONS)]
        wait_until(lambda: not manager._dirs[0].has_new_logs, what="the new logs being noted")
        disk.on_step = cutter
        threads = [
            threading.Thread(target=produce, args=(number, logs[number % PARTITIONS], told, cutter))
            for number in range(PRODUCERS)
        ]
        threads.append(threading.Thread(target=delete_records, args=(logs, told, cutter)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
    finally:
        disk.on_step = lambda: None
        manager.shutdown()


def check(picture: Path, told: Told) -> int:
    """Start on what was left: everything that was told is there, and each producer's batches follow each other."""
    manager = LogManager(LogManagerSettings((str(picture / "a"),), defaults=CONFIG), SystemClock(), FileSystem())
    manager.startup(threads=False)
    try:
        for number in range(PARTITIONS):
            log = manager.create("t", number, TOPIC_ID)
            assert log.log_end_offset >= told.ends[number], "acknowledged records are lost"
            assert log.log_start_offset >= told.starts[number], "deleted records are back"
            expected: dict[int, int] = {}
            for header in read_all(log):
                assert header.base_sequence == expected.get(header.producer_id, header.base_sequence)
                expected[header.producer_id] = header.base_sequence + header.record_count
    finally:
        for directory in manager._dirs:
            directory.close()
    return sum(told.ends)


@pytest.mark.timeout(600)
def test_group_commit_keeps_its_promise_over_power_cuts(tmp_path: Path, report: Report, full: bool) -> None:
    """Row 2, RP-41."""
    cuts, looked_for = 500 if full else 40, 0
    live, pictures = tmp_path / "live", tmp_path / "pictures"
    live.mkdir()
    pictures.mkdir()
    disk, told = PowerCutDisk(live, 5), Told()
    cutter = ThreadedCutter(disk, pictures, cuts, told)
    run(live, cutter, disk, told)
    for picture, knew in cutter.pictures:
        looked_for += check(picture, knew)
        shutil.rmtree(picture)
    report(2, f"group commit: {cuts} power cuts under {PRODUCERS} threads, 0 acknowledged lost of {looked_for}")
