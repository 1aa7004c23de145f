"""Every batch of a segment's file, and every stretch of bytes that is none.

Role: reads a segment from its beginning to its end. Recovery stops at the first bad batch; this goes on behind it, so that all damage is
found and what follows it can be kept. Thread: the caller's; one scan per thread. Lock: none; the file is opened read-only.

How it finds its way after damage: batch_search.py.

The checksum does not cover base offset, length and leader epoch. A wrong length breaks the checksum all the same. A wrong base offset shows
itself beside its neighbours: it goes back, or the next batch (or segment) goes back behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import google_crc32c

from barnabas.broker.log.batch_search import MAX_RELATIVE_OFFSET, BatchSearch, Offsets
from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.inspection.findings import Code
from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    PREFIX_SIZE,
    BatchHeader,
    crc32c,
    header_problem,
)

_CHUNK = 1 << 20
_NEAR_THE_END = 4 * _CHUNK
"""A batch that is being written may have as many bytes of the broker's zeros behind it."""
_GROWTH_SECONDS = 1.0
_GROWTH_PAUSE = 0.02
UNBOUNDED = 2**63 - 1


class Batch(NamedTuple):
    """A batch whose checksum and offsets are right."""

    position: int
    header: BatchHeader


class Damage(NamedTuple):
    """Bytes that are no batch, or a batch whose offsets are wrong. `offset` is the one that was expected there.

    `restorable`: the batch itself is whole, and its neighbours leave it only this base offset.
    """

    position: int
    size: int
    offset: int
    code: Code
    text: str
    restorable: bool = False


Piece: TypeAlias = Batch | Damage


class _Problem(NamedTuple):
    code: Code
    text: str
    whole: bool = False
    restorable: bool = False


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """One segment. `first_offset` is the lowest that may stand in it, `next_base` the base offset of the following segment."""

    path: str
    base_offset: int
    first_offset: int
    next_base: int = UNBOUNDED
    live: bool = False
    """A broker may be writing to the end of this file."""


class SegmentScan:
    """One pass over one segment. `end_offset` follows the last good batch, `size` is how much of the file was looked at."""

    def __init__(self, files: FileSystem, request: ScanRequest) -> None:
        self._files = files
        self._request = request
        self._file: OpenFile = files.open_read_only(request.path)
        self.size = files.size(self._file.fileno())
        self.end_offset = request.first_offset
        self.growing = False
        self.written_ahead = 0
        """Zeros at the end, which the broker writes ahead of the batches (`Segment.fill_ahead`); not part of `size`."""
        self._chunk = b""
        self._chunk_at = 0
        self._search = BatchSearch(
            lambda position, length: files.pread(self._file.fileno(), length, position), self.size
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SegmentScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Piece]:
        position = 0
        while position < self.size:
            header, problem = self._look_at(position, self.end_offset)
            if problem is not None and self._is_written_ahead(position):
                self.written_ahead, self.size = self.size - position, position
                return
            if problem is not None and self._request.live and self._await_writer(position):
                header, problem = self._look_at(position, self.end_offset)
            if header is not None and problem is None:
                self.end_offset = header.next_offset
                yield Batch(position, header)
                position += header.size
            elif problem is not None:
                end = position + header.size if problem.whole and header else self._resume_at(position)
                code = Code.HEADER if problem.code is Code.TORN and end < self.size else problem.code
                yield Damage(position, end - position, self.end_offset, code, problem.text, problem.restorable)
                position = end
                if problem.restorable and header:
                    self.end_offset += header.last_offset_delta + 1

    def read(self, position: int, length: int) -> bytes:
        """Some bytes of the file; fewer at its end."""
        at = position - self._chunk_at
        if at >= 0 and at + length <= len(self._chunk):
            return self._chunk[at : at + length]
        parts: list[bytes] = []
        while length > 0:
            part = self._files.pread(self._file.fileno(), max(length, _CHUNK) if not parts else length, position)
            if not part:
                break
            if not parts:
                self._chunk, self._chunk_at = part, position
            parts.append(part[:length])
            length -= len(parts[-1])
            position += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # Judging one batch.

    def _look_at(self, position: int, expected: int) -> tuple[BatchHeader | None, _Problem | None]:
        left = self.size - position
        if left < HEADER_SIZE:
            return None, _Problem(Code.TORN, f"{left} bytes are left, a batch has at least {HEADER_SIZE}")
        header = self._header_at(position)
        impossible = header_problem(header)
        if impossible:
            return None, _Problem(Code.HEADER, impossible)
        if header.size > left:
            return None, _Problem(Code.TORN, f"a batch of {header.size} bytes begins, {left} are left")
        found = self._checksum(position, header.size)
        if found != header.crc:
            return header, _Problem(Code.CHECKSUM, f"the checksum is {found:#010x}, the header says {header.crc:#010x}")
        return header, self._offset_problem(position, header, expected)

    def _header_at(self, position: int) -> BatchHeader:
        return BatchHeader._make(HEADER.unpack(self.read(position, HEADER_SIZE)))

    def _checksum(self, position: int, size: int) -> int:
        """Of a batch; in pieces, so that a wrong length cannot cost more memory than a chunk."""
        if size <= _CHUNK:
            return crc32c(self.read(position + PREFIX_SIZE, size - PREFIX_SIZE))
        crc, at, end = 0, position + PREFIX_SIZE, position + size
        while at < end:
            part = self.read(at, min(_CHUNK, end - at))
            if not part:
                break
            crc = google_crc32c.extend(crc, part)
            at += len(part)
        return crc

    def _offset_problem(self, position: int, header: BatchHeader, expected: int) -> _Problem | None:
        """The checksum is right, so the batch is whole; are its offsets possible here?"""
        if header.base_offset == expected and header.last_offset < self._request.next_base:
            return None
        request = self._request
        following = self._offset_after(position + header.size)
        if header.base_offset < expected:
            text = f"the base offset {header.base_offset} goes back, {expected} is next"
        elif header.last_offset >= request.next_base:
            text = f"offsets {header.base_offset} to {header.last_offset} reach into the segment {request.next_base}"
        elif header.last_offset - request.base_offset > MAX_RELATIVE_OFFSET:
            text = f"the base offset {header.base_offset} is too far from the segment's {request.base_offset}"
        elif expected <= following <= header.last_offset:
            text = f"the base offset is {header.base_offset}, but {following} follows"
        else:
            return None
        exact = following == expected + header.last_offset_delta + 1 and header.base_offset != expected
        return _Problem(Code.OFFSET, text, whole=True, restorable=exact)

    def _offset_after(self, position: int) -> int:
        """The base offset of the batch or segment that follows, or one that is never reached."""
        if self.size - position < HEADER_SIZE:
            return self._request.next_base
        after = self._header_at(position)
        return UNBOUNDED if header_problem(after) else after.base_offset

    # A file that grows while it is read.

    def _is_written_ahead(self, position: int) -> bool:
        """Whether nothing but zeros follows in the last segment, which alone is written."""
        if self._request.next_base != UNBOUNDED:
            return False
        while position < self.size:
            part = self.read(position, min(_CHUNK, self.size - position))
            if not part or part.strip(b"\0"):
                return False
            position += len(part)
        return True

    def _await_writer(self, position: int) -> bool:
        """At the end of the active segment a broker may be half-way through a batch: give it a moment. True: look again."""
        if self.size - position > _NEAR_THE_END and self._header_at(position).size <= self.size - position:
            return False  # that is in the middle of the file
        deadline = time.monotonic() + _GROWTH_SECONDS
        while time.monotonic() < deadline:
            self._chunk = b""
            now = self._files.size(self._file.fileno())
            size = self._whole_batch_at(position, now)
            if size:
                self.growing = True
                self.size = position + size  # what comes later is another inspection's
                return True
            if now <= position:
                self.growing = True
                self.size = now  # a write that failed was taken back
                return False
            time.sleep(_GROWTH_PAUSE)
        return False

    def _whole_batch_at(self, position: int, end: int) -> int:
        """The size of the good batch at a position, or 0."""
        if end - position < HEADER_SIZE:
            return 0
        header = self._header_at(position)
        if header_problem(header) or header.size > end - position:
            return 0
        return header.size if self._checksum(position, header.size) == header.crc else 0

    # Finding the way again.

    def _resume_at(self, position: int) -> int:
        """Where the next good batch begins after a bad one at `position`; the end of the file when there is none."""
        offsets = Offsets(self.end_offset, self._request.base_offset + MAX_RELATIVE_OFFSET)
        behind = self._search.batch_behind(position, offsets)
        return self.size if behind is None else behind.position


def batch_bytes(scan: SegmentScan, batch: Batch) -> bytes:
    """One whole batch."""
    return scan.read(batch.position, batch.header.batch_length + LENGTH_OVERHEAD)
