"""What compaction does with the records of one batch: note the newest offset of each key, find what is newest, move timestamps.

Role: the work per record. The table of keys is one bytearray, so that millions of keys cost 24 bytes each and no Python object. `spans` are
those that `record_spans` gave for the same records.
Thread: any; a table belongs to one thread. Loops over records let go of the GIL when compiled. Lock: none.

    slot of the table, 24 bytes      16  hash of the key, with a secret seed: nobody can choose keys that collide
                                      8  offset + 1, big-endian; 0: the slot is free

The number of slots is a prime. A key looks at the slot that its hash names, then in steps that its hash names too, until it finds
itself or a free slot; there must always be a free one.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import NamedTuple

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.siphash import hash_key
    from cython.cimports.barnabas.records.kernel.wire import (
        int64_at,
        put_bytes,
        put_int64,
        put_varint,
        varint_at,
        varint_size,
    )
else:
    from barnabas.records.kernel.wire import int64_at, put_bytes, put_int64, put_varint, varint_at, varint_size

    def hash_key(seed: bytes, data: bytes, start: int, length: int, target: bytearray) -> None:
        """The plain form of siphash.pxd, with the hash that is fastest here."""
        target[:] = hashlib.blake2b(data[start : start + length], digest_size=16, key=seed).digest()


SLOT_SIZE = 24
SEED_SIZE = 16
_SLOT = cython.declare(cython.Py_ssize_t, 24)
_OFFSET = cython.declare(cython.Py_ssize_t, 16)
_FIELDS = cython.declare(cython.Py_ssize_t, 7)
_POSITIVE = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_LOWEST = cython.declare(cython.longlong, -0x7FFF_FFFF_FFFF_FFFF)
_GROWS = 20
"""The most bytes by which a record can grow when its timestamp moves."""


class Kept(NamedTuple):
    """Which records of a batch stay: a byte for each, not 0 for those that do."""

    keep: bytes
    left: int
    tombstones: bool
    """Whether one of them has no value."""
    max_timestamp_delta: int
    """Of those that stay."""
    without_key: int
    """How many go because they have no key."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _slot_of(table: cython.p_uchar, slots: cython.longlong, digest: cython.p_uchar) -> cython.Py_ssize_t:
    """The position of a key's slot, or of the free one where it would be."""
    first: cython.longlong = int64_at(digest, 0)
    second: cython.longlong = int64_at(digest, 8)
    slot: cython.longlong = (first & _POSITIVE) % slots
    step: cython.longlong = 1 + (second & _POSITIVE) % (slots - 1)
    at: cython.Py_ssize_t = slot * _SLOT
    while int64_at(table, at + _OFFSET) != 0 and (int64_at(table, at) != first or int64_at(table, at + 8) != second):
        slot = (slot + step) % slots
        at = slot * _SLOT
    return at


def note_keys(
    table: bytearray, seed: bytes, room: cython.longlong, records: bytes, spans: array[int], offsets: tuple[int, int]
) -> tuple[int, int]:
    """Note the offset of each record that has a key and is not before the first dirty offset. `offsets` are the batch's base offset
    and that one. How many keys were new, and -1, or the offset of the first record for whose new key there was no more room."""
    count: cython.Py_ssize_t = _checked(table, seed, records, spans)
    places: cython.longlong[::1] = spans
    scratch = bytearray(16)
    digest: cython.p_uchar = scratch
    slots: cython.p_uchar = table
    slot_count: cython.longlong = len(table) // SLOT_SIZE
    secret: cython.p_const_uchar = seed
    data: cython.p_const_uchar = records
    base: cython.longlong = offsets[0]
    first: cython.longlong = offsets[1]
    new: cython.longlong = 0
    missed: cython.longlong = -1
    number: cython.Py_ssize_t = 0
    offset: cython.longlong
    at: cython.Py_ssize_t
    with cython.nogil:
        while number < count:
            offset = base + places[number * _FIELDS + 2]
            if places[number * _FIELDS + 5] >= 0 and offset >= first:
                hash_key(secret, data, places[number * _FIELDS + 4], places[number * _FIELDS + 5], digest)
                at = _slot_of(slots, slot_count, digest)
                if int64_at(slots, at + _OFFSET) == 0:
                    if new == room:
                        missed = offset
                        break
                    new += 1
                    put_bytes(slots, at, digest, 0, 16)
                put_int64(slots, at + _OFFSET, offset + 1)
            number += 1
    return new, missed


def newest_records(
    table: bytearray,
    seed: bytes,
    records: bytes,
    spans: array[int],
    offsets: tuple[int, int],
    keep_tombstones: cython.bint,
) -> Kept:
    """The records that stay: those after the last offset that was noted, and those before it that are the newest of their key.
    `offsets` are the batch's base offset and the last one noted."""
    count: cython.Py_ssize_t = _checked(table, seed, records, spans)
    places: cython.longlong[::1] = spans
    scratch = bytearray(16)
    digest: cython.p_uchar = scratch
    slots: cython.p_uchar = table
    slot_count: cython.longlong = len(table) // SLOT_SIZE
    secret: cython.p_const_uchar = seed
    data: cython.p_const_uchar = records
    flags = bytearray(count)
    keep: cython.p_uchar = flags
    base: cython.longlong = offsets[0]
    noted: cython.longlong = offsets[1]
    left: cython.Py_ssize_t = 0
    tombstones: cython.bint = False
    without_key: cython.Py_ssize_t = 0
    largest: cython.longlong = _LOWEST
    number: cython.Py_ssize_t
    offset: cython.longlong
    at: cython.Py_ssize_t
    with cython.nogil:
        for number in range(count):
            offset = base + places[number * _FIELDS + 2]
            if offset <= noted:
                if places[number * _FIELDS + 5] < 0:
                    without_key += 1
                    continue
                if places[number * _FIELDS + 6] < 0 and not keep_tombstones:
                    continue
                hash_key(secret, data, places[number * _FIELDS + 4], places[number * _FIELDS + 5], digest)
                at = _slot_of(slots, slot_count, digest)
                if int64_at(slots, at + _OFFSET) - 1 > offset:
                    continue
            keep[number] = 1
            left += 1
            if places[number * _FIELDS + 6] < 0:
                tombstones = True
            if places[number * _FIELDS + 3] > largest:
                largest = places[number * _FIELDS + 3]
    return Kept(bytes(flags), left, bool(tombstones), largest, without_key)


def offset_of(table: bytearray, seed: bytes, key: bytes) -> int:
    """The newest offset of a key, or -1."""
    scratch = bytearray(16)
    hash_key(seed, key, 0, len(key), scratch)
    at: cython.Py_ssize_t = _slot_of(table, len(table) // SLOT_SIZE, scratch)
    return int64_at(table, at + _OFFSET) - 1


def move_timestamps(records: bytes, spans: array[int], by: cython.longlong) -> bytes:
    """The same records with `by` added to each timestamp delta, for a batch with another base timestamp."""
    count: cython.Py_ssize_t = len(spans) // _FIELDS
    places: cython.longlong[::1] = spans
    moved = bytearray(len(records) + _GROWS * count)
    target: cython.p_uchar = moved
    data: cython.p_const_uchar = records
    limit: cython.Py_ssize_t = len(records)
    size: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    body: cython.Py_ssize_t
    after: cython.Py_ssize_t
    delta: cython.longlong
    end: cython.Py_ssize_t
    for number in range(count):
        end = places[number * _FIELDS + 1]
        if not 0 <= places[number * _FIELDS] < end <= limit:
            raise ValueError(f"the span of record {number} is not in the data")
        _, body = varint_at(data, places[number * _FIELDS], end)
        delta, after = varint_at(data, body + 1, end)
        if body < 0 or after < 0:
            raise ValueError(f"the span of record {number} is not that of a record")
        delta += by
        size = put_varint(target, size, 1 + varint_size(delta) + end - after)
        put_bytes(target, size, data, body, 1)
        size = put_varint(target, size + 1, delta)
        put_bytes(target, size, data, after, end - after)
        size += end - after
    return bytes(memoryview(moved)[:size])


def _checked(table: bytearray, seed: bytes, records: bytes, spans: array[int]) -> int:
    """How many records there are; ValueError when what was given does not fit together."""
    if len(seed) != SEED_SIZE or len(table) < 2 * SLOT_SIZE or len(table) % SLOT_SIZE or len(spans) % _FIELDS:
        raise ValueError(
            f"a table of {len(table)} bytes, a seed of {len(seed)} and {len(spans)} numbers are not what is wanted"
        )
    places: cython.longlong[::1] = spans
    limit: cython.Py_ssize_t = len(records)
    count: cython.Py_ssize_t = len(spans) // _FIELDS
    number: cython.Py_ssize_t
    for number in range(count):
        start: cython.longlong = places[number * _FIELDS + 4]
        length: cython.longlong = places[number * _FIELDS + 5]
        if not 0 <= start <= limit or length > limit - start:
            raise ValueError(f"the key of record {number} is not in the data")
    return count
