"""The records of fetched batches: as Python objects, or as columns in the memory layout of Arrow.

Role: the reading side of the clients. `record_spans` (record_layout.py) has checked every length before anything here uses it.
Thread: any; a `Columns` belongs to one thread. Lock: none.
"""

from __future__ import annotations

from array import array
from typing import Any

from barnabas.records.batch import BatchHeader

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.wire import put_bytes, varint_at
else:
    from barnabas.records.kernel.wire import put_bytes, varint_at

_FIELDS = cython.declare(cython.Py_ssize_t, 7)  # of RecordSpan
CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Record:
    """One record as a consumer gets it.

    `timestamp` is in milliseconds since 1970; `timestamp_type` 0 when the producer set it, 1 when the broker did. `key` and `value` are
    bytes (or None), unless a deserializer made something else of them; `headers` are (name, bytes or None).

        for record in consumer.poll(timeout=1.0):
            print(record.topic, record.partition, record.offset, record.value)
    """

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "timestamp_type", "topic", "value")

    def __init__(self, topic: str, partition: int, offset: int, timestamp: int, timestamp_type: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key: Any = None
        self.value: Any = None
        self.headers: tuple[tuple[str, bytes | None], ...] = ()

    def with_key_and_value(self, key: Any, value: Any) -> Record:
        """The same record with what deserializers made of its key and value."""
        record: Record = Record(self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type)
        record.key = key
        record.value = value
        record.headers = self.headers
        return record

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition} @ {self.offset}, key={self.key!r}, value={self.value!r})"


def read_records(
    data: bytes,
    spans: array[int],
    header: BatchHeader,
    topic: str,
    partition: cython.int,
    first_offset: cython.longlong,
) -> list[Record]:
    """The records of a batch from `first_offset` on; `spans` are those of its decompressed records `data`."""
    source: cython.p_const_uchar = data
    places: cython.longlong[::1] = spans
    slots: cython.Py_ssize_t = len(spans)
    slot: cython.Py_ssize_t = 0
    base_offset: cython.longlong = header.base_offset
    base_timestamp: cython.longlong = header.base_timestamp
    append_time: cython.longlong = header.max_timestamp
    by_broker: cython.int = LOG_APPEND_TIME if header.log_append_time else CREATE_TIME
    record: Record
    found: list[Record] = []
    while slot < slots:
        offset: cython.longlong = base_offset + places[slot + 2]
        if offset >= first_offset:
            # Not by its constructor: that call alone takes longer than all the rest when compiled.
            record = Record.__new__(Record)
            record.topic = topic
            record.partition = partition
            record.offset = offset
            record.timestamp = append_time if by_broker else base_timestamp + places[slot + 3]
            record.timestamp_type = by_broker
            _fill(record, source, places[slot + 4], places[slot + 5], places[slot + 1])
            found.append(record)
        slot += _FIELDS
    return found


@cython.cfunc
def _fill(
    record: Record,
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    key_length: cython.longlong,
    end: cython.Py_ssize_t,
) -> cython.int:
    """Key, value and headers of the record whose key is at a position and that ends at `end`."""
    length: cython.longlong
    record.key = record.value = None
    if key_length >= 0:
        record.key = data[at : at + key_length]
        at += key_length
    length, at = varint_at(data, at, end)
    if length >= 0:
        record.value = data[at : at + length]
        at += length
    record.headers = _headers(data, at, end) if at + 1 < end else ()  # a count of 0 is the last byte
    return 0


@cython.cfunc
def _headers(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[tuple[str, bytes | None], ...]:
    count: cython.longlong
    length: cython.longlong
    count, at = varint_at(data, at, end)
    found = []
    while count > 0:
        count -= 1
        length, at = varint_at(data, at, end)
        name = data[at : at + length].decode("utf-8", "replace")
        at += length
        length, at = varint_at(data, at, end)
        value = None
        if length >= 0:
            value = data[at : at + length]
            at += length
        found.append((name, value))
    return tuple(found)


def read_headers(data: bytes, spans: array[int], skip: cython.Py_ssize_t) -> list[tuple[tuple[str, bytes | None], ...]]:
    """The headers of each record behind the first `skip`."""
    places: cython.longlong[::1] = spans
    slots: cython.Py_ssize_t = len(spans)
    slot: cython.Py_ssize_t = skip * _FIELDS
    length: cython.longlong
    found = []
    while slot < slots:
        at: cython.Py_ssize_t = places[slot + 4]
        end: cython.Py_ssize_t = places[slot + 1]
        if places[slot + 5] > 0:
            at += places[slot + 5]
        length, at = varint_at(data, at, end)
        if length > 0:
            at += length
        found.append(_headers(data, at, end) if at + 1 < end else ())
        slot += _FIELDS
    return found


def measure(spans: array[int], skip: cython.Py_ssize_t) -> tuple[int, int, int]:
    """(rows, bytes of keys, bytes of values) of the records behind the first `skip`."""
    places: cython.longlong[::1] = spans
    slots: cython.Py_ssize_t = len(spans)
    slot: cython.Py_ssize_t = skip * _FIELDS
    keys: cython.longlong = 0
    values: cython.longlong = 0
    rows: cython.Py_ssize_t = 0
    with cython.nogil:
        while slot < slots:
            if places[slot + 5] > 0:
                keys += places[slot + 5]
            if places[slot + 6] > 0:
                values += places[slot + 6]
            rows += 1
            slot += _FIELDS
    return rows, keys, values


def rows_before(spans: array[int], offset_delta: cython.longlong) -> int:
    """How many records come before the one with this offset delta, or the next one that is there."""
    places: cython.longlong[::1] = spans
    slots: cython.Py_ssize_t = len(spans)
    slot: cython.Py_ssize_t = 0
    while slot < slots and places[slot + 2] < offset_delta:
        slot += _FIELDS
    return slot // _FIELDS


class Columns:
    """Offsets, timestamps, keys and values of many records, as Arrow lays out int64 and binary columns.

    Made with the exact sizes (`measure`), filled batch after batch with `add`. Validity bitmaps: a bit per row, least significant first.
    """

    def __init__(self, rows: int, key_bytes: int, value_bytes: int) -> None:
        self.rows = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.key_nulls = 0
        self.value_nulls = 0
        self.rows_with_headers = 0
        self.offsets = array("q", bytes(8)) * rows
        self.timestamps = array("q", bytes(8)) * rows
        self.key_ends = array("i", bytes(4)) * (rows + 1)
        self.value_ends = array("i", bytes(4)) * (rows + 1)
        self.keys = bytearray(key_bytes)
        self.values = bytearray(value_bytes)
        self.key_valid = bytearray((rows + 7) // 8)
        self.value_valid = bytearray((rows + 7) // 8)

    def add(self, data: bytes, spans: array[int], skip: cython.Py_ssize_t, header: BatchHeader) -> None:
        """Take the records of one batch behind the first `skip`; ValueError when there is no room for them."""
        rows, key_bytes, value_bytes = measure(spans, skip)
        if (
            self.rows + rows > len(self.offsets)
            or self.key_bytes + key_bytes > len(self.keys)
            or self.value_bytes + value_bytes > len(self.values)
        ):
            raise ValueError(f"{rows} records with {key_bytes} and {value_bytes} bytes do not fit any more")
        self._add_numbers(spans, skip, header)
        self._add_bytes(data, spans, skip)
        self.rows += rows

    def _add_numbers(self, spans: array[int], skip: cython.Py_ssize_t, header: BatchHeader) -> None:
        places: cython.longlong[::1] = spans
        offsets: cython.longlong[::1] = self.offsets
        timestamps: cython.longlong[::1] = self.timestamps
        base_offset: cython.longlong = header.base_offset
        base_timestamp: cython.longlong = header.base_timestamp
        append_time: cython.longlong = header.max_timestamp
        by_broker: cython.int = LOG_APPEND_TIME if header.log_append_time else CREATE_TIME
        row: cython.Py_ssize_t = self.rows
        slot: cython.Py_ssize_t = skip * _FIELDS
        slots: cython.Py_ssize_t = len(spans)
        with cython.nogil:
            while slot < slots:
                offsets[row] = base_offset + places[slot + 2]
                timestamps[row] = append_time if by_broker else base_timestamp + places[slot + 3]
                row += 1
                slot += _FIELDS

    def _add_bytes(self, data: bytes, spans: array[int], skip: cython.Py_ssize_t) -> None:
        source: cython.p_const_uchar = data
        places: cython.longlong[::1] = spans
        key_ends: cython.int[::1] = self.key_ends
        value_ends: cython.int[::1] = self.value_ends
        keys: cython.p_uchar = self.keys
        values: cython.p_uchar = self.values
        key_valid: cython.p_uchar = self.key_valid
        value_valid: cython.p_uchar = self.value_valid
        key_at: cython.Py_ssize_t = self.key_bytes
        value_at: cython.Py_ssize_t = self.value_bytes
        key_nulls: cython.Py_ssize_t = self.key_nulls
        value_nulls: cython.Py_ssize_t = self.value_nulls
        with_headers: cython.Py_ssize_t = self.rows_with_headers
        row: cython.Py_ssize_t = self.rows
        slot: cython.Py_ssize_t = skip * _FIELDS
        slots: cython.Py_ssize_t = len(spans)
        at: cython.Py_ssize_t
        length: cython.longlong
        with cython.nogil:
            while slot < slots:
                at = places[slot + 4]
                length = places[slot + 5]
                if length >= 0:
                    put_bytes(keys, key_at, source, at, length)
                    key_at += length
                    at += length
                    key_valid[row >> 3] |= 1 << (row & 7)
                else:
                    key_nulls += 1
                length, at = varint_at(source, at, places[slot + 1])
                if length >= 0:
                    put_bytes(values, value_at, source, at, length)
                    value_at += length
                    at += length
                    value_valid[row >> 3] |= 1 << (row & 7)
                else:
                    value_nulls += 1
                if at + 1 < places[slot + 1]:  # a count of 0 is the last byte
                    with_headers += 1
                row += 1
                key_ends[row] = key_at
                value_ends[row] = value_at
                slot += _FIELDS
        self.key_bytes, self.value_bytes = key_at, value_at
        self.key_nulls, self.value_nulls = key_nulls, value_nulls
        self.rows_with_headers = with_headers
