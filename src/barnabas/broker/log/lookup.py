"""Time look-ups: from a timestamp to the offset of a record (ListOffsets).

Role: the time index leads to a batch; only that batch is read and, if compressed, decompressed, to find the exact record.
Thread: any. Lock: none; all input is what the log has published.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.reading import LogReader, Tail
from barnabas.broker.log.results import TimestampOffset
from barnabas.broker.log.segment import CorruptLog, Place, Segment
from barnabas.records.batch import CorruptBatch, parse_header
from barnabas.records.reader import decompressed_limit, record_times

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4

NOT_FOUND = TimestampOffset(-1, -1, -1)


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
    best = (-1, -1)
    first = reader.repairing(segment, lambda s, e: s.locate(start, e), end)
    for place in segment.places(first.position, end) if first else ():
        largest = place.max_timestamp
        if place.base_offset < start:
            largest = max((time for time, offset, _ in _records(reader, segment, place) if offset >= start), default=-1)
        if largest > best[0]:
            best = (largest, place.last_offset)
    return best


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
    for time, offset, epoch in _records(reader, segment, place):
        if time >= timestamp and offset >= start:
            return TimestampOffset(time, offset, epoch)
    return None


def _records(reader: LogReader, segment: Segment, place: Place) -> Iterator[tuple[int, int, int]]:
    """(timestamp, offset, leader epoch) of the records of one batch."""
    batch = segment.read(place.position, place.size)
    limit = max(reader.records_limit, decompressed_limit(place.size))
    try:
        header = parse_header(batch)
        for time, offset in record_times(batch, header, limit):
            yield time, offset, header.partition_leader_epoch
    except CorruptBatch as error:
        raise CorruptLog(f"the batch at offset {place.base_offset} cannot be read: {error}") from error
