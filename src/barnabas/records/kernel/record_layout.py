"""The records of one batch, decompressed: check all of them, list where each is, copy some.

Role: what validation, compaction and time look-ups need to know of records, without a Python object per record.
Thread: any; pure functions. Lock: none.

A record, all varints zig-zag:

    varint length     bytes after this field
    int8   attributes unused
    varint timestamp_delta
    varint offset_delta
    varint key_length, key        -1: no key
    varint value_length, value    -1: no value
    varint header_count, and for each header: varint length, name, varint length, value (-1: none)
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from barnabas.records.batch import CorruptBatch

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.wire import put_bytes, varint_at
else:
    from barnabas.records.kernel.wire import put_bytes, varint_at

BAD_RECORD, BAD_COUNT, BAD_OFFSETS = 1, 2, 3
"""Kinds of `CorruptRecords`: a record that cannot be parsed; more or fewer records than the header says; offsets that do not count up
from 0."""

_TEXTS = (
    "",  # by number, from 1 on: _LENGTH to _OFFSET
    "its length is wrong",
    "it is cut off or has a field that does not fit",
    "bytes follow its last header",
    "it is missing",
    "bytes follow the last record",
    "its offset is out of order",
)
_KINDS = (0, BAD_RECORD, BAD_RECORD, BAD_RECORD, BAD_COUNT, BAD_COUNT, BAD_OFFSETS)
_LENGTH = cython.declare(cython.Py_ssize_t, 1)
_FIELD = cython.declare(cython.Py_ssize_t, 2)
_LONGER = cython.declare(cython.Py_ssize_t, 3)
_MISSING = cython.declare(cython.Py_ssize_t, 4)
_MORE = cython.declare(cython.Py_ssize_t, 5)
_OFFSET = cython.declare(cython.Py_ssize_t, 6)
_SMALLEST_BODY = cython.declare(cython.Py_ssize_t, 6)
_SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 7)
_FIELDS = cython.declare(cython.Py_ssize_t, 7)
_INT32_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)

SPAN_FIELDS = 7
"""Numbers that `record_spans` gives per record."""


class RecordSpan(NamedTuple):
    """The numbers of one record in `record_spans`. Positions are in the data that was given."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key_start: int
    key_length: int
    value_length: int


class CorruptRecords(CorruptBatch):
    """The records of a batch are not what the format or the header says. `kind` is BAD_RECORD, BAD_COUNT or BAD_OFFSETS, `number`
    the place of the record in the batch."""

    def __init__(self, problem: int, number: int) -> None:
        super().__init__(f"record {number}: {_TEXTS[problem]}")
        self.kind = _KINDS[problem]
        self.number = number


class RecordFacts(NamedTuple):
    """What `check_records` found. Deltas are to the base timestamp and base offset of the batch."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    max_timestamp_offset_delta: int
    """The offset delta of the first record that has the largest timestamp."""
    first_without_key: int
    """The place of the first record without a key, or -1."""


@cython.cclass
class _Record:
    """A record that was read: where it is and what its fields say. Reused for one record after the other."""

    end: cython.Py_ssize_t
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_start: cython.Py_ssize_t
    key_length: cython.longlong
    value_length: cython.longlong

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read(self, data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Read the record at a position; 0, or the number of what is wrong with it."""
        length: cython.longlong
        length, at = varint_at(data, at, end)
        if at < 0 or length < _SMALLEST_BODY or length > end - at:
            return _LENGTH
        self.end = end = at + length
        self.timestamp_delta, at = varint_at(data, at + 1, end)
        if at >= 0:
            self.offset_delta, at = varint_at(data, at, end)
        if at >= 0 and -_INT32_MAX <= self.offset_delta <= _INT32_MAX:
            self.key_length, at = varint_at(data, at, end)
        else:
            return _FIELD
        if at < 0 or self.key_length > end - at:
            return _FIELD
        self.key_start = at
        if self.key_length > 0:
            at += self.key_length
        self.value_length, at = varint_at(data, at, end)
        if at < 0 or self.value_length > end - at:
            return _FIELD
        if self.value_length > 0:
            at += self.value_length
        return _skip_headers(data, at, end)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Whether the headers of a record end exactly where the record does; 0, or the number of what is wrong."""
    count: cython.longlong
    length: cython.longlong
    count, at = varint_at(data, at, end)
    if at < 0 or count < 0 or count > end - at:
        return _FIELD
    while count > 0:
        count -= 1
        length, at = varint_at(data, at, end)
        if at < 0 or length < 0 or length > end - at:
            return _FIELD
        at += length
        length, at = varint_at(data, at, end)
        if at < 0 or length > end - at:
            return _FIELD
        if length > 0:
            at += length
    return 0 if at == end else _LONGER


def check_records(data: bytes, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> RecordFacts:
    """Whether `data[start:]` is exactly `count` whole records with the offset deltas 0 to `count - 1`; CorruptRecords when not."""
    bytes_of: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = _checked_start(start, end, count)
    record: _Record = _Record()
    low: cython.longlong = 0
    high: cython.longlong = 0
    high_offset: cython.Py_ssize_t = 0
    without_key: cython.Py_ssize_t = -1
    problem: cython.int = 0
    number: cython.Py_ssize_t = 0
    with cython.nogil:
        while number < count:
            problem = record.read(bytes_of, at, end)
            if problem:
                break
            if record.offset_delta != number:
                problem = _OFFSET
                break
            at = record.end
            if number == 0 or record.timestamp_delta > high:
                high = record.timestamp_delta
                high_offset = number
            if number == 0 or record.timestamp_delta < low:
                low = record.timestamp_delta
            if record.key_length < 0 and without_key < 0:
                without_key = number
            number += 1
    if not problem and at != end:
        problem = _MORE
    if problem:
        raise CorruptRecords(_MISSING if at == end else problem, number)
    return RecordFacts(low, high, high_offset, without_key)


def record_spans(data: bytes, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> array[int]:
    """Where each of the `count` records of `data[start:]` is: SPAN_FIELDS numbers per record, see RecordSpan.

    Lengths of -1 (or less) are those of a key or value that is not there. The offset deltas may have gaps, as after a compaction, but
    must ascend; CorruptRecords when they do not, or when the records cannot be read.
    """
    bytes_of: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = _checked_start(start, end, count)
    record: _Record = _Record()
    spans = array("q", bytes(8 * _FIELDS)) * count
    found: cython.longlong[::1] = spans
    problem: cython.int = 0
    last: cython.longlong = -1
    slot: cython.Py_ssize_t = 0
    slots: cython.Py_ssize_t = count * _FIELDS
    with cython.nogil:
        while slot < slots:
            problem = record.read(bytes_of, at, end)
            if problem == 0 and record.offset_delta <= last:
                problem = _OFFSET
            if problem:
                break
            last = record.offset_delta
            found[slot] = at
            found[slot + 1] = record.end
            found[slot + 2] = record.offset_delta
            found[slot + 3] = record.timestamp_delta
            found[slot + 4] = record.key_start
            found[slot + 5] = record.key_length
            found[slot + 6] = record.value_length
            at = record.end
            slot += _FIELDS
    if not problem and at != end:
        problem = _MORE
    if problem:
        raise CorruptRecords(_MISSING if at == end else problem, slot // _FIELDS)
    return spans


def select_records(data: bytes, spans: array[int], keep: bytes) -> bytes:
    """The records of `data` that are kept, one behind the other: `keep` has a byte for each record of `spans`, not 0 to keep it."""
    count: cython.Py_ssize_t = len(keep)
    places: cython.longlong[::1] = spans
    end: cython.Py_ssize_t = len(data)
    if len(spans) != count * _FIELDS:
        raise ValueError(f"{len(spans)} numbers are not the spans of {count} records")
    result = bytearray(end)
    size: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(count):
        if keep[number]:
            begin: cython.longlong = places[number * _FIELDS]
            length: cython.longlong = places[number * _FIELDS + 1] - begin
            if begin < 0 or length < 0 or length > end - begin or length > end - size:
                raise ValueError(f"the span of record {number} is not in the data")
            put_bytes(result, size, data, begin, length)
            size += length
    return bytes(memoryview(result)[:size])


def _checked_start(start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The start, when it is in the data and so many records can be there at all: nothing is allotted for a count that is a lie."""
    if not 0 <= start <= end:
        raise ValueError(f"{start} is not a position in {end} bytes")
    if count < 0 or count > (end - start) // _SMALLEST_RECORD:
        raise CorruptRecords(_MISSING, max(0, (end - start) // _SMALLEST_RECORD))
    return start
