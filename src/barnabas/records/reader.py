"""What reads records outside the kernel shares: how large they may become, and a varint.

Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from barnabas.records.batch import CorruptBatch

MIN_DECOMPRESSED_LIMIT = 16 * 1024 * 1024
MAX_DECOMPRESSED_LIMIT = 128 * 1024 * 1024
"""Whatever a topic allows: a batch is decompressed in one piece. A little more than the largest request."""


def decompressed_limit(max_message_bytes: int) -> int:
    """How large the records of a batch may become when they are decompressed."""
    return min(MAX_DECOMPRESSED_LIMIT, max(MIN_DECOMPRESSED_LIMIT, 10 * max_message_bytes))


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most ten bytes, least significant group first, and the position after it."""
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
