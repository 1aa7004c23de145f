"""What compaction does with the records of one batch: note the newest offset of each key, keep what is newest, move timestamps.

Role: the work per record. The table of keys is one bytearray, so that millions of keys cost 24 bytes each and no Python object.
Thread: any; pure functions, a table belongs to one thread. Lock: none.

    slot of the table, 24 bytes      16  hash of the key, with a secret seed: nobody can choose keys that collide
                                      8  offset + 1, little-endian; 0: the slot is free

The number of slots is a prime. A key looks at the slot that its hash names, then in steps that its hash names too, until it finds
itself or a free slot; there is always a free one (OffsetMap sees to that). Records: see reader.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.batch import CorruptBatch
from barnabas.records.reader import read_varint

SLOT_SIZE = 24
_HASH_SIZE = 16
_SEED = os.urandom(16)


class Kept(NamedTuple):
    """What is left of a batch, `left` records. `max_timestamp_delta` is to the base timestamp of the batch."""

    records: bytes
    left: int
    tombstones: bool
    max_timestamp_delta: int
    without_key: int


class _Record(NamedTuple):
    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def put_keys(
    table: bytearray, room: int, records: bytes, count: int, base_offset: int, first_offset: int
) -> tuple[int, int]:
    """Note the offsets of the records that have a key and are not before `first_offset`: how many keys were new, and -1, or the
    offset of the first record that is not noted because there was no more room for new keys."""
    new = 0
    for record in _records(records, count):
        offset = base_offset + record.offset_delta
        if record.key is None or offset < first_offset:
            continue
        at = _slot_of(table, digest := _digest(record.key))
        if not any(table[at + _HASH_SIZE : at + SLOT_SIZE]):
            if new == room:
                return new, offset
            new += 1
            table[at : at + _HASH_SIZE] = digest
        table[at + _HASH_SIZE : at + SLOT_SIZE] = (offset + 1).to_bytes(8, "little")
    return new, -1


def offset_of(table: bytearray, key: bytes) -> int:
    """The newest offset of a key, or -1."""
    at = _slot_of(table, _digest(key))
    return int.from_bytes(table[at + _HASH_SIZE : at + SLOT_SIZE], "little") - 1


def keep_newest(
    table: bytearray, records: bytes, count: int, base_offset: int, last_mapped: int, keep_tombstones: bool
) -> Kept:
    """The records after offset `last_mapped`, and those before it that are the newest of their key."""
    parts: list[bytes] = []
    tombstones, without_key, largest = False, 0, -(2**63)
    for record in _records(records, count):
        offset = base_offset + record.offset_delta
        if offset <= last_mapped:
            if record.key is None:
                without_key += 1
                continue
            if offset < offset_of(table, record.key) or not (record.has_value or keep_tombstones):
                continue
        parts.append(records[record.start : record.end])
        tombstones |= not record.has_value
        largest = max(largest, record.timestamp_delta)
    return Kept(b"".join(parts), len(parts), tombstones, largest, without_key)


def move_timestamps(records: bytes, count: int, by: int) -> bytes:
    """The same records with `by` added to each timestamp delta, for a batch with another base timestamp."""
    parts: list[bytes] = []
    for record in _records(records, count):
        _, at = read_varint(records, record.start)
        _, after = read_varint(records, at + 1)
        body = records[at : at + 1] + _varint(record.timestamp_delta + by) + records[after : record.end]
        parts += (_varint(len(body)), body)
    return b"".join(parts)


def _records(data: bytes, count: int) -> Iterator[_Record]:
    """Each record of a batch; CorruptBatch unless they are exactly `count`."""
    position = 0
    for _ in range(count):
        start = position
        length, position = read_varint(data, position)
        end = position + length
        if not 0 < length <= len(data) - position:
            raise CorruptBatch(f"a record claims {length} bytes, {len(data) - position} are left")
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key_length, position = read_varint(data, position)
        key = data[position : position + key_length] if key_length >= 0 else None
        position += max(0, key_length)
        if position >= end:
            raise CorruptBatch("a record's key is longer than the record")
        value_length, position = read_varint(data, position)
        if position + max(0, value_length) > end:
            raise CorruptBatch("a record's value is longer than the record")
        position = end
        yield _Record(start, end, timestamp_delta, offset_delta, key, value_length >= 0)
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_HASH_SIZE, key=_SEED).digest()


def _slot_of(table: bytearray, digest: bytes) -> int:
    """The position of a key's slot, or of the free one where it would be."""
    slots = len(table) // SLOT_SIZE
    slot = int.from_bytes(digest[:8], "little") % slots
    step = 1 + int.from_bytes(digest[8:], "little") % (slots - 1)
    while True:
        at = slot * SLOT_SIZE
        found = table[at : at + _HASH_SIZE]
        if found == digest or not any(table[at + _HASH_SIZE : at + SLOT_SIZE]):
            return at
        slot = (slot + step) % slots


def _varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(0x80 | (raw & 0x7F))
        raw >>= 7
    out.append(raw)
    return bytes(out)
