"""What the log answers: the small value objects that the APIs read.

Role: results of append, read and time look-up, and the errors of a log directory.
Thread: any; the objects are never changed after they were made. Lock: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.log.file_kinds import NotAFile
from barnabas.errors import ConfigError, ErrorCode, KafkaError
from barnabas.net.send import FileRegion


class IsolationLevel(IntEnum):
    """Kafka's isolation levels of Fetch and ListOffsets, with its numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AppendOrigin(IntEnum):
    """Who appends: clients may neither write control batches nor leave out sequence checks."""

    CLIENT = 0
    COORDINATOR = 1


class RecordError(NamedTuple):
    """A record of a batch and why it may not be written."""

    number: int
    message: str


class RecordsRefused(KafkaError):
    """A batch was refused because of some of its records (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class AppendResult:
    """Where a batch went. `duplicate`: the producer sent it before, and the offsets are those of the first time. `size`: bytes that were
    written."""

    __slots__ = ("append_time_ms", "base_offset", "duplicate", "last_offset", "log_start_offset", "size")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        append_time_ms: int,
        log_start_offset: int,
        duplicate: bool = False,
        size: int = 0,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.size = size

    def __repr__(self) -> str:
        again = ", duplicate" if self.duplicate else ""
        return f"AppendResult({self.base_offset}..{self.last_offset}, append_time_ms={self.append_time_ms}{again})"


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction that overlaps what was read, for read_committed."""

    producer_id: int
    first_offset: int


class ReadResult:
    """What a read found. `records` is a region of a segment's file, or `b""`; it may end inside a batch."""

    __slots__ = ("aborted", "high_watermark", "last_stable_offset", "log_start_offset", "records")

    def __init__(
        self,
        records: FileRegion | bytes,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> None:
        self.records = records
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted

    def __repr__(self) -> str:
        return f"ReadResult({len(self.records)} bytes, high_watermark={self.high_watermark}, log_start_offset={self.log_start_offset})"


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """Answer of a time look-up; `timestamp` is -1 where Kafka gives none, `offset` is -1 when nothing was found."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """Answer of OffsetForLeaderEpoch; both are -1 when the epoch is not known."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One row of DescribeLogDirs: a directory, whether it failed, and the size of each partition's log."""

    path: str
    offline: bool
    sizes: dict[tuple[str, int], int]
    total_bytes: int
    usable_bytes: int


class LogDirLocked(ConfigError):
    """Another process uses the log directory."""

    def __init__(self, path: str, owner: str = "") -> None:
        by = f" ({owner})" if owner else ""
        super().__init__("log.dirs", path, f"another broker{by} uses this directory; give each broker its own")


class LogDirNotWritable(ConfigError):
    """The log directory cannot be created or written; `cause` is the error of the disk."""

    def __init__(self, path: str, cause: OSError | str) -> None:
        if isinstance(cause, NotAFile):
            text = f"{cause}: move it away and start again"
        else:
            reason = cause if isinstance(cause, str) else cause.strerror or str(cause)
            text = f"must be a directory that the broker can write: {reason}"
        super().__init__("log.dirs", path, text)
        self.cause = cause if isinstance(cause, OSError) else OSError(cause)


class ForeignLogDir(ConfigError):
    """The log directory says that it belongs to another node or cluster."""

    def __init__(self, setting: str, configured: str, stored: str, file: str) -> None:
        text = f"{file} says {setting}={stored}, this data belongs to another {setting.partition('.')[0]}: give each its own log.dirs"
        super().__init__(setting, configured, f"{text}, or set {setting}={stored} if it is the one you mean")
