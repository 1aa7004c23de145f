"""What the builder does with memory that is not in the record format: Arrow's buffers, and numbers in the machine's own order.

Role: the plain form; the compiled form of the same functions is builder_memory.pxd. Callers have checked that the bytes are there.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import google_crc32c

_NATIVE_INT32 = struct.Struct("=i")
_UNSIGNED32 = struct.Struct(">I")


class Column(NamedTuple):
    """A large_binary array from its first row on."""

    offsets: memoryview
    data: bytes | memoryview
    valid: memoryview | None
    first: int


def column(buffers: tuple[Any, Any, Any, int]) -> Column:
    offsets, data, valid, first = buffers
    return Column(
        memoryview(offsets).cast("B").cast("q")[first:],
        b"" if data is None else memoryview(data).cast("B"),
        None if valid is None else memoryview(valid).cast("B"),
        first,
    )


def int64_memory(buffer: Any, first: int) -> memoryview:
    return memoryview(buffer).cast("B").cast("q")[first:]


def span_length(column: Column, row: int) -> int:
    """The length of a value, -1 when it is null."""
    bit = column.first + row
    if column.valid is not None and not (column.valid[bit >> 3] >> (bit & 7)) & 1:
        return -1
    return column.offsets[row + 1] - column.offsets[row]


def span_start(column: Column, row: int) -> int:
    return column.offsets[row]


def span_data(column: Column) -> Any:
    return column.data


def native_int32_at(data: bytes, at: int) -> int:
    value: int = _NATIVE_INT32.unpack_from(data, at)[0]
    return value


def put_native_int32(target: bytearray, at: int, value: int) -> None:
    _NATIVE_INT32.pack_into(target, at, value)


def put_unsigned32(target: bytearray, at: int, value: int) -> None:
    _UNSIGNED32.pack_into(target, at, value)


def checksum_of(data: bytearray, start: int, end: int) -> int:
    """The CRC-32C of a part; google_crc32c takes nothing but `bytes`, so here the part is copied."""
    return int(google_crc32c.value(bytes(memoryview(data)[start:end])))
