"""Transactions as the log sees them: reading only what is decided, and replaying batches into the state of producers.

Role: `CommittedReader` is the view of read_committed; `replay` is what recovery and repair do with each batch of a producer.
Thread: reads from any thread; `replay` by recovery; `repair` by a reader that found damage, under the log's append lock.
Lock: none of its own.
"""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_right
from collections.abc import Sequence

from barnabas.broker.inline_work import leave_light_lane
from barnabas.broker.log.batch_search import BatchSearch
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, ProducerStates
from barnabas.broker.log.reading import LogReader, Tail
from barnabas.broker.log.results import AbortedTransaction, ReadResult
from barnabas.broker.log.segment import LOG_SUFFIX, Segment
from barnabas.broker.log.walk import NOWHERE, walk
from barnabas.net.send import FileRegion
from barnabas.records.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader, CorruptBatch, crc32c
from barnabas.records.control import EndMarker, parse_end_marker
from barnabas.records.kernel.scan import BatchScan

log = logging.getLogger(__name__)

_DIGEST = struct.Struct(">Iq")
_NO_INTERVAL = 2**62
"""A walk with this interval makes no index entries."""


def replay(
    producers: ProducerStates, header: BatchHeader, now_ms: int, segment: Segment, position: int, index: bool = True
) -> None:
    """Do to the state of producers what a batch did when it was appended; with `index`, to the segment's transaction index too."""
    if header.producer_id == NO_PRODUCER_ID:
        return
    marker = None
    if header.control:
        marker = _read_marker(header, segment, position)
        aborted = producers.aborted_by(header, marker, header.base_offset) if marker and index else None
        if aborted is not None:
            segment.txn_index.append(aborted)
    producers.update(header, header.base_offset, now_ms, marker)


def _read_marker(header: BatchHeader, segment: Segment, position: int) -> EndMarker | None:
    try:
        return parse_end_marker(header, segment.read(position, header.size)[HEADER_SIZE:])
    except CorruptBatch as error:
        log.warning(
            "%s: the control batch at offset %d ends no transaction: %s", segment.path, header.base_offset, error
        )
        return None


def repair(files: FileSystem, segments: Sequence[Segment]) -> None:
    """Write anew those transaction indexes that cannot be read; under the append lock. `segments` are all that the log has."""
    for number, segment in enumerate(segments):
        try:
            segment.txn_index.all_entries()
        except IndexDamaged as damage:
            log.warning("%s; rebuilding the index from the log", damage)
            _rebuild(files, segments[:number], segment)


def index_digest(segments: Sequence[Segment]) -> int:
    """A checksum over the transaction indexes of a log; 0 when there are none.

    It is noted at a clean stop (LogDir.finish): that an index is missing, or is zeros, cannot be seen from the index itself.
    """
    digest = 0
    for segment in segments:
        content = segment.txn_index.content()
        if content:
            digest = crc32c(_DIGEST.pack(digest, segment.base_offset) + content)
    return digest


def rebuild_all(files: FileSystem, segments: Sequence[Segment]) -> None:
    """Write the transaction indexes of a log anew; before anybody else knows it."""
    for number, segment in enumerate(segments):
        _rebuild(files, segments[:number], segment)


def _rebuild(files: FileSystem, before: Sequence[Segment], damaged: Segment) -> None:
    """A transaction may begin in an earlier segment: the snapshot from when this one began knows it, else the log does."""
    producers = ProducerStates(damaged.path)
    try:
        producers.load(files.read_file(damaged.path.removesuffix(LOG_SUFFIX) + SNAPSHOT_SUFFIX), 0)
    except (CorruptSnapshot, OSError):
        for segment in before:
            replay_segment(producers, segment, 0, 0)  # nobody asks when these producers were seen last
    damaged.txn_index.reset()
    for scan in walk(damaged, NOWHERE, _NO_INTERVAL):
        replay_rows(producers, scan, 0, damaged)


def replay_segment(
    producers: ProducerStates, segment: Segment, from_offset: int, now_ms: int, ends_by: int = NOWHERE
) -> None:
    """Do to the state of producers what the batches from an offset on did; reads headers and markers only."""
    for scan in walk(segment, NOWHERE, _NO_INTERVAL, ends_by=ends_by):
        for row in scan.take_producer_rows():
            if row[0] >= from_offset and _is_whole(segment, row):
                replay(producers, BatchHeader._make(row[:-1]), now_ms, segment, row[-1], index=False)


def replay_rows(
    producers: ProducerStates, scan: BatchScan, now_ms: int, segment: Segment, checked_from: int = NOWHERE
) -> None:
    """Do to the state of producers and to the transaction index what the batches did that a walk has found; it has compared the checksums
    of those from an offset on."""
    for row in scan.take_producer_rows():
        if row[0] >= checked_from or _is_whole(segment, row):
            replay(producers, BatchHeader._make(row[:-1]), now_ms, segment, row[-1])


def _is_whole(segment: Segment, row: tuple[int, ...]) -> bool:
    """A flipped bit must not make a batch one of another producer, whose next records would then seem to be repeated."""
    whole = BatchSearch(segment.read, segment.size).batch_at(row[-1], segment.offsets_from(row[0])) is not None
    if not whole:
        log.warning("%s: the batch at %d is damaged: what it says of its producer is ignored", segment.path, row[-1])
    return whole


class CommittedReader:
    """Reads as consumers with read_committed see a log: up to the last stable offset, and with what was aborted.

    The order of looks matters. The caller took its tail first: a transaction that began below the end of that tail was noted before
    the tail was published, so it is seen here. A transaction that ends meanwhile was put into the index before it stopped being open, so
    whoever no longer sees it as open finds it among the aborted.
    """

    __slots__ = ("_append_lock", "_files", "_producers", "_reader")

    def __init__(
        self, reader: LogReader, producers: ProducerStates, files: FileSystem, append_lock: threading.Lock
    ) -> None:
        self._reader = reader
        self._producers = producers
        self._files = files
        self._append_lock = append_lock

    def stable_offset(self, end: int, start: int) -> int:
        """The last stable offset of a log that ends and begins at these offsets."""
        return min(end, max(start, self._producers.first_unstable))

    def tail(self, tail: Tail, start: int) -> Tail:
        """Where the log ends for these consumers, of a log that ends and begins there."""
        stable = self.stable_offset(tail[0], start)
        return self._reader.tail_before(stable, tail) if stable < tail[0] else tail

    def read(self, offset: int, max_bytes: int, min_one_batch: bool, tail: Tail, start: int) -> ReadResult:
        end = tail[0]
        stable = self.stable_offset(end, start)
        if offset >= stable or (max_bytes <= 0 and not min_one_batch):
            return ReadResult(b"", end, stable, start)
        if stable < end:
            tail = self._reader.tail_before(stable, tail)
        records = self._reader.region(offset, max_bytes, min_one_batch, tail)
        aborted = self._aborted_in(records, offset, tail) if isinstance(records, FileRegion) else ()
        return ReadResult(records, end, stable, start, aborted)

    def _aborted_in(self, region: FileRegion, offset: int, tail: Tail) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions among the batches of a region from an offset on. Their markers are there or in later segments."""
        view = self._reader.view
        segments = view.segments[max(0, bisect_right(view.bases, offset) - 1) :]
        try:
            if not any(segment.txn_index.entries for segment in segments):
                return ()
            return _overlapping(segments, offset, self._end_of(region, offset, tail))
        except IndexDamaged:
            leave_light_lane()
            with self._append_lock:
                repair(self._files, self._reader.view.segments)
            return _overlapping(segments, offset, self._end_of(region, offset, tail))

    def _end_of(self, region: FileRegion, offset: int, tail: Tail) -> int:
        """The offset after the last batch that begins in a region, which may end inside a batch."""
        found = self._reader.find(offset, tail)
        if found is None:
            return offset
        segment, _, limit = found
        end = region.position + region.length
        last = offset
        for place in segment.places(_last_known_batch(segment, region.position, end), limit):
            if place.position >= end:
                break
            last = place.last_offset
        return last + 1

    def __repr__(self) -> str:
        return f"CommittedReader({self._producers.partition}, first unstable {self._producers.first_unstable})"


def _overlapping(segments: Sequence[Segment], offset: int, end: int) -> tuple[AbortedTransaction, ...]:
    found: list[AbortedTransaction] = []
    for segment in segments:
        entries, complete = segment.txn_index.overlapping(offset, end)
        found += [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in entries]
        if complete:
            break
    return tuple(found)


def _last_known_batch(segment: Segment, position: int, end: int) -> int:
    """Where the last batch begins that the index knows between two positions; without one, the first position."""
    try:
        entry = segment.offset_index.floor_by_value(end - 1)
        if entry is not None and entry[1] > position and segment.place_at(entry[1]).last_offset == entry[0]:
            return entry[1]
    except (IndexDamaged, CorruptLog):
        pass  # only an economy: the batches of the region can be counted from its beginning
    return position
