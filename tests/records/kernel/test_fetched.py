"""Records of fetched batches as objects and as columns, in both forms of the kernel, against what was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader
from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load
from tests.records.kernel.test_record_layout import Row, write_all

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
def test_records_and_columns_are_what_was_written(
    kernel: Kernel, written: list[Row], skip: int, by_broker: bool
) -> None:
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
    records = kernel.fetched.read_records(data, spans, header, "topic", 3, 500 + skip)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == expected
    assert all((r.topic, r.partition, r.timestamp_type) == ("topic", 3, int(by_broker)) for r in records)
    first = kernel.fetched.rows_before(spans, skip)
    assert first == min(skip, len(written))
    columns = kernel.fetched.Columns(*kernel.fetched.measure(spans, first))
    columns.add(data, spans, first, header)
    assert list(columns.offsets) == [row[0] for row in expected]
    assert list(columns.timestamps) == [row[1] for row in expected]
    assert cells(columns.key_valid, columns.key_ends, columns.keys) == [row[2] for row in expected]
    assert cells(columns.value_valid, columns.value_ends, columns.values) == [row[3] for row in expected]
    assert columns.key_nulls == sum(row[2] is None for row in expected)
    assert columns.rows_with_headers == sum(bool(row[4]) for row in expected)
    assert kernel.fetched.read_headers(data, spans, first) == [row[4] for row in expected]


def cells(valid: bytearray, ends: Any, data: bytearray) -> list[bytes | None]:
    return [
        bytes(data[ends[row] : ends[row + 1]]) if valid[row >> 3] >> (row & 7) & 1 else None
        for row in range(len(ends) - 1)
    ]


def test_columns_refuse_what_has_no_room(kernel: Kernel) -> None:
    data = write_all([Row(0, b"key", b"value")])
    spans = kernel.record_layout.record_spans(data, 0, 1)
    for sizes in ((0, 3, 5), (1, 2, 5), (1, 3, 4)):
        with pytest.raises(ValueError, match="do not fit"):
            kernel.fetched.Columns(*sizes).add(data, spans, 0, header_of(1))


def test_a_record_can_get_another_key_and_value(kernel: Kernel) -> None:
    data = write_all([Row(0, b"key", b"value", [(b"h", None)])])
    (record,) = kernel.fetched.read_records(
        data, kernel.record_layout.record_spans(data, 0, 1), header_of(1), "t", 0, 0
    )
    other = record.with_key_and_value(1, [2])
    assert (other.key, other.value, other.offset, other.headers) == (1, [2], 500, (("h", None),))
    assert "t-0 @ 500" in repr(record)
