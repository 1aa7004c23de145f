"""Walking over the batches of a segment file, chunk by chunk: what recovery and the rebuilding of an index need, at the speed of reading.

Role: finds where the valid batches of a file end, and gathers on the way the entries of both indexes, the largest timestamp, new leader
epochs, and the headers that the state of producers depends on. No Python object is made per batch; results are bytes in the layout of
the file that they go to.
Thread: one per scan; `feed` lets go of the GIL when compiled. Lock: none.
"""

from __future__ import annotations

import struct
from array import array

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.checksum import extend
    from cython.cimports.barnabas.records.kernel.wire import (
        int16_at,
        int32_at,
        int64_at,
        put_bytes,
        put_int32,
        put_int64,
    )
else:
    from barnabas.records.kernel.checksum import extend
    from barnabas.records.kernel.wire import int16_at, int32_at, int64_at, put_bytes, put_int32, put_int64

_PRODUCER_ROW = struct.Struct(">qiibIhiqqqhiiq")
"""The thirteen fields of a header, and the position of the batch in the file."""
EPOCH_ROW = struct.Struct(">iq")
"""A row of `take_epochs`: a leader epoch larger than all before, and the base offset of its first batch."""

FINE, CUT_OFF, NOT_A_BATCH, WRONG_OFFSET, WRONG_CHECKSUM = range(5)
PROBLEMS = (
    "",
    "the file ends inside a batch",
    "there is no batch of format 2",
    "its offsets do not follow those before",
    "its checksum is wrong",
)
"""Why a scan ended, by number."""

BATCHES_KEPT = 8
"""Of each producer so many of its last batches are handed over; its state knows five. A power of two is quicker to count with."""

_BEGINNINGS = cython.declare(cython.Py_ssize_t, 4)
"""So many of the first batches of a transaction are handed over: where the first one is damaged, it begins with the next."""
_FINE = cython.declare(cython.Py_ssize_t, FINE)
_CUT_OFF = cython.declare(cython.Py_ssize_t, CUT_OFF)
_NOT_A_BATCH = cython.declare(cython.Py_ssize_t, NOT_A_BATCH)
_WRONG_OFFSET = cython.declare(cython.Py_ssize_t, WRONG_OFFSET)
_WRONG_CHECKSUM = cython.declare(cython.Py_ssize_t, WRONG_CHECKSUM)
_BATCHES_KEPT = cython.declare(cython.Py_ssize_t, BATCHES_KEPT)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_ROW_SIZE = cython.declare(cython.Py_ssize_t, 69)
_EPOCH_SIZE = cython.declare(cython.Py_ssize_t, 12)
_MAX_RELATIVE_OFFSET = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_ROOM = cython.declare(cython.Py_ssize_t, 4096)
"""Results of each kind that are gathered before `feed` must be interrupted."""
_WAITING = cython.declare(cython.Py_ssize_t, _ROOM * _ROW_SIZE)
"""Where the header of a batch waits that a chunk has cut: behind all rows."""
_SLOTS = cython.declare(cython.Py_ssize_t, 2048)
"""Size of the table of producers, a power of two. Producers beyond three quarters of it get more rows than they need."""
_FREE = cython.declare(cython.Py_ssize_t, -1)
_FIELDS = struct.Struct(">qiibIhi8xqq")


@cython.cclass
class BatchScan:
    """A walk over one segment file.

        scan = BatchScan(base_offset, file_size, check_from, index_interval)
        while scan.wants_more:
            scan.feed(read(scan.read_position, CHUNK))
            if scan.crowded or not scan.wants_more:
                ... scan.take_offset_entries() and the other three

    Batches from the offset `check_from` on are read whole and their checksums compared; so is one that holds it. Of those before only
    headers are looked at, and `read_position` jumps over their records. The walk ends at the end of the file or at the first bytes that
    are no valid batch; `valid_size` and `next_offset` say where. `stand_at` lets it go on behind them.
    """

    _base: cython.longlong
    _limit: cython.longlong
    _check_from: cython.longlong
    _interval: cython.longlong
    _position: cython.longlong
    _valid: cython.longlong
    _holes: cython.Py_ssize_t
    _last: cython.longlong
    _last_expected: cython.longlong
    _expected: cython.longlong
    _epoch: cython.int
    _problem: cython.int
    _since_index: cython.longlong
    _max_time: cython.longlong
    _max_time_offset: cython.longlong
    _last_time_entry: cython.longlong
    # The batch that is being read: chunks may cut it.
    _header: cython.p_const_uchar
    _header_at: cython.Py_ssize_t
    _header_kept: cython.bint
    _size: cython.longlong
    _left: cython.longlong
    _checked: cython.bint
    _crc: cython.uint
    _wanted_crc: cython.uint
    _offset: cython.longlong
    _delta: cython.int
    _batch_epoch: cython.int
    _attributes: cython.int
    _time: cython.longlong
    _producer: cython.longlong
    # What was found and not yet taken: buffers, their memory, and how much of it is used.
    _offset_buffer: bytearray
    _time_buffer: bytearray
    _row_buffer: bytearray
    _epoch_buffer: bytearray
    _offset_entries: cython.p_uchar
    _time_entries: cython.p_uchar
    _rows: cython.p_uchar
    _epochs: cython.p_uchar
    _offset_count: cython.Py_ssize_t
    _time_count: cython.Py_ssize_t
    _row_count: cython.Py_ssize_t
    _epoch_count: cython.Py_ssize_t
    # A table from producer to its newest rows: the producer, how many batches it had, where its last rows are, and how many of the first
    # batches of its open transaction were kept. `_pinned` are the rows that must stay although newer ones came.
    _table: cython.longlong[::1]
    _batches: cython.longlong[::1]
    _newest: cython.longlong[::1]
    _open: cython.longlong[::1]
    _pinned: cython.longlong[::1]
    _used_slots: cython.Py_ssize_t

    def __init__(self, base_offset: int, file_size: int, check_from: int, index_interval: int, epoch: int = -1) -> None:
        self._base = self._expected = self._max_time_offset = base_offset
        self._limit = file_size
        self._check_from = check_from
        self._interval = index_interval
        self._epoch = epoch
        self._position = self._valid = self._since_index = self._left = self._holes = 0
        self._max_time = self._last_time_entry = self._last = self._last_expected = -1
        self._problem = _FINE
        self._offset_entries = self._offset_buffer = bytearray(8 * _ROOM)
        self._time_entries = self._time_buffer = bytearray(12 * _ROOM)
        self._rows = self._row_buffer = bytearray(_ROW_SIZE * (_ROOM + 1))
        self._epochs = self._epoch_buffer = bytearray(_EPOCH_SIZE * _ROOM)
        self._offset_count = self._time_count = self._row_count = self._epoch_count = self._used_slots = 0
        self._table = array("q", [_FREE]) * _SLOTS
        self._batches = array("q", [0]) * _SLOTS
        self._newest = array("q", [0]) * (_SLOTS * _BATCHES_KEPT)
        self._open = array("q", [0]) * _SLOTS
        self._pinned = array("q", [0]) * _ROOM
        self._check_end()

    # Where the walk is.

    @property
    def wants_more(self) -> bool:
        """Whether the walk goes on, with the bytes at `read_position`."""
        return self._problem == _FINE and self._position < self._limit

    @property
    def read_position(self) -> int:
        """Where in the file the next chunk must begin."""
        return self._position

    @property
    def valid_size(self) -> int:
        """Bytes of the file up to the end of the last valid batch."""
        return self._valid

    @property
    def next_offset(self) -> int:
        """The offset after the last valid batch."""
        return self._expected

    @property
    def problem(self) -> int:
        """Why the walk ended before the end of the file: a number of PROBLEMS, or FINE."""
        return self._problem

    @property
    def last_batch(self) -> tuple[int, int] | None:
        """The last valid batch since the walk began or was put somewhere: its position, and which offset was expected there."""
        return None if self._last < 0 else (self._last, self._last_expected)

    @property
    def holes(self) -> int:
        """How often the walk was put somewhere."""
        return self._holes

    def forget_last(self) -> None:
        """The last valid batch is none after all: no entry of the offset index shall lead to it, and what it says of its producer is not
        handed over, unless that was taken already."""
        row: cython.Py_ssize_t
        if self._offset_count and int32_at(self._offset_entries, self._offset_count * 8 - 4) == self._last:
            self._offset_count -= 1
        for row in range(self._row_count):
            if int64_at(self._rows, row * _ROW_SIZE + 61) == self._last:
                put_int64(self._rows, row * _ROW_SIZE + 61, -1)
                self._reopen(row)

    @cython.cfunc
    def _reopen(self, row: cython.Py_ssize_t) -> cython.void:
        """A row that began a transaction is forgotten: the next one of its producer begins it."""
        slot: cython.Py_ssize_t = self._slot_of(int64_at(self._rows, row * _ROW_SIZE + 43))
        if slot >= 0 and self._pinned[row] and not int16_at(self._rows, row * _ROW_SIZE + 21) & 0x20:
            self._open[slot] = 0

    def stand_at(self, position: int, offset: int, problem: int) -> None:
        """Put the walk to a position, where a batch of this offset or a later one may begin; with FINE it goes on from there."""
        self._position = self._valid = position
        self._expected = offset
        self._problem = problem
        self._left = 0
        self._last = -1
        self._holes += 1
        self._check_end()

    @property
    def max_time(self) -> tuple[int, int]:
        """The largest timestamp of all batches (-1: none has one), and the last offset of the first batch that has it."""
        return self._max_time, self._max_time_offset

    @property
    def last_time_entry(self) -> int:
        """The timestamp of the last entry of the time index, -1 when there is none."""
        return self._last_time_entry

    @property
    def bytes_since_index(self) -> int:
        """Bytes of the batches from the last entry of the offset index on."""
        return self._since_index

    @property
    def crowded(self) -> bool:
        """Whether results should be taken before the next chunk: else it may be read in vain."""
        most = _ROOM // 2
        return self._offset_count > most or self._row_count > most or self._epoch_count > most

    # What was found. Each call hands over what is new.

    def take_offset_entries(self) -> bytes:
        """Entries of the offset index, as in its file: relative last offset of a batch and its position."""
        taken = bytes(self._offset_buffer[: 8 * self._offset_count])
        self._offset_count = 0
        return taken

    def take_time_entries(self) -> bytes:
        """Entries of the time index, as in its file: the largest timestamp so far and the relative last offset of its batch."""
        taken = bytes(self._time_buffer[: 12 * self._time_count])
        self._time_count = 0
        return taken

    def take_epochs(self) -> bytes:
        """New leader epochs, as EPOCH_ROWs."""
        taken = bytes(self._epoch_buffer[: _EPOCH_SIZE * self._epoch_count])
        self._epoch_count = 0
        return taken

    def take_producer_rows(self) -> list[tuple[int, ...]]:
        """(the fields of a header, position) of the batches that decide the state of producers, in the order of the log.

        Those are the batches with a producer id, without those whose producer has at least BATCHES_KEPT later ones among the rows
        and that are neither among the first of a transaction nor end one: replaying what is left gives the same state.
        """
        rows = bytes(self._row_buffer[: _ROW_SIZE * self._row_count])
        self._row_count = 0
        if self._used_slots:
            self._used_slots = 0
            self._table = array("q", [_FREE]) * _SLOTS
            self._batches = array("q", [0]) * _SLOTS
            self._open = array("q", [0]) * _SLOTS
        return sorted(
            row for row in _PRODUCER_ROW.iter_unpack(rows) if row[13] >= 0
        )  # compiled, [-1] would not count from the end

    # The walk.

    def feed(self, chunk: bytes) -> None:
        """Go over some bytes of the file that begin at `read_position`. Ends early when there is no room for more results."""
        data: cython.p_const_uchar = chunk
        end: cython.Py_ssize_t = len(chunk)
        at: cython.Py_ssize_t = 0
        if not end and self._position < self._limit:
            self._problem = _CUT_OFF  # the file is shorter than it was
        with cython.nogil:
            while self._problem == _FINE and at < end and self._has_room():
                if cython.compiled and not self._left:
                    at = self._run(data, at, end)
                    if at >= end or not self._has_room():
                        break
                if not self._left and (end - at < _HEADER_SIZE or not self._begin(data, at)):
                    break
                at = self._go_on(data, at, end)
        if self._left:
            self._keep_header()
        self._check_end()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(self, data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Go over batches that are whole, checked and good, and begin no epoch: nearly all. The position after them; what is there
        instead is for `_begin` to say. Numbers stay in registers, which is why this is written out: short batches take a third less."""
        behind: cython.longlong = self._position - at  # of a position in the file to that in the chunk
        stop: cython.Py_ssize_t = end if end <= self._limit - behind else self._limit - behind
        expected: cython.longlong = self._expected
        expected_before: cython.longlong = self._last_expected
        furthest: cython.longlong = self._base + _MAX_RELATIVE_OFFSET
        check_from: cython.longlong = self._check_from
        interval: cython.longlong = self._interval
        since_index: cython.longlong = self._since_index
        max_time: cython.longlong = self._max_time
        epoch: cython.int = self._epoch
        before: cython.Py_ssize_t = -1
        while stop - at >= _HEADER_SIZE:
            size: cython.longlong = cython.cast(cython.longlong, int32_at(data, at + 8)) + 12
            offset: cython.longlong = int64_at(data, at)
            delta: cython.int = int32_at(data, at + 23)
            last: cython.longlong = offset + delta
            if (
                data[at + 16] != 2
                or not _HEADER_SIZE <= size <= stop - at
                or delta < 0
                or not expected <= offset <= furthest
                or not check_from <= last <= furthest
                or int32_at(data, at + 12) > epoch
                or not self._has_room()
            ):
                break
            if extend(0, data, at + 21, at + size) != cython.cast(cython.uint, int32_at(data, at + 17)):
                break
            if int64_at(data, at + 43) >= 0:
                self._note_header(data, at, behind + at)
            if int64_at(data, at + 35) > max_time:
                self._max_time = max_time = int64_at(data, at + 35)
                self._max_time_offset = last
            if since_index > interval:
                self._add_entries(last, behind + at)
                since_index = 0
            since_index += size
            expected_before = expected
            expected = last + 1
            before = at
            at += size
        if before >= 0:
            self._expected = expected
            self._last_expected = expected_before
            self._since_index = since_index
            self._last = behind + before
            self._position = self._valid = behind + at
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_header(self) -> cython.void:
        """The chunk goes, but not yet the batch."""
        if not self._header_kept:
            self._header_kept = True
            put_bytes(self._rows, _WAITING, self._header, self._header_at, 61)
            self._header = self._rows
            self._header_at = _WAITING

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_room(self) -> cython.bint:
        return self._offset_count < _ROOM and self._row_count < _ROOM and self._epoch_count < _ROOM

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_end(self) -> cython.void:
        """A rest that is too short for a header ends the walk."""
        if self._problem == _FINE and not self._left and 0 < self._limit - self._position < _HEADER_SIZE:
            self._problem = _CUT_OFF

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self, data: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
        """Read a header; False when it is bad."""
        magic: cython.int
        if cython.compiled:
            self._offset = int64_at(data, at)
            self._size = cython.cast(cython.longlong, int32_at(data, at + 8)) + 12
            self._batch_epoch = int32_at(data, at + 12)
            magic = data[at + 16]
            self._wanted_crc = int32_at(data, at + 17)
            self._attributes = int16_at(data, at + 21)
            self._delta = int32_at(data, at + 23)
            self._time = int64_at(data, at + 35)
            self._producer = int64_at(data, at + 43)
        else:
            fields = _FIELDS.unpack_from(data, at)
            self._offset, length, self._batch_epoch, magic, self._wanted_crc, self._attributes, self._delta = fields[:7]
            self._size = length + 12
            self._time, self._producer = fields[7:]
        if magic != 2 or self._size < _HEADER_SIZE:
            self._problem = _NOT_A_BATCH
        elif self._size > self._limit - self._position:
            self._problem = _CUT_OFF
        elif (
            self._delta < 0
            or self._offset < self._expected
            or self._offset - self._base > _MAX_RELATIVE_OFFSET - self._delta
        ):
            self._problem = _WRONG_OFFSET
        else:
            self._header = data
            self._header_at = at
            self._header_kept = False
            self._left = self._size
            self._checked = self._offset + self._delta >= self._check_from
            self._crc = 0
            return True
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _go_on(self, data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read on in a batch that was begun: to its end, or to the end of the chunk. The position after what was read."""
        step: cython.longlong = self._left
        if step == self._size and step <= end - at and self._checked:
            self._left = 0  # the usual case: all of it is here
            self._position += step
            if extend(0, data, at + 21, at + step) == self._wanted_crc:
                self._accept()
            else:
                self._problem = _WRONG_CHECKSUM
            return at + step
        if self._checked:
            if step > end - at:
                step = end - at
            start: cython.Py_ssize_t = at + 21 if self._left == self._size else at
            self._crc = extend(self._crc, data, start, at + step)
        self._left -= step
        self._position += step
        if not self._left:
            if self._checked and self._crc != self._wanted_crc:
                self._problem = _WRONG_CHECKSUM
            else:
                self._accept()
        return at + step if step < end - at else end

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _accept(self) -> cython.void:
        """The batch is valid: note it, as an append does."""
        last: cython.longlong = self._offset + self._delta
        if self._time > self._max_time:
            self._max_time = self._time
            self._max_time_offset = last
        if self._since_index > self._interval:
            self._add_entries(last, self._position - self._size)
        self._since_index += self._size
        if self._producer >= 0:
            self._note_producer()
        if self._batch_epoch > self._epoch:
            self._epoch = self._batch_epoch
            put_int32(self._epochs, self._epoch_count * _EPOCH_SIZE, self._epoch)
            put_int64(self._epochs, self._epoch_count * _EPOCH_SIZE + 4, self._offset)
            self._epoch_count += 1
        self._last_expected = self._expected
        self._expected = last + 1
        self._last = self._valid
        self._valid = self._position

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_entries(self, last: cython.longlong, position: cython.longlong) -> cython.void:
        put_int32(self._offset_entries, self._offset_count * 8, last - self._base)
        put_int32(self._offset_entries, self._offset_count * 8 + 4, position)
        self._offset_count += 1
        self._since_index = 0
        if self._max_time > self._last_time_entry:
            self._last_time_entry = self._max_time
            put_int64(self._time_entries, self._time_count * 12, self._max_time)
            put_int32(self._time_entries, self._time_count * 12 + 8, self._max_time_offset - self._base)
            self._time_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note_header(self, data: cython.p_const_uchar, at: cython.Py_ssize_t, position: cython.longlong) -> cython.void:
        """`_note_producer` of a batch that was not begun."""
        self._header = data
        self._header_at = at
        self._attributes = int16_at(data, at + 21)
        self._producer = int64_at(data, at + 43)
        self._size = 0
        position, self._position = self._position, position
        self._note_producer()
        self._position = position

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note_producer(self) -> cython.void:
        """Keep the row of a valid batch: in the place of the ninth last of its producer if that is not needed any more."""
        row: cython.longlong = self._row_count
        slot: cython.Py_ssize_t = self._slot_of(self._producer)
        pinned: cython.bint = False
        if self._attributes & 0x20:
            pinned = True
            if slot >= 0:
                self._open[slot] = 0
        elif slot >= 0:
            if self._attributes & 0x10 and self._open[slot] < _BEGINNINGS:
                self._open[slot] += 1
                pinned = True
            batches: cython.longlong = self._batches[slot]
            oldest: cython.Py_ssize_t = slot * 8 + (batches & 7)
            if batches >= 8 and not pinned and not self._pinned[self._newest[oldest]]:
                row = self._newest[oldest]
            self._newest[oldest] = row
            self._batches[slot] = batches + 1
        put_bytes(self._rows, row * 69, self._header, self._header_at, 61)  # plain numbers: copied without a call
        put_int64(self._rows, row * 69 + 61, self._position - self._size)
        if row == self._row_count:
            self._pinned[row] = pinned
            self._row_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _slot_of(self, producer: cython.longlong) -> cython.Py_ssize_t:
        """The producer's slot in the table; -1 when it is not there and the table is full."""
        slot: cython.Py_ssize_t = producer & (_SLOTS - 1)
        while self._table[slot] != producer:
            if self._table[slot] == _FREE:
                if self._used_slots > _SLOTS * 3 // 4:
                    return -1
                self._used_slots += 1
                self._table[slot] = producer
                break
            slot = (slot + 1) & (_SLOTS - 1)
        return slot
