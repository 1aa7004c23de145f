"""Compacted logs for tests: write keyed records, clean, and read back every record that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.log.cleanable import look_at
from barnabas.broker.log.compaction import CleaningLimits, Compaction
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.records.batch import HEADER_SIZE, BatchHeader, iterate_batches
from barnabas.records.compression import decompress
from barnabas.records.reader import read_varint
from tests.broker.log.stores import Store, region_bytes
from tests.records.batches import NOW_MS, Batch

LIMITS = CleaningLimits(map_memory=1 << 16, map_load_factor=0.9, buffer_bytes=4096)


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class CompactedStore(Store):
    """A log with cleanup.policy=compact whose cleaner runs when the test says so."""

    def __init__(self, path: Path, files: FileSystem | None = None, **config: Any) -> None:
        given = {"segment_bytes": 1000, "index_interval_bytes": 200, "cleanup_policy": ("compact",), **config}
        super().__init__(path, files, **{"min_cleanable_dirty_ratio": 0.0, **given})

    def put(self, *pairs: tuple[bytes | None, bytes | None], **batch: Any) -> int:
        """One batch of keys and values; its base offset."""
        return self.log.append(keyed(pairs, **batch)).base_offset

    def roll(self) -> None:
        """Complete the active segment, so that it can be cleaned."""
        self.log.roll_when(lambda _end, _active: True)

    def clean(self) -> bool:
        return self.manager.cleaner.clean_dirtiest(lambda: False, lambda _seconds: None)

    def clean_all(self) -> None:
        """Everything that is written now, however little of it is dirty."""
        self.roll()
        self.clean()

    def clean_with(self, limits: CleaningLimits = LIMITS, first_dirty: int | None = None) -> int:
        """One cleaning with other limits; the offset up to which the log is clean then."""
        dirty = look_at(self.log, first_dirty, self.clock.wall_ms())
        return Compaction(dirty, self.files, limits, self.clock.wall_ms(), lambda _size: None).run()


def keyed(pairs: Sequence[tuple[bytes | None, bytes | None]], **batch: Any) -> memoryview:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return Batch(values, keys, **batch).build()


def batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the start of the log on, in order, with its checksum checked; gaps are allowed, overlaps are not."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        read = [(header, bytes(data)) for header, data in iterate_batches(region_bytes(log.read(offset, 5000)))]
        read = [each for each in read if each[0].last_offset >= offset]
        if not read:
            break  # nothing is left between here and the end
        for header, _ in read:
            assert header.last_offset >= offset, "offsets go back"
            offset = header.next_offset
        found += read
    return found


def records_of(header: BatchHeader, batch: bytes) -> list[Record]:
    data = decompress(header.codec, batch[HEADER_SIZE:], 1 << 24)
    found: list[Record] = []
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _field(data, position)
        value, position = _field(data, position)
        time = header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp_delta
        found.append(Record(header.base_offset + offset_delta, key, value, time))
        position = end
    assert position == len(data), "bytes follow the last record"
    return found


def _field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    return (None, position) if length < 0 else (data[position : position + length], position + length)


def records(log: PartitionLog) -> list[Record]:
    """Every record that a consumer of everything sees, control records left out."""
    return [record for header, data in batches(log) if not header.control for record in records_of(header, data)]


def latest(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """What a reader of the whole log knows in the end; keys whose last word is a tombstone are not there."""
    seen = {record.key: record.value for record in records(log)}
    return {key: value for key, value in seen.items() if value is not None}


@dataclass
class Model:
    """What compaction may and may not do, in the simplest words: every record that was ever written."""

    written: list[Record] = field(default_factory=list)

    def write(self, offset: int, pairs: Sequence[tuple[bytes, bytes | None]], timestamp: int = NOW_MS) -> None:
        self.written += [Record(offset + i, key, value, timestamp) for i, (key, value) in enumerate(pairs)]

    def latest(self) -> dict[bytes | None, bytes | None]:
        seen = {record.key: record.value for record in self.written}
        return {key: value for key, value in seen.items() if value is not None}

    def cleaned_up_to(self, end: int, tombstones_kept: bool = True) -> list[Record]:
        """What is left when everything below an offset was cleaned: newer records, and the newest of each key below it."""
        newest = {record.key: record.offset for record in self.written if record.offset < end}
        return [
            record
            for record in self.written
            if record.offset >= end
            or (newest[record.key] == record.offset and (record.value is not None or tombstones_kept))
        ]
