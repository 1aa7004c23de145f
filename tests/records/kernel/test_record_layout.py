"""Records of a batch: checked, listed, copied; against a plain reading of the format, kafka-python and damaged bytes."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.records.batch import CorruptBatch, crc32c
from tests.records.batches import NOW_MS, varint
from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load


class Row(NamedTuple):
    """A record, as a test writes it."""

    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def write(row: Row, offset_delta: int) -> bytes:
    body = b"\0" + varint(row.timestamp_delta) + varint(offset_delta) + field(row.key) + field(row.value)
    body += varint(len(row.headers)) + b"".join(field(name) + field(value) for name, value in row.headers)
    return varint(len(body)) + body


def write_all(rows: Sequence[Row]) -> bytes:
    return b"".join(write(row, number) for number, row in enumerate(rows))


optional = st.none() | st.binary(max_size=150)
rows_of = st.lists(
    st.builds(
        Row,
        st.integers(-(2**40), 2**40),
        optional,
        optional,
        st.lists(st.tuples(st.text(max_size=7).map(str.encode), optional), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
A, B, C = Row(5, b"k", b"v"), Row(9, None, b"w"), Row(9, b"", None, [(b"h", None), (b"", b"x")])


@given(rows=rows_of, before=st.binary(max_size=5))
def test_the_facts_of_records_are_found(kernel: Kernel, rows: list[Row], before: bytes) -> None:
    times = [row.timestamp_delta for row in rows]
    keyless = [number for number, row in enumerate(rows) if row.key is None]
    facts = kernel.record_layout.check_records(before + write_all(rows), len(before), len(rows))
    assert facts == (min(times), max(times), times.index(max(times)), keyless[0] if keyless else -1)


@given(rows=rows_of, before=st.binary(max_size=5), gaps=st.lists(st.integers(1, 1000), min_size=20, max_size=20))
def test_spans_say_where_keys_and_values_are(kernel: Kernel, rows: list[Row], before: bytes, gaps: list[int]) -> None:
    deltas = [sum(gaps[:number]) for number in range(len(rows))]
    data = before + b"".join(write(row, delta) for row, delta in zip(rows, deltas, strict=True))
    spans = kernel.record_layout.record_spans(data, len(before), len(rows))
    fields = kernel.record_layout.SPAN_FIELDS
    end = len(before)
    for number, (row, delta) in enumerate(zip(rows, deltas, strict=True)):
        span = kernel.record_layout.RecordSpan(*spans[number * fields : (number + 1) * fields])
        assert (span.start, span.offset_delta, span.timestamp_delta) == (end, delta, row.timestamp_delta)
        assert data[span.start : span.end] == write(row, delta)
        assert (None if span.key_length < 0 else data[span.key_start : span.key_start + span.key_length]) == row.key
        assert span.value_length == (-1 if row.value is None else len(row.value))
        end = span.end
    assert end == len(data)


@given(rows=rows_of, data=st.data())
def test_selected_records_are_copied_as_they_are(kernel: Kernel, rows: list[Row], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    plain = write_all(rows)
    spans = kernel.record_layout.record_spans(plain, 0, len(rows))
    expected = b"".join(write(row, number) for number, row in enumerate(rows) if keep[number])
    assert kernel.record_layout.select_records(plain, spans, bytes(keep)) == expected


def test_selecting_refuses_spans_of_something_else(kernel: Kernel) -> None:
    plain = write_all([A, B])
    spans = kernel.record_layout.record_spans(plain, 0, 2)
    with pytest.raises(ValueError, match="not the spans of 3"):
        kernel.record_layout.select_records(plain, spans, b"\1\1\1")
    with pytest.raises(ValueError, match="record 1 is not in the data"):
        kernel.record_layout.select_records(plain[:-1], spans, b"\1\1")
    spans[0] = -1
    with pytest.raises(ValueError, match="record 0 is not in the data"):
        kernel.record_layout.select_records(plain, spans, b"\1\1")


def too_long(row: Row) -> bytes:
    whole = write(row, 0)
    return varint(len(whole)) + whole[1:] + b"\0"


@pytest.mark.parametrize(
    ("data", "count", "kind", "words"),
    [
        (write_all([A, B]), 1, "BAD_COUNT", "record 1: bytes follow the last"),
        (write_all([A, B]), 3, "BAD_COUNT", "record 2: it is missing"),
        (b"", 1, "BAD_COUNT", "record 0: it is missing"),
        (write_all([A]), 2**31 - 1, "BAD_COUNT", "it is missing"),
        (write_all([A]), -1, "BAD_COUNT", "it is missing"),
        (write_all([A])[:-1], 1, "BAD_RECORD", "record 0: its length"),
        (varint(-5) + write_all([A])[1:], 1, "BAD_RECORD", "record 0: its length"),
        (varint(2**40) + write_all([A])[1:], 1, "BAD_RECORD", "record 0: its length"),
        (b"\xff" * 11 + write_all([A]), 1, "BAD_RECORD", "record 0: its length"),
        (too_long(A), 1, "BAD_RECORD", "record 0: bytes follow its last header"),
        (write(A, 0) + write(B, 0), 2, "BAD_OFFSETS", "record 1: its offset"),
        (write(A, 1) + write(B, 0), 2, "BAD_OFFSETS", "its offset"),
        (write(A, 0) + write(B, 2**40), 2, "BAD_RECORD", "record 1: it is cut off or has a field"),
        (varint(7) + b"\0" + b"\0\0" + varint(50) + b"\0\0\0", 1, "BAD_RECORD", "a field that does not fit"),
        (varint(6) + b"\0" + b"\0\0" + varint(-1) + varint(9) + b"\0", 1, "BAD_RECORD", "a field that does not fit"),
        (varint(6) + b"\0" + b"\0\0" + b"\1\1" + varint(-2), 1, "BAD_RECORD", "a field that does not fit"),
        (varint(6) + b"\0" + b"\0\0" + b"\1\1" + varint(30), 1, "BAD_RECORD", "a field that does not fit"),
        (varint(8) + b"\0" + b"\0\0" + b"\1\1" + varint(1) + varint(-1) + b"\0", 1, "BAD_RECORD", "does not fit"),
        (varint(8) + b"\0" + b"\0\0" + b"\1\1" + varint(1) + b"\0" + varint(40), 1, "BAD_RECORD", "does not fit"),
        (varint(6) + b"\0" + b"\xff" * 5, 1, "BAD_RECORD", "a field that does not fit"),
    ],
)
def test_what_is_wrong_is_named(kernel: Kernel, data: bytes, count: int, kind: str, words: str) -> None:
    with pytest.raises(CorruptBatch, match=words) as caught:
        kernel.record_layout.check_records(data, 0, count)
    assert caught.value.kind == getattr(kernel.record_layout, kind)  # type: ignore[attr-defined]
    if words != "its offset":  # spans may begin with any offset
        with pytest.raises(CorruptBatch, match=words):
            kernel.record_layout.record_spans(data, 0, count)


@pytest.mark.parametrize("start", [-1, 100])
def test_a_start_outside_the_data_is_refused(kernel: Kernel, start: int) -> None:
    with pytest.raises(ValueError, match="not a position"):
        kernel.record_layout.check_records(b"x" * 20, start, 0)


def with_lengths(key: int, value: int, headers: int, name: int, header_value: int) -> bytes:
    """A record with one header, all of whose fields are empty, and these lengths."""
    body = b"\0\0\0" + b"".join(map(varint, (key, value, headers, name, header_value)))
    return varint(len(body)) + body


STRANGE = [
    with_lengths(-2, -1, 1, 0, -1),
    with_lengths(-1, -2, 1, 0, -1),
    with_lengths(-1, -1, 1, 0, -2),
    with_lengths(-(2**40), -1, 1, 0, -1),
    with_lengths(-1, -1, 1, 0, -(2**62)),
]
UNREADABLE = [with_lengths(-1, -1, -1, 0, -1), with_lengths(-1, -1, 1, -1, -1), with_lengths(-1, -1, 2, 0, -1)]


@pytest.mark.parametrize("data", STRANGE)
def test_lengths_below_minus_1_are_read_as_none_but_not_written(kernel: Kernel, data: bytes) -> None:
    """Java's client reads any negative length as none; librdkafka stops reading the partition, for ever."""
    assert kernel.record_layout.check_records(data, 0, 1, False).first_without_key == 0
    assert len(kernel.record_layout.record_spans(data, 0, 1)) == kernel.record_layout.SPAN_FIELDS
    with pytest.raises(CorruptBatch, match="a field that does not fit"):
        kernel.record_layout.check_records(data, 0, 1)
    assert kernel.record_layout.check_batch(one_record_batch(data), 1 << 20) is None


@pytest.mark.parametrize("data", UNREADABLE)
def test_headers_without_a_name_and_negative_counts_are_corrupt(kernel: Kernel, data: bytes) -> None:
    for strict in (True, False):
        with pytest.raises(CorruptBatch, match="a field that does not fit"):
            kernel.record_layout.check_records(data, 0, 1, strict)


def test_an_integer_of_more_than_five_bytes_is_not_written(kernel: Kernel) -> None:
    """Java's client refuses to read it, each time anew."""
    long_zero = b"\x80" * 5 + b"\0"
    for before, after in ((b"\0\0", b"\1\1\0"), (b"\0\0\0", b"\1\0"), (b"\0\0\0\1", b"\0"), (b"\0\0\0\1\1", b"")):
        body = before + long_zero + after
        with pytest.raises(CorruptBatch, match="a field that does not fit"):
            kernel.record_layout.check_records(varint(len(body)) + body, 0, 1)
        kernel.record_layout.check_records(varint(len(body)) + body, 0, 1, False)
    body = b"\0\0\0\1\1\0"
    with pytest.raises(CorruptBatch, match="its length is wrong"):
        kernel.record_layout.check_records(b"\x8c" + b"\x80" * 4 + b"\0" + body, 0, 1)
    timestamp = b"\x80" * 9 + b"\0"  # 64 bits, so ten bytes are allowed
    body = b"\0" + timestamp + b"\0\1\1\0"
    kernel.record_layout.check_records(varint(len(body)) + body, 0, 1)


LENGTHS = st.integers(-3, 2) | st.integers(-(2**63), 2**63 - 1)


@given(fields=st.tuples(LENGTHS, LENGTHS, LENGTHS, LENGTHS, LENGTHS), rest=st.binary(max_size=6))
def test_both_forms_agree_about_every_length(fields: tuple[int, int, int, int, int], rest: bytes) -> None:
    forms = [kernel for kernel in (_PLAIN, _COMPILED) if kernel is not None]
    body = with_lengths(*fields)[1:] + rest
    data = varint(len(body)) + body
    batch = one_record_batch(data)
    answers = []
    for kernel in forms:
        layout = kernel.record_layout
        try:
            good = layout.check_records(data, 0, 1) is not None
        except CorruptBatch:
            good = False
        assert good == (layout.check_batch(batch, 1 << 20) is not None)
        answers.append([good, *(_answer(kernel, function, data, 1) for function in ("check_records", "record_spans"))])
        if good:
            assert min(fields[0], fields[1]) >= -1
            assert fields[2] >= 0
    assert answers[0] == answers[-1]


def one_record_batch(record: bytes) -> bytes:
    tail = struct.pack(">hiqqqhii", 0, 0, NOW_MS, NOW_MS, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


NAMES = st.one_of(
    st.text(max_size=6).map(str.encode),
    st.binary(max_size=6),
    st.lists(
        st.sampled_from(
            [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5]
        )
    ).map(bytes),
)


@given(name=NAMES)
def test_the_name_of_a_header_must_be_utf_8_to_be_written(kernel: Kernel, name: bytes) -> None:
    """kafka-python cannot pass a batch with another one."""
    data = write(Row(0, b"k", b"v", [(b"good", None), (name, b"x")]), 0)
    layout = kernel.record_layout
    layout.check_records(data, 0, 1, False)
    whole = one_record_batch(data)
    try:
        name.decode()
    except UnicodeDecodeError:
        with pytest.raises(CorruptBatch, match="record 0: the name of a header is not UTF-8"):
            layout.check_records(data, 0, 1)
        assert layout.check_batch(whole, len(whole)) is None
    else:
        layout.check_records(data, 0, 1)
        assert layout.check_batch(whole, len(whole)) is not None


@given(rows=rows_of, from_offset=st.integers(0, 21), from_time=st.integers(-(2**40), 2**40))
def test_the_first_record_of_a_time_is_found(kernel: Kernel, rows: list[Row], from_offset: int, from_time: int) -> None:
    times = [row.timestamp_delta for row in rows]
    first = next((number for number in range(from_offset, len(rows)) if times[number] >= from_time), -1)
    looked_at = times[from_offset : first + 1] if first >= 0 else times[from_offset:]
    found = kernel.record_layout.find_time(b"xx" + write_all(rows), 2, len(rows), from_offset, from_time)
    assert found == (times[first] if first >= 0 else 0, first, max(looked_at, default=-(2**63)))


def test_what_lies_behind_the_record_of_a_time_is_not_looked_at(kernel: Kernel) -> None:
    data = write_all([A, B, C])[:-1]
    assert kernel.record_layout.find_time(data, 0, 3, 0, 9).offset_delta == 1
    with pytest.raises(CorruptBatch, match="record 2: its length"):
        kernel.record_layout.find_time(data, 0, 3, 0, 10)


@given(
    rows=rows_of,
    needs_key=st.booleans(),
    times=st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40)),
    most=st.sampled_from([3, 1000]),
)
def test_unfit_records_are_counted_and_the_first_are_named(
    kernel: Kernel, rows: list[Row], needs_key: bool, times: tuple[int, int, int], most: int
) -> None:
    without_key = [number for number, row in enumerate(rows) if needs_key and row.key is None]
    wrong_times = [
        number
        for number, row in enumerate(rows)
        if number not in without_key
        and row.timestamp_delta != times[2]
        and not times[0] <= row.timestamp_delta <= times[1]
    ]
    with mock.patch.object(kernel.record_layout, "MAX_UNFIT", most):
        unfit = kernel.record_layout.unfit_records(b"xx" + write_all(rows), 2, len(rows), needs_key, times)
    assert (unfit.without_key, unfit.wrong_times) == (len(without_key), len(wrong_times))
    lengths = [-1 if row.key is None else len(row.key) for row in rows]
    expected = [
        (number, rows[number].timestamp_delta, lengths[number]) for number in sorted(without_key + wrong_times)[:most]
    ]
    first = list(unfit.first)
    assert list(zip(first[::3], first[1::3], first[2::3], strict=True)) == expected


@pytest.mark.parametrize("form", [PLAIN, COMPILED])
def test_batches_of_kafka_python_are_read(form: str) -> None:
    kernel = load(form) or pytest.skip("not built")
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    written = [(NOW_MS + n * 7 % 50, bytes([n]) * n if n % 3 else None, b"v" * n, [("h", b"x" * n)]) for n in range(90)]
    for number, (time, key, value, headers) in enumerate(written):
        builder.append(number, timestamp=time, key=key, value=value, headers=headers)
    data = bytes(builder.build())
    facts = kernel.record_layout.check_records(data, 61, 90)
    read = list(DefaultRecordBatch(data))
    base = read[0].timestamp
    assert facts.max_timestamp_delta == max(record.timestamp for record in read) - base
    assert facts.min_timestamp_delta == min(record.timestamp for record in read) - base
    assert facts.first_without_key == 0
    spans = kernel.record_layout.record_spans(data, 61, 90)
    keys = [
        None if spans[at + 5] < 0 else data[spans[at + 4] : spans[at + 4] + spans[at + 5]]
        for at in range(0, len(spans), kernel.record_layout.SPAN_FIELDS)
    ]
    assert keys == [record.key for record in read]


@given(rows=rows_of, count=st.integers(-1, 30), data=st.data())
def test_both_forms_say_the_same_of_damaged_records(rows: list[Row], count: int, data: st.DataObject) -> None:
    """Hostile bytes raise CorruptBatch and nothing else, with the same text in both forms."""
    forms = [kernel for kernel in (_PLAIN, _COMPILED) if kernel is not None]
    damaged = bytearray(write_all(rows))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] + data.draw(st.binary(max_size=12))
    answers = [
        [
            _answer(kernel, function, source, count)
            for function in ("check_records", "record_spans")
            for source in (bytes(damaged), memoryview(damaged))
            if function == "check_records" or isinstance(source, bytes)
        ]
        for kernel in forms
    ]
    assert answers[0] == answers[-1]


def _answer(kernel: Kernel, function: str, data: bytes | memoryview, count: int) -> object:
    try:
        return getattr(kernel.record_layout, function)(data, 0, count)
    except CorruptBatch as problem:
        return str(problem)


_PLAIN = load(PLAIN)
_COMPILED = load(COMPILED)


@given(data=st.binary(max_size=60), count=st.integers(0, 9))
def test_random_bytes_are_corrupt_and_nothing_else(kernel: Kernel, data: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatch):
        kernel.record_layout.check_records(data, 0, count)
