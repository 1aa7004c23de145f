"""Building batches, with both forms of the kernel, read back by somebody else's reader (PP-10)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.records.batch import parse_header
from tests.producer.reading import read_batch
from tests.records.kernel.forms import Kernel

SIZE = 1 << 16
PARTS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(0, 2**41), PARTS, PARTS, HEADERS), min_size=1, max_size=20)
both_forms = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def fields(records: list[Any]) -> list[tuple[object, ...]]:
    return [(r.timestamp, r.key, r.value, list(r.headers), r.offset) for r in records]


def sealed(builder: Any, attributes: int = 0) -> Any:
    builder.close_for_appends()
    builder.write_header(attributes, 7, 3, 11)
    return builder.view


def column(array: pa.Array) -> tuple[Any, ...]:
    valid, offsets, data = array.buffers()
    return offsets, data, valid, array.offset


class TestRecords:
    @given(records=RECORDS)
    @both_forms
    def test_what_goes_in_comes_out(self, kernel: Kernel, records: list[Any]) -> None:
        """PP-10: format v2, with headers, nulls, and times that go back."""
        builder = kernel.builder.BatchBuilder(bytearray(SIZE), SIZE)
        for number, (timestamp, key, value, headers) in enumerate(records):
            encoded = kernel.builder.encode_headers(headers) if headers else None
            assert builder.append(timestamp, key, value, encoded) == number
        found = fields(read_batch(sealed(builder)))
        assert found == [(*record, number) for number, record in enumerate(records)]

    def test_the_header_is_written_in_place(self, kernel: Kernel) -> None:
        """PP-10: crc32c included, the records are not copied; a second time with other numbers."""
        memory = bytearray(SIZE)
        builder = kernel.builder.BatchBuilder(memory, SIZE)
        builder.append(10, b"k", b"v")
        builder.append(5, None, None)
        before = bytes(memory[61 : builder.size])
        for producer_id, sequence in ((7, 11), (8, 0)):
            builder.close_for_appends()
            builder.write_header(0, producer_id, 3, sequence)
            header = parse_header(builder.view)
            assert header[5:] == (0, 1, 10, 10, producer_id, 3, sequence, 2)
            assert (header.size, header.base_offset, header.partition_leader_epoch) == (builder.size, 0, -1)
            assert bytes(memory[61 : builder.size]) == before
            read_batch(builder.view)

    def test_nothing_is_written_beyond_the_limit(self, kernel: Kernel) -> None:
        memory = bytearray(200)
        builder = kernel.builder.BatchBuilder(memory, 120)
        assert builder.append(0, None, b"x" * 40) == 0
        assert builder.append(0, None, b"x" * 40) == -1
        assert not any(memory[120:])
        assert builder.append(0, None, b"x") == 1
        builder.close_for_appends()
        assert builder.append(0, None, b"") == -1

    @pytest.mark.parametrize("limit", [61, 201, -1])
    def test_an_impossible_limit_is_refused(self, kernel: Kernel, limit: int) -> None:
        with pytest.raises(ValueError, match="a batch needs more than 61"):
            kernel.builder.BatchBuilder(bytearray(200), limit)

    @pytest.mark.parametrize(
        ("key", "value", "headers"), [(None, b"", None), (b"k" * 300, b"v" * 70_000, b"\x02\x02a\x01")]
    )
    def test_the_bound_of_a_record_is_enough(
        self, kernel: Kernel, key: bytes | None, value: bytes, headers: bytes | None
    ) -> None:
        """PP-7: a record larger than `batch.size` gets a batch of its own."""
        size = kernel.builder.record_size_bound(key, value, headers)
        builder = kernel.builder.BatchBuilder(bytearray(size), size)
        assert builder.append(2**62, key, value, headers) == 0

    def test_records_can_be_replaced_by_fewer_bytes(self, kernel: Kernel) -> None:
        builder = kernel.builder.BatchBuilder(bytearray(SIZE), SIZE)
        builder.append(0, None, b"x" * 100)
        with pytest.raises(ValueError, match="closed batch"):
            builder.replace_records(b"short")
        builder.close_for_appends()
        with pytest.raises(ValueError, match="fewer bytes"):
            builder.replace_records(b"y" * 1000)
        builder.replace_records(b"short")
        assert (bytes(builder.view[61:]), builder.size) == (b"short", 66)


class TestRows:
    @given(
        rows=st.lists(st.tuples(PARTS, PARTS, st.integers(0, 2**41)), min_size=1, max_size=30),
        cut=st.integers(0, 29),
    )
    @both_forms
    def test_arrow_columns_come_out_as_records(self, kernel: Kernel, rows: list[Any], cut: int) -> None:
        """Slices, nulls and empty values included."""
        values, keys, times = (list(items) for items in zip(*rows, strict=True))
        cut = min(cut, len(rows) - 1)
        value_array = pa.array(values, pa.large_binary())[cut:]
        key_array = pa.array(keys, pa.large_binary())[cut:]
        time_array = pa.array(times, pa.int64())[cut:]
        source = kernel.builder.RowSource(
            column(value_array), column(key_array), None, (time_array.buffers()[1], time_array.offset)
        )
        builder = kernel.builder.BatchBuilder(bytearray(SIZE), SIZE)
        assert builder.append_rows(source, 0, len(rows) - cut, 0) == len(rows) - cut
        found = [(r.value, r.key, r.timestamp) for r in read_batch(sealed(builder))]
        assert found == rows[cut:]

    def test_rows_fill_one_batch_after_the_other(self, kernel: Kernel) -> None:
        array = pa.array([b"%03d" % number * 10 for number in range(100)], pa.large_binary())
        source = kernel.builder.RowSource(column(array))
        found: list[bytes] = []
        start = 0
        while start < 100:
            builder = kernel.builder.BatchBuilder(bytearray(500), 500)
            written = builder.append_rows(source, start, 100, 77)
            assert 0 < written < 20
            start += written
            found += [r.value for r in read_batch(sealed(builder))]
        assert found == array.to_pylist()

    def test_listed_rows_only(self, kernel: Kernel) -> None:
        array = pa.array([b"%d" % number for number in range(10)], pa.large_binary())
        rows = bytearray(memoryview(pa.array([1, 4, 9], pa.int32()).buffers()[1])[:12])
        builder = kernel.builder.BatchBuilder(bytearray(500), 500)
        builder.append_rows(kernel.builder.RowSource(column(array)), 1, 3, 5, rows)
        assert [(r.value, r.timestamp) for r in read_batch(sealed(builder))] == [(b"4", 5), (b"9", 5)]

    @given(keys=st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=50), count=st.integers(1, 7))
    @both_forms
    def test_rows_are_grouped_by_the_partition_of_their_key(self, kernel: Kernel, keys: list[Any], count: int) -> None:
        """PP-12: the same partition as for a single record; the order within a partition stays."""
        array = pa.array(keys, pa.large_binary())
        source = kernel.builder.RowSource(column(array), column(array))
        partitions = source.partitions(0, len(keys), count)
        wanted = [-1 if key is None else (kernel.builder.murmur2(key) & 0x7FFF_FFFF) % count for key in keys]
        assert list(memoryview(partitions).cast("i")) == wanted
        rows, starts = kernel.builder.group_rows(partitions, count + 1)
        numbers = list(memoryview(rows).cast("i"))
        groups = [numbers[a:b] for a, b in itertools.pairwise(starts)]
        in_order = [*range(count), -1]
        assert groups == [[n for n, p in enumerate(wanted) if p == partition] for partition in in_order]

    def test_the_bound_of_rows_is_enough(self, kernel: Kernel) -> None:
        array = pa.array([b"", b"x" * 5000, None], pa.large_binary())
        source = kernel.builder.RowSource(column(array), column(array))
        size = source.size_bound(0, 3)
        builder = kernel.builder.BatchBuilder(bytearray(size), size)
        assert builder.append_rows(source, 1, 2, 2**50) == 1
