"""Runs of batches of a fetch, straight into columns in the memory layout of Arrow: one call for all batches, no object per batch.

Role: the fast way of reading columns. A run is a number of batches, one behind the other, that need nothing but their records read: not
compressed, no markers. `Run.measure` checks every length and checksum of it and says how much there is; `RunColumns.add` then copies into
memory of exactly that size. A batch that is anything else, or damaged, ends the run in front of it: the caller knows what to do with it.
In plain Python reading twice would be too slow: there `Run.measure` keeps what it read (plain_reading.py) and `RunColumns` joins it.
Thread: any; an object belongs to one thread. The loops let go of the GIL when compiled. Lock: none.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.checksum import extend
    from cython.cimports.barnabas.records.kernel.wire import int16_at, int32_at, int64_at, put_bytes, varint_at
else:
    from barnabas.records.kernel.checksum import extend
    from barnabas.records.kernel.plain_reading import Columns, KeptRows, byte_count, header_cells, join_cells
    from barnabas.records.kernel.wire import int16_at, int32_at, int64_at, put_bytes, varint_at

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_CHECKED_FROM = cython.declare(cython.Py_ssize_t, 21)
_LENGTH_OVERHEAD = cython.declare(cython.Py_ssize_t, 12)
_SMALLEST_BODY = cython.declare(cython.Py_ssize_t, 6)
_SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 7)
_NOT_PLAIN = cython.declare(cython.Py_ssize_t, 0x07 | 0x20)  # a codec, or a batch of markers
_TRANSACTIONAL = cython.declare(cython.Py_ssize_t, 0x10)
_LOG_APPEND_TIME = cython.declare(cython.Py_ssize_t, 0x08)
_INT32_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_LOW_32 = cython.declare(cython.longlong, 0xFFFF_FFFF)


def whole_batches(data: memoryview) -> tuple[int, int]:
    """(where the last whole batch of a fetch ends, the offset behind it): 0 and -1 when not one header with all its bytes is there.

    No checksum covers base offsets. Where they go back the batches end, before the one that is wrong: the broker says more about it.
    """
    view: cython.const_uchar[::1] = data
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    next_offset: cython.longlong = -1
    before: cython.Py_ssize_t = -1
    offset_before: cython.longlong = -1
    if end < _HEADER_SIZE:
        return 0, -1
    source: cython.p_const_uchar = cython.address(view[0]) if cython.compiled else view
    with cython.nogil:
        while end - at >= _HEADER_SIZE:
            size: cython.Py_ssize_t = _size_at(source, at, end)
            if size < 0:
                break
            offset: cython.longlong = int64_at(source, at)
            if offset < next_offset:
                if before >= 0:
                    at, next_offset = before, offset_before
                break
            before = (
                at if 0 <= next_offset < offset else -1
            )  # where there is a gap before a batch, that may be the wrong one
            offset_before = next_offset
            next_offset = offset + int32_at(source, at + 23) + 1
            at += size
    return at, next_offset


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _size_at(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The bytes of the batch whose header is at a position; -1 when it is not whole, or no batch."""
    length: cython.Py_ssize_t = int32_at(data, at + 8)
    if data[at + 16] != 2 or length < _HEADER_SIZE - _LENGTH_OVERHEAD or length > end - at - _LENGTH_OVERHEAD:
        return -1
    if int64_at(data, at) < 0 or int32_at(data, at + 23) < 0:
        return -1
    return length + _LENGTH_OVERHEAD


@cython.cclass
class Sizes:
    """How much the columns of some records hold."""

    def __init__(self) -> None:
        self.clear()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def clear(self) -> cython.int:
        self.rows = self.key_bytes = self.value_bytes = 0
        self.headers = self.name_bytes = self.header_bytes = 0
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add(self, other: Sizes) -> cython.int:
        self.rows += other.rows
        self.key_bytes += other.key_bytes
        self.value_bytes += other.value_bytes
        self.headers += other.headers
        self.name_bytes += other.name_bytes
        self.header_bytes += other.header_bytes
        return 0


if not cython.compiled:

    def _sizes_of(columns: Columns) -> Sizes:
        sizes = Sizes()
        names, header_values = header_cells(columns.headers)
        sizes.rows, sizes.headers = len(columns.keys), len(names)
        sizes.key_bytes, sizes.value_bytes = byte_count(columns.keys), byte_count(columns.values)
        sizes.name_bytes, sizes.header_bytes = byte_count(names), byte_count(header_values)
        return sizes

    def _cells_of(cells: list[bytes | None]) -> Cells:
        column = Cells(0, 0)
        column.rows, column.nulls, column.ends, column.valid, column.data = join_cells(cells)
        return column


@cython.cclass
class Run:
    """The batches of `data` (bytes of a fetch) from `start` to `stop`, of which the records from `first_offset` on are wanted.

    `next_offset` is the offset behind the last of them; with none it is `first_offset`.
    """

    def __init__(self, data: memoryview, start: int, first_offset: int) -> None:
        self.data = data
        self.start = self.stop = start
        self.first_offset = self.next_offset = first_offset
        self.sizes = Sizes()
        self._batch = Sizes()
        if not cython.compiled:
            self.kept = KeptRows()

    def measure(self, check_crcs: cython.bint, transactional: cython.bint, max_rows: cython.Py_ssize_t) -> None:
        """Go on over batches as long as they are plain (`transactional` ones too when asked for), whole and sound, and until there are
        `max_rows`."""
        view: cython.const_uchar[::1] = self.data
        end: cython.Py_ssize_t = len(self.data)
        if end - self.stop < _HEADER_SIZE:
            return
        data: cython.p_const_uchar = cython.address(view[0]) if cython.compiled else view
        refused: cython.int = _NOT_PLAIN if transactional else _NOT_PLAIN | _TRANSACTIONAL
        with cython.nogil:
            while self.sizes.rows < max_rows and self._take_batch(data, end, refused, check_crcs):
                pass

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_batch(
        self, data: cython.p_const_uchar, end: cython.Py_ssize_t, refused: cython.int, check_crcs: cython.bint
    ) -> cython.bint:
        at: cython.Py_ssize_t = self.stop
        size: cython.Py_ssize_t = _size_at(data, at, end) if end - at >= _HEADER_SIZE else -1
        if size < 0 or int16_at(data, at + 21) & refused:
            return False
        base_offset: cython.longlong = int64_at(data, at)
        count: cython.Py_ssize_t = int32_at(data, at + 57)
        if not 0 < count <= (size - _HEADER_SIZE) // _SMALLEST_RECORD:
            return False
        wanted: cython.longlong = int32_at(data, at + 17)
        if check_crcs and extend(0, data, at + _CHECKED_FROM, at + size) != (wanted & _LOW_32):
            return False
        if cython.compiled:
            if not self._measure_records(data, at + _HEADER_SIZE, at + size, base_offset, count):
                return False
        else:
            kept = self.kept.take(bytes(data[at : at + size]), count, self.first_offset)
            if kept is None:
                return False
            self._batch = _sizes_of(kept)
        self.sizes.add(self._batch)
        self.stop = at + size
        self.next_offset = base_offset + int32_at(data, at + 23) + 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _measure_records(
        self,
        data: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        base_offset: cython.longlong,
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Whether these bytes are exactly `count` records with ascending offsets; their sizes are then in `_batch`."""
        self._batch.clear()
        last: cython.longlong = -1
        length: cython.longlong
        delta: cython.longlong
        first_delta: cython.longlong = self.first_offset - base_offset
        stop: cython.Py_ssize_t
        while count > 0:
            count -= 1
            length, at = varint_at(data, at, end)
            if at < 0 or length < _SMALLEST_BODY or length > end - at:
                return False
            stop = at + length
            delta, at = varint_at(data, at + 1, stop)  # of the timestamp
            if at < 0:
                return False
            delta, at = varint_at(data, at, stop)
            if at < 0 or delta <= last or delta > _INT32_MAX:
                return False
            last = delta
            if not self._measure_record(data, at, stop, delta >= first_delta):
                return False
            at = stop
        return at == end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _measure_record(
        self, data: cython.p_const_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, wanted: cython.bint
    ) -> cython.bint:
        """Whether key, value and headers from `at` on end exactly at `stop`; counted when `wanted`."""
        keys: cython.longlong
        values: cython.longlong
        headers: cython.longlong
        keys, at = varint_at(data, at, stop)
        if at < 0 or keys > stop - at:
            return False
        if keys > 0:
            at += keys
        values, at = varint_at(data, at, stop)
        if at < 0 or values > stop - at:
            return False
        if values > 0:
            at += values
        headers, at = varint_at(data, at, stop)
        if at < 0 or headers < 0 or headers > stop - at:
            return False
        if wanted:
            self._batch.rows += 1
            if keys > 0:
                self._batch.key_bytes += keys
            if values > 0:
                self._batch.value_bytes += values
        return at == stop if headers == 0 else self._measure_headers(data, at, stop, headers, wanted)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _measure_headers(
        self,
        data: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        count: cython.longlong,
        wanted: cython.bint,
    ) -> cython.bint:
        names: cython.longlong
        values: cython.longlong
        while count > 0:
            count -= 1
            names, at = varint_at(data, at, stop)
            if at < 0 or names < 0 or names > stop - at:
                return False
            at += names
            values, at = varint_at(data, at, stop)
            if at < 0 or values > stop - at:
                return False
            if values > 0:
                at += values
            if wanted:
                self._batch.headers += 1
                self._batch.name_bytes += names
                if values > 0:
                    self._batch.header_bytes += values
        return at == stop


@cython.cclass
class Cells:
    """A column of bytes: where each cell ends, which cells are there (a bit per row, least significant first), and the bytes."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows = 0
        self.nulls = 0
        self.ends = array("i", bytes(4)) * (rows + 1)
        self.valid = bytearray((rows + 7) // 8)
        self.data = bytearray(size)
        self._size = 0
        self._ends: cython.int[::1] = self.ends
        self._valid: cython.p_uchar = self.valid
        self._data: cython.p_uchar = self.data

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(self, source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.longlong) -> cython.Py_ssize_t:
        """Take a cell from `source`; a negative length is none. The position behind it."""
        row: cython.Py_ssize_t = self.rows
        if length >= 0:
            put_bytes(self._data, self._size, source, at, length)
            self._size += length
            at += length
            self._valid[row >> 3] |= 1 << (row & 7)
        else:
            self.nulls += 1
        self.rows = row + 1
        self._ends[row + 1] = self._size
        return at


@cython.cclass
class RunColumns:
    """The columns of some runs, one behind the other. `header_ends` says for each row where its headers end in the three columns of
    headers; `types` are 1 where the broker set the timestamp."""

    def __init__(self, runs: Sequence[Run]) -> None:
        if not cython.compiled:
            self._join(KeptRows.joined(run.kept for run in runs))
            return
        sizes = Sizes()
        for run in runs:
            sizes.add(run.sizes)
        self.rows = 0
        self.offsets = array("q", bytes(8)) * sizes.rows
        self.timestamps = array("q", bytes(8)) * sizes.rows
        self.types = bytearray(sizes.rows)
        self.header_ends = array("i", bytes(4)) * (sizes.rows + 1)
        self.keys = Cells(sizes.rows, sizes.key_bytes)
        self.values = Cells(sizes.rows, sizes.value_bytes)
        self.names = Cells(sizes.headers, sizes.name_bytes)
        self.header_values = Cells(sizes.headers, sizes.header_bytes)
        self._offsets: cython.longlong[::1] = self.offsets
        self._timestamps: cython.longlong[::1] = self.timestamps
        self._types: cython.p_uchar = self.types
        self._header_ends: cython.int[::1] = self.header_ends
        for run in runs:
            self._add(run)

    if not cython.compiled:

        def _join(self, kept: KeptRows) -> None:
            self.rows = len(kept.keys)
            self.offsets, self.timestamps, self.types = kept.offsets, kept.timestamps, kept.types
            self.header_ends = kept.header_ends()
            names, header_values = header_cells(kept.headers)
            self.keys, self.values = _cells_of(kept.keys), _cells_of(kept.values)
            self.names, self.header_values = _cells_of(names), _cells_of(header_values)

    def _add(self, run: Run) -> None:
        if run.stop == run.start:
            return
        view: cython.const_uchar[::1] = run.data
        data: cython.p_const_uchar = cython.address(view[0])
        at: cython.Py_ssize_t = run.start
        stop: cython.Py_ssize_t = run.stop
        first_offset: cython.longlong = run.first_offset
        with cython.nogil:
            while at < stop:
                self._add_batch(data, at, first_offset)
                at += int32_at(data, at + 8) + _LENGTH_OVERHEAD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_batch(
        self, data: cython.p_const_uchar, at: cython.Py_ssize_t, first_offset: cython.longlong
    ) -> cython.int:
        end: cython.Py_ssize_t = at + int32_at(data, at + 8) + _LENGTH_OVERHEAD
        base_offset: cython.longlong = int64_at(data, at)
        base_timestamp: cython.longlong = int64_at(data, at + 27)
        append_time: cython.longlong = int64_at(data, at + 35)
        by_broker: cython.bint = int16_at(data, at + 21) & _LOG_APPEND_TIME != 0
        length: cython.longlong
        time: cython.longlong
        delta: cython.longlong
        stop: cython.Py_ssize_t
        row: cython.Py_ssize_t
        at += _HEADER_SIZE
        while at < end:
            length, at = varint_at(data, at, end)
            stop = at + length
            time, at = varint_at(data, at + 1, stop)
            delta, at = varint_at(data, at, stop)
            if base_offset + delta >= first_offset:
                row = self.rows
                self._offsets[row] = base_offset + delta
                self._timestamps[row] = append_time if by_broker else base_timestamp + time
                self._types[row] = by_broker
                self._add_bytes(data, at, stop)
                self.rows = row + 1
            at = stop
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_bytes(self, data: cython.p_const_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
        length: cython.longlong
        count: cython.longlong
        length, at = varint_at(data, at, stop)
        at = self.keys.put(data, at, length)
        length, at = varint_at(data, at, stop)
        at = self.values.put(data, at, length)
        count, at = varint_at(data, at, stop)
        while count > 0:
            count -= 1
            length, at = varint_at(data, at, stop)
            at = self.names.put(data, at, length)
            length, at = varint_at(data, at, stop)
            at = self.header_values.put(data, at, length)
        self._header_ends[self.rows + 1] = self.names.rows
        return 0
