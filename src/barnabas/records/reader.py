"""Reading the records inside a batch, as far as the broker needs it: which record has which time.

Role: time look-ups (ListOffsets) need the exact record of one batch. Lengths are checked before use, nothing is copied per record.
Thread: any; pure functions. Lock: none.

A record: varint length, int8 attributes, varint timestamp_delta, varint offset_delta, then key, value and headers, which are skipped
by the length. Varints are zig-zag, least significant group first.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from barnabas.records.compression import decompress

MIN_DECOMPRESSED_LIMIT = 16 * 1024 * 1024


def decompressed_limit(max_message_bytes: int) -> int:
    """How large the records of a batch may become when they are decompressed."""
    return max(MIN_DECOMPRESSED_LIMIT, 10 * max_message_bytes)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most ten bytes, and the position after it."""
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            raise CorruptBatch("a varint is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise CorruptBatch("a varint is longer than ten bytes")


def record_times(batch: Buffer, header: BatchHeader, limit: int = MIN_DECOMPRESSED_LIMIT) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record of one whole batch. `limit` bounds the decompressed size."""
    data = decompress(header.codec, bytes(memoryview(batch)[HEADER_SIZE : header.size]), limit)
    append_time = header.max_timestamp if header.log_append_time else None
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch(f"a record claims {length} bytes, {len(data) - position} are left")
        timestamp_delta, after = read_varint(data, position + 1)
        offset_delta, _ = read_varint(data, after)
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        yield timestamp, header.base_offset + offset_delta
        position += length
