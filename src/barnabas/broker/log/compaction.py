"""One cleaning of one log: of each key only the newest record stays (Kafka's Cleaner).

Role: notes the newest offset of each key of the dirty part, then copies segment by segment what is to stay into new segments, and
lets the log swap them in. Offsets never change: a batch keeps its base offset and its last offset, also when records between are gone.
Thread: a cleaner's; appends and reads go on. Lock: none here; SegmentSwap takes the log's for a moment.

A record stays when it is the newest of its key, or newer than what was noted. A tombstone (a record without a value) stays until its
batch's delete horizon: when a cleaning first keeps it, the batch gets the bit DELETE_HORIZON and now + delete.retention.ms as its base
timestamp. Of batches without any record left these stay, empty: the last one of a producer that is still known, for its sequence
number and epoch, and the last one of the cleaning, for its offset. Records of aborted transactions go; their markers when nothing of
the transaction was met any more, and then after a delete horizon of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.broker.log.cleanable import DirtyLog, group_segments
from barnabas.broker.log.cleaned_transactions import CleanedTransactions
from barnabas.broker.log.offset_map import OffsetMap
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.segment import CLEANED_SUFFIX, Segment
from barnabas.broker.log.txn_index import AbortedEntry
from barnabas.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_SIZE,
    BatchHeader,
    CorruptBatch,
    check_crc,
    crc32c,
    parse_header,
)
from barnabas.records.compression import compress, decompress
from barnabas.records.kernel.compaction import move_timestamps
from barnabas.records.kernel.record_layout import record_spans, select_records
from barnabas.records.reader import MAX_DECOMPRESSED_LIMIT

if TYPE_CHECKING:
    from barnabas.broker.log.files import FileSystem

log = logging.getLogger(__name__)

Pace = Callable[[int], None]
"""Called after so many bytes were read or written: waits when the cleaner must, and raises CleaningAborted when it shall stop."""


class CleaningAborted(Exception):
    """The broker stops, the log is gone, or its segments have changed: nothing is wrong, and nothing was done."""


@dataclass(slots=True)
class CleaningStats:
    """What a cleaning did."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    map_bytes_read: int = 0
    map_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """What one cleaning may use."""

    map_memory: int
    map_load_factor: float
    buffer_bytes: int


class Compaction:
    """One cleaning. `run` returns the offset up to which the log is clean then."""

    def __init__(self, dirty: DirtyLog, files: FileSystem, limits: CleaningLimits, now_ms: int, pace: Pace) -> None:
        self._log = dirty.log
        self._dirty = dirty
        self._config = dirty.log.config
        self._files = files
        self._limits = limits
        self._now_ms = now_ms
        self._pace = pace
        self._segments = [each for each in dirty.log.segments if each.base_offset < dirty.first_uncleanable]
        self._map = OffsetMap(
            limits.map_memory, limits.map_load_factor, max(0, dirty.first_uncleanable - dirty.first_dirty)
        )
        self._transactions = CleanedTransactions()
        self._producers: dict[int, tuple[int, int]] = {}
        self.stats = CleaningStats()
        self._place = ("", 0)
        """The file and the position of the batch that was read last."""

    def run(self) -> int:
        """Clean; CleaningAborted, or CorruptLog, IndexDamaged or OSError when it cannot be done."""
        try:
            return self._run()
        except CorruptBatch as error:  # its checksum is right, its records are not
            raise _damaged(*self._place, error) from error

    def _run(self) -> int:
        self._fill_map()
        end = self._map.latest_offset + 1
        touched = [segment for segment in self._segments if segment.base_offset < end]
        for group in group_segments(touched, self._config, self._dirty.first_uncleanable):
            self._clean_group(group)
        self.stats.map_utilization = self._map.utilization
        return end

    # The newest offset of each key.

    def _fill_map(self) -> None:
        first, end = self._dirty.first_dirty, self._dirty.first_uncleanable
        transactions = CleanedTransactions()
        transactions.expect(self._aborted(first, end))
        for number, segment in enumerate(self._segments):
            following = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else end
            if following > first:
                if not self._map_segment(segment, transactions):
                    return
                self._map.latest_offset = following - 1

    def _map_segment(self, segment: Segment, transactions: CleanedTransactions) -> bool:
        """Note a segment's keys; False when the map is full."""
        first = self._dirty.first_dirty
        for header, batch in self._batches(segment):
            self.stats.map_bytes_read += len(batch)
            if header.control:
                transactions.is_needless_marker(header, batch)
            elif not transactions.is_aborted(header) and header.last_offset >= first and header.record_count:
                records = _plain_records(header, batch)
                spans = record_spans(records, 0, header.record_count)
                if not self._map.add(records, spans, header.base_offset, first):
                    return False
            self._map.latest_offset = max(self._map.latest_offset, header.last_offset)
        return True

    def _aborted(self, start: int, end: int) -> list[AbortedEntry]:
        """Aborted transactions with something between two offsets; an index entry stands in the segment of the marker."""
        found: list[AbortedEntry] = []
        for segment in self._log.segments:
            entries, complete = segment.txn_index.overlapping(start, end)
            found += entries
            if complete:
                break
        return found

    # Copying what stays.

    def _clean_group(self, group: list[Segment]) -> None:
        """Several segments become one, which has the name of the first."""
        new = Segment(self._files, self._log.directory, group[0].base_offset, suffix=CLEANED_SUFFIX)
        writer = SegmentWriter(new, self._files, self._config.index_interval, self._limits.buffer_bytes)
        self._producers = self._log.last_records_of_producers()
        try:
            modified = group[-1].modified_ms()
            writer.begin()
            for number, segment in enumerate(group):
                following = group[number + 1].base_offset if number + 1 < len(group) else self._end_of(segment)
                self._transactions.expect(self._aborted(segment.base_offset, following))
                self._clean_segment(segment, writer)
            writer.finish(self._transactions.take_kept(), modified)
            if not self._log.swap.replace(group, new, self._end_of(group[-1])):
                raise CleaningAborted(f"the segments of {self._log.name} have changed")
        except BaseException as error:
            if new.suffix == CLEANED_SUFFIX:
                new.remove_files()
            if isinstance(error, FileNotFoundError) and any(segment.retired for segment in group):
                raise CleaningAborted(f"segments of {self._log.name} have left the log") from error
            raise

    def _end_of(self, segment: Segment) -> int:
        position = self._segments.index(segment) + 1
        return self._segments[position].base_offset if position < len(self._segments) else self._dirty.first_uncleanable

    def _clean_segment(self, segment: Segment, writer: SegmentWriter) -> None:
        stats = self.stats
        for header, batch in self._batches(segment):
            stats.bytes_read += len(batch)
            stats.records_read += header.record_count
            kept = self._clean_batch(header, batch)
            if kept:
                new_header = header if kept is batch else parse_header(kept)
                writer.append(new_header, kept)
                stats.bytes_written += len(kept)
                stats.records_written += new_header.record_count
                self._pace(len(kept))

    def _clean_batch(self, header: BatchHeader, batch: bytes) -> bytes:
        """What is left of a batch: all of it, some of it, its empty header, or nothing."""
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        needless_marker = False
        if header.control:
            needless_marker = self._transactions.is_needless_marker(header, batch)
            discard = needless_marker and horizon is not None and horizon <= self._now_ms
        else:
            discard = self._transactions.is_aborted(header)
        if not discard and header.record_count:
            kept = (
                self._marker(header, batch, needless_marker) if header.control else self._data(header, batch, horizon)
            )
            if kept:
                return kept
        return _empty(header) if self._must_stay(header) else b""

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._dirty.first_uncleanable:
            return True
        last_offset, epoch = self._producers.get(header.producer_id, (-2, -1))
        if last_offset >= 0:
            return header.last_offset == last_offset
        return last_offset == -1 and header.control and header.producer_epoch == epoch

    def _marker(self, header: BatchHeader, batch: bytes, needless: bool) -> bytes:
        if not needless or header.attributes & DELETE_HORIZON_BIT:
            return batch
        return _with_horizon(header, _plain_records(header, batch), self._now_ms + self._config.delete_retention_ms)

    def _data(self, header: BatchHeader, batch: bytes, horizon: int | None) -> bytes:
        records = _plain_records(header, batch)
        spans = record_spans(records, 0, header.record_count)
        kept = self._map.newest(records, spans, header.base_offset, horizon is None or self._now_ms < horizon)
        self.stats.records_without_key += kept.without_key
        if not kept.left:
            return b""
        needs_horizon = kept.tombstones and horizon is None
        if kept.left == header.record_count and not needs_horizon:
            return batch
        if not header.log_append_time:
            header = header._replace(max_timestamp=header.base_timestamp + kept.max_timestamp_delta)
        header = header._replace(record_count=kept.left)
        left = select_records(records, spans, kept.keep)
        if needs_horizon:
            return _with_horizon(header, left, self._now_ms + self._config.delete_retention_ms)
        return _build(header, left)

    # Reading.

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches of a segment, checked; a damaged one raises CorruptLog."""
        try:
            with self._files.open_read_only(segment.path) as file:
                yield from self._batches_of(file.fileno(), segment)
        except FileNotFoundError as error:
            if segment.retired or not self._log.available:
                raise CleaningAborted(f"{segment.path} has left the log") from error
            raise

    def _batches_of(self, fd: int, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        chunk, begin, position = b"", 0, 0
        while position < segment.size:
            at = position - begin
            size = _batch_size(chunk, at)
            if size < 0 or at + size > len(chunk):
                wanted = min(max(self._limits.buffer_bytes, size), segment.size - position)
                chunk, begin, at = self._files.pread(fd, wanted, position), position, 0
                self._pace(len(chunk))
                size = _batch_size(chunk, 0)
                if HEADER_SIZE <= len(chunk) < size <= segment.size - position:
                    continue  # a batch larger than the buffer: now its size is known
            yield self._checked(segment, chunk[at : at + size] if size > 0 else b"", position)
            position += size

    def _checked(self, segment: Segment, batch: bytes, position: int) -> tuple[BatchHeader, bytes]:
        try:
            header = parse_header(batch)
            if header.size != len(batch) or not check_crc(batch, header):
                raise CorruptBatch("its length or checksum is wrong")
        except CorruptBatch as error:
            raise _damaged(segment.path, position, error) from error
        self._place = segment.path, position
        return header, batch


def _damaged(path: str, position: int, error: CorruptBatch) -> CorruptLog:
    return CorruptLog(f"{path}: the batch at position {position} is damaged: {error}")


def _batch_size(chunk: bytes, at: int) -> int:
    """The size that a batch claims, or -1 when not even its length is there."""
    if len(chunk) - at < LENGTH_OVERHEAD:
        return -1
    return max(LENGTH_OVERHEAD, int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD)


def _plain_records(header: BatchHeader, batch: bytes) -> bytes:
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], MAX_DECOMPRESSED_LIMIT)


def _with_horizon(header: BatchHeader, records: bytes, horizon: int) -> bytes:
    spans = record_spans(records, 0, header.record_count)
    moved = move_timestamps(records, spans, header.base_timestamp - horizon)
    attributes = header.attributes | DELETE_HORIZON_BIT
    return _build(header._replace(attributes=attributes, base_timestamp=horizon), moved)


def _empty(header: BatchHeader) -> bytes:
    """Only the header, for the offsets, the sequence number and the epoch in it."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _build(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _build(header: BatchHeader, records: bytes) -> bytes:
    """The bytes of a batch, compressed as it was, with length and checksum set."""
    data = compress(header.codec, records) if records else b""
    fields = header._replace(batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(data), crc=0)
    checked = HEADER.pack(*fields)[PREFIX_SIZE:] + data
    return PREFIX.pack(*fields[:4], crc32c(checked)) + checked


class SegmentWriter:
    """Writes a segment anew, batch by batch, and brings it to the disk."""

    def __init__(self, segment: Segment, files: FileSystem, index_interval: int, buffer_bytes: int) -> None:
        self._segment = segment
        self._files = files
        self._index_interval = index_interval
        self._buffer_bytes = buffer_bytes
        self._buffer: list[bytes] = []
        self._buffered = 0

    def begin(self) -> None:
        """An attempt that failed may have left files of these names."""
        segment = self._segment
        for path in (segment.path, segment.offset_index.path, segment.time_index.path, segment.txn_index.path):
            self._files.remove(path)
        segment.create()

    def append(self, header: BatchHeader, batch: bytes) -> None:
        segment = self._segment
        position = segment.size + self._buffered
        segment.note_batch(position, len(batch), header.last_offset, header.max_timestamp, self._index_interval)
        self._buffer.append(batch)
        self._buffered += len(batch)
        if self._buffered >= self._buffer_bytes:
            self._write()

    def _write(self) -> None:
        segment = self._segment
        segment.file().use(self._files.write_fully, b"".join(self._buffer), segment.size)
        segment.size += self._buffered
        self._buffer, self._buffered = [], 0

    def finish(self, aborted: list[AbortedEntry], modified_ms: int) -> None:
        """Everything to the disk, with the time at which the old files were written: retention may go by it."""
        segment = self._segment
        self._write()
        segment.finish()
        for entry in aborted:
            segment.txn_index.append(entry)
        segment.sync()
        self._files.set_modified_ms(segment.path, modified_ms)
