"""Integers, varints and text of the record format: the plain form. The compiled form of the same functions is wire.pxd.

Role: the one place of the kernel that knows how numbers and names are written. Callers have checked that the bytes are there.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

import struct

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_LOW_64 = 0xFFFF_FFFF_FFFF_FFFF
_MAX_SHIFT = 70


def int64_at(data: bytes, at: int) -> int:
    value: int = _INT64.unpack_from(data, at)[0]
    return value


def int32_at(data: bytes, at: int) -> int:
    value: int = _INT32.unpack_from(data, at)[0]
    return value


def int16_at(data: bytes, at: int) -> int:
    value: int = _INT16.unpack_from(data, at)[0]
    return value


def put_int64(target: bytearray, at: int, value: int) -> None:
    _INT64.pack_into(target, at, value)


def put_int32(target: bytearray, at: int, value: int) -> None:
    _INT32.pack_into(target, at, value)


def put_int16(target: bytearray, at: int, value: int) -> None:
    _INT16.pack_into(target, at, value)


def put_bytes(target: bytearray, at: int, data: bytes, start: int, length: int) -> None:
    target[at : at + length] = data[start : start + length]


def varint_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(value, position after it); the position is -1 when the varint is cut off or longer than ten bytes."""
    if at + 1 < end:  # nearly all have one or two bytes
        raw = data[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        byte = data[at + 1]
        if byte < 0x80:
            raw = (raw & 0x7F) | (byte << 7)
            return (raw >> 1) ^ -(raw & 1), at + 2
    raw = shift = 0
    while at < end and shift < _MAX_SHIFT:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _LOW_64  # as the compiled form: what a tenth byte says beyond 64 bits is lost
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, -1


def is_utf8(data: bytes, at: int, end: int) -> bool:
    """Whether `data[at:end]` is text in UTF-8."""
    try:
        str(data[at:end], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def put_varint(target: bytearray, at: int, value: int) -> int:
    """Write a zig-zag varint, at most ten bytes; the position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        target[at] = 0x80 | (raw & 0x7F)
        raw >>= 7
        at += 1
    target[at] = raw
    return at + 1


def varint_size(value: int) -> int:
    """How many bytes `put_varint` writes."""
    return max(1, (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7)
