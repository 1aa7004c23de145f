"""The records inside a batch, for people: each record whole, and whether the header tells the truth about them.

Role: decompresses one batch, bounded, and walks through its records. The broker itself never does this for a record that is stored.
Thread: any; pure functions. Lock: none.

A record: varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length (-1: null), key,
varint value length (-1: null), value, varint header count, then per header: varint key length, key, varint value length, value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, CorruptBatch
from barnabas.records.compression import decompress
from barnabas.records.kernel import record_layout
from barnabas.records.reader import MIN_DECOMPRESSED_LIMIT, read_varint

LARGEST_BATCH = 256 * 1024 * 1024
"""A batch above this is not looked into: no setting of a broker that people use lets it in."""
_EXPANSION = 1024


class Record(NamedTuple):
    """One record as it stands in a batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def plain_records(header: BatchHeader, batch: bytes) -> bytes:
    """The records of a batch, decompressed; CorruptBatch when that cannot be done within the limit."""
    if header.size > LARGEST_BATCH:
        raise CorruptBatch(f"a batch of {header.size} bytes is too large to look into")
    limit = min(LARGEST_BATCH, max(MIN_DECOMPRESSED_LIMIT, _EXPANSION * header.size))
    return decompress(header.codec, batch[HEADER_SIZE : header.size], limit)


def records_of(header: BatchHeader, batch: bytes) -> Iterator[Record]:
    """Each record of a batch; CorruptBatch as soon as one cannot be read, or when bytes are left over."""
    data = plain_records(header, batch)
    position = 0
    for _ in range(header.record_count):
        record, position = _record_at(data, position, header)
        yield record
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")


def check_records(header: BatchHeader, batch: bytes) -> str:
    """What the header says wrongly about its records, or an empty text. CorruptBatch when they cannot be read."""
    if header.record_count < 0:
        raise CorruptBatch(f"the header counts {header.record_count} records")
    if not header.record_count:
        return ""  # compaction removed them all
    data = plain_records(header, batch)
    strange = ""
    if header.last_offset_delta != header.record_count - 1:
        latest_delta = _check_thinned_out(header, data)
    else:
        try:
            facts = record_layout.check_records(data, 0, header.record_count)
        except CorruptBatch as error:
            facts = record_layout.check_records(data, 0, header.record_count, False)
            strange = f"not every client can read the batch: {error}"
        latest_delta = facts.max_timestamp_delta
    latest = header.base_timestamp + latest_delta
    if not header.log_append_time and max(NO_TIMESTAMP, latest) != max(NO_TIMESTAMP, header.max_timestamp):
        return f"the largest timestamp is {latest}, the header says {header.max_timestamp}"
    return strange


def _check_thinned_out(header: BatchHeader, data: bytes) -> int:
    """Compaction has removed records: the offsets of the others must ascend. The largest timestamp delta."""
    spans = record_layout.record_spans(data, 0, header.record_count)
    last = spans[-record_layout.SPAN_FIELDS + 2]
    if last > header.last_offset_delta:
        raise CorruptBatch(f"offset {header.base_offset + last} is in a batch that ends at {header.last_offset}")
    return max(spans[3 :: record_layout.SPAN_FIELDS])


def _record_at(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    if not 0 < length <= len(data) - position:
        raise CorruptBatch(f"a record claims {length} bytes, {len(data) - position} are left")
    end = position + length
    time_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _nullable(data, position, end)
    value, position = _nullable(data, position, end)
    headers, position = _headers(data, position, end)
    if position != end:
        raise CorruptBatch(f"a record of {length} bytes ends {end - position} bytes early")
    timestamp = header.max_timestamp if header.log_append_time else header.base_timestamp + time_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _headers(data: bytes, position: int, end: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"a record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _nullable(data, position, end)
        value, position = _nullable(data, position, end)
        headers.append((name or b"", value))
    return headers, position


def _nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptBatch(f"a field claims {length} bytes, {end - position} are left")
    return data[position : position + length], position + length
