"""Numbers of the record format, plain form; the compiled form is compared through the functions that use it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.kernel import wire
from tests.records.batches import varint

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(value=INT64, before=st.binary(max_size=3))
def test_varints_are_written_and_read_as_the_format_says(value: int, before: bytes) -> None:
    expected = varint(value)
    target = bytearray(before + b"\xee" * 12)
    after = wire.put_varint(target, len(before), value)
    assert bytes(target) == before + expected + b"\xee" * (12 - len(expected))
    assert after == len(before) + len(expected)
    assert wire.varint_size(value) == len(expected)
    assert wire.varint_at(bytes(target), len(before), len(target)) == (value, after)


@given(value=INT64)
def test_a_varint_that_is_cut_off_has_no_end(value: int) -> None:
    data = varint(value)
    for end in range(len(data)):
        assert wire.varint_at(data, 0, end) == (0, -1)


def test_a_varint_longer_than_ten_bytes_has_no_end() -> None:
    assert wire.varint_at(b"\xff" * 20, 0, 20) == (0, -1)
    assert wire.varint_at(b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)


@pytest.mark.parametrize(
    ("read", "write", "layout", "bits"),
    [
        (wire.int64_at, wire.put_int64, ">q", 64),
        (wire.int32_at, wire.put_int32, ">i", 32),
        (wire.int16_at, wire.put_int16, ">h", 16),
    ],
)
@given(data=st.data())
def test_integers_are_big_endian(read: object, write: object, layout: str, bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    target = bytearray(12)
    write(target, 3, value)  # type: ignore[operator]
    assert target == b"\0" * 3 + struct.pack(layout, value) + b"\0" * (9 - bits // 8)
    assert read(bytes(target), 3) == value  # type: ignore[operator]
