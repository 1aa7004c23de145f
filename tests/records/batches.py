"""A tiny builder of record batches for tests: plain Python, no speed, every field can be set wrong on purpose."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import cramjam
import lz4.frame  # type: ignore[import-untyped]

from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch, crc32c
from barnabas.records.compression import decompress
from barnabas.records.reader import MIN_DECOMPRESSED_LIMIT, read_varint

NOW_MS = 1_700_000_000_000
"""The wall clock of a new ManualClock."""


def varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(0x80 | (number & 0x7F))
        number >>= 7
    out.append(number)
    return bytes(out)


def record(offset_delta: int, value: bytes | None, timestamp_delta: int = 0, key: bytes | None = None) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(-1) if value is None else varint(len(value)) + value
    body += varint(0)
    return varint(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.compress(data, mtime=0)  # the same bytes every time
    if codec == 2:
        blocks = [bytes(cramjam.snappy.compress_raw(data[i : i + 32768])) for i in range(0, len(data), 32768)]
        framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    if codec == 3:
        return bytes(
            lz4.frame.compress(data, block_linked=False)
        )  # Java clients refuse linked blocks, cramjam's default
    if codec == 4:
        return bytes(cramjam.zstd.compress(data))
    return data


@dataclass
class Batch:
    """What a batch should hold; `build` makes the bytes."""

    values: Sequence[bytes | None] = (b"value",)
    keys: Sequence[bytes | None] | None = None
    timestamps: Sequence[int] | None = None
    timestamp: int = NOW_MS
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    codec: int = 0
    attributes: int = 0
    base_offset: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    """Header fields to set to something else after all, checksum included when it is named."""

    def build(self) -> memoryview:
        times = list(self.timestamps or [self.timestamp] * len(self.values))
        base = times[0] if times else -1
        keys = self.keys or [None] * len(self.values)
        rows = zip(self.values, times, keys, strict=True)
        plain = b"".join(record(i, value, time - base, key) for i, (value, time, key) in enumerate(rows))
        records = compress(self.codec, plain)
        header = BatchHeader(
            base_offset=self.base_offset,
            batch_length=HEADER_SIZE - 12 + len(records),
            partition_leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=self.attributes | self.codec,
            last_offset_delta=len(self.values) - 1,
            base_timestamp=base,
            max_timestamp=max(times, default=-1),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=len(self.values),
        )
        header = header._replace(**{name: value for name, value in self.changes.items() if name != "crc"})
        checked = struct.pack(">hiqqqhii", *header[5:]) + records
        crc = self.changes.get("crc", crc32c(checked))
        return memoryview(struct.pack(">qiibI", *header[:4], crc) + checked)


def batch(count: int = 1, size: int = 20, timestamp: int = NOW_MS) -> memoryview:
    """A batch of `count` records with values of `size` bytes."""
    return Batch([bytes([65 + i % 26]) * size for i in range(count)], timestamp=timestamp).build()


def sequenced(producer_id: int, epoch: int, sequence: int, count: int = 1) -> memoryview:
    """A batch of an idempotent producer."""
    values = [f"{producer_id}/{epoch}/{sequence + i}".encode() for i in range(count)]
    return Batch(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence).build()


def transactional(producer_id: int, sequence: int, count: int = 1, epoch: int = 0, codec: int = 0) -> memoryview:
    """A batch of a producer's open transaction."""
    values = [f"{producer_id}/{sequence + i}".encode() for i in range(count)]
    return Batch(
        values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, attributes=0x10, codec=codec
    ).build()


def end_marker(producer_id: int, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    """The control batch with which a coordinator ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return Batch([value], [key], producer_id=producer_id, producer_epoch=epoch, attributes=0x30).build()


def record_times(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record of one whole batch, one by one: slow, and an oracle for the kernel."""
    data = decompress(header.codec, bytes(memoryview(batch)[HEADER_SIZE : header.size]), MIN_DECOMPRESSED_LIMIT)
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
