"""Building a record batch of format v2, record by record, in memory that was given (PP-10).

Role: writes records behind the place of the header, and the header when the batch is closed: no record is copied twice. One record
per call (`append`), or many rows of Arrow columns per call without the GIL (`append_rows`). The layout is drawn in
`records/batch.py`.
Thread: one at a time; the owner of a batch holds its topic's lock while it is open. Lock: none here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.builder_memory import (
        checksum_of,
        column,
        int64_memory,
        native_int32_at,
        put_native_int32,
        put_unsigned32,
        span_data,
        span_length,
        span_start,
    )
    from cython.cimports.barnabas.records.kernel.wire import (
        put_bytes,
        put_int16,
        put_int32,
        put_int64,
        put_varint,
        varint_size,
    )
else:
    from barnabas.records.kernel.builder_memory import (
        checksum_of,
        column,
        int64_memory,
        native_int32_at,
        put_native_int32,
        put_unsigned32,
        span_data,
        span_length,
        span_start,
    )
    from barnabas.records.kernel.wire import put_bytes, put_int16, put_int32, put_int64, put_varint, varint_size

HEADER_SIZE = 61
"""Bytes of the header of a batch; the records begin after it."""


class ColumnBuffers(NamedTuple):
    """The buffers of a large_binary array, as pyarrow has them; `first` is the row at which a slice begins."""

    offsets: Any
    data: Any
    valid: Any
    first: int


def murmur2(data: bytes) -> int:
    """The hash of Java's `Utils.murmur2`, as an unsigned number (PP-12)."""
    return _murmur2(data, 0, len(data))


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _murmur2(data: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.uint:
    m: cython.ulonglong = 0x5BD1E995
    low: cython.ulonglong = 0xFFFFFFFF
    h: cython.ulonglong = 0x9747B28C
    k: cython.ulonglong
    end: cython.Py_ssize_t = at + length
    h ^= length
    while end - at >= 4:
        k = data[at + 3]
        k = (k << 24) | (data[at + 2] << 16) | (data[at + 1] << 8) | data[at]
        k = (k * m) & low
        k ^= k >> 24
        h = ((h * m) ^ (k * m)) & low
        at += 4
    if end - at == 3:
        h ^= data[at + 2] << 16
    if end - at >= 2:
        h ^= data[at + 1] << 8
    if end - at >= 1:
        h = ((h ^ data[at]) * m) & low
    h ^= h >> 13
    h = (h * m) & low
    return h ^ (h >> 15)


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Headers as they stand in a record: their number, then key and value of each."""
    parts = [(key.encode(), value) for key, value in headers]
    target = bytearray(10 + sum(20 + len(key) + (0 if value is None else len(value)) for key, value in parts))
    memory: cython.p_uchar = target
    at: cython.Py_ssize_t = put_varint(memory, 0, len(parts))
    for key, value in parts:
        at = put_varint(memory, at, len(key))
        target[at : at + len(key)] = key
        at += len(key)
        if value is None:
            at = put_varint(memory, at, -1)
        else:
            at = put_varint(memory, at, len(value))
            target[at : at + len(value)] = value
            at += len(value)
    return bytes(target[:at])


def group_rows(partitions: bytes | bytearray, groups: cython.Py_ssize_t) -> tuple[bytearray, list[int]]:
    """Row numbers by partition, each partition's in their order, and where each partition begins; -1 counts as the last group.

    Both the partitions and the row numbers are int32 in the machine's order; partitions are below `groups` - 1.
    """
    rows: cython.Py_ssize_t = len(partitions) // 4
    ordered = bytearray(4 * rows)
    starts = bytearray(4 * (groups + 1))
    source: cython.p_const_uchar = partitions
    target: cython.p_uchar = ordered
    places: cython.p_uchar = starts
    row: cython.Py_ssize_t
    group: cython.Py_ssize_t
    place: cython.int
    with cython.nogil:
        for row in range(rows):  # how many rows each group has, one place further on
            group = native_int32_at(source, 4 * row)
            group = groups - 1 if group < 0 else group
            put_native_int32(places, 4 * (group + 1), native_int32_at(places, 4 * (group + 1)) + 1)
        for group in range(groups):  # where each group begins
            place = native_int32_at(places, 4 * group) + native_int32_at(places, 4 * (group + 1))
            put_native_int32(places, 4 * (group + 1), place)
        for row in range(rows):  # fill; each group's beginning moves to its end, which is the beginning of the next
            group = native_int32_at(source, 4 * row)
            group = groups - 1 if group < 0 else group
            place = native_int32_at(places, 4 * group)
            put_native_int32(target, 4 * place, row)
            put_native_int32(places, 4 * group, place + 1)
    return ordered, [0, *memoryview(starts).cast("i")[:groups]]


def record_size_bound(key: bytes | None, value: bytes | None, headers: bytes | None) -> int:
    """The most that a batch of this record alone can need, its header included."""
    size = HEADER_SIZE + 32
    for part in (key, value, headers):
        if part is not None:
            size += len(part)
    return size


@cython.cclass
class RowSource:
    """Rows to append: keys, values and encoded headers as columns of large_binary, timestamps in milliseconds as int64.

    Everything but the values may be None: no key, no headers, the time of now. The buffers live as long as this does.
    """

    def __init__(
        self,
        values: ColumnBuffers,
        keys: ColumnBuffers | None = None,
        headers: ColumnBuffers | None = None,
        times: tuple[Any, int] | None = None,
    ) -> None:
        self._owners = (values, keys, headers, times)
        self._has_keys = keys is not None
        self._has_headers = headers is not None
        self._has_times = times is not None
        self._values = column(values)
        if keys is not None:
            self._keys = column(keys)
        if headers is not None:
            self._headers = column(headers)
        if times is not None:
            self._times = int64_memory(times[0], times[1])

    def partitions(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, count: cython.uint) -> bytearray:
        """For each row the partition of its key as int32 in the machine's order; -1 for a row without a key."""
        found = bytearray(4 * (stop - start))
        memory: cython.p_uchar = found
        row: cython.Py_ssize_t
        with cython.nogil:
            for row in range(start, stop):
                put_native_int32(memory, 4 * (row - start), self._partition(row, count))
        return found

    def size_bound(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> int:
        """The most that a batch with only one of these rows can need, whichever it is."""
        most: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        row: cython.Py_ssize_t
        with cython.nogil:
            for row in range(start, stop):
                size = span_length(self._values, row)
                if self._has_keys:
                    size += span_length(self._keys, row)
                if self._has_headers:
                    size += span_length(self._headers, row)
                if size > most:
                    most = size
        return HEADER_SIZE + 35 + most

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _partition(self, row: cython.Py_ssize_t, count: cython.uint) -> cython.int:
        if not self._has_keys:
            return -1
        length: cython.Py_ssize_t = span_length(self._keys, row)
        if length < 0:
            return -1
        return (_murmur2(span_data(self._keys), span_start(self._keys, row), length) & 0x7FFFFFFF) % count


@cython.cclass
class BatchBuilder:
    """One batch in `buffer`, of which it uses the first `limit` bytes at most. `size` counts the header and the records."""

    def __init__(self, buffer: bytearray, limit: int) -> None:
        if not HEADER_SIZE < limit <= len(buffer):
            raise ValueError(f"a batch needs more than {HEADER_SIZE} and at most {len(buffer)} bytes here, not {limit}")
        self.buffer = buffer
        self._memory = buffer
        self.limit = limit
        self.size = HEADER_SIZE
        self.plain_size = HEADER_SIZE
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.closed = False

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None = None) -> int:
        """Write one record; its number in the batch, or -1 when there is no room (or the batch is closed). `headers` are encoded."""
        return self.append_record(timestamp, key, value, headers)

    def append_rows(
        self, source: RowSource, start: int, stop: int, now: int, rows: bytes | bytearray | None = None
    ) -> int:
        """Write the rows `start` to `stop` (of those whose numbers `rows` lists as int32, if given) as far as there is room; how many."""
        if self.closed:
            return 0
        first: cython.Py_ssize_t = start
        end: cython.Py_ssize_t = stop
        time: cython.longlong = now
        listed: cython.bint = rows is not None
        numbers: cython.p_const_uchar = rows if rows is not None else b""
        written: cython.Py_ssize_t
        with cython.nogil:
            written = self._append_span(source, first, end, time, listed, numbers)
        return written

    @cython.cfunc
    @cython.exceptval(check=False)
    def append_record(
        self, timestamp: cython.longlong, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> cython.int:
        key_length: cython.Py_ssize_t = -1 if key is None else len(key)
        value_length: cython.Py_ssize_t = -1 if value is None else len(value)
        header_length: cython.Py_ssize_t = 1 if headers is None else len(headers)
        at: cython.Py_ssize_t = self._begin_record(timestamp, key_length, value_length, header_length)
        if at < 0:
            return -1
        memory: cython.p_uchar = self._memory
        at = put_varint(memory, at, key_length)
        if key_length > 0:
            put_bytes(memory, at, key, 0, key_length)
            at += key_length
        at = put_varint(memory, at, value_length)
        if value_length > 0:
            put_bytes(memory, at, value, 0, value_length)
            at += value_length
        if headers is None:
            memory[at] = 0
        else:
            put_bytes(memory, at, headers, 0, header_length)
        return self._end_record(timestamp, at + header_length)

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _begin_record(
        self,
        timestamp: cython.longlong,
        key_length: cython.Py_ssize_t,
        value_length: cython.Py_ssize_t,
        header_length: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write what stands before the key; where the key begins, or -1 when there is no room for the whole record."""
        delta: cython.longlong = timestamp - self.base_timestamp if self.record_count else 0
        body: cython.Py_ssize_t = (
            1
            + varint_size(delta)
            + varint_size(self.record_count)
            + varint_size(key_length)
            + varint_size(value_length)
            + header_length
        )
        if key_length > 0:
            body += key_length
        if value_length > 0:
            body += value_length
        if self.size + varint_size(body) + body > self.limit or self.closed:
            return -1
        if not self.record_count:
            self.base_timestamp = timestamp
        memory: cython.p_uchar = self._memory
        at: cython.Py_ssize_t = put_varint(memory, self.size, body)
        memory[at] = 0  # attributes
        at = put_varint(memory, at + 1, delta)
        return put_varint(memory, at, self.record_count)

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _end_record(self, timestamp: cython.longlong, end: cython.Py_ssize_t) -> cython.int:
        self.size = end
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.record_count += 1
        return self.record_count - 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_span(
        self,
        source: RowSource,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        now: cython.longlong,
        listed: cython.bint,
        rows: cython.p_const_uchar,
    ) -> cython.Py_ssize_t:
        index: cython.Py_ssize_t
        row: cython.Py_ssize_t
        for index in range(start, stop):
            row = native_int32_at(rows, 4 * index) if listed else index
            if not self._append_row(source, row, now):
                return index - start
        return stop - start

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_row(self, source: RowSource, row: cython.Py_ssize_t, now: cython.longlong) -> cython.bint:
        key_length: cython.Py_ssize_t = span_length(source._keys, row) if source._has_keys else -1
        value_length: cython.Py_ssize_t = span_length(source._values, row)
        header_length: cython.Py_ssize_t = span_length(source._headers, row) if source._has_headers else -1
        timestamp: cython.longlong = source._times[row] if source._has_times else now
        at: cython.Py_ssize_t = self._begin_record(
            timestamp, key_length, value_length, header_length if header_length > 0 else 1
        )
        if at < 0:
            return False
        memory: cython.p_uchar = self._memory
        at = put_varint(memory, at, key_length)
        if key_length > 0:
            put_bytes(memory, at, span_data(source._keys), span_start(source._keys, row), key_length)
            at += key_length
        at = put_varint(memory, at, value_length)
        if value_length > 0:
            put_bytes(memory, at, span_data(source._values), span_start(source._values, row), value_length)
            at += value_length
        if header_length > 0:
            put_bytes(memory, at, span_data(source._headers), span_start(source._headers, row), header_length)
            at += header_length
        else:
            memory[at] = 0
            at += 1
        self._end_record(timestamp, at)
        return True

    # The end of a batch.

    def close_for_appends(self) -> None:
        """No record more; the header is written by `write_header`."""
        if not self.closed:
            self.closed = True
            self.plain_size = self.size

    def replace_records(self, records: bytes) -> None:
        """Put the compressed form in the place of the records; it must not be larger."""
        if not self.closed or HEADER_SIZE + len(records) > self.plain_size:
            raise ValueError("only the records of a closed batch can be replaced, by fewer bytes")
        put_bytes(self._memory, HEADER_SIZE, records, 0, len(records))
        self.size = HEADER_SIZE + len(records)

    def write_header(self, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Write the header in place, checksum included; may be called again with other values."""
        memory: cython.p_uchar = self._memory
        put_int64(memory, 0, 0)
        put_int32(memory, 8, self.size - 12)
        put_int32(memory, 12, -1)
        memory[16] = 2
        put_int16(memory, 21, attributes)
        put_int32(memory, 23, self.record_count - 1)
        put_int64(memory, 27, self.base_timestamp)
        put_int64(memory, 35, self.max_timestamp)
        put_int64(memory, 43, producer_id)
        put_int16(memory, 51, producer_epoch)
        put_int32(memory, 53, base_sequence)
        put_int32(memory, 57, self.record_count)
        crc: cython.uint = checksum_of(memory, 21, self.size)
        put_unsigned32(memory, 17, crc)

    @property
    def view(self) -> memoryview:
        """The bytes of the batch, not copied."""
        return memoryview(self.buffer)[: self.size]
