"""Logs in a temporary directory for tests, without threads and with a clock that stands still; and what they hold."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any, Self

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.results import ReadResult
from barnabas.clock import ManualClock
from barnabas.net.send import FileRegion
from barnabas.records.batch import BatchHeader, iterate_batches

TOPIC_ID = uuid.UUID(int=0x1234)


class Store:
    """A manager without threads and one partition, `t-0`; can be closed, crashed and opened again."""

    def __init__(self, path: Path, files: FileSystem | None = None, **config: Any) -> None:
        self.path = path
        self.clock = ManualClock()
        self.files = files or FileSystem()
        self.config = LogConfig(**config)
        self.open()

    def open(self) -> None:
        settings = LogManagerSettings((str(self.path),), defaults=self.config)
        self.manager = LogManager(settings, self.clock, self.files)
        self.manager.startup(threads=False)
        self.log = self.manager.create("t", 0, TOPIC_ID, self.config)

    @property
    def directory(self) -> Path:
        return self.path / "t-0"

    def close(self) -> None:
        self.manager.shutdown()

    def reopen(self) -> PartitionLog:
        self.close()
        self.open()
        return self.log

    def crash(self) -> PartitionLog:
        """What `kill -9` does: the files stay as they are, everything in memory is gone, the lock is free."""
        self.abandon()
        self.open()
        return self.log

    def note_recovery_point(self) -> None:
        """Everything so far is on disk, and a start after a crash knows it."""
        self.log.flush()
        for directory in self.manager.directories:
            directory.write_checkpoints()

    def abandon(self) -> None:
        for directory in self.manager._dirs:
            directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def copy_store(source: Path, target: Path) -> Path:
    """The directory as it is on disk right now, without the clean marker of an earlier stop."""
    shutil.copytree(source, target)
    return target


def region_bytes(result: ReadResult) -> bytes:
    records = result.records
    if isinstance(records, FileRegion):
        return os.pread(records.file.fileno(), records.length, records.position)
    return records


def headers_of(result: ReadResult) -> list[BatchHeader]:
    return [header for header, _ in iterate_batches(region_bytes(result))]


def read_all(log: PartitionLog, max_bytes: int = 4096, start: int | None = None) -> list[BatchHeader]:
    """Every batch, as a sequential consumer reads it; checks that offsets go on without a gap."""
    offset = log.log_start_offset if start is None else start
    found: list[BatchHeader] = []
    while offset < log.log_end_offset:
        batches = headers_of(log.read(offset, max_bytes))
        assert batches, f"nothing at offset {offset}, the log ends at {log.log_end_offset}"
        assert batches[0].base_offset <= offset <= batches[0].last_offset
        for header in batches:
            if header.next_offset > offset:
                found.append(header)
                offset = header.next_offset
    return found
