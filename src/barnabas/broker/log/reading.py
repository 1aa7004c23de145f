"""Reading a log: from an offset to a region of a file.

Role: find the batch that holds an offset and the region to send; the bytes themselves go from the file to the socket (RP-26).
Thread: any. Lock: none. All input is what the log has published (see partition_log.py); the places of sequential readers and the list of
open files are hints: losing one to another thread costs a look-up, never a wrong answer.

A read of a sequential reader costs one dict look-up, one look-up in a cached window of the index and one small pread. The region ends
at a batch boundary when the index knows one, so that no bytes are sent twice, and the place of the next read is remembered.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog, Place
from barnabas.broker.log.segment import Segment, let_go
from barnabas.net.send import FileRegion

log = logging.getLogger(__name__)

Tail: TypeAlias = tuple[int, Segment, int]
"""End offset, active segment, its size."""

Hint: TypeAlias = tuple[Segment, int, int]
"""Where a sequential reader goes on: segment, position, and up to where the kernel was asked to read ahead for it."""

Boundary: TypeAlias = tuple[Segment, int, int]
"""Where a read ends: segment, position, and the offset that the next read asks for."""

Found = TypeVar("Found")

_ATTEMPTS = 5
_MAX_HINTS = 64
_FAR_BEHIND = 64 * 1024
"""A smaller read is too little to be worth a system call more."""
_READ_AHEAD = 8 * 1024 * 1024
"""For a reader that goes on; measured: 2 MiB gives 640 to 820 MB/s of what is only on disk, 4 MiB 820 to 1240, 8 MiB 1170 to 1300."""
_FILES_KEPT_OPEN = 4


class View(NamedTuple):
    """The segments of a log, oldest first, and their base offsets for bisection."""

    bases: tuple[int, ...]
    segments: tuple[Segment, ...]


class LogReader:
    """Finds batches in the segments of one log."""

    __slots__ = ("_before", "_boundaries", "_hints", "_recent", "_repair", "view")

    def __init__(self, segments: list[Segment], repair: Callable[[Segment, str], None]) -> None:
        self._repair = repair
        self._hints: dict[int, Hint] = {}
        self._boundaries: dict[int, Boundary] = {}  # by the position up to which somebody wanted to read
        self._before: Tail | None = None  # what `tail_before` found last
        self._recent: list[Segment] = []
        self.view = _view(segments)

    def publish(self, segments: list[Segment]) -> None:
        """A new list of segments; places in segments that are gone are forgotten."""
        before = self.view
        self.view = _view(segments)
        self._forget()
        let_go(before)

    def _forget(self) -> None:
        before = (self._hints, self._boundaries, self._before)
        self._hints, self._boundaries, self._before = {}, {}, None
        let_go(before)

    def drop_below(self, start: int) -> list[Segment]:
        """Take segments whose every offset is below the start out of the list; never the last one. Under the append lock."""
        bases, segments = self.view
        count = 0
        while count < len(segments) - 1 and bases[count + 1] <= start:
            count += 1
        if count:
            self.publish(list(segments[count:]))
        return list(segments[:count])

    def region(self, offset: int, max_bytes: int, min_one_batch: bool, tail: Tail) -> FileRegion | bytes:
        """The batches from the one that holds `offset` on, as the tail that the caller has seen allows. Nothing while too many files are
        held by responses, if this one has something already: the rest comes with the next one."""
        if not min_one_batch and tail[1].descriptors_short:
            return b""
        hint = self._hints.get(offset)
        if hint is not None:
            segment, position, ahead = hint
            limit = tail[2] if segment is tail[1] else segment.size
            if position < limit and not segment.retired:
                return self._cut((segment, position, ahead), limit, max_bytes, min_one_batch, tail)
        found = self.find(offset, tail)
        if found is None:
            if tail[2] >= tail[1].size:  # else it is the end for this reader only, and there is more behind it
                raise CorruptLog(f"offset {offset} is lost: the log has nothing from there to its end")
            return b""
        segment, position, limit = found
        return self._cut((segment, position, position), limit, max_bytes, min_one_batch, tail)

    def tail_before(self, offset: int, tail: Tail) -> Tail:
        """A tail for reads that must end before the batch with an offset. Many ask for the same one: the last stable offset."""
        known = self._before
        if known is not None and known[0] == offset and not known[1].retired:
            return known
        found = self.find(offset, tail)
        if found is None:
            return tail
        self._before = before = (offset, found[0], found[1])
        return before

    def find(self, offset: int, tail: Tail) -> tuple[Segment, int, int] | None:
        """(segment, position, size) of the first batch that ends at or after an offset."""
        for segment, limit in self.segments_from(offset, tail):
            place = segment.first_place(limit) if limit and offset <= segment.base_offset else None
            if place is None:
                place = self.repairing(segment, lambda s, e: s.locate(offset, e), limit)
            if place is not None:
                self._check_end(segment, place, tail)
                return segment, place.position, limit
        return None

    def _check_end(self, segment: Segment, place: Place, tail: Tail) -> None:
        """A base offset is not covered by a checksum: what reaches beyond its segment is damaged."""
        bases = self.view.bases
        number = bisect_right(bases, segment.base_offset)
        end = tail[0] if segment is tail[1] else bases[number] if number < len(bases) else place.last_offset + 1
        if place.last_offset >= end:
            text = (
                f"{segment.path}: the batch at {place.position} claims offset {place.last_offset}, {end} is another's"
            )
            raise CorruptLog(text)

    def segments_from(self, offset: int, tail: Tail) -> Iterator[tuple[Segment, int]]:
        """The segment that an offset belongs to and all after it, each with its published size."""
        view = self.view
        first = max(0, bisect_right(view.bases, offset) - 1)
        for segment in view.segments[first:]:
            if segment is tail[1]:
                yield segment, tail[2]
                return
            self._keep_open(segment)
            yield segment, segment.size

    def repairing(self, segment: Segment, look_up: Callable[[Segment, int], Place | None], end: int) -> Place | None:
        """Do a look-up; when an index turns out to be damaged, rebuild it from the log and look again."""
        suffix = segment.suffix
        try:
            return look_up(segment, end)
        except IndexDamaged as damage:
            log.info("%s", damage)
            self._repair(segment, suffix)
            return look_up(segment, end)

    def look_again(self, look_up: Callable[[], Found], lock: threading.Lock) -> Found:
        """After a look-up that failed. Compaction may have replaced or renamed a segment meanwhile: once the append lock is free, the
        list and the names fit together. A look-up that fails although the list is still the same has found damage."""
        for _ in range(_ATTEMPTS):
            with lock:
                view = self.view
            try:
                return look_up()
            except (CorruptLog, IndexDamaged, OSError):
                if view is self.view:
                    raise
        raise CorruptLog("the segments change faster than they can be read")

    def release(self) -> None:
        """The log ends: give up all descriptors; regions that are being sent keep theirs."""
        self._forget()
        for segment in self.view.segments:
            segment.release(for_good=True)

    def _cut(self, begin: Hint, limit: int, max_bytes: int, min_one_batch: bool, tail: Tail) -> FileRegion | bytes:
        segment, position, _ = begin
        file = segment.file()
        end = position + max_bytes
        if end >= limit:
            end = limit
            if segment is tail[1]:
                self._remember(tail[0], (segment, limit, limit))
        else:
            boundary = self._boundary(segment, position, end, self._read_ahead(begin, end, max_bytes))
            if boundary is None:
                first = segment.place_at(position).size
                if first > max_bytes and not min_one_batch:
                    return b""
                end = min(limit, max(end, position + first))
            else:
                end = boundary
        return FileRegion(file, position, end - position)

    @staticmethod
    def _read_ahead(begin: Hint, end: int, max_bytes: int) -> int:
        """For a reader that is far behind: what it gets now and what it will ask for next, before `_boundary` looks at the end of it. Who
        goes on reading gets more, as the kernel would do it, so that the disk never waits for a request. Up to where it was asked for.

        The kernel itself does not: that look comes out of order, and it would take the descriptor for one of random reads.
        """
        segment, position, ahead = begin
        if max_bytes < _FAR_BEHIND or ahead >= end + _READ_AHEAD // 2:
            return ahead
        until = end + (_READ_AHEAD if ahead > position else min(max_bytes, _READ_AHEAD))
        segment.will_need(ahead, until - ahead)
        return until

    def _boundary(self, segment: Segment, position: int, end: int, ahead: int) -> int | None:
        """The last batch boundary before `end` that the index knows, if it is after `position`; the next read begins there. Readers that
        follow each other end at the same places, which are looked up once."""
        known = self._boundaries.get(end)
        if known is not None and known[0] is segment and position < known[1]:
            self._remember(known[2], (segment, known[1], max(ahead, known[1])))
            return known[1]
        try:
            entry = segment.offset_index.floor_by_value(end)
            if entry is None or not position < entry[1] <= end:
                return None
            place = segment.place_at(entry[1])
        except (IndexDamaged, CorruptLog):
            return None  # only an economy: a read without it is right, and a look-up that needs the index repairs it
        if place.last_offset != entry[0] or place.position + place.size > segment.size:
            return None  # damaged: who asks for it looks it up, and is told
        boundaries = self._boundaries
        if len(boundaries) >= _MAX_HINTS:
            self._boundaries = boundaries = {}
        boundaries[end] = (segment, place.position, place.base_offset)
        self._remember(place.base_offset, (segment, place.position, max(ahead, place.position)))
        return place.position

    def _remember(self, offset: int, hint: Hint) -> None:
        hints = self._hints
        if len(hints) >= _MAX_HINTS:
            self._hints = hints = {}
        hints[offset] = hint

    def _keep_open(self, segment: Segment) -> None:
        """Complete segments share a few descriptors per log, however many there are."""
        if not segment.is_open:
            self.note_open(segment)

    def note_open(self, segment: Segment) -> None:
        recent = self._recent
        recent.append(segment)
        if len(recent) > _FILES_KEPT_OPEN:
            recent.pop(0).release()

    def __repr__(self) -> str:
        return f"LogReader({len(self.view.segments)} segments, {len(self._hints)} hints)"


def _view(segments: list[Segment]) -> View:
    return View(tuple(segment.base_offset for segment in segments), tuple(segments))
