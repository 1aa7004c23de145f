"""Runs of batches as columns, in both forms of the kernel: against what was written, record by record, and against damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.batch import HEADER, HEADER_SIZE, BatchHeader, crc32c
from tests.records.batches import NOW_MS
from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load
from tests.records.kernel.test_record_layout import STRANGE, UNREADABLE, Row, one_record_batch, rows_of, write_all

FORMS = [kernel for kernel in map(load, (PLAIN, COMPILED)) if kernel is not None]
ALL = 1 << 60
batches_of = st.lists(st.tuples(rows_of, st.booleans()), min_size=1, max_size=4)


def batch(rows: list[Row], base_offset: int, attributes: int = 0) -> bytes:
    """A batch whose offsets have a gap of 3 behind it."""
    records = write_all(rows)
    length = HEADER_SIZE - 12 + len(records)
    header = BatchHeader(base_offset, length, 0, 2, 0, attributes, len(rows) + 2, 10_000, 77_777, -1, -1, -1, len(rows))
    checked = HEADER.pack(*header)[21:] + records
    return HEADER.pack(*header._replace(crc=crc32c(checked))) + records


def log(batches: list[tuple[list[Row], bool]]) -> tuple[bytes, list[tuple[Any, ...]]]:
    """The bytes, and each record as (offset, timestamp, type, key, value, headers)."""
    data, expected, offset = b"", [], 500
    for rows, by_broker in batches:
        data += batch(rows, offset, 8 if by_broker else 0)
        for number, row in enumerate(rows):
            time = 77_777 if by_broker else 10_000 + row.timestamp_delta
            expected.append((offset + number, time, int(by_broker), row.key, row.value, list(row.headers)))
        offset += len(rows) + 3
    return data, expected


def measured(kernel: Kernel, data: bytes, first_offset: int = 0, start: int = 0) -> Any:
    run = kernel.runs.Run(memoryview(data), start, first_offset)
    run.measure(True, True, ALL)
    return run


def cells(column: Any) -> list[bytes | None]:
    ends, data, valid = column.ends, column.data, column.valid
    return [
        bytes(data[ends[row] : ends[row + 1]]) if valid[row >> 3] >> (row & 7) & 1 else None
        for row in range(column.rows)
    ]


def rows_in(columns: Any) -> list[tuple[Any, ...]]:
    pairs = list(zip(cells(columns.names), cells(columns.header_values), strict=True))
    ends = columns.header_ends
    headers = [pairs[ends[row] : ends[row + 1]] for row in range(columns.rows)]
    numbers = (columns.offsets, columns.timestamps, columns.types)
    return list(zip(*numbers, cells(columns.keys), cells(columns.values), headers, strict=True))


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@given(first=batches_of, second=batches_of, skip=st.integers(-5, 60))
@settings(deadline=None)
def test_columns_are_what_was_written(kernel: Kernel, first: Any, second: Any, skip: int) -> None:
    data, expected = log(first)
    wanted = [row for row in expected if row[0] >= 500 + skip]
    run = measured(kernel, b"front" + data, 500 + skip, start=5)
    assert (run.start, run.stop, run.sizes.rows) == (5, 5 + len(data), len(wanted))
    assert run.next_offset == expected[-1][0] + 4
    more, behind = log(second)
    columns = kernel.runs.RunColumns([run, measured(kernel, more)])
    assert rows_in(columns) == wanted + behind
    assert columns.values.nulls == sum(row[4] is None for row in wanted + behind)
    assert len(columns.values.data) == run.sizes.value_bytes + sum(len(row[4] or b"") for row in behind)


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@given(rows=rows_of, place=st.integers(0, 10_000), byte=st.integers(0, 255), check=st.booleans())
@settings(deadline=None)
def test_damage_ends_the_run_or_makes_other_records_but_never_reads_beyond(
    kernel: Kernel, rows: list[Row], place: int, byte: int, check: bool
) -> None:
    whole, damaged = batch(rows, 500), bytearray(batch(rows, 900))
    damaged[place % len(damaged)] = byte
    run = kernel.runs.Run(memoryview(whole + bytes(damaged)), 0, 0)
    run.measure(check, True, ALL)
    columns = kernel.runs.RunColumns([run])
    assert run.stop >= len(whole)
    assert rows_in(columns)[: len(rows)] == log([(rows, False)])[1]
    assert columns.rows == run.sizes.rows
    if check and place % len(damaged) >= 17 and bytes(damaged) != batch(rows, 900):
        assert run.stop == len(whole)


@pytest.mark.parametrize("record", STRANGE)
def test_lengths_below_minus_1_in_an_old_log_mean_none_as_in_java(kernel: Kernel, record: bytes) -> None:
    run = measured(kernel, one_record_batch(record))
    assert rows_in(kernel.runs.RunColumns([run])) == [(0, NOW_MS, 0, None, None, [(b"", None)])]


@pytest.mark.parametrize("record", UNREADABLE)
def test_a_run_ends_before_what_java_refuses_to_read(kernel: Kernel, record: bytes) -> None:
    good = batch([Row(0, None, b"v")], 0)
    run = measured(kernel, good + one_record_batch(record))
    assert (run.stop, run.sizes.rows) == (len(good), 1)


def test_columns_of_many_records_with_all_some_or_no_cells(kernel: Kernel) -> None:
    kinds: list[list[Row]] = [
        [Row(number, None, b"v") for number in range(5000)],
        [Row(number, b"k", None) for number in range(5000)],
        [
            Row(number, b"" if number % 3 else None, b"v" * (number % 5), [(b"h", None)] * (number % 2))
            for number in range(5000)
        ],
    ]
    for rows in kinds:
        data, expected = log([(rows, False)])
        assert rows_in(kernel.runs.RunColumns([measured(kernel, data)])) == expected
    data, expected = log([(rows, number == 1) for number, rows in enumerate(kinds)])
    run = measured(kernel, data, 500 + 4000)
    assert rows_in(kernel.runs.RunColumns([run])) == expected[4000:]
    headers = [pair for row in expected[4000:] for pair in row[5]]
    assert (run.sizes.headers, run.sizes.name_bytes, run.sizes.header_bytes) == (len(headers), len(headers), 0)


def test_times_beyond_64_bits_begin_anew(kernel: Kernel) -> None:
    whole = batch([Row((1 << 63) - 1, None, b"v"), Row(0, None, b"w")], 0)
    columns = kernel.runs.RunColumns([measured(kernel, whole)])
    assert list(columns.timestamps) == [10_000 + (1 << 63) - 1 - (1 << 64), 10_000]


def test_what_is_not_plain_ends_the_run(kernel: Kernel) -> None:
    plain = batch([Row(0, b"k", b"v")], 0)
    for attributes in (1, 4, 0x20, 0x30):
        assert measured(kernel, plain + batch([Row(0, b"k", b"v")], 9, attributes)).stop == len(plain)
    run = kernel.runs.Run(memoryview(plain + batch([Row(0, b"k", b"v")], 9, 0x10)), 0, 0)
    run.measure(True, False, ALL)
    assert run.stop == len(plain)
    run.measure(True, True, ALL)
    assert run.sizes.rows == 2


def test_a_run_is_long_enough_behind_a_whole_batch(kernel: Kernel) -> None:
    one = batch([Row(0, None, b"v")] * 3, 0)
    run = kernel.runs.Run(memoryview(one * 4), 0, 0)
    run.measure(True, True, 4)
    assert (run.sizes.rows, run.stop) == (6, 2 * len(one))


@pytest.mark.parametrize("cut", [0, 1, 60, 61, -1])
def test_whole_batches_are_counted_without_what_is_cut_off(kernel: Kernel, cut: int) -> None:
    whole = batch([Row(0, None, b"value")], 7)
    assert kernel.runs.whole_batches(memoryview(whole + whole[:cut])) == (len(whole), 11)
    assert kernel.runs.whole_batches(memoryview(whole[:cut])) == (0, -1)
    assert measured(kernel, whole + whole[:cut]).stop == len(whole)
