"""Loading many partitions: in threads after a crash, with reports; in turn and quietly after a clean stop."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.loading import RecoveryProgress
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.results import LogDirNotWritable
from barnabas.clock import ManualClock
from tests.broker.log.stores import read_all
from tests.records.batches import batch

PARTITIONS = 12
PATIENCE = 3600.0
"""Seconds of the clock below."""


class HurryingClock(ManualClock):
    """Half a second passes with every look at it."""

    def monotonic_ns(self) -> int:
        self.advance(0.5)
        return super().monotonic_ns()


def manager_of(path: Path, files: FileSystem | None = None, threads: int = 3) -> LogManager:
    settings = LogManagerSettings((str(path),), defaults=LogConfig(segment_bytes=2000), recovery_threads=threads)
    return LogManager(settings, HurryingClock(), files)


def crashed(path: Path) -> None:
    """Partitions with a few segments each, the last one torn; nothing was flushed."""
    manager = manager_of(path)
    manager.startup(threads=False)
    for number in range(PARTITIONS):
        log = manager.create("t", number, uuid.UUID(int=7))
        for _ in range(10 + number):
            log.append(batch(2, size=200))
        with open(log.segments[-1].path, "ab") as file:
            file.write(b"torn")
    for directory in manager.directories:
        directory.close()


class ThreadWatchingFiles(FileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self.threads.add(threading.current_thread().name)
        time.sleep(0)  # let another thread have its turn
        return super().pread(fd, length, position)


@pytest.mark.parametrize("threads", [1, 3])
def test_partitions_are_recovered_at_the_same_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    crashed(tmp_path)
    files = ThreadWatchingFiles()
    manager = manager_of(tmp_path, files, threads)
    with caplog.at_level(logging.INFO, "barnabas.broker.log.loading"):
        manager.startup(threads=False)
    pool = {name for name in files.threads if name.startswith("barnabas-log-recovery")}
    assert bool(pool) == (threads > 1)
    assert len(pool) <= threads
    for number in range(PARTITIONS):
        log = manager.get("t", number)
        assert log is not None
        assert log.log_end_offset == 2 * (10 + number)
        assert len(read_all(log)) == 10 + number
    manager.shutdown(PATIENCE)
    texts = [record.getMessage() for record in caplog.records]
    assert f"checking {PARTITIONS} partitions" in texts[0]
    assert any("recovering: " in text and " %)" in text for text in texts[1:-1])
    assert f"recovered {PARTITIONS} of {PARTITIONS} partitions" in texts[-1]
    assert "(100 %)" in texts[-1]


def test_a_clean_start_needs_no_threads_and_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    crashed(tmp_path)
    manager = manager_of(tmp_path)
    manager.startup(threads=False)
    manager.shutdown(PATIENCE)
    caplog.clear()
    files = ThreadWatchingFiles()
    manager = manager_of(tmp_path, files)
    with caplog.at_level(logging.INFO, "barnabas.broker.log.loading"):
        manager.startup(threads=False)
    manager.shutdown(PATIENCE)
    assert files.threads <= {threading.current_thread().name}
    assert not caplog.records


class FailingFiles(FileSystem):
    def pread(self, fd: int, length: int, position: int) -> bytes:
        raise OSError(5, "Input/output error")


def test_a_disk_that_fails_in_a_recovery_thread_is_offline(tmp_path: Path) -> None:
    crashed(tmp_path)
    manager = manager_of(tmp_path, FailingFiles())
    with pytest.raises(LogDirNotWritable, match="Input/output error"):
        manager.startup(threads=False)


def test_progress_without_anything_to_read_is_complete() -> None:
    progress = RecoveryProgress("d", 1, 0, ManualClock())
    progress.advance(0, 1)
    assert str(progress) == "1 of 1 partitions, 0.0 of 0.0 MiB (100 %)"
