"""What a partition holds, read from the log without a consumer: the records as a test wants to compare them.

Role: decodes record batches one record at a time; made for asserts, not for speed.
Thread: any; pure functions. Lock: none.

A record: varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length (-1: null), key,
varint value length (-1: null), value, varint header count, then per header: varint key length, key, varint value length, value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.net.send import FileRegion
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, iterate_batches
from barnabas.records.compression import CODEC_NAMES, decompress
from barnabas.records.reader import read_varint

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog

READ_BYTES = 1024 * 1024
MAX_PLAIN_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a partition."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    compression: str = "none"


class _Cursor:
    """Reads fields one after the other; every length is checked before use."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def varint(self) -> int:
        value, self.position = read_varint(self.data, self.position)
        return value

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise CorruptBatch(f"a field claims {length} bytes, {len(self.data) - self.position} are left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def nullable(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)


def read_records(log: PartitionLog) -> Iterator[Record]:
    """All records of a partition from its start to its high watermark; control batches are left out."""
    offset, end = log.log_start_offset, log.high_watermark
    while offset < end:
        data = _bytes_of(log.read(offset, READ_BYTES).records)
        before = offset
        for header, batch in iterate_batches(data):
            if not header.control:
                found = records_of_batch(header, batch, log.topic, log.partition)
                yield from (record for record in found if record.offset >= offset)
            offset = header.next_offset
        if offset == before:
            return


def _bytes_of(records: FileRegion | bytes) -> bytes:
    if isinstance(records, FileRegion):
        return os.pread(records.file.fileno(), len(records), records.position)
    return records


def records_of_batch(header: BatchHeader, batch: memoryview, topic: str, partition: int) -> Iterator[Record]:
    """The records of one batch of a partition."""
    cursor = _Cursor(decompress(header.codec, bytes(batch[HEADER_SIZE:]), MAX_PLAIN_BYTES))
    for _ in range(header.record_count):
        yield _record(cursor, header, topic, partition)


def _record(cursor: _Cursor, header: BatchHeader, topic: str, partition: int) -> Record:
    cursor.varint()
    cursor.take(1)
    timestamp = header.base_timestamp + cursor.varint()
    offset = header.base_offset + cursor.varint()
    key, value = cursor.nullable(), cursor.nullable()
    headers = tuple((cursor.take(cursor.varint()).decode(), cursor.nullable()) for _ in range(cursor.varint()))
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=header.max_timestamp if header.log_append_time else timestamp,
        key=key,
        value=value,
        headers=headers,
        compression=CODEC_NAMES[header.codec],
    )
