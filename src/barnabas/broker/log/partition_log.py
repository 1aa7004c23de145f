"""The log of one partition: append, and moving its start. Reading is in reading.py and lookup.py, flushing in durability.py.

Role: the only writer of a partition's segments. Recovery builds it (recovery.py), the manager owns it.
Thread: `append` on request threads, `read` and look-ups on any thread, `flush` on the flusher's, the rest on the housekeeper's.
Locks, in the order in which they may be taken:
    _maintenance  one flush or change of the start at a time; may be held over disk I/O; no reader and no append needs it
    _lock         append lock: the tail, the active segment, producers, the list of segments; held over the write of one batch
    waiters       its own lock, see waiters.py
Readers take none of them. They see things that are replaced whole: `_tail` (end offset, active segment, its size), the reader's view (base
offsets, segments) and `_start`. A reader takes `_tail` BEFORE the view: a roll publishes the new list first and a tail with data in the new
segment afterwards, so every offset below the end of a tail has its segment in a view that is read later.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.inline_work import leave_light_lane, wait_for
from barnabas.broker.log import lookup
from barnabas.broker.log.arrivals import Arrivals
from barnabas.broker.log.batch_search import MAX_RELATIVE_OFFSET
from barnabas.broker.log.config import MAX_LONG, LogConfig
from barnabas.broker.log.durability import Durability
from barnabas.broker.log.expansion import Expansion
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX
from barnabas.broker.log.reading import LogReader, Tail
from barnabas.broker.log.record_validation import look_into
from barnabas.broker.log.results import (
    AppendOrigin,
    AppendResult,
    EpochEndOffset,
    IsolationLevel,
    ReadResult,
    TimestampOffset,
)
from barnabas.broker.log.segment import EARLY_BYTES, Segment, segment_name
from barnabas.broker.log.swap import SegmentSwap
from barnabas.broker.log.transactions import CommittedReader
from barnabas.broker.log.verification import VerificationGuard
from barnabas.broker.log.waiters import DurableCallback
from barnabas.errors import ErrorCode, KafkaError
from barnabas.log_limit import MINUTE_NS, LogLimit
from barnabas.records.batch import CONTROL_BIT, PREFIX, PREFIX_SIZE, TIMESTAMP_TYPE_BIT, BatchHeader
from barnabas.records.control import EndMarker
from barnabas.records.kernel.record_layout import check_batch
from barnabas.records.reader import decompressed_limit

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.recovery import LoadedLog

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_CLIENT = AppendOrigin.CLIENT
_READ_UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
_pack_prefix = PREFIX.pack
_FEW_PRODUCERS = 100
_SNAPSHOT_INTERVAL = 1024
"""So many bytes of batches for each producer beyond a few come between two snapshots: else small segments would cost much time."""


class PartitionLog:
    """The log of one partition. Thread-safe."""

    __slots__ = (
        "_after_max_ms",
        "_bytes_without_snapshot",
        "_committed",
        "_dir",
        "_durability",
        "_files",
        "_flush_messages",
        "_index_interval",
        "_lock",
        "_maintenance",
        "_ordinary_limit",
        "_prepared",
        "_producers",
        "_pwritev",
        "_read_failures",
        "_reader",
        "_refusal",
        "_segment_bytes",
        "_snapshot_offset",
        "_start",
        "_tail",
        "_waiters",
        "_wall_ms",
        "config",
        "directory",
        "epochs",
        "partition",
        "start_to_persist",
        "swap",
        "topic",
        "topic_id",
    )

    def __init__(
        self, name: tuple[str, int], topic_id: uuid.UUID, loaded: LoadedLog, config: LogConfig, log_dir: LogDir
    ) -> None:
        self.topic, self.partition = name
        self.topic_id = topic_id
        self.directory = loaded.directory
        self._dir = log_dir
        self._files = log_dir.files
        self._pwritev = self._files.pwritev
        self._wall_ms = log_dir.clock.wall_ms
        self._maintenance = threading.Lock()
        self._lock = threading.Lock()
        self._producers = loaded.producers
        self.epochs = loaded.epochs
        self._refusal: ErrorCode | None = None
        self._snapshot_offset = loaded.snapshot_offset
        self._bytes_without_snapshot = 0
        self._start = self.start_to_persist = loaded.start
        self._read_failures = LogLimit(log, log_dir.clock.monotonic_ns, MINUTE_NS)  # each reader tries again and again
        self._reader = LogReader(loaded.segments, self._rebuild_indexes)
        self._committed = CommittedReader(self._reader, self._producers, self._files, self._lock)
        self._tail: Tail = (loaded.end, loaded.segments[-1], loaded.segments[-1].size)
        locks = (self._maintenance, self._lock)
        self.swap = SegmentSwap(self, log_dir, self._reader, locks)
        self._durability = Durability(self, log_dir, locks, loaded.recovery_point)
        self._waiters = self._durability.waiters
        self.update_config(config)

    # Numbers, from any thread.

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_dir(self) -> str:
        """The log directory (one of log.dirs) that holds the partition."""
        return self._dir.path

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def log_end_offset(self) -> int:
        return self._tail[0]

    @property
    def high_watermark(self) -> int:
        """One node: what is written is committed."""
        return self._tail[0]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; without one, the high watermark."""
        end = self._tail[0]  # before the transactions, see CommittedReader
        return self._committed.stable_offset(end, self._start)

    @property
    def durable_offset(self) -> int:
        """Everything below is on disk (Kafka's recovery point)."""
        return self._waiters.durable

    @property
    def last_flush_ns(self) -> int:
        return self._durability.last_flush_ns

    @property
    def leader_epoch(self) -> int:
        return max(0, self.epochs.latest)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def segment_count(self) -> int:
        return len(self._reader.view.segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._reader.view.segments

    @property
    def available(self) -> bool:
        """False once the log was closed or deleted, or its directory failed."""
        return self._refusal is None

    def update_config(self, config: LogConfig) -> None:
        """New settings of the topic, from now on."""
        with self._lock:
            self.config = config
            self._segment_bytes = config.segment_bytes
            largest = min(config.max_message_bytes, config.segment_bytes)
            self._ordinary_limit = largest if config.keeps_plain_batches else 0
            self._index_interval = config.index_interval
            self._after_max_ms = config.timestamp_after_max_ms
            self._flush_messages = config.flush_messages
            self._reader.records_limit = decompressed_limit(config.max_message_bytes)
            self._prepare_again()

    def _prepare_again(self) -> None:
        """The next append takes the slow way once, looks at the indexes and sets the limits of the active segment."""
        self._prepared = False
        self._tail[1].append_fd = -1

    # Append.

    def append(
        self,
        records: memoryview,
        leader_epoch: int = 0,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
        room: Expansion | None = None,
    ) -> AppendResult:
        """Write one batch; KafkaError when it is refused. Hot path: an ordinary batch is looked at by the kernel and written from where
        it is; record_validation.py looks into all others. The batch gets the newest leader epoch of the log, or `leader_epoch` when that
        is newer. A client's transactional batch needs a `guard`, see `begin_verification`; `room` bounds what it may expand to."""
        now = self._wall_ms()
        header = check_batch(records, self._ordinary_limit)
        body: bytes | memoryview
        if header is None or header.max_timestamp - now > self._after_max_ms:
            header, body = look_into(records, self.config, (origin, guard is not None), now, self.name, room)
        else:
            body = records[PREFIX_SIZE:]
        if self._flush_messages != MAX_LONG and self._flush_is_due(self._tail[0] + header.last_offset_delta):
            leave_light_lane()
        if not self._lock.acquire(blocking=False):
            wait_for(self._lock)
        try:
            if guard is not None:
                self._producers.check_verified(header, guard)
            result = self._append_locked(header, body, leader_epoch, origin, now)
        finally:
            self._lock.release()
        if self._durability.begins_early:
            self._begin_early()
        if self._flush_is_due(result.last_offset):
            self.flush()
            if self._dir.offline:  # nobody can say whether the batch will be found again
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: the flush failed")
        return result

    def _flush_is_due(self, last_offset: int) -> bool:
        return last_offset - self._waiters.durable >= self._flush_messages - 1

    def _append_locked(
        self, header: BatchHeader, body: bytes | memoryview, leader_epoch: int, origin: AppendOrigin, now: int
    ) -> AppendResult:
        _, length, _, _, crc, attributes, last_delta, _, max_time, producer_id, _, _, _ = header
        if producer_id >= 0:
            repeated = self._producers.check(header, origin)
            if repeated is not None:
                stamp = repeated.timestamp if attributes & TIMESTAMP_TYPE_BIT else -1
                return AppendResult(repeated.base_offset, repeated.last_offset, stamp, self._start, True)
        ends = attributes & CONTROL_BIT and producer_id >= 0
        marker = self._producers.checked_marker(header, bytes(body)) if ends else None
        first, segment, position = self._tail
        size = length + 12
        last = first + last_delta
        epoch = self.epochs.latest
        if (
            position + size > self._segment_bytes
            or max_time > segment.roll_at_timestamp
            or segment.append_fd < 0
            or segment.index_room <= 0
            or last - segment.base_offset > MAX_RELATIVE_OFFSET
            or leader_epoch > epoch
            or (self._durability.fills and position + size > segment.filled)
        ):
            segment, position = self._prepare(size, last, max_time, leader_epoch, now)
            epoch = self.epochs.latest
        try:
            written = self._pwritev(segment.append_fd, (_pack_prefix(first, length, epoch, 2, crc), body), position)
        except OSError as error:
            raise self._write_failed(position, error) from error
        if written != size:
            raise self._write_failed(position, OSError(errno.ENOSPC, f"wrote {written} of {size} bytes"))
        if marker is not None:
            self._index_abort(header, marker, first, position)
        # From here on nothing can fail: the batch is in the file, and what follows only makes it known.
        segment.size = position + size  # before its index entries, which a reader would take for damage
        if max_time > segment.max_time[0]:
            segment.max_time = (max_time, last)
        if segment.bytes_since_index > self._index_interval:
            segment.add_index_entries(last, position)
        segment.bytes_since_index += size
        if producer_id >= 0:
            self._producers.update(header, first, self._dir.monotonic_ms(), marker)
        self._tail = (last + 1, segment, position + size)
        stamp = max_time if attributes & TIMESTAMP_TYPE_BIT else -1
        return AppendResult(first, last, stamp, self._start, False, size)

    def _begin_early(self) -> None:
        """No lock is held: the disk may be slow to take the order."""
        _, segment, size = self._tail
        if size - segment.started >= EARLY_BYTES:
            segment.start_writing(size)

    def _index_abort(self, header: BatchHeader, marker: EndMarker, first: int, position: int) -> None:
        """Before the marker is known to anybody, so that no reader takes what it aborts for committed."""
        aborted = self._producers.aborted_by(header, marker, first)
        if aborted is None:
            return
        try:
            self._tail[1].txn_index.append(aborted)
        except (OSError, IndexDamaged) as error:
            raise self._write_failed(position, error) from error
        self._durability.names_changed = True

    def begin_verification(self, producer_id: int, epoch: int, sequence: int) -> VerificationGuard:
        """The guard for a client's transactional write; to be taken before the coordinator is asked about the transaction."""
        with self._lock:
            return self._producers.begin_verification(producer_id, epoch, sequence, self._dir.monotonic_ms())

    def _prepare(self, size: int, last: int, max_time: int, leader_epoch: int, now: int) -> tuple[Segment, int]:
        """The slow way to the segment of the next batch: after a start, for the first batch of a segment, and for a roll."""
        if self._refusal is not None:
            raise KafkaError(self._refusal, f"the log of {self.name} is not available")
        first, segment, position = self._tail
        try:
            if segment.append_fd < 0:
                self._open_active(segment, now)
            if position and (
                position + size > self._segment_bytes
                or max_time > segment.roll_at_timestamp
                or segment.index_room <= 0
                or last - segment.base_offset > MAX_RELATIVE_OFFSET
            ):
                leave_light_lane()
                segment, position = self._roll(), 0
            if not position:
                segment.set_limits(self.config, max_time, now)
        except OSError as error:
            self._dir.note_error(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
        if self._durability.fills and position + size > segment.filled:
            segment.fill_ahead(position + size, self._segment_bytes)
        self.epochs.assign(leader_epoch, first)
        return segment, position

    def _open_active(self, segment: Segment, now: int) -> None:
        if not self._prepared:
            try:
                segment.prepare_append(self.config, now)
            except (IndexDamaged, CorruptLog) as damage:
                log.warning("%s: %s; rebuilding the index from the log", self.name, damage)
                segment.rebuild_indexes(self._index_interval)
                segment.prepare_append(self.config, now)
            self._prepared = True
        segment.open_for_append(self._lock)

    def _roll(self) -> Segment:
        """Begin a new segment at the end of the log; under the append lock."""
        end, old, _ = self._tail
        old.finish()
        self._bytes_without_snapshot += old.size
        if self._bytes_without_snapshot >= _SNAPSHOT_INTERVAL * (len(self._producers.entries) - _FEW_PRODUCERS):
            self._write_snapshot(end)
        segment = Segment(self._files, self.directory, end)
        segment.create()
        self._durability.names_changed = True
        segment.open_for_append(self._lock)
        old.end_append()
        self._reader.publish([*self.segments, segment])
        self._reader.note_open(old)
        self._tail = (end, segment, 0)
        return segment

    def _write_snapshot(self, offset: int) -> None:
        """Not synced: a snapshot has a checksum, and the state can be rebuilt from an older one and the log."""
        path = os.path.join(self.directory, segment_name(offset) + SNAPSHOT_SUFFIX)
        self._files.write_file(path, self._producers.encode(), sync=False)
        self._snapshot_offset = offset
        self._bytes_without_snapshot = 0

    def _write_failed(self, position: int, error: OSError | IndexDamaged) -> KafkaError:
        """Cut off what a failed write may have left. Readers never saw it: they stop at the published size."""
        try:
            self._files.truncate(self._tail[1].append_fd, position)
            if isinstance(error, OSError):
                self._dir.note_error(error)
        except OSError as second:
            self._dir.fail(second)
        if self._dir.offline:
            self._refusal = ErrorCode.KAFKA_STORAGE_ERROR
            self._prepare_again()
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}")

    # Read.

    def read(
        self, offset: int, max_bytes: int, min_one_batch: bool = True, isolation: IsolationLevel = _READ_UNCOMMITTED
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, cut at `max_bytes`; KafkaError when the offset is not in the log."""
        tail = self._tail
        end = tail[0]
        start = self._start
        if self._refusal is not None or not start <= offset <= end:
            raise self._unreadable(offset, start, end)
        if (offset == end or (max_bytes <= 0 and not min_one_batch)) and not isolation:
            return ReadResult(b"", end, end, start)
        try:
            return self._read_at(offset, max_bytes, min_one_batch, isolation, tail)
        except (CorruptLog, IndexDamaged, OSError):
            wanted = (offset, max_bytes, min_one_batch, isolation)
            return self._look_again(lambda: self._read_at(*wanted, self._tail), offset)

    def _read_at(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation: IsolationLevel, tail: Tail
    ) -> ReadResult:
        if isolation:
            return self._committed.read(offset, max_bytes, min_one_batch, tail, self._start)
        records = self._reader.region(offset, max_bytes, min_one_batch, tail)
        return ReadResult(records, tail[0], tail[0], self._start)

    def tail(self, isolation: IsolationLevel = _READ_UNCOMMITTED) -> Tail:
        """Where the log ends for a reader: offset, segment and position there."""
        return self._committed.tail(self._tail, self._start) if isolation else self._tail

    def arrivals(self, offset: int, isolation: IsolationLevel) -> Arrivals:
        """Counts what comes for a reader that waits at an offset."""
        return Arrivals(self, self._reader, offset, isolation)

    def _look_again(self, look_up: Callable[[], Found], offset: int) -> Found:
        """Compaction may have replaced the segment under the reader."""
        try:
            return self._reader.look_again(look_up, self._lock)
        except (CorruptLog, IndexDamaged, OSError) as error:
            raise self._read_failed(offset, error) from error

    def _unreadable(self, offset: int, start: int, end: int) -> KafkaError:
        if self._refusal is not None:
            return KafkaError(self._refusal, f"the log of {self.name} is not available")
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self.name} is outside the range {start} to {end}"
        )

    def _read_failed(self, offset: int, error: Exception) -> KafkaError:
        if self._refusal is not None or offset < self._start:
            return self._unreadable(offset, self._start, self._tail[0])  # the segment was deleted meanwhile
        self._read_failures.error(str(error), "%s: cannot read at offset %d: %s", self.name, offset, error)
        code = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptLog) else ErrorCode.KAFKA_STORAGE_ERROR
        return KafkaError(code, f"{self.name}: {error}")

    def offset_for_timestamp(self, timestamp: int, isolation: IsolationLevel = _READ_UNCOMMITTED) -> TimestampOffset:
        """ListOffsets: -1 latest, -2 and -4 earliest, -3 largest timestamp, else the first record of that time or later."""
        if self._refusal is not None:
            raise self._unreadable(timestamp, self._start, self._tail[0])
        look_up = partial(self._offset_for_timestamp, timestamp, isolation)
        try:
            return look_up()
        except (CorruptLog, IndexDamaged, OSError):
            return self._look_again(look_up, self._start)

    def _offset_for_timestamp(self, timestamp: int, isolation: IsolationLevel) -> TimestampOffset:
        tail = self._tail
        stable = self._committed.stable_offset(tail[0], self._start) if isolation else tail[0]
        return lookup.offset_for_timestamp(self._reader, self.epochs, timestamp, self._start, tail, stable)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends."""
        return self.epochs.end_offset(epoch, self._tail[0])

    def _rebuild_indexes(self, segment: Segment, suffix: str) -> None:
        """An index was missing or wrong while the segment's files had this ending."""
        with self._lock:
            if segment.retired:
                raise CorruptLog(f"{segment.path} has left the log")  # the reader looks again, in the new list
            if segment.suffix != suffix:
                return  # not damaged: the files were just renamed
            log.warning("%s: rebuilding the indexes of %s from the log", self.name, segment.path)
            segment.rebuild_indexes(self._index_interval)
            if segment is self._tail[1]:
                self._prepare_again()

    # Durability (RP-41).

    def on_durable(self, offset: int, callback: DurableCallback) -> None:
        """Call back once everything below `offset` is on disk, with NONE, or with the error when it cannot be."""
        self._durability.on_durable(offset, callback)

    def flush(self) -> bool:
        """Bring everything that is written now to the disk; False when something may not be there. See `Durability`."""
        return self._durability.flush()

    # The start of the log.

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: the log begins at `offset` from now on, -1 means its end. The new start."""
        end = self._tail[0]
        wanted = end if offset == -1 else offset
        if not self.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {self.topic} does not allow deleting")
        if self._refusal is not None or not 0 <= wanted <= end:
            raise self._unreadable(wanted, self._start, end)
        if not self.move_start(wanted):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the new start of {self.name} could not be noted")
        return self._start

    def move_start(self, wanted: int) -> bool:
        """The new start is on disk before anybody sees it, so that it never goes back, not even over a crash (faults row 37).

        Except on a full disk, where dropping segments may make room: then the next checkpoint notes it, and the answer is False.
        """
        noted = True
        with self._maintenance:
            if self._refusal is not None:
                return False
            if wanted > self._start or self._dir.stale_starts:
                self.start_to_persist = max(self.start_to_persist, wanted)
                noted = self._dir.note_start(self._durability.sync_names)
                if self._dir.offline:
                    return False
            with self._lock:
                self._start = max(self._start, wanted)
                self.epochs.truncate(self._start, self._tail[0])
            doomed = self.swap.drop_below(self._start)
        if doomed:
            log.info("%s: %d segments below offset %d go", self.name, len(doomed), self._start)
            self._dir.discard(self, doomed)
        return noted

    def roll_when(self, demanded: Callable[[int, Segment], bool]) -> None:
        """Complete the active segment, if it has anything and `demanded(end of the log, segment)`."""
        with self._lock:
            end, active, size = self._tail
            if self._refusal is None and size and demanded(end, active):
                self._roll()

    def last_records_of_producers(self) -> dict[int, tuple[int, int]]:
        with self._lock:
            return self._producers.last_records()

    def largest_producer_id(self) -> int:
        with self._lock:
            return self._producers.largest_id()

    def expire_producers(self, expiration_ms: int) -> int:
        with self._lock:
            return self._producers.expire(self._dir.monotonic_ms(), expiration_ms)

    # The end.

    def close(self) -> None:
        """Flush, write what a quick start needs, and give up the files. What cannot be done, or not in time, is left to a recovery."""
        if not self.available:
            return
        if not (self._finish() and self.flush()):
            self._dir.clean = False
        self.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self) -> bool:
        """Write what a quick start needs."""
        with self._maintenance, self._lock:
            if self._refusal is not None:  # the directory has just failed
                return False
            end, active, _ = self._tail
            if self._dir.time_is_up:
                return end == self._waiters.durable and self._snapshot_offset == end and not active.is_prepared
            try:
                if active.is_prepared:
                    active.finish()
                if self._snapshot_offset != end:
                    self._write_snapshot(end)
            except OSError as error:
                self._dir.note_error(error)
                return False
        return True

    def move_away(self, directory: str) -> None:
        """The partition was deleted: no more calls, and its directory gets another name."""
        with self._maintenance:
            self.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._files.rename(self.directory, directory)
            self.directory = directory

    def refuse(self, error: ErrorCode) -> None:
        """From now on every call answers with an error: the log is closed, deleted, or its directory failed."""
        with self._lock:
            self._refusal = self._refusal or error
            self._prepare_again()
        self._reader.release()
        self._waiters.fail(error)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.name} {self._start}..{self._tail[0]} in {self.segment_count} segments, durable {self.durable_offset}>"
