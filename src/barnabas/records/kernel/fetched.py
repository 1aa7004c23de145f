"""The records of fetched batches as Python objects; runs.py makes columns of them.

Role: the reading side of the clients. `record_spans` (record_layout.py) has checked every length before anything here uses it.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from array import array
from typing import Any

from barnabas.records.batch import BatchHeader
from barnabas.records.kernel.record_layout import record_spans

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.wire import varint_at
else:
    from barnabas.records.kernel.plain_reading import Columns, read_columns
    from barnabas.records.kernel.wire import varint_at

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


def batch_records(
    data: bytes,
    start: cython.Py_ssize_t,
    header: BatchHeader,
    topic: str,
    partition: cython.int,
    first_offset: cython.longlong,
) -> list[Record]:
    """The records of a batch from `first_offset` on; they are `data[start:]`, decompressed. CorruptRecords when they cannot be read."""
    if not cython.compiled:
        columns = read_columns(data, start, header.record_count)
        if columns is not None:
            return _records_of(columns.from_delta(first_offset - header.base_offset), header, topic, partition)
    spans = record_spans(data, start, header.record_count)
    return read_records(data, spans, header, topic, partition, first_offset)


if not cython.compiled:

    def _records_of(columns: Columns, header: BatchHeader, topic: str, partition: int) -> list[Record]:
        by_broker = LOG_APPEND_TIME if header.log_append_time else CREATE_TIME
        base_offset, base_timestamp, new = header.base_offset, header.base_timestamp, Record.__new__
        found = []
        for delta, time, key, value in zip(*columns[:4], strict=True):
            record = new(Record)
            record.topic = topic
            record.partition = partition
            record.offset = base_offset + delta
            record.timestamp = header.max_timestamp if by_broker else base_timestamp + time
            record.timestamp_type = by_broker
            record.key = key
            record.value = value
            record.headers = ()
            found.append(record)
        for row, pairs in columns.headers.items():
            found[row].headers = tuple((name.decode("utf-8", "replace"), value) for name, value in pairs)
        return found


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
