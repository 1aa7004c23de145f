"""The records of a batch in plain Python: column by column, not record by record.

Role: what a consumer reads with when the kernel is not compiled. A call per number would take most of the time, so each step goes over many
records and reads the one number of each that comes next; numbers of one or two bytes, which nearly all are, are read in the loop itself.
Every length is checked against the end of its record before bytes are copied; what is not sound is left to the strict reading in
record_layout.py, which knows how to say what is wrong. The compiled form never imports this.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, islice
from typing import NamedTuple

from barnabas.records.batch import HEADER, HEADER_SIZE, BatchHeader
from barnabas.records.kernel.wire import varint_at

__all__ = ["CellColumn", "Columns", "KeptRows", "byte_count", "header_cells", "join_cells", "read_columns"]

Cell = bytes | None
Headers = list[tuple[bytes, Cell]]

_AT_ONCE = 4096
"""Records per step: the lists of places, which are many times as large as the smallest records, stay small whatever a batch holds."""
_LONGEST_VARINT = 10
_INT32_MAX = 0x7FFF_FFFF
_BEYOND_INT64, _BEYOND_UINT64 = 1 << 63, 1 << 64


class _Unsound(Exception):
    """These are not records."""


class Columns(NamedTuple):
    """The records of a batch: a number or cell per record, and the headers of those that have some, by the record's place here."""

    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keys: list[Cell]
    values: list[Cell]
    headers: dict[int, Headers]

    def from_delta(self, first: int) -> Columns:
        """Without the records whose offset delta is smaller."""
        skip = bisect_left(self.offset_deltas, first)
        if not skip:
            return self
        headers = {row - skip: pairs for row, pairs in self.headers.items() if row >= skip}
        offset_deltas, timestamp_deltas = self.offset_deltas[skip:], self.timestamp_deltas[skip:]
        return Columns(offset_deltas, timestamp_deltas, self.keys[skip:], self.values[skip:], headers)


def read_columns(data: bytes, start: int, count: int) -> Columns | None:
    """The records of `data[start:]`; None unless these are exactly `count` (one or more) whole records with ascending offsets."""
    columns = Columns([], [], [], [], {})
    try:
        while count > 0:
            start = _read_some(data, start, min(count, _AT_ONCE), columns)
            count -= _AT_ONCE
    except (IndexError, _Unsound):
        return None
    deltas = columns.offset_deltas
    ascending = all(map(operator.lt, deltas, islice(deltas, 1, None)))
    sound = ascending and start == len(data) and (not deltas or (deltas[0] >= 0 and deltas[-1] <= _INT32_MAX))
    return columns if sound else None


def _read_some(data: bytes, start: int, count: int, columns: Columns) -> int:
    """Add the next `count` records to the columns. The position behind them."""
    starts, stops = _bodies(data, start, count)
    timestamp_deltas, places = _numbers(data, starts)
    offset_deltas, places = _numbers(data, places)
    keys, places = _cells(data, places, stops)
    values, places = _cells(data, places, stops)
    before = len(columns.keys)
    for row, at, stop in zip(range(before, before + count), places, stops, strict=True):
        if at + 1 != stop or data[at]:  # not just a count of 0 at the end
            columns.headers[row] = _headers(data, at, stop)
    columns.offset_deltas.extend(offset_deltas)
    columns.timestamp_deltas.extend(timestamp_deltas)
    columns.keys.extend(keys)
    columns.values.extend(values)
    return stops[-1]


def _bodies(data: bytes, at: int, count: int) -> tuple[list[int], list[int]]:
    """Where the timestamp of each record is, and where the record ends."""
    starts, stops = [], []
    for _ in range(count):
        raw = data[at]
        at += 1
        if raw > 0x7F:
            second = data[at]
            if second < 0x80:
                raw += (second << 7) - 0x80
                at += 1
            else:
                raw, at = _long_varint(data, at - 1)
        starts.append(at + 1)  # behind the attributes
        at += raw >> 1
        if raw & 1 or at > len(data):
            raise _Unsound
        stops.append(at)
    return starts, stops


def _numbers(data: bytes, places: list[int]) -> tuple[list[int], list[int]]:
    """The numbers at these places, and where each ends. The bytes of another record may be read, but then the ends tell in the end."""
    numbers, ends = [], []
    for place in places:
        raw = data[place]
        end = place + 1
        if raw > 0x7F:
            second = data[end]
            if second < 0x80:
                raw += (second << 7) - 0x80
                end += 1
            else:
                raw, end = _long_varint(data, place)
        numbers.append(~(raw >> 1) if raw & 1 else raw >> 1)
        ends.append(end)
    return numbers, ends


def _cells(data: bytes, places: list[int], stops: list[int]) -> tuple[list[Cell], list[int]]:
    """The keys or values at these places, and where each ends, which is within its record."""
    cells: list[Cell] = []
    ends = []
    for place, stop in zip(places, stops, strict=True):
        raw = data[place]
        end = place + 1
        if raw > 0x7F:
            second = data[end]
            if second < 0x80:
                raw += (second << 7) - 0x80
                end += 1
            else:
                raw, end = _long_varint(data, place)
        if raw & 1:
            cells.append(None)
        else:
            begin, end = end, end + (raw >> 1)
            if end > stop:
                raise _Unsound
            cells.append(data[begin:end])
        ends.append(end)
    return cells, ends


def _long_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint before zig-zag is undone, and where it ends."""
    value, end = varint_at(data, at, min(len(data), at + _LONGEST_VARINT))
    if end < 0:
        raise _Unsound
    return (value << 1) ^ (value >> 63), end


def _headers(data: bytes, at: int, stop: int) -> Headers:
    """The headers of a record, which end exactly where it does."""
    count, at = varint_at(data, at, stop)
    if at < 0 or not 0 <= count <= stop - at:
        raise _Unsound
    found: Headers = []
    for _ in range(count):
        name, at = _cell(data, at, stop)
        value, at = _cell(data, at, stop)
        if name is None:
            raise _Unsound
        found.append((name, value))
    if at != stop:
        raise _Unsound
    return found


def _cell(data: bytes, at: int, stop: int) -> tuple[Cell, int]:
    length, at = varint_at(data, at, stop)
    if at < 0 or length > stop - at:
        raise _Unsound
    return (None, at) if length < 0 else (data[at : at + length], at + length)


class CellColumn(NamedTuple):
    """A column of bytes in Arrow's layout, see `runs.Cells`."""

    rows: int
    nulls: int
    ends: array[int]
    valid: bytearray
    data: bytearray


def join_cells(cells: list[Cell]) -> CellColumn:
    rows, nulls = len(cells), cells.count(None)
    valid = bytearray((rows + 7) // 8)
    if nulls == rows:
        return CellColumn(rows, nulls, array("i", bytes(4 * (rows + 1))), valid, bytearray())
    present: list[bytes] = [cell or b"" for cell in cells]
    if not nulls:
        valid[:] = ((1 << rows) - 1).to_bytes(len(valid), "little")
    else:
        for row, cell in enumerate(cells):
            if cell is not None:
                valid[row >> 3] |= 1 << (row & 7)
    return CellColumn(
        rows, nulls, array("i", accumulate(map(len, present), initial=0)), valid, bytearray().join(present)
    )


class KeptRows:
    """The records of some batches, one behind the other: columns of numbers in Arrow's layout, and cells that wait to be joined."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.timestamps: array[int] = array("q")
        self.types = bytearray()
        self.keys: list[Cell] = []
        self.values: list[Cell] = []
        self.headers: dict[int, Headers] = {}  # by row, ascending, of the rows that have some

    def take(self, batch: bytes, count: int, first_offset: int) -> Columns | None:
        """Add the records of a batch that is not compressed from `first_offset` on; these, or None when they are not sound."""
        columns = read_columns(batch, HEADER_SIZE, count)
        if columns is None:
            return None
        header = BatchHeader._make(HEADER.unpack_from(batch))
        columns = columns.from_delta(first_offset - header.base_offset)
        rows = len(columns.keys)
        if header.log_append_time:
            timestamps = array("q", (header.max_timestamp,)) * rows
        else:
            timestamps = _sums(header.base_timestamp, columns.timestamp_deltas)
        offsets = _sums(header.base_offset, columns.offset_deltas)
        self._add(offsets, timestamps, bytes((header.log_append_time,)) * rows, columns)
        return columns

    def _add(
        self, offsets: array[int], timestamps: array[int], types: bytes | bytearray, cells: Columns | KeptRows
    ) -> None:
        before = len(self.keys)
        self.offsets += offsets
        self.timestamps += timestamps
        self.types += types
        self.keys += cells.keys
        self.values += cells.values
        self.headers.update({before + row: pairs for row, pairs in cells.headers.items()})

    @staticmethod
    def joined(parts: Iterable[KeptRows]) -> KeptRows:
        whole = KeptRows()
        for part in parts:
            whole._add(part.offsets, part.timestamps, part.types, part)
        return whole

    def header_ends(self) -> array[int]:
        """Where the headers of each row end among all headers, behind a 0."""
        counts = array("i", bytes(4)) * (len(self.keys) + 1)
        for row, pairs in self.headers.items():
            counts[row + 1] = len(pairs)
        return array("i", accumulate(counts))


def header_cells(headers: dict[int, Headers]) -> tuple[list[Cell], list[Cell]]:
    """The names and the values of all headers."""
    pairs = [pair for row in headers.values() for pair in row]
    return [name for name, _ in pairs], [value for _, value in pairs]


def byte_count(cells: list[Cell]) -> int:
    return sum(map(len, filter(None, cells)))


def _sums(base: int, deltas: list[int]) -> array[int]:
    """`base` and each delta added as numbers of 64 bits, which begin anew behind the largest, as the compiled form has them."""
    numbers = [base + delta for delta in deltas]
    try:
        return array("q", numbers)
    except OverflowError:
        return array("q", [(number + _BEYOND_INT64) % _BEYOND_UINT64 - _BEYOND_INT64 for number in numbers])
