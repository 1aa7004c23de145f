"""The transaction index of a segment: which transactions were aborted by markers in that segment.

Role: a table in Kafka's file format; a file exists only once there is an entry. It tells consumers with read_committed what to skip.
Entries are ascending in their last offset and in their last stable offset, so a look-up reads no more than it gives back.
Thread: `append` by the appender or by recovery, look-ups from any thread.
Lock: the log's append lock guards changes; look-ups take none and see `_count`, which grows after an entry is in the file.

    <base offset>.txnindex, 34 bytes per entry, big-endian:
      int16  version = 0
      int64  producer_id
      int64  first_offset         of the transaction; may lie in an earlier segment
      int64  last_offset          of the transaction: its marker
      int64  last_stable_offset   when the marker was written; no transaction that ends later begins below it
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.index import IndexDamaged

TXN_INDEX_SUFFIX = ".txnindex"

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_CHUNK_ENTRIES = 256
_UNKNOWN = -1


class AbortedEntry(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, oldest marker first."""

    __slots__ = ("_base_offset", "_count", "_dirty", "_files", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        self.path = path
        self._files = files
        self._base_offset = base_offset
        self._count = _UNKNOWN
        self._dirty = False

    # Changes, under the log's append lock.

    def append(self, entry: AbortedEntry) -> None:
        """Write one entry behind the others. When that fails nothing has changed: the next entry is written at the same place."""
        count = self.entries
        with self._files.open(self.path, create=True) as file:
            self._files.write_fully(file.fileno(), _ENTRY.pack(_VERSION, *entry), count * _ENTRY.size)
        self._dirty = True
        self._count = count + 1

    def create_empty(self) -> None:
        """A new segment: a file of that name can only be left over."""
        self._files.remove(self.path)
        self._count = 0

    def reset(self) -> None:
        """Forget all entries, before a rebuild."""
        self.create_empty()
        self._dirty = False

    def cut(self, offset: int) -> None:
        """Forget transactions that end at or after an offset, because the log was cut there."""
        keep = self._first_ending_from(offset)
        if keep == self.entries:
            return
        with self._files.open(self.path) as file:
            self._files.truncate(file.fileno(), keep * _ENTRY.size)
        self._dirty = True
        self._count = keep

    def sync(self) -> None:
        """To disk, when something changed."""
        if self._dirty:
            self._dirty = False
            with self._files.open(self.path) as file:
                self._files.sync(file.fileno())

    # Look-ups, from any thread.

    @property
    def entries(self) -> int:
        if self._count < 0:
            self._count = self._load()
        return self._count

    def overlapping(self, first: int, end: int) -> tuple[list[AbortedEntry], bool]:
        """The transactions that have offsets in `first` up to, not including, `end`; and whether later segments need not be asked."""
        found: list[AbortedEntry] = []
        for entry in self._read_from(self._first_ending_from(first)):
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    def content(self) -> bytes:
        """The file as it is; nothing when there is none."""
        return self._files.read_file(self.path) if self._files.exists(self.path) else b""

    def all_entries(self) -> list[AbortedEntry]:
        return list(self._read_from(0))

    def _first_ending_from(self, offset: int) -> int:
        """The number of the first entry whose marker is at or after an offset."""
        low, high = 0, self.entries
        if not high or offset <= self._base_offset:
            return 0
        with self._open() as file:
            while low < high:
                middle = (low + high) // 2
                if self._read(file, middle, 1)[0].last_offset < offset:
                    low = middle + 1
                else:
                    high = middle
        return low

    def _read_from(self, number: int) -> Iterator[AbortedEntry]:
        count = self.entries
        if number >= count:
            return
        with self._open() as file:
            while number < count:
                chunk = self._read(file, number, min(_CHUNK_ENTRIES, count - number))
                yield from chunk
                number += len(chunk)

    def _read(self, file: OpenFile, number: int, count: int) -> list[AbortedEntry]:
        size = _ENTRY.size
        data = self._files.pread(file.fileno(), count * size, number * size)
        if len(data) != count * size:
            raise IndexDamaged(f"{self.path} is shorter than {number + count} entries")
        rows = list(_ENTRY.iter_unpack(data))
        for version, _, first, last, _ in rows:
            if version != _VERSION or last < self._base_offset or not 0 <= first <= last:
                raise IndexDamaged(f"{self.path} has an entry of version {version} for offsets {first} to {last}")
        return [AbortedEntry(*row[1:]) for row in rows]

    def _open(self) -> OpenFile:
        try:
            return self._files.open_read_only(self.path)
        except FileNotFoundError as error:
            raise IndexDamaged(f"{self.path} is missing") from error

    def _load(self) -> int:
        if not self._files.exists(self.path):
            return 0
        with self._open() as file:
            size = self._files.size(file.fileno())
        if size % _ENTRY.size:
            raise IndexDamaged(f"{self.path} has {size} bytes, not a multiple of {_ENTRY.size}")
        return size // _ENTRY.size

    def __repr__(self) -> str:
        return f"TransactionIndex({self.path!r}, {self._count} entries)"
