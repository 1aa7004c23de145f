"""The batch header, iteration and the checksum."""

from __future__ import annotations

import contextlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    CorruptBatch,
    add_to_sequence,
    check_crc,
    iterate_batches,
    parse_header,
)
from tests.records.batches import NOW_MS, Batch, batch


def _foreign_batch() -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for number in range(3):
        builder.append(number, timestamp=NOW_MS + number, key=b"k", value=b"v" * number, headers=[])
    return bytes(builder.build())


def test_the_header_struct_has_the_size_of_the_drawing() -> None:
    assert HEADER.size == HEADER_SIZE


def test_a_batch_of_another_implementation_is_read() -> None:
    data = _foreign_batch()
    header = parse_header(data)
    assert check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 11, 13)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (NOW_MS, NOW_MS + 2, 3)
    assert (header.size, header.last_offset, header.next_offset) == (len(data), 2, 3)


def test_iteration_gives_each_whole_batch_and_stops_at_a_cut_one() -> None:
    data = bytes(batch(1)) + bytes(batch(2)) + bytes(batch(3))
    assert [header.record_count for header, _ in iterate_batches(data)] == [1, 2, 3]
    assert [header.record_count for header, _ in iterate_batches(data[:-1])] == [1, 2]


def test_iteration_refuses_a_wrong_checksum_unless_told_not_to_look() -> None:
    data = Batch([b"x"], changes={"crc": 1}).build()
    with pytest.raises(CorruptBatch, match="checksum"):
        list(iterate_batches(data))
    assert len(list(iterate_batches(data, verify=False))) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"magic": 1}, "magic"), ({"batch_length": 48}, "too small"), ({"last_offset_delta": -1}, "impossible")],
)
def test_a_header_that_cannot_be_is_corrupt(changes: dict[str, int], words: str) -> None:
    with pytest.raises(CorruptBatch, match=words):
        parse_header(Batch([b"x"], changes=changes).build())


def test_too_few_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="at least 61"):
        parse_header(b"\0" * 60)


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_but_corrupt_batch(data: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        list(iterate_batches(data))


def test_sequence_numbers_go_round() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 3) == 1
