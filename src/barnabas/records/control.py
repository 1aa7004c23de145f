"""Control records: the marker that ends a transaction.

Role: the only place that knows their layout. The broker reads them on append and in recovery, consumers never show them.
Thread: any; pure functions. Lock: none.

A control batch has one record. Its key says what it is, its value who wrote it, both big-endian:

    key    int16 version = 0, int16 type: 0 abort, 1 commit
    value  int16 version = 0, int32 coordinator_epoch
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.records.batch import BatchHeader, CorruptBatch
from barnabas.records.compression import decompress
from barnabas.records.reader import read_varint

ABORT, COMMIT = 0, 1
MARKER_KEY = struct.Struct(">hh")
MARKER_VALUE = struct.Struct(">hi")
_LARGEST_MARKER = 64 * 1024


class EndMarker(NamedTuple):
    """The end of a transaction, as its coordinator decided it."""

    commit: bool
    coordinator_epoch: int


def parse_end_marker(header: BatchHeader, records: bytes) -> EndMarker | None:
    """The marker in a control batch, given what follows its header; None when compaction has removed it; CorruptBatch for others."""
    if header.record_count == 0:
        return None
    data = decompress(header.codec, records, _LARGEST_MARKER)
    _, position = read_varint(data, 0)
    _, position = read_varint(data, position + 1)  # after the attributes: the timestamp's delta
    _, position = read_varint(data, position)
    key, position = _field(data, position, MARKER_KEY.size, "key")
    value, _ = _field(data, position, MARKER_VALUE.size, "value")
    version, kind = MARKER_KEY.unpack_from(key)
    if version < 0 or kind not in (ABORT, COMMIT):
        raise CorruptBatch(f"a control record of version {version} and type {kind} does not end a transaction")
    return EndMarker(kind == COMMIT, MARKER_VALUE.unpack_from(value)[1])


def _field(data: bytes, position: int, at_least: int, name: str) -> tuple[bytes, int]:
    """Later versions may be longer."""
    length, position = read_varint(data, position)
    if not at_least <= length <= len(data) - position:
        raise CorruptBatch(f"the {name} of a control record claims {length} bytes, {len(data) - position} are left")
    return data[position : position + length], position + length
