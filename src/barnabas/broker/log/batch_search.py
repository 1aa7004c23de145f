"""Finding the way again behind damaged bytes of a segment.

Role: says whether a whole batch with a right checksum begins at a position, and where the next one does. Whoever walks over batches and
meets bytes that are none goes on there: readers, the rebuilding of an index, recovery below its recovery point, `barnabas log verify`.
Thread: one per search. Lock: none; it only reads.

A batch begins with its base offset, and which offsets are possible behind the damage is known: their first bytes are all the same, so
that most of the work is one search for a pattern. All searches of one `BatchSearch` together are bounded by `_EFFORT` times the size of the
file, however many holes it has and whatever the bytes pretend to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import google_crc32c

from barnabas.broker.inline_work import SYSTEM_CALL_WORK, spend
from barnabas.records.batch import HEADER, HEADER_SIZE, MAGIC_V2, PREFIX_SIZE, BatchHeader, header_problem

Read = Callable[[int, int], bytes]
"""(position, length) -> bytes of the file, fewer at its end."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""How far from its base offset the offsets of a segment may be: its index has four bytes for them."""

LARGEST_BASE_OFFSET = 2**62 - MAX_RELATIVE_OFFSET - 2
"""Of a segment: all its offsets, and the one behind them, are such that a checkpoint may have (OFFSET_LIMIT of checkpoints.py). A file with
a larger number in its name is none of a log's."""

_EFFORT = 4
_CHUNK = 1 << 20
_FIRST_LOOK = 4 * 1024
"""Most holes are one batch long."""
_FURTHER_LOOK = 64 * 1024
"""The pattern is looked for with the GIL held, which takes about 2 ms for so many bytes."""
_MAGIC_AT = 16


class Offsets(NamedTuple):
    """The offsets that a batch may have: its base offset at least `first`, its last offset at most `last`."""

    first: int
    last: int


class FoundBatch(NamedTuple):
    """A whole batch with a right checksum."""

    position: int
    header: BatchHeader


class BatchSearch:
    """Looks for good batches in a file of `end` bytes."""

    def __init__(self, read: Read, end: int) -> None:
        self._read = read
        self.end = end
        self._effort = _EFFORT * end + _CHUNK

    def batch_at(self, position: int, offsets: Offsets) -> FoundBatch | None:
        """The good batch that begins at a position; None when there is none."""
        header = self._header_at(position, offsets)
        return None if header is None else self._checked(position, header)

    def _header_at(self, position: int, offsets: Offsets) -> BatchHeader | None:
        """What says that a whole batch with possible offsets begins at a position."""
        data = self._read(position, HEADER_SIZE)
        if position + HEADER_SIZE > self.end or len(data) < HEADER_SIZE:
            return None
        header = BatchHeader._make(HEADER.unpack(data))
        if header_problem(header) or header.size > self.end - position:
            return None
        return header if header.base_offset >= offsets.first and header.last_offset <= offsets.last else None

    def _checked(self, position: int, header: BatchHeader) -> FoundBatch | None:
        whole = self._checksum(position + PREFIX_SIZE, position + header.size) == header.crc
        return FoundBatch(position, header) if whole else None

    def _candidate(self, position: int, offsets: Offsets) -> FoundBatch | None:
        """As `batch_at`, for a place where there need not be one: the effort is counted, and none is made that is too great."""
        header = self._header_at(position, offsets)
        if header is None or header.size > self._effort:
            return None
        self._effort -= header.size
        return self._checked(position, header)

    def lies(self, position: int, offsets: Offsets) -> bool:
        """Whether what looks like a batch at a position is none. The checksum does not cover the base offset: one before which there is
        a gap is believed unless the next batch contradicts it."""
        found = self.batch_at(position, offsets)
        if found is None or found.header.base_offset == offsets.first:
            return found is None
        following = self.batch_at(position + found.header.size, offsets)
        return following is not None and following.header.base_offset <= found.header.last_offset

    def batch_behind(self, position: int, offsets: Offsets) -> FoundBatch | None:
        """The next good batch after a bad one at a position. Where the bad one claims to end, if that one's offsets follow: else its
        length may be what is wrong, and hide others."""
        data = self._read(position, HEADER_SIZE)
        if len(data) == HEADER_SIZE:
            header = BatchHeader._make(HEADER.unpack(data))
            claimed = None if header_problem(header) else self._candidate(position + header.size, offsets)
            if claimed is not None and claimed.header.base_offset == header.next_offset:
                return claimed
        return self._search(position + 1, offsets)

    def _search(self, position: int, offsets: Offsets) -> FoundBatch | None:
        pattern, wanted = _pattern(offsets), _FIRST_LOOK
        while self.end - position >= HEADER_SIZE and self._effort > 0:
            spend(SYSTEM_CALL_WORK + wanted)
            chunk, wanted = self._read(position, wanted), _FURTHER_LOOK
            for match in pattern.finditer(chunk):
                found = self._candidate(position + match.start(), offsets)
                if found is not None:
                    return found
            step = len(chunk) - _MAGIC_AT
            if step <= 0:
                break
            position += step
            self._effort -= step
        return None

    def _checksum(self, position: int, end: int) -> int:
        """In pieces, so that a wrong length cannot cost more memory than a chunk."""
        crc = 0
        while position < end:
            size = min(_CHUNK, end - position)
            spend(SYSTEM_CALL_WORK + size)
            part = self._read(position, size)
            if not part:
                break
            crc = google_crc32c.extend(crc, part)
            position += len(part)
        return crc


def _pattern(offsets: Offsets) -> re.Pattern[bytes]:
    """Where a batch with such offsets may begin; the matches may overlap."""
    first, last = offsets.first.to_bytes(8), offsets.last.to_bytes(8)
    same = 0
    while same < 8 and first[same] == last[same]:
        same += 1
    return re.compile(b"(?s)(?=%s.{%d}%s)" % (re.escape(first[:same]), _MAGIC_AT - same, re.escape(bytes([MAGIC_V2]))))
