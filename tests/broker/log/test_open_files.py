"""Many segments share few descriptors: files are closed and opened again under appends, reads, rolls, flushes and deletes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.net.send import FileRegion
from tests.broker.log.stores import TOPIC_ID, headers_of, read_all, region_bytes
from tests.records.batches import batch, sequenced

LIMIT = 16
KEPT = LIMIT - LIMIT // 4
LOGS = 60


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """Without threads."""
    made = LogManager(LogManagerSettings((str(tmp_path),), max_open_files=LIMIT), SystemClock())
    made.startup(threads=False)
    yield made
    made.shutdown()


def logs_of(manager: LogManager, count: int = LOGS, config: LogConfig | None = None) -> list[PartitionLog]:
    return [manager.create("t", number, TOPIC_ID, config) for number in range(count)]


def kept_by(logs: list[PartitionLog]) -> int:
    return sum(segment.is_open for log in logs for segment in log.segments)


def test_more_logs_than_files(manager: LogManager) -> None:
    logs = logs_of(manager)
    order = logs * 3
    random.Random(1).shuffle(order)
    for log in order:
        log.append(batch(2))
        assert kept_by(logs) <= KEPT
    for log in random.Random(2).sample(logs, LOGS):
        assert [header.base_offset for header in read_all(log)] == [0, 2, 4]
        assert kept_by(logs) <= KEPT
    assert len(manager._files.open_files) <= LIMIT


def test_a_log_that_is_in_use_keeps_its_file(manager: LogManager) -> None:
    busy, *others = logs_of(manager)
    busy.append(batch(1))
    file = busy.segments[-1].file()
    for log in others:
        log.append(batch(1))
        busy.append(batch(1))
    assert busy.segments[-1].file() is file


def test_a_file_is_not_closed_while_something_is_appended(manager: LogManager) -> None:
    busy, *others = logs_of(manager)
    busy.append(batch(1))
    with busy._lock:
        for log in others:
            log.append(batch(1))
        assert busy.segments[-1].is_open
    for log in others:
        log.append(batch(1))
    assert not busy.segments[-1].is_open


def mapped(log: PartitionLog) -> bool:
    return log.segments[-1].path in Path("/proc/self/maps").read_text()


def test_the_kernel_keeps_a_closed_file_in_mind_until_it_is_flushed(manager: LogManager) -> None:
    """Else it could forget that writing back failed, and a flush would say that all is well."""
    first, *others = logs_of(manager)
    first.append(batch(1))
    for log in others:
        log.append(batch(1))
    assert not first.segments[-1].is_open
    assert mapped(first)
    first.append(batch(1))
    first.flush()
    assert first.durable_offset == 2
    assert not mapped(first)
    for log in others:
        log.append(batch(1))
    assert not first.segments[-1].is_open
    assert not mapped(first), "everything was flushed"


def test_a_log_that_is_deleted_leaves_nothing_mapped(manager: LogManager) -> None:
    first, *others = logs_of(manager)
    for log in (first, *others):
        log.append(batch(1))
    assert mapped(first)
    manager.delete("t", 0)
    assert f"{first.segments[-1].path}" not in Path("/proc/self/maps").read_text()
    assert "/t-0." not in Path("/proc/self/maps").read_text()


def test_a_region_that_is_sent_outlives_its_segment(manager: LogManager) -> None:
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=0)
    first, *others = logs_of(manager, config=config)
    for _ in range(4):
        first.append(batch(1, size=80))
    result = first.read(0, 1000)
    assert isinstance(result.records, FileRegion)
    expected = region_bytes(result)
    for log in others:
        log.append(batch(1))
    assert not first.segments[0].is_open
    assert region_bytes(result) == expected
    first.delete_records_before(3)
    manager.housekeeper.run_due()
    assert region_bytes(result) == expected


def test_a_response_does_not_take_all_files(manager: LogManager) -> None:
    """Each response gets something; more only while there are files enough. What it lacks comes with the next request."""
    logs = logs_of(manager)
    for log in logs:
        log.append(batch(1))
    held = []
    for log in logs:
        result = log.read(0, 1000, min_one_batch=not held)
        if result.records:
            held.append(result)
    assert 1 < len(held) <= LIMIT + 1
    stuck = len(manager._files.open_files)
    assert [bool(log.read(0, 1000, min_one_batch=True).records) for log in logs] == [True] * LOGS
    assert len(manager._files.open_files) <= stuck + LIMIT // 4
    held.clear()
    del result
    assert logs[-1].read(0, 1000, min_one_batch=False).records


class Worker(threading.Thread):
    """Does one thing over and over until all writers are done."""

    def __init__(self, logs: list[PartitionLog], seed: int, until: threading.Event) -> None:
        super().__init__(daemon=True)
        self.logs = logs
        self.random = random.Random(seed)
        self.until = until
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.until.is_set():
                self.step(self.random.choice(self.logs))
        except BaseException as error:
            self.failure = error

    def step(self, log: PartitionLog) -> None:
        raise NotImplementedError


class Reader(Worker):
    def step(self, log: PartitionLog) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        if start == end:
            return
        offset = self.random.randrange(start, end)
        try:
            headers = headers_of(log.read(offset, 1000))  # checks each checksum
        except KafkaError as error:
            assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE, error  # noqa: PT017 - others fail the test
            assert offset < log.log_start_offset, error  # noqa: PT017
            return
        assert offset < headers[-1].next_offset
        assert headers[0].base_offset <= offset or offset < log.log_start_offset  # deleted meanwhile
        # The partition is in each batch: a descriptor that was given to another file would show.
        assert {header.producer_id for header in headers} == {log.partition}


class Flusher(Worker):
    def step(self, log: PartitionLog) -> None:
        log.flush()


class Deleter(Worker):
    def step(self, log: PartitionLog) -> None:
        end = log.log_end_offset
        if end > 40:
            log.delete_records_before(end - 40)


class Writer(threading.Thread):
    """Appends to its own logs, each batch after the other."""

    def __init__(self, logs: list[PartitionLog], seed: int, rounds: int) -> None:
        super().__init__(daemon=True)
        self.logs = logs
        self.random = random.Random(seed)
        self.rounds = rounds
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(self.rounds):
                for log in self.random.sample(self.logs, len(self.logs)):
                    records = sequenced(log.partition, 0, number)
                    assert log.append(records).base_offset == number
        except BaseException as error:
            self.failure = error


def test_readers_rolls_flushes_and_deletes_beside_each_other(tmp_path: Path) -> None:
    settings = LogManagerSettings((str(tmp_path),), max_open_files=LIMIT)
    manager = LogManager(settings, SystemClock())
    manager.startup(threads=False)
    logs = logs_of(manager, 40, LogConfig(segment_bytes=600, index_interval_bytes=0, file_delete_delay_ms=0))
    done = threading.Event()
    writers = [Writer(logs[number::2], number, 60) for number in range(2)]
    workers = [kind(logs, seed, done) for seed, kind in enumerate((Reader, Reader, Flusher, Deleter))]
    threads: list[Worker | Writer] = [*workers, *writers]
    for thread in threads:
        thread.start()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
        manager.housekeeper.run_due()
    done.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert [thread.failure for thread in threads] == [None] * len(threads)
    for log in logs:
        assert [header.base_offset for header in read_all(log)] == list(range(log.log_start_offset, 60))
    assert len(manager._files.open_files) <= LIMIT
    manager.shutdown()
    assert len(manager._files.open_files) == 0
