"""Records of fetched batches as objects, in both forms of the kernel, against what was written."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader, CorruptBatch
from tests.records.batches import varint
from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load
from tests.records.kernel.test_record_layout import STRANGE, UNREADABLE, Row, write_all

FORMS = [kernel for kernel in map(load, (PLAIN, COMPILED)) if kernel is not None]
content = st.none() | st.binary(max_size=40)
header_rows = st.lists(st.tuples(st.text(max_size=5).map(str.encode), content), max_size=3)
rows = st.lists(st.builds(Row, st.integers(-1000, 1000), content, content, header_rows), min_size=1, max_size=20)


def header_of(count: int, log_append_time: bool = False) -> BatchHeader:
    attributes = 8 if log_append_time else 0
    return BatchHeader(500, 0, 0, 2, 0, attributes, count - 1, 10_000, 77_777, -1, -1, -1, count)


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@given(written=rows, skip=st.integers(0, 20), by_broker=st.booleans())
@settings(deadline=None)
def test_records_are_what_was_written(kernel: Kernel, written: list[Row], skip: int, by_broker: bool) -> None:
    data = b"front" + write_all(written)
    spans = kernel.record_layout.record_spans(data, 5, len(written))
    header = header_of(len(written), by_broker)
    expected = [
        (
            500 + number,
            77_777 if by_broker else 10_000 + row.timestamp_delta,
            row.key,
            row.value,
            tuple((name.decode(), value) for name, value in row.headers),
        )
        for number, row in enumerate(written)
    ][skip:]
    for records in (
        kernel.fetched.read_records(data, spans, header, "topic", 3, 500 + skip),
        kernel.fetched.batch_records(data, 5, header, "topic", 3, 500 + skip),
    ):
        assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == expected
        assert all((r.topic, r.partition, r.timestamp_type) == ("topic", 3, int(by_broker)) for r in records)


def test_a_batch_of_many_records_with_numbers_of_every_length(kernel: Kernel) -> None:
    sizes = (0, 63, 64, 8191, 8192)
    written = [Row(1 << number % 63, b"k" * (number % 90), None) for number in range(9000)]
    written += [Row(-(1 << 40), None, b"v" * size, [(b"n" * size, b"w" * size)]) for size in sizes]
    header = header_of(len(written))
    records = kernel.fetched.batch_records(write_all(written), 0, header, "t", 0, 0)
    assert [r.offset for r in records] == list(range(500, 500 + len(written)))
    assert [Row(r.timestamp - 10_000, r.key, r.value, [(n.encode(), v) for n, v in r.headers]) for r in records] == [
        row._replace(headers=list(row.headers)) for row in written
    ]


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@given(
    written=rows,
    changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=3),
    more=st.integers(-1, 1),
)
@settings(deadline=None)
def test_damage_is_what_the_strict_reading_says(kernel: Kernel, written: list[Row], changes: Any, more: int) -> None:
    """The short ways accept what it accepts, and leave it to say what is wrong."""
    data = bytearray(write_all(written))
    for place, byte in changes:
        data[place % len(data)] = byte
    header = header_of(len(written) + more)

    def read(strictly: bool) -> list[tuple[Any, ...]] | str:
        try:
            if not strictly:
                records = kernel.fetched.batch_records(bytes(data), 0, header, "t", 0, 0)
            else:
                spans = kernel.record_layout.record_spans(bytes(data), 0, header.record_count)
                records = kernel.fetched.read_records(bytes(data), spans, header, "t", 0, 0)
        except CorruptBatch as error:
            return str(error)
        return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]

    assert read(strictly=False) == read(strictly=True)


def test_lengths_that_lie_are_refused_before_bytes_are_copied(kernel: Kernel) -> None:
    """Each of 40 000 records says that its value goes on to the end of the batch, or far beyond it."""
    for length in (30_000_000, 1 << 62):
        body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(length) + b"\0" * 700
        tracemalloc.start()
        try:
            with pytest.raises(CorruptBatch, match="does not fit"):
                kernel.fetched.batch_records((varint(len(body)) + body) * 40_000, 0, header_of(40_000), "t", 0, 0)
            assert tracemalloc.get_traced_memory()[1] < 60_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("data", STRANGE)
def test_lengths_below_minus_1_in_an_old_log_mean_none_as_in_java(kernel: Kernel, data: bytes) -> None:
    (record,) = kernel.fetched.batch_records(data, 0, header_of(1), "t", 0, 0)
    assert (record.key, record.value, record.headers) == (None, None, (("", None),))


@pytest.mark.parametrize("data", UNREADABLE)
def test_what_java_refuses_to_read_is_an_error_and_not_a_loop(kernel: Kernel, data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="does not fit"):
        kernel.fetched.batch_records(data, 0, header_of(1), "t", 0, 0)


def test_a_record_can_get_another_key_and_value(kernel: Kernel) -> None:
    data = write_all([Row(0, b"key", b"value", [(b"h", None)])])
    (record,) = kernel.fetched.read_records(
        data, kernel.record_layout.record_spans(data, 0, 1), header_of(1), "t", 0, 0
    )
    other = record.with_key_and_value(1, [2])
    assert (other.key, other.value, other.offset, other.headers) == (1, [2], 500, (("h", None),))
    assert "t-0 @ 500" in repr(record)
