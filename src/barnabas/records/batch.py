"""Record batch, format v2: the header, iteration over batches in a buffer, and the checksum.

Role: the only place that knows the layout. The broker reads the 61 bytes of the header and never the records (architecture.md).
Thread: any; pure functions. Lock: none.

The header, all big-endian; the checksum covers everything from `attributes` to the end of the batch, so that the broker can set
the first three fields (and must not touch the others) without computing it again:

    offset  size  field
         0     8  base_offset             set by the broker
         8     4  batch_length            bytes after this field
        12     4  partition_leader_epoch  set by the broker
        16     1  magic                   2
        17     4  crc                     CRC-32C of bytes 21 to the end
        21     2  attributes              0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
        23     4  last_offset_delta
        27     8  base_timestamp
        35     8  max_timestamp
        43     8  producer_id
        51     2  producer_epoch
        53     4  base_sequence
        57     4  record_count
        61        records, compressed as a whole when the codec is not 0
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import google_crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
"""Size of the header; a batch is never smaller."""
PREFIX = struct.Struct(">qiibI")
PREFIX_SIZE = 21
"""The part in front of what the checksum covers."""
CHECKED_HEADER = struct.Struct(">hiqq")
"""The part of the header that a rewrite of the timestamp changes: attributes, last_offset_delta and both timestamps."""
LENGTH_OVERHEAD = 12
"""Bytes of a batch that `batch_length` does not count."""

MAGIC_V2 = 2
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the time after which compaction may drop the tombstones or the marker of the batch."""
MAX_CODEC = 4
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

crc32c: Callable[[bytes], int] = google_crc32c.value
"""CRC-32C; takes only `bytes`."""


class CorruptBatch(ValueError):
    """Bytes that are not a whole, valid record batch; the text says why."""


class BatchHeader(NamedTuple):
    """The 61 bytes of a batch's header, as they stand in the file."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, increment: int) -> int:
    """A producer's sequence numbers go round from 2^31 - 1 to 0."""
    return (sequence + increment) & 0x7FFF_FFFF


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position; CorruptBatch when it cannot be the header of a batch."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch(f"{len(buffer) - position} bytes are left, a batch has at least {HEADER_SIZE}")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    problem = header_problem(header)
    if problem:
        raise CorruptBatch(problem)
    return header


def header_problem(header: BatchHeader) -> str:
    """Why a header in a file cannot be that of a batch, or an empty text."""
    if header.magic != MAGIC_V2:
        return f"magic is {header.magic}, not {MAGIC_V2}"
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        return f"batch length {header.batch_length} is too small"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return f"offsets {header.base_offset} + {header.last_offset_delta} are impossible"
    return ""


def check_crc(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the checksum of one whole batch is right."""
    return crc32c(bytes(memoryview(batch)[PREFIX_SIZE:])) == header.crc


def iterate_batches(buffer: Buffer, verify: bool = True) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch of a buffer. A batch cut at the end, as a fetch may have it, ends the iteration.

    With `verify`, a wrong checksum raises CorruptBatch.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = parse_header(view, position)
        if header.size > end - position:
            return
        batch = view[position : position + header.size]
        if verify and not check_crc(batch, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
        yield header, batch
        position += header.size
