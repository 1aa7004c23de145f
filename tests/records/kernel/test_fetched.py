"""Records of fetched batches as objects, in both forms of the kernel, against what was written."""

from __future__ import annotations

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
    records = kernel.fetched.read_records(data, spans, header, "topic", 3, 500 + skip)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == expected
    assert all((r.topic, r.partition, r.timestamp_type) == ("topic", 3, int(by_broker)) for r in records)


def test_a_record_can_get_another_key_and_value(kernel: Kernel) -> None:
    data = write_all([Row(0, b"key", b"value", [(b"h", None)])])
    (record,) = kernel.fetched.read_records(
        data, kernel.record_layout.record_spans(data, 0, 1), header_of(1), "t", 0, 0
    )
    other = record.with_key_and_value(1, [2])
    assert (other.key, other.value, other.offset, other.headers) == (1, [2], 500, (("h", None),))
    assert "t-0 @ 500" in repr(record)
