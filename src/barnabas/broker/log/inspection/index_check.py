"""Whether the indexes of a segment agree with its batches.

Role: an index is walked beside the batches, entry by entry, so that the memory for it does not depend on its size. An index that is
wrong costs no data: the broker notices and rebuilds it. Thread: the caller's. Lock: none; files are opened read-only.

Of an offset index each entry must name the position and the last offset of a batch; of a time index, a batch and its largest timestamp,
which no batch before it exceeds. Entries that are missing make look-ups slower, never wrong. A transaction index must have exactly the
transactions that the markers in the segment abort; without it consumers would read what was aborted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.batch_scan import Batch
from barnabas.broker.log.txn_index import AbortedEntry
from barnabas.records.batch import NO_TIMESTAMP

_CHUNK_ENTRIES = 4096
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TXN_ENTRY = struct.Struct(">hqqqq")
_SHORT_GAP = 4 * 4096
"""Bytes without an entry that are always in order."""
_ENTRIES_LEFT_OUT = 4
"""Entries that may be missing at the end: after a start the broker counts the bytes up to the next entry anew."""

Report = Callable[[str, int, int], None]
"""(text, position in the index file, offset in the log)"""


def read_entries(files: FileSystem, path: str, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """All whole entries of an index file."""
    with files.open_read_only(path) as file:
        position = 0
        while data := files.pread(file.fileno(), _CHUNK_ENTRIES * entry.size, position):
            whole = len(data) - len(data) % entry.size
            yield from entry.iter_unpack(data[:whole])
            position += whole
            if not whole:
                return


def size_problem(files: FileSystem, path: str, entry: struct.Struct) -> str:
    with files.open_read_only(path) as file:
        size = files.size(file.fileno())
    return f"{size} bytes are not a multiple of {entry.size}" if size % entry.size else ""


class _Walk:
    """An index that is read in step with the batches. The first thing that is wrong is reported and ends the walk."""

    _entry: struct.Struct

    def __init__(self, files: FileSystem, path: str, base_offset: int, report: Report) -> None:
        self._base = base_offset
        self._report = report
        self._entries = read_entries(files, path, self._entry) if files.exists(path) else iter(())
        self._number = -1
        self._current: tuple[int, ...] | None = None
        self.failed = False
        self._advance()

    def _advance(self) -> None:
        previous = self._current
        self._current = next(self._entries, None)
        self._number += 1
        if previous is not None and self._current is not None and not self._ascends(previous, self._current):
            self._fail(f"entry {self._number} is {self._current} after {previous}: they must ascend")

    @staticmethod
    def _ascends(previous: tuple[int, ...], current: tuple[int, ...]) -> bool:
        return previous[0] < current[0] and previous[1] < current[1]

    def _fail(self, text: str, offset: int = -1) -> None:
        self.failed = True
        self._report(text, self._number * self._entry.size, offset)
        self._current = None
        self._entries = iter(())


class OffsetIndexWalk(_Walk):
    """Compares an offset index with the batches that `note` is told, in order."""

    _entry = OFFSET_ENTRY

    def __init__(self, files: FileSystem, path: str, base_offset: int, report: Report) -> None:
        super().__init__(files, path, base_offset, report)
        self._last_indexed = 0
        self._last_noted = 0
        self._interval = _SHORT_GAP
        """How far from an entry a batch may begin without having one itself, as far as the index shows."""
        self._last_due = 0
        """The batch that has, or should have had, the last entry."""
        self._missing = 0

    def note(self, batch: Batch) -> None:
        while self._current is not None and self._current[1] <= batch.position:
            relative, position = self._current
            if position != batch.position or relative + self._base != batch.header.last_offset:
                self._fail(
                    f"entry {self._number} says that offset {relative + self._base} ends the batch at {position}; it does not",
                    relative + self._base,
                )
                return
            self._interval = max(self._interval, self._last_noted - self._last_indexed)
            self._last_indexed = self._last_due = position
            self._missing = 0
            self._advance()
        if batch.position - self._last_due > self._interval:
            self._last_due = batch.position
            self._missing += 1
        self._last_noted = batch.position

    def finish(self, size: int) -> None:
        if self._current is not None:
            relative, position = self._current
            self._fail(
                f"entry {self._number} points to {position}, behind the last batch (the log has {size} bytes)",
                relative + self._base,
            )

    def uncovered(self, size: int) -> int:
        """How many bytes at the end have no entry, when several are missing there; else 0. The length of the last batches says
        nothing: a segment of one long batch has no entry at all."""
        return size - self._last_indexed if not self.failed and self._missing > _ENTRIES_LEFT_OUT else 0


class TimeIndexWalk(_Walk):
    """Compares a time index with the batches that `note` is told, in order."""

    _entry = TIME_ENTRY

    def __init__(self, files: FileSystem, path: str, base_offset: int, report: Report) -> None:
        super().__init__(files, path, base_offset, report)
        self._largest = NO_TIMESTAMP

    def note(self, batch: Batch) -> None:
        header = batch.header
        self._largest = max(self._largest, header.max_timestamp)
        while self._current is not None and self._current[1] + self._base <= header.last_offset:
            timestamp, relative = self._current
            offset = relative + self._base
            if offset < header.base_offset or timestamp != header.max_timestamp or timestamp < self._largest:
                self._fail(
                    f"entry {self._number} says that {timestamp} is the largest timestamp up to offset {offset}; it is not",
                    offset,
                )
                return
            self._advance()

    def finish(self, end_offset: int) -> None:
        if self._current is not None:
            offset = self._current[1] + self._base
            self._fail(f"entry {self._number} is for offset {offset}, the log ends at {end_offset}", offset)


class TxnIndexWalk(_Walk):
    """Compares a transaction index with the aborted transactions that `note` is told, in order.

    `begun_before` is where the knowledge of open transactions begins: an older one may be in the index without being known.
    """

    _entry = TXN_ENTRY

    def __init__(self, files: FileSystem, path: str, base_offset: int, report: Report) -> None:
        super().__init__(files, path, base_offset, report)
        self.begun_before = 0

    @staticmethod
    def _ascends(previous: tuple[int, ...], current: tuple[int, ...]) -> bool:
        return previous[3] < current[3]

    def note(self, aborted: AbortedEntry) -> None:
        self._skip_unknown(aborted.last_offset)
        if self.failed:
            return
        if self._current != (0, *aborted):
            has = f"entry {self._number} is {self._current}" if self._current else "it has no entry for that"
            text = (
                f"producer {aborted.producer_id} aborted offsets {aborted.first_offset} to {aborted.last_offset}; {has}"
            )
            self._fail(text, aborted.first_offset)
            return
        self._advance()

    def finish(self, end_offset: int) -> None:
        self._skip_unknown(end_offset)
        if self._current is not None:
            self._fail(f"entry {self._number} is {self._current}, of which the log knows nothing")

    def _skip_unknown(self, below: int) -> None:
        while self._current is not None and self._current[3] < below and self._current[2] < self.begun_before:
            self._advance()


@dataclass(slots=True)
class IndexWalks:
    """The indexes of the segment that is being read, as far as they can be read."""

    offsets: OffsetIndexWalk | None = None
    times: TimeIndexWalk | None = None
    aborted: TxnIndexWalk | None = None

    def note_aborted(self, entry: AbortedEntry, uncertain: bool) -> None:
        """After damage it is not known which transactions were open: then the index is not compared."""
        if uncertain:
            self.aborted = None
        elif self.aborted is not None:
            self.aborted.note(entry)

    def note(self, batch: Batch) -> None:
        if self.offsets is not None:
            self.offsets.note(batch)
        if self.times is not None:
            self.times.note(batch)
