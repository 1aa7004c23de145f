"""How much has come for a reader that waits: counted from positions, without reading.

Role: a delayed fetch asks after each append to its partition whether there is enough for it by now. That must cost next to nothing, since
one append may have hundreds of them to ask.
Thread: any. Lock: none; all input is what the log has published (see partition_log.py), and what is kept is replaced whole.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.reading import LogReader, Tail
from barnabas.broker.log.segment import Segment

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.log.results import IsolationLevel

LOOK: Final = -1
"""Positions do not tell: the reader must look for itself."""


class Arrivals:
    """The bytes from a reader's offset to the end of the log as it sees it."""

    __slots__ = ("_first_batch", "_isolation", "_log", "_mark", "_offset", "_reader")

    def __init__(self, log: PartitionLog, reader: LogReader, offset: int, isolation: IsolationLevel) -> None:
        self._log = log
        self._reader = reader
        self._offset = offset
        self._isolation = isolation
        self._first_batch = 0  # its size, once somebody had to know
        end, segment, position = log.tail()
        # Most readers wait at the end of the log, whose place is known; the others' is looked up when it is needed.
        self._mark: tuple[int, Segment, int] | None = (0, segment, position) if offset == end else None

    def count(self, limit: int) -> int:
        """What a read of at most `limit` bytes would give, which is the first batch whole if that is larger; about, because a read ends
        between batches. `LOOK` when the log was cut or is damaged there."""
        log = self._log
        if self._offset < log.log_start_offset:
            return LOOK
        try:
            tail = log.tail(self._isolation)
            mark = self._mark
            if mark is None or mark[1] is not tail[1]:
                mark = self._find(tail) if mark is None else self._follow(mark, tail)
                if mark is None:
                    return LOOK
                self._mark = mark
            found = mark[0] + max(0, tail[2] - mark[2])
            if found > limit and not self._first_batch:
                self._first_batch = self._size_of_first(tail)
        except (CorruptLog, IndexDamaged, OSError):
            return LOOK
        return found if found <= limit else max(limit, self._first_batch)

    def _size_of_first(self, tail: Tail) -> int:
        found = self._reader.find(self._offset, tail)
        return 0 if found is None else found[0].place_at(found[1]).size

    def _find(self, tail: Tail) -> tuple[int, Segment, int] | None:
        """Where the batch with the offset is; a look into the log, once."""
        found = self._reader.find(self._offset, tail)
        if found is None:
            return None
        mark = (0, found[0], found[1])
        return mark if found[0] is tail[1] else self._follow(mark, tail)

    def _follow(self, mark: tuple[int, Segment, int], tail: Tail) -> tuple[int, Segment, int] | None:
        """The log has gone on to other segments: what is in those that are complete is counted once and for all. None when the list of
        segments has changed in between: retention or compaction was there."""
        counted, segment, position = mark
        bases, segments = self._reader.view
        number = bisect_left(bases, segment.base_offset)
        while number < len(segments) and segments[number] is segment and segment is not tail[1]:
            counted += segment.size - position
            number, position = number + 1, 0
            if number < len(segments):
                segment = segments[number]
        return (counted, segment, position) if segment is tail[1] else None

    def __repr__(self) -> str:
        return f"Arrivals({self._log.name} from {self._offset})"
