"""Where a batch is in a segment's file, by what its header says.

Role: the few fields that finding a batch needs, out of bytes that may be anything. Thread: any. Lock: none.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC_V2

_PLACE = struct.Struct(">qi4xb6xi8xq")
"""base_offset, batch_length, magic, last_offset_delta, max_timestamp: what finding a batch needs, in 43 bytes."""
PLACE_SIZE = _PLACE.size


class CorruptLog(Exception):
    """The bytes at a position of a segment are not a batch."""


class Place(NamedTuple):
    """Where a batch is."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def place_in(data: bytes, at: int, position: int) -> Place:
    """The batch whose header is in some bytes; CorruptLog when they cannot be one."""
    place = place_or_none(data, at, position)
    if place is None:
        raise CorruptLog(f"no batch begins at {position}")
    return place


def place_or_none(data: bytes, at: int, position: int) -> Place | None:
    """The same; None when they cannot be one."""
    if len(data) - at < PLACE_SIZE:
        return None
    base_offset, length, magic, delta, max_timestamp = _PLACE.unpack_from(data, at)
    if magic != MAGIC_V2 or length < HEADER_SIZE - LENGTH_OVERHEAD or delta < 0:
        return None
    return Place(position, length + LENGTH_OVERHEAD, base_offset, base_offset + delta, max_timestamp)
