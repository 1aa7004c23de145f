"""The records of one batch, decompressed: check all of them, list where each is, copy some.

Role: what validation, compaction and time look-ups need to know of records, without a Python object per record. `check_batch` looks at
an ordinary batch as a whole, header and checksum included: all that an append needs to know, in one call and without a copy.
Thread: any; pure functions; long loops let go of the GIL when compiled. Lock: none.

A record, all varints zig-zag:

    varint length     bytes after this field
    int8   attributes unused
    varint timestamp_delta
    varint offset_delta
    varint key_length, key        -1: no key
    varint value_length, value    -1: no value
    varint header_count, and for each header: varint length, name, varint length, value (-1: none)

What is written must keep to this exactly (`check_records`, `check_batch`): Kafka's clients in Java read any negative length as none and
refuse an integer of more than five bytes, librdkafka stops at a length below -1, kafka-python at the name of a header that is not UTF-8.
What is in a log already is read as Java reads it.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from barnabas.records.batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader, Buffer, CorruptBatch

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.checksum import extend
    from cython.cimports.barnabas.records.kernel.wire import int16_at, int32_at, int64_at, is_utf8, put_bytes, varint_at
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
else:
    from barnabas.records.kernel.checksum import extend
    from barnabas.records.kernel.wire import is_utf8, put_bytes, varint_at

BAD_RECORD, BAD_COUNT, BAD_OFFSETS = 1, 2, 3
"""Kinds of `CorruptRecords`: a record that cannot be parsed; more or fewer records than the header says; offsets that do not count up
from 0."""

_TEXTS = (
    "",  # by number, from 1 on: _LENGTH to _NAME
    "its length is wrong",
    "it is cut off or has a field that does not fit",
    "bytes follow its last header",
    "it is missing",
    "bytes follow the last record",
    "its offset is out of order",
    "the name of a header is not UTF-8",
)
_KINDS = (0, BAD_RECORD, BAD_RECORD, BAD_RECORD, BAD_COUNT, BAD_COUNT, BAD_OFFSETS, BAD_RECORD)
_LENGTH = cython.declare(cython.Py_ssize_t, 1)
_FIELD = cython.declare(cython.Py_ssize_t, 2)
_LONGER = cython.declare(cython.Py_ssize_t, 3)
_MISSING = cython.declare(cython.Py_ssize_t, 4)
_MORE = cython.declare(cython.Py_ssize_t, 5)
_OFFSET = cython.declare(cython.Py_ssize_t, 6)
_NAME = cython.declare(cython.Py_ssize_t, 7)
_SMALLEST_BODY = cython.declare(cython.Py_ssize_t, 6)
_SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 7)
_FIELDS = cython.declare(cython.Py_ssize_t, 7)
_LONGEST_INT32 = cython.declare(cython.Py_ssize_t, 5)
_INT32_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_PREFIX_SIZE = cython.declare(cython.Py_ssize_t, PREFIX_SIZE)
_LONG = cython.declare(cython.Py_ssize_t, 128 * 1024)
"""Looking at so many bytes takes 10 us or more. For less the GIL is kept: who lets go of it may wait for it longer than that."""

_new_tuple = tuple.__new__
MIN_LONG = -(2**63)
_LEAST = cython.declare(cython.longlong, MIN_LONG)
MAX_UNFIT = 1000
"""Records that `unfit_records` names; a batch can hold so many that naming all would take more room than the batch."""
_UNFIT_FIELDS = cython.declare(cython.Py_ssize_t, 3)
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
    """A record that was read: where it is and what its fields say. Reused for one record after the other; `read_all` leaves here what
    all of them have in common (see RecordFacts), and where it stopped."""

    end: cython.Py_ssize_t
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_start: cython.Py_ssize_t
    key_length: cython.longlong
    value_length: cython.longlong
    low: cython.longlong
    high: cython.longlong
    high_offset: cython.Py_ssize_t
    without_key: cython.Py_ssize_t
    number: cython.Py_ssize_t
    at: cython.Py_ssize_t

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def read(
        self, data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, strict: cython.bint
    ) -> cython.int:
        """Read the record at a position; 0, or the number of what is wrong with it. `strict`: as it must be to be written."""
        length: cython.longlong
        start: cython.Py_ssize_t = at
        length, at = varint_at(data, at, end)
        if at < 0 or length < _SMALLEST_BODY or length > end - at or (strict and at - start > _LONGEST_INT32):
            return _LENGTH
        self.end = end = at + length
        self.timestamp_delta, at = varint_at(data, at + 1, end)
        start = at
        if at >= 0:
            self.offset_delta, at = varint_at(data, at, end)
        if at < 0 or not -_INT32_MAX <= self.offset_delta <= _INT32_MAX or (strict and at - start > _LONGEST_INT32):
            return _FIELD
        self.key_length, self.key_start = _cell_at(data, at, end, strict)
        if self.key_start < 0:
            return _FIELD
        at = self.key_start + self.key_length if self.key_length > 0 else self.key_start
        self.value_length, at = _cell_at(data, at, end, strict)
        if at < 0:
            return _FIELD
        if self.value_length > 0:
            at += self.value_length
        return _skip_headers(data, at, end, strict)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read_all(
        self,
        data: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        strict: cython.bint,
    ) -> cython.int:
        """Whether exactly `count` records with the offset deltas 0, 1, 2 … fill the bytes; 0, or the number of what is wrong."""
        problem: cython.int = 0
        number: cython.Py_ssize_t = 0
        low: cython.longlong = 0
        high: cython.longlong = 0
        self.high_offset = 0
        self.without_key = -1
        while number < count:
            problem = self.read(data, at, end, strict)
            if problem == 0 and self.offset_delta != number:
                problem = _OFFSET
            if problem:
                break
            at = self.end
            if number == 0 or self.timestamp_delta > high:
                high = self.timestamp_delta
                self.high_offset = number
            if number == 0 or self.timestamp_delta < low:
                low = self.timestamp_delta
            if self.key_length < 0 and self.without_key < 0:
                self.without_key = number
            number += 1
        self.low = low
        self.high = high
        self.number = number
        self.at = at
        return _MORE if problem == 0 and at != end else problem

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def find_time(
        self,
        data: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        from_offset: cython.longlong,
        from_time: cython.longlong,
    ) -> cython.int:
        """Look for a record, see there; 0, or the number of what is wrong. `high_offset`: the one that was found, or -1."""
        problem: cython.int = 0
        found: cython.Py_ssize_t = -1
        largest: cython.longlong = _LEAST
        self.number = 0
        while self.number < count and found < 0:
            problem = self.read(data, at, end, False)
            if problem:
                break
            at = self.end
            if self.offset_delta >= from_offset:
                if self.timestamp_delta > largest:
                    largest = self.timestamp_delta
                if self.timestamp_delta >= from_time:
                    found = self.offset_delta
            self.number += 1
        self.high = largest
        self.high_offset = found
        return _MISSING if problem and at == end else problem


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _cell_at(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, strict: cython.bint
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The length of the key, name or value at a position, and where its bytes begin: -1 when they do not fit. Below 0: there is none."""
    length: cython.longlong
    start: cython.Py_ssize_t = at
    length, at = varint_at(data, at, end)
    if length > end - at or (strict and (length < -1 or at - start > _LONGEST_INT32)):
        return 0, -1
    return length, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, strict: cython.bint
) -> cython.int:
    """Whether the headers of a record end exactly where the record does; 0, or the number of what is wrong."""
    length: cython.longlong
    count: cython.longlong
    count, at = _cell_at(data, at, end, strict)
    if at < 0 or count < 0:
        return _FIELD
    while count > 0:
        count -= 1
        length, at = _cell_at(data, at, end, strict)
        if at < 0 or length < 0:
            return _FIELD
        if strict and not is_utf8(data, at, at + length):
            return _NAME
        length, at = _cell_at(data, at + length, end, strict)
        if at < 0:
            return _FIELD
        if length > 0:
            at += length
    return 0 if at == end else _LONGER


def check_records(data: Buffer, start: cython.Py_ssize_t, count: cython.Py_ssize_t, strict: bool = True) -> RecordFacts:
    """Whether `data[start:]` is exactly `count` whole records with the offset deltas 0 to `count - 1`; CorruptRecords when not."""
    record: _Record = _Record()
    problem: cython.int
    if cython.compiled:
        view = cython.declare(cython.Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            problem = _check(cython.cast(cython.p_const_uchar, view.buf), view.len, start, count, strict, record)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        problem = _check(data, len(data), start, count, strict, record)
    if problem:
        raise CorruptRecords(problem, record.number)
    return RecordFacts(record.low, record.high, record.high_offset, record.without_key)


@cython.cfunc
@cython.exceptval(-1)
def _check(
    data: cython.p_const_uchar,
    end: cython.Py_ssize_t,
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    strict: cython.bint,
    record: _Record,
) -> cython.int:
    at: cython.Py_ssize_t = _checked_start(start, end, count)
    problem: cython.int
    if end - at < _LONG:
        problem = record.read_all(data, at, end, count, strict)
    else:
        with cython.nogil:
            problem = record.read_all(data, at, end, count, strict)
    return _MISSING if problem and record.at == end else problem


def check_batch(batch: Buffer, limit: cython.Py_ssize_t) -> BatchHeader | None:
    """The header of a batch that is good and ordinary; else None.

    Good: exactly one whole batch of at most `limit` bytes as a producer sends it, its checksum right, its records as `check_records`
    wants them, its largest timestamp that of the records. Ordinary: not compressed, no transaction, no marker, with timestamps. None
    says nothing about a batch but that it wants a closer look.
    """
    if not cython.compiled:
        return _check_batch_plain(batch, limit)
    view = cython.declare(cython.Py_buffer)
    PyObject_GetBuffer(batch, cython.address(view), PyBUF_SIMPLE)
    try:
        data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
        size: cython.Py_ssize_t = view.len
        record: _Record = _Record()
        good: cython.bint
        if size > limit:
            return None
        if size < _LONG:
            good = _is_good(data, size, record)
        else:
            with cython.nogil:
                good = _is_good(data, size, record)
        return _new_tuple(BatchHeader, _fields(data)) if good else None
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_good(data: cython.p_const_uchar, size: cython.Py_ssize_t, record: _Record) -> cython.bint:
    """`check_batch`, compiled."""
    if size < _HEADER_SIZE:
        return False
    count: cython.longlong = int32_at(data, 57)
    base_time: cython.longlong = int64_at(data, 27)
    max_time: cython.longlong = int64_at(data, 35)
    if (
        cython.cast(cython.longlong, int32_at(data, 8)) + 12 != size
        or data[16] != 2
        or int16_at(data, 21) != 0
        or int64_at(data, 0) != 0
        or int32_at(data, 23) != count - 1
        or count <= 0
        or count > (size - _HEADER_SIZE) // _SMALLEST_RECORD
        or base_time < 0
        or max_time < 0
        or (int64_at(data, 43) >= 0 and int32_at(data, 53) < 0)
    ):
        return False
    if extend(0, data, _PREFIX_SIZE, size) != cython.cast(cython.uint, int32_at(data, 17)):
        return False
    return record.read_all(data, _HEADER_SIZE, size, count, True) == 0 and record.high == max_time - base_time


@cython.cfunc
def _fields(data: cython.p_const_uchar) -> tuple[int, ...]:
    """HEADER.unpack, compiled."""
    return (
        int64_at(data, 0),
        int32_at(data, 8),
        int32_at(data, 12),
        data[16],
        cython.cast(cython.uint, int32_at(data, 17)),
        int16_at(data, 21),
        int32_at(data, 23),
        int64_at(data, 27),
        int64_at(data, 35),
        int64_at(data, 43),
        int16_at(data, 51),
        int32_at(data, 53),
        int32_at(data, 57),
    )


def _check_batch_plain(batch: Buffer, limit: int) -> BatchHeader | None:
    """`check_batch` in plain Python, without the positions of fields that reading a header one by one takes."""
    size = len(batch)
    if not _HEADER_SIZE <= size <= limit:
        return None
    fields = BatchHeader._make(HEADER.unpack_from(batch))
    offset, length, _, magic, crc, attributes, delta, base_time, max_time, producer_id, _, sequence, count = fields
    if (
        length + 12 != size
        or magic != 2
        or attributes
        or offset
        or delta != count - 1
        or not 0 < count <= (size - _HEADER_SIZE) // _SMALLEST_RECORD
        or min(base_time, max_time) < 0
        or producer_id >= 0 > sequence
    ):
        return None
    data = bytes(batch)
    record = _Record()
    if extend(0, data, _PREFIX_SIZE, size) != crc or record.read_all(data, _HEADER_SIZE, size, count, True):
        return None
    return fields if record.high == max_time - base_time else None


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
            problem = record.read(bytes_of, at, end, False)
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


class RecordTimes(NamedTuple):
    """What `find_time` found: the deltas of the first record that fits, offset -1 when none does, and the largest timestamp delta of the
    records that were looked at, MIN_LONG when there were none."""

    timestamp_delta: int
    offset_delta: int
    largest: int


def find_time(
    data: Buffer,
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    from_offset: cython.longlong,
    from_time: cython.longlong,
) -> RecordTimes:
    """The first of the `count` records of `data[start:]` with at least these deltas; nothing behind it is looked at, and nothing is said
    about records with smaller offsets. CorruptRecords when one cannot be read."""
    record: _Record = _Record()
    problem: cython.int
    if cython.compiled:
        view = cython.declare(cython.Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            start = _checked_start(start, view.len, count)
            source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
            with cython.nogil:
                problem = record.find_time(source, start, view.len, count, from_offset, from_time)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        start = _checked_start(start, len(data), count)
        problem = record.find_time(data, start, len(data), count, from_offset, from_time)
    if problem:
        raise CorruptRecords(problem, record.number)
    return RecordTimes(record.timestamp_delta if record.high_offset >= 0 else 0, record.high_offset, record.high)


class UnfitRecords(NamedTuple):
    """What `unfit_records` found: how many records lack a key, how many others have a wrong timestamp, and the first of both kinds."""

    without_key: int
    wrong_times: int
    first: array[int]
    """Three numbers for each: its place, its timestamp delta, its key length."""


def unfit_records(
    data: Buffer, start: cython.Py_ssize_t, count: cython.Py_ssize_t, needs_key: bool, times: tuple[int, int, int]
) -> UnfitRecords:
    """Which of the records, as `check_records` has found them good, do not fit the rules of a topic: a key, and a timestamp delta from the
    first to the second of `times`, or equal to the third. At most MAX_UNFIT are named, all are counted."""
    found = array("q", bytes(8 * _UNFIT_FIELDS)) * MAX_UNFIT
    record: _Record = _Record()
    if cython.compiled:
        view = cython.declare(cython.Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            start = _checked_start(start, view.len, count)
            source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
            named = _find_unfit(source, (start, view.len, count), (needs_key, *times), found, record)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        start = _checked_start(start, len(data), count)
        named = _find_unfit(data, (start, len(data), count), (needs_key, *times), found, record)
    return UnfitRecords(record.without_key, record.number, found[: named * _UNFIT_FIELDS])


@cython.cfunc
@cython.exceptval(-1)
def _find_unfit(
    data: cython.p_const_uchar,
    place: tuple[int, int, int],
    rules: tuple[bool, int, int, int],
    found: array[int],
    record: _Record,
) -> cython.Py_ssize_t:
    """How many were named in `found`. The totals are left in the record: those without a key, and `number` of wrong timestamps."""
    at: cython.Py_ssize_t = place[0]
    end: cython.Py_ssize_t = place[1]
    count: cython.Py_ssize_t = place[2]
    needs_key: cython.bint = rules[0]
    earliest: cython.longlong = rules[1]
    latest: cython.longlong = rules[2]
    none: cython.longlong = rules[3]
    rows: cython.longlong[::1] = found
    room: cython.Py_ssize_t = MAX_UNFIT
    named: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t = 0
    without_key: cython.Py_ssize_t = 0
    wrong_times: cython.Py_ssize_t = 0
    with cython.nogil:
        while number < count and record.read(data, at, end, False) == 0:
            at = record.end
            unfit: cython.bint = True
            if needs_key and record.key_length < 0:
                without_key += 1
            elif record.timestamp_delta != none and not earliest <= record.timestamp_delta <= latest:
                wrong_times += 1
            else:
                unfit = False
            if unfit and named < room:
                rows[named * _UNFIT_FIELDS] = number
                rows[named * _UNFIT_FIELDS + 1] = record.timestamp_delta
                rows[named * _UNFIT_FIELDS + 2] = record.key_length
                named += 1
            number += 1
    record.without_key = without_key
    record.number = wrong_times
    return named


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
