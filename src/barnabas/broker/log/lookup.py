"""Time look-ups: from a timestamp to the offset of a record (ListOffsets).

Role: the time index leads to a batch; only that batch is read and, if compressed, decompressed, to find the exact record.
Thread: any. Lock: none; all input is what the log has published.
"""

from __future__ import annotations

from barnabas.broker.log.config import MAX_LONG
from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.places import CorruptLog, Place
from barnabas.broker.log.reading import LogReader, Tail
from barnabas.broker.log.results import TimestampOffset
from barnabas.broker.log.segment import Segment
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, parse_header
from barnabas.records.compression import decompress
from barnabas.records.kernel.record_layout import MIN_LONG, RecordTimes, find_time
from barnabas.records.reader import decompressed_limit

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4

NOT_FOUND = TimestampOffset(-1, -1, -1)
NEVER = 2 * MAX_LONG
"""Later than any record."""


def offset_for_timestamp(
    reader: LogReader, epochs: LeaderEpochs, timestamp: int, start: int, tail: Tail, stable: int
) -> TimestampOffset:
    """Kafka's answer for a timestamp or one of its special values; NOT_FOUND for those that only tiered storage has.

    `stable` is the end for this reader: with read_committed the last stable offset. A record that is found at or after it does not count.
    """
    if timestamp == LATEST:
        return TimestampOffset(-1, stable, epochs.latest)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, start, epochs.of_offset(start))
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return NOT_FOUND
    by_time = timestamp != MAX_TIMESTAMP
    found = _first_at_or_after(reader, timestamp, start, tail) if by_time else _max_timestamp(reader, start, tail)
    return found if found.offset < stable else NOT_FOUND


def _first_at_or_after(reader: LogReader, timestamp: int, start: int, tail: Tail) -> TimestampOffset:
    for segment, end in reader.segments_from(start, tail):
        if _largest(reader, segment, end)[0] < timestamp:
            continue
        begin = start
        while True:
            place = reader.repairing(segment, lambda s, e, at=begin: s.locate_time(timestamp, at, e), end)  # type: ignore[misc]
            if place is None:
                break
            found = _record_in(reader, segment, place, timestamp, start)
            if found is not None:
                return found
            begin = (
                place.last_offset + 1
            )  # the header claims a time that no record has, or the record is below the start
    return NOT_FOUND


def _max_timestamp(reader: LogReader, start: int, tail: Tail) -> TimestampOffset:
    best: tuple[int, int, Segment, int] | None = None
    for segment, end in reader.segments_from(start, tail):
        timestamp, offset = _largest(reader, segment, end)
        if segment.base_offset < start and not _begins_from(reader, segment, offset, start, end):
            timestamp, offset = _largest_from(reader, segment, start, end)
        if timestamp >= 0 and (best is None or timestamp > best[0]):
            best = (timestamp, offset, segment, end)
    if best is None:
        return NOT_FOUND
    timestamp, offset, segment, end = best
    place = reader.repairing(segment, lambda s, e: s.locate(offset, e), end)
    found = _record_in(reader, segment, place, timestamp, start) if place else None
    return found or TimestampOffset(timestamp, offset)


def _begins_from(reader: LogReader, segment: Segment, offset: int, start: int, end: int) -> bool:
    """Whether all of the batch with an offset is still in the log; else its largest timestamp may be gone with its first records."""
    place = reader.repairing(segment, lambda s, e: s.locate(offset, e), end)
    return place is not None and place.base_offset >= start


def _largest_from(reader: LogReader, segment: Segment, start: int, end: int) -> tuple[int, int]:
    """(largest timestamp, an offset of its batch) of the records from the start of the log on; one pass over headers."""
    first = reader.repairing(segment, lambda s, e: s.locate(start, e), end)
    if first is None:
        return -1, -1
    if first.base_offset >= start:
        return segment.largest_timestamp_from(first.position, end)
    largest = _largest_in(reader, segment, first, start)
    rest = segment.largest_timestamp_from(first.position + first.size, end)
    return rest if rest[0] > largest else (largest, first.last_offset)


def _largest(reader: LogReader, segment: Segment, end: int) -> tuple[int, int]:
    """The segment's largest timestamp; the reader repairs the time index when it lies."""
    found: list[tuple[int, int]] = []

    def look_up(wanted: Segment, limit: int) -> Place | None:
        found.append(wanted.largest_timestamp(limit))
        return None

    reader.repairing(segment, look_up, end)
    return found[-1]


def _record_in(reader: LogReader, segment: Segment, place: Place, timestamp: int, start: int) -> TimestampOffset | None:
    """The first record of a batch that is not older than a time and not below the log's start."""
    header, found = _look_into(reader, segment, place, timestamp, start)
    if found.offset_delta < 0:
        return None
    time = header.max_timestamp if header.log_append_time else header.base_timestamp + found.timestamp_delta
    return TimestampOffset(time, header.base_offset + found.offset_delta, header.partition_leader_epoch)


def _largest_in(reader: LogReader, segment: Segment, place: Place, start: int) -> int:
    """The largest timestamp of the records of a batch that are not below the log's start; -1 when there are none."""
    header, found = _look_into(reader, segment, place, NEVER, start)
    if found.largest == MIN_LONG:
        return -1
    return header.max_timestamp if header.log_append_time else header.base_timestamp + found.largest


def _look_into(
    reader: LogReader, segment: Segment, place: Place, timestamp: int, start: int
) -> tuple[BatchHeader, RecordTimes]:
    batch = segment.read(place.position, place.size)
    limit = max(reader.records_limit, decompressed_limit(place.size))
    try:
        header = parse_header(batch)
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit)
        if header.log_append_time:
            earliest = MIN_LONG if header.max_timestamp >= timestamp else MAX_LONG
        else:
            earliest = max(MIN_LONG, min(MAX_LONG, timestamp - header.base_timestamp))
        return header, find_time(data, 0, header.record_count, max(0, start - header.base_offset), earliest)
    except CorruptBatch as error:
        raise CorruptLog(f"the batch at offset {place.base_offset} cannot be read: {error}") from error
