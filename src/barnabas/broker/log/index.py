"""Offset and time index of a segment: sparse, sorted tables in Kafka's file format.

Role: the files are the truth and hold everything but the newest entries, which wait in memory until they are written in one go (or
until the log is flushed or closed). After a crash the missing entries are rebuilt from the log (recovery.py). So no index keeps a
descriptor open and memory does not grow with the log: at most `PENDING_LIMIT` new entries and, for readers that are far behind, `WINDOWS`
windows of `WINDOW_ENTRIES` old ones.
Thread: `append` and `write_pending` by the appender; look-ups from any thread.
Lock: the log's append lock guards changes. Readers take none: they read `_state`, a tuple that is replaced whole; its lists only grow.
`_windows` is replaced whole too, by readers: one that another thread's replaces is read again.

    offset index, 8 bytes per entry         time index, 12 bytes per entry
      int32  offset - base_offset             int64  timestamp: the largest so far
      int32  position of a batch              int32  offset - base_offset: the last offset of the batch that has it
    where the offset is the LAST offset of the batch at that position.
"""

from __future__ import annotations

import logging
import struct
import sys
import threading
from array import array
from bisect import bisect_right
from typing import NamedTuple

from barnabas.broker.log.files import FileSystem, OpenFile

log = logging.getLogger(__name__)

PENDING_LIMIT = 512
WINDOW_ENTRIES = 1024
WINDOWS = 8
"""So many readers that are far apart find their place without the file, most of the time."""
_SEARCH_ENDS = 64

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")

_LOAD_LOCK = threading.Lock()
"""Guards the first load of any index, which is rare."""


class IndexDamaged(Exception):
    """An index file is missing or does not fit its log; it can be rebuilt."""


class _State(NamedTuple):
    """Entries in the file, and the newer ones in memory. The lists only grow; values are appended before keys."""

    stored: int
    keys: list[int]
    values: list[int]


class _Window(NamedTuple):
    """A run of entries read from the file."""

    first: int
    keys: array[int]
    values: array[int]


class SparseIndex:
    """A sorted table of (key, value), both ascending, that is searched by either column."""

    __slots__ = ("_bases", "_entry", "_files", "_state", "_windows", "path")

    def __init__(self, files: FileSystem, path: str, entry: struct.Struct, bases: tuple[int, int]) -> None:
        self.path = path
        self._files = files
        self._entry = entry
        self._bases = bases
        """What is subtracted from key and value in the file."""
        self._state: _State | None = None
        self._windows: tuple[_Window, ...] = ()

    # Changes, under the log's append lock.

    def create_empty(self) -> None:
        self._files.open(self.path, create=True).close()
        self._state = _State(0, [], [])
        self._windows = ()

    def reset(self) -> None:
        """Forget all entries, in memory and on disk, before a rebuild."""
        with self._files.open(self.path, create=True) as file:
            self._files.truncate(file.fileno(), 0)
        self._state = _State(0, [], [])
        self._windows = ()

    def append(self, key: int, value: int) -> None:
        state = self._state or self._load()
        state.values.append(value)
        state.keys.append(key)
        if len(state.keys) % PENDING_LIMIT == 0:
            try:
                self.write_pending()
            except OSError as error:
                # A full disk must not fail the append, which is complete: the entries stay in memory and are written later.
                log.warning("%s: %s; trying again later", self.path, error)

    def append_stored(self, data: bytes) -> None:
        """Write entries in the layout of the file behind what it holds; nothing waits in memory (a rebuild)."""
        if data:
            state = self._state or self._load()
            with self._files.open(self.path, create=True) as file:
                self._files.write_fully(file.fileno(), data, state.stored * self._entry.size)
            self._state = _State(state.stored + len(data) // self._entry.size, state.keys, state.values)

    def write_pending(self) -> None:
        """Write what waits in memory behind what the file holds."""
        state = self._state
        if state is None or not state.keys:
            return
        pack = self._entry.pack
        key_base, value_base = self._bases
        entries = zip(state.keys, state.values, strict=True)
        data = b"".join([pack(key - key_base, value - value_base) for key, value in entries])
        with self._files.open(self.path, create=True) as file:
            self._files.write_fully(file.fileno(), data, state.stored * self._entry.size)
        self._state = _State(state.stored + len(state.keys), [], [])

    def sync(self) -> None:
        with self._files.open(self.path) as file:
            self._files.sync(file.fileno())

    # Look-ups, from any thread.

    @property
    def entries(self) -> int:
        state = self._state or self._load()
        return state.stored + len(state.keys)

    @property
    def has_pending(self) -> bool:
        return self._state is not None and bool(self._state.keys)

    def last(self) -> tuple[int, int] | None:
        state = self._state or self._load()
        if state.keys:
            return state.keys[-1], state.values[-1]
        if not state.stored:
            return None
        with self._open() as file:
            keys, values = self._parse(self._read(file, state.stored - 1, 1))
        return keys[0] + self._bases[0], values[0] + self._bases[1]

    def floor_by_key(self, target: int) -> tuple[int, int] | None:
        """The last entry whose key is at most `target`."""
        return self._floor(target, 0)

    def floor_by_value(self, target: int) -> tuple[int, int] | None:
        """The last entry whose value is at most `target`."""
        return self._floor(target, 1)

    def forget_windows(self) -> None:
        self._windows = ()

    def _floor(self, target: int, column: int) -> tuple[int, int] | None:
        state = self._state or self._load()
        pending = state.values if column else state.keys
        if pending and pending[0] <= target:
            # The appender may be between its two appends: an entry counts once its key is there.
            slot = bisect_right(pending, target, 0, len(state.keys)) - 1
            if slot >= 0:
                return state.keys[slot], state.values[slot]
        return self._floor_in_file(state.stored, target, column) if state.stored else None

    def _floor_in_file(self, count: int, target: int, column: int) -> tuple[int, int] | None:
        bases = self._bases
        wanted = target - bases[column]
        for window in self._windows:
            if _covers(window, count, wanted, column):
                break
        else:
            window = self._read_window(count, wanted, column)
            self._windows = (window, *self._windows[: WINDOWS - 1])
        slot = bisect_right(window.values if column else window.keys, wanted) - 1
        if slot < 0:
            return None
        return window.keys[slot] + bases[0], window.values[slot] + bases[1]

    def _read_window(self, count: int, wanted: int, column: int) -> _Window:
        """Halve the range by single entries until little is left; the window begins there, because readers mostly go forward."""
        low, high = 0, count
        with self._open() as file:
            while high - low > _SEARCH_ENDS:
                middle = (low + high) // 2
                if self._parse(self._read(file, middle, 1))[column][0] <= wanted:
                    low = middle
                else:
                    high = middle
            keys, values = self._parse(self._read(file, low, min(WINDOW_ENTRIES, count - low)))
        return _Window(low, keys, values)

    def _read(self, file: OpenFile, first: int, count: int) -> bytes:
        """Some entries, as they are in the file."""
        size = self._entry.size
        data = self._files.pread(file.fileno(), count * size, first * size)
        if len(data) != count * size:
            raise IndexDamaged(f"{self.path} is shorter than {first + count} entries")
        return data

    def _open(self) -> OpenFile:
        try:
            return self._files.open_read_only(self.path)
        except FileNotFoundError as error:
            raise IndexDamaged(f"{self.path} is missing") from error

    def _load(self) -> _State:
        with _LOAD_LOCK:
            if self._state is None:
                with self._open() as file:
                    size = self._files.size(file.fileno())
                if size % self._entry.size:
                    raise IndexDamaged(f"{self.path} has {size} bytes, not a multiple of {self._entry.size}")
                self._state = _State(size // self._entry.size, [], [])
            return self._state

    def _parse(self, data: bytes) -> tuple[array[int], array[int]]:
        """Keys and values of some entries, as they are in the file."""
        raise AssertionError(f"{type(self).__name__} has no layout")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, state={self._state})"


def _covers(window: _Window, count: int, target: int, column: int) -> bool:
    """Whether the window certainly holds the last entry that is at most `target`."""
    values = window.values if column else window.keys
    if not values:
        return False
    if target < values[0]:
        return window.first == 0
    return target < values[-1] or window.first + len(values) == count


class OffsetIndex(SparseIndex):
    """Key: last offset of a batch; value: its position."""

    __slots__ = ()

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(files, path, _OFFSET_ENTRY, (base_offset, 0))

    def _parse(self, data: bytes) -> tuple[array[int], array[int]]:
        numbers = array("i")
        numbers.frombytes(data)
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers[0::2], numbers[1::2]


class TimeIndex(SparseIndex):
    """Key: largest timestamp so far; value: last offset of the batch that brought it."""

    __slots__ = ()

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(files, path, _TIME_ENTRY, (0, base_offset))

    def _parse(self, data: bytes) -> tuple[array[int], array[int]]:
        entries = list(_TIME_ENTRY.iter_unpack(data))
        return array("q", [entry[0] for entry in entries]), array("i", [entry[1] for entry in entries])
