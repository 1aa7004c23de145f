"""One segment of a log: a file of batches and its indexes.

Role: find batches by offset or by time, keep the indexes, open and close the file.
Thread: changes by the appender or by recovery; look-ups from any thread.
Lock: the log's append lock guards changes; look-ups take none and are bounded by the size that the caller has seen published. Which file
is open is guarded by the lock of OpenFiles; a use of it takes none.

File names are the base offset with twenty digits: 00000000000000000000.log .index .timeindex .txnindex; while compaction makes a segment
and while a segment waits to be removed, one of the endings .cleaned, .swap or .deleted follows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator

from barnabas.broker.inline_work import leave_light_lane, spend
from barnabas.broker.log.batch_search import MAX_RELATIVE_OFFSET, BatchSearch, FoundBatch, Offsets
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.files import FileSystem, OpenFile, Pin
from barnabas.broker.log.index import IndexDamaged, OffsetIndex, TimeIndex
from barnabas.broker.log.places import PLACE_SIZE, CorruptLog, Place, place_in, place_or_none
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX, TransactionIndex
from barnabas.broker.log.walk import NOWHERE, scan_headers, walk
from barnabas.records.batch import HEADER_SIZE, NO_TIMESTAMP
from barnabas.records.kernel.scan import BatchScan

log = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"

ALWAYS = -(2**63)
"""The roll time of an empty segment: its first batch stops by, and sets the real one."""

_UNSEEN = -1
_FIRST_CHUNK = 4 * 1024
"""Between two entries of the index lie about as many bytes: most look-ups need no more."""
_SCAN_CHUNK = 16 * 1024
_SCAN_WORK = 4
"""To go over the headers of small batches takes about as long as to compare the checksum of so many times the bytes."""
_FILL_CHUNK = 1 << 20
FILL_LIMIT = 128 * 1024
"""Producers that wait for the disk get zeros ahead of their batches when a flush brings less than this. More would only pay for writing
twice: measured, 256 KiB take 0.28 ms to the disk when appended and 0.33 ms over zeros."""
EARLY_BYTES = 384 * 1024
"""Where producers wait for the disk and a flush brings much, the disk is asked to begin whenever so many bytes have gathered. Asking costs
35 us: for groups of 1 MiB, 64 KiB took a third longer in all, 128 KiB an eighth, 256 and 512 KiB up to 7 %. Others were not measured."""
_ZEROS = memoryview(bytes(_FILL_CHUNK))


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def let_go(_: object) -> None:
    """Called with what an attribute held, after it holds something else. Compiled code, left to itself, lets go of the old value before it
    stores the new one; if that closes a file, other threads run meanwhile, and would find what is no more."""


class Segment:
    """A file of batches with its indexes. Counters are published by the log, see PartitionLog."""

    __slots__ = (
        "_file",
        "_files",
        "_flushed",
        "_last_time_entry",
        "_on_disk",
        "_pin",
        "_seen_size",
        "_stem",
        "_used",
        "append_fd",
        "append_lock",
        "base_offset",
        "bytes_since_index",
        "filled",
        "index_room",
        "max_time",
        "offset_index",
        "retired",
        "roll_at_timestamp",
        "size",
        "started",
        "suffix",
        "synced",
        "time_index",
        "txn_index",
    )

    def __init__(self, files: FileSystem, directory: str, base_offset: int, size: int = 0, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.size = size
        self.suffix = suffix
        self._files = files
        self._stem = os.path.join(directory, segment_name(base_offset))
        self._file: OpenFile | None = None
        self._pin: Pin | None = None
        self._on_disk = size
        """Up to where the batches are flushed."""
        self._used = False
        self._seen_size = _UNSEEN
        self.append_lock: threading.Lock | None = None
        """The log's, while this is its active segment: the file is closed only under it."""
        self.append_fd = -1
        """Of the active segment, ready for the next batch; -1 sends that one the slow way."""
        self.offset_index = OffsetIndex(files, self._stem + INDEX_SUFFIX + suffix, base_offset)
        self.time_index = TimeIndex(files, self._stem + TIME_INDEX_SUFFIX + suffix, base_offset)
        self.txn_index = TransactionIndex(files, self._stem + TXN_INDEX_SUFFIX + suffix, base_offset)
        self.filled = 0
        """The end of the zeros that were written ahead of the batches, see `fill_ahead`; meaningless when below `size`."""
        self._flushed = self.started = size
        """Up to where the file was flushed, and up to where the disk was asked to begin."""
        self.bytes_since_index = 0
        self.index_room = 0
        self._last_time_entry = NO_TIMESTAMP
        self.max_time = (NO_TIMESTAMP, base_offset)
        """The largest timestamp so far and the last offset of the batch that brought it; one tuple, so that readers see a pair."""
        self.roll_at_timestamp = ALWAYS
        self.retired = False
        self.synced = False
        """True once all of a segment that is no longer written, indexes too, is on disk."""

    # The file.

    @property
    def path(self) -> str:
        return self._stem + LOG_SUFFIX + self.suffix

    def create(self) -> None:
        self._files.open_files.keep(self, self._files.open(self.path, create=True))
        self.offset_index.create_empty()
        self.time_index.create_empty()
        self.txn_index.create_empty()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def descriptors_short(self) -> bool:
        """Whether a reader that can wait should not have a file opened now."""
        return self._files.open_files.short

    def file(self) -> OpenFile:
        """The open file. A segment that was deleted meanwhile raises FileNotFoundError."""
        file = self._file
        if file is not None:
            self._used = True
            return file
        if self.retired:
            raise FileNotFoundError(f"{self.path} was removed from the log")
        return self._files.open_files.keep(self, self._files.open(self.path))

    def open_for_append(self, lock: threading.Lock) -> None:
        """From now on the file is closed only under the log's append lock, which the caller holds."""
        self.append_lock = lock
        self.append_fd = self.file().fileno()

    def end_append(self) -> None:
        """The segment is complete; under the append lock."""
        self.append_fd = -1
        self.append_lock = None

    # By OpenFiles, under its lock.

    def adopt(self, file: OpenFile) -> OpenFile:
        """Keep this file, unless there is one already. A segment that left the log keeps none."""
        if self._file is None and not self.retired:
            self._file = file
            self._used = False
            self._seen_size = _UNSEEN
        return self._file or file

    def used_since_last_look(self) -> bool:
        """Whether the file was used again after it was opened: many that are used once must not drive out the others."""
        used = self._used or self._seen_size not in (self.size, _UNSEEN)
        self._used = False
        self._seen_size = self.size
        return used

    def give_up_file(self) -> OpenFile | None:
        """The file, to be closed by the caller; None while something is appended."""
        lock = self.append_lock
        if lock is None:
            return self.take_file()
        if not lock.acquire(blocking=False):
            return None
        try:
            self.append_fd = -1
            return self.take_file()
        finally:
            lock.release()

    def take_file(self, for_good: bool = False) -> OpenFile | None:
        """The file is not kept any more. What was not flushed is pinned, unless it never will be."""
        file = self._file
        if for_good or self.retired:
            self._pin = None
        elif file is not None and self.size > self._on_disk:
            self._pin = file.use(self._files.pin)
        self._file = None
        return file

    def retire(self) -> None:
        """The segment left the log: nobody may open its name again, which may belong to another segment soon."""
        self.retired = True
        self.release()

    def release(self, for_good: bool = False) -> None:
        """Give up the descriptor and what is cached; whoever reads the segment right now keeps the file open for himself. `for_good`:
        the log will flush nothing any more."""
        self._files.open_files.release(self, for_good)
        self.offset_index.forget_windows()
        self.time_index.forget_windows()

    def remove_files(self) -> None:
        """Remove the files. The log goes first: an index without a log is removed on start, a log without index is rebuilt."""
        self.retire()
        for path in (self.path, self.offset_index.path, self.time_index.path, self.txn_index.path):
            self._files.remove(path)

    def rename(self, suffix: str) -> None:
        """Give the files another ending; the log goes last: whoever finds it under the new name finds everything (interrupted.py).

        Of a segment that readers know, under the log's append lock: a reader that misses a file waits for the lock and looks again.
        An index may be missing: a kill in the middle of this leaves a log without, and so may anybody. It is made anew when it is needed.
        """
        rename = self._files.rename
        for index, ending in ((self.offset_index, INDEX_SUFFIX), (self.time_index, TIME_INDEX_SUFFIX)):
            with contextlib.suppress(FileNotFoundError):
                rename(index.path, self._stem + ending + suffix)
            index.path = self._stem + ending + suffix
        txn_path = self._stem + TXN_INDEX_SUFFIX + suffix
        if self.txn_index.entries:
            rename(self.txn_index.path, txn_path)
        self.txn_index.path = txn_path
        rename(self.path, self._stem + LOG_SUFFIX + suffix)
        self.suffix = suffix

    # Keeping the indexes, under the log's append lock.

    @property
    def is_prepared(self) -> bool:
        """Whether something may have been appended since the start."""
        return self.index_room > 0 or self.offset_index.has_pending or self.time_index.has_pending

    def prepare_append(self, config: LogConfig, now_ms: int) -> None:
        """Load what appending needs to know; called once, before the first append after a start."""
        self.set_limits(config, self.first_timestamp() if self.size else None, now_ms)
        self.largest_timestamp(self.size)
        entry = self.offset_index.last()
        self.bytes_since_index = self.size - (entry[1] if entry is not None else 0)
        last = self.time_index.last()
        if last is not None:
            self._last_time_entry = last[0]

    def set_limits(self, config: LogConfig, first_timestamp: int | None, now_ms: int) -> None:
        """How many index entries still fit, and which timestamp begins a new segment (segment.ms); None: the segment is empty."""
        room = config.segment_index_bytes - max(self.offset_index.entries * 8, self.time_index.entries * 12)
        self.index_room = room // 12 - 1
        if first_timestamp is None:
            self.roll_at_timestamp = ALWAYS
        else:
            begin = first_timestamp if first_timestamp >= 0 else now_ms
            self.roll_at_timestamp = begin + config.roll_ms

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Keep indexes and counters after a batch was found (recovery); `append` does the same inline."""
        if max_timestamp > self.max_time[0]:
            self.max_time = (max_timestamp, last_offset)
        if self.bytes_since_index > interval:
            self.add_index_entries(last_offset, position)
        self.bytes_since_index += size

    def add_index_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self._add_time_entry()
        self.bytes_since_index = 0
        self.index_room -= 1

    def _add_time_entry(self) -> None:
        timestamp, offset = self.max_time
        if timestamp > self._last_time_entry:
            self._last_time_entry = timestamp
            self.time_index.append(timestamp, offset)

    def note_flush(self, size: int) -> int:
        """The segment is flushed up to a size; how many bytes are new."""
        new, self._flushed = size - self._flushed, size
        self.started = max(self.started, size)
        return new

    def start_writing(self, size: int) -> None:
        """Let the disk begin with what lies before `size`, while more is appended; the flush then has less to wait for.

        Any thread, without a lock: who comes second asks for the same once more, which does nothing.
        """
        begin, self.started = self.started, size
        with contextlib.suppress(
            OSError
        ):  # the batches are written; whether they get to the disk is for the flush to say
            self.file().use(self._files.start_writing, begin, size - begin)

    def fill_ahead(self, end: int, limit: int) -> None:
        """Write zeros up to `end` and some way beyond, but not beyond `limit`, so that batches overwrite what is in the file already.

        Bringing a batch to the disk then changes no metadata: no size, no block map, no journal (measured with 16 KiB batches on
        ext4: fdatasync takes 118 us instead of 215). `finish` cuts off what is left; recovery does after a crash.
        """
        self.filled = max(self.filled, self.size)
        try:
            while self.filled < end:
                zeros = _ZEROS[: max(end, limit) - self.filled]
                self.filled += self.file().use(self._files.pwritev, (zeros,), self.filled)
        except OSError as error:
            log.warning("%s: cannot write ahead, so batches take longer to the disk: %s", self.path, error)
            self.filled = limit  # not tried again: what the disk is able to is seen with the batch itself

    def finish(self) -> None:
        """The segment is complete (or the log closes): no zeros after the last batch, the time index ends with the largest
        timestamp, and both indexes are written."""
        if self.filled > self.size:
            self.cut(self.size)
            self.filled = 0
        self._add_time_entry()
        self.write_indexes()

    def write_indexes(self) -> None:
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def sync(self) -> None:
        """All of a complete segment to disk."""
        self.sync_data()
        self.offset_index.sync()
        self.time_index.sync()
        self.synced = True

    def sync_data(self) -> None:
        """The batches, and the transaction index: nothing after a clean stop would show that it is wrong."""
        size, pin = self.size, self._pin
        self.file().use(self._files.sync)
        self._on_disk = size
        if self._pin is not None:
            self._unpin(pin)
        self.txn_index.sync()

    def _unpin(self, flushed: Pin | None) -> None:
        """What was written before this pin was made is flushed; what came later may need its own."""
        with self._files.open_files.lock:
            if self._pin is flushed or self.size <= self._on_disk:
                self._pin = None

    def rebuild_indexes(self, interval: int) -> None:
        """Write both indexes anew from the batches that are there; under the log's append lock."""
        leave_light_lane()
        for _ in self.rebuild(NOWHERE, interval):
            pass
        self.finish()

    def rebuild(
        self, check_from: int, interval: int, epoch: int = -1, keep_below: int = NOWHERE, ends_by: int = NOWHERE
    ) -> Iterator[BatchScan]:
        """A walk that writes both indexes anew as it goes; `finish` must follow."""
        self.begin_rebuild()
        for scan in walk(self, check_from, interval, epoch, keep_below, ends_by):
            self.offset_index.append_stored(scan.take_offset_entries())
            self.time_index.append_stored(scan.take_time_entries())
            self.max_time = scan.max_time
            self._last_time_entry = scan.last_time_entry
            self.bytes_since_index = scan.bytes_since_index
            yield scan

    def begin_rebuild(self) -> None:
        """Forget what the indexes say; `note_batch` for each batch and `finish` make them anew."""
        self.offset_index.reset()
        self.time_index.reset()
        self.max_time = (NO_TIMESTAMP, self.base_offset)
        self._last_time_entry = NO_TIMESTAMP
        self.bytes_since_index = 0

    def cut(self, size: int) -> None:
        """Cut off the end of the file (recovery)."""
        self.file().use(self._files.truncate, size)
        self.size = size
        self._on_disk = min(self._on_disk, size)

    def modified_ms(self) -> int:
        return self._files.modified_ms(self.path)

    # Look-ups, from any thread; `end` is the published size of the segment.

    def offsets_from(self, first: int) -> Offsets:
        """What a batch of this segment may have, from an offset on."""
        return Offsets(first, self.base_offset + MAX_RELATIVE_OFFSET)

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, or -1."""
        return next((place.max_timestamp for place in self.places(0, self.size)), NO_TIMESTAMP)

    def place_at(self, position: int) -> Place:
        """The batch that begins at a position."""
        return place_in(self.read(position, PLACE_SIZE), 0, position)

    def first_place(self, end: int) -> Place | None:
        """The batch at the beginning of the file, if it has the offset and the size that it must have; else it is for `locate` to say."""
        place = place_or_none(self.read(0, PLACE_SIZE), 0, 0)
        return place if place is not None and place.base_offset == self.base_offset and place.size <= end else None

    def read(self, position: int, length: int) -> bytes:
        return self.file().use(self._files.pread, length, position)

    def will_need(self, position: int, length: int) -> None:
        """Ask the operating system to read a stretch ahead, as far as there is one; it works while others do."""
        length = min(length, self.size - position)
        if length > 0:
            self.file().use(self._files.will_need, position, length)

    def locate(self, offset: int, end: int) -> Place | None:
        """The first batch that ends at or after an offset; None when the segment has none. CorruptLog when the offset is one of those
        that were in damaged bytes, so that nobody takes them for a gap that compaction left."""
        position = self._floor(offset, end)
        search = BatchSearch(self.read, end)
        while True:
            before, place = self._around(offset, position, end)
            liar = self._liar(search, position, before, place, offset)
            if liar is None:
                return place
            behind = search.batch_behind(liar[0], self.offsets_from(liar[1]))
            if behind is None or behind.header.base_offset > offset:
                raise CorruptLog(f"{self.path}: the batch at {liar[0]} is damaged")
            position = behind.position

    def _liar(
        self, search: BatchSearch, position: int, before: Place | None, place: Place | None, offset: int
    ) -> tuple[int, int] | None:
        """Which of the headers between a position and an offset is wrong, and what offset was expected of it; None when none is. Those
        of batches that follow each other are believed; where an offset is inside a batch, or a gap is near it, checksums decide.
        CorruptLog when there are other bytes in the gap."""
        expected = self.base_offset if not position else place.base_offset if place else offset
        if before and not (place and before.last_offset >= place.base_offset):
            expected = before.last_offset + 1
        if place and place.base_offset == offset == expected:
            return None
        suspects = [(place.position, expected)] if place else []
        if not place or place.base_offset > offset:
            reached = before.position + before.size if before else position
            if reached != (place.position if place else search.end):
                raise CorruptLog(f"{self.path}: the bytes at {reached} are damaged")
            if before:
                suspects.append((before.position, before.base_offset))
        return next((each for each in suspects if search.lies(each[0], self.offsets_from(each[1]))), None)

    def _around(self, offset: int, position: int, end: int) -> tuple[Place | None, Place | None]:
        """The first batch from a position on that ends at or after an offset, and the one before it."""
        before = None
        for place in self.places(position, end):
            if place.last_offset >= offset:
                return before, place
            before = place
        return before, None

    def _floor(self, offset: int, end: int) -> int:
        """A position at or before the batch with an offset, by the index."""
        entry = self.offset_index.floor_by_key(offset)
        if entry is not None and end <= entry[1] < self.size:
            entry = self.offset_index.floor_by_value(
                end - 1
            )  # the segment grows: that one is newer than what the caller has seen
        if entry is None:
            return 0
        self._check_entry(entry, end)
        return entry[1]

    def _check_entry(self, entry: tuple[int, int], end: int) -> None:
        """An index may be damaged or foreign: what it says is believed only if a batch with that last offset is there."""
        last_offset, position = entry
        if position < 0 or position + HEADER_SIZE > end:
            raise IndexDamaged(f"{self.offset_index.path} points to {position}, the log ends at {end}")
        try:
            fits = self.place_at(position).last_offset == last_offset
        except CorruptLog:
            fits = False
        if not fits:
            raise IndexDamaged(f"{self.offset_index.path} points to {position}, where no batch ends with {last_offset}")

    def places(self, position: int, end: int) -> Iterator[Place]:
        """All batches from a position on; whole ones only. Bytes that are no batch are passed over: who must know sees the hole."""
        file, pread = self.file(), self._files.pread
        chunk, begin, wanted = b"", position, _FIRST_CHUNK
        before: tuple[int, int] | None = None
        search: BatchSearch | None = None
        expected, most = self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET
        while end - position >= HEADER_SIZE:
            at = position - begin
            if at + PLACE_SIZE > len(chunk):
                spend(_SCAN_WORK * wanted)
                chunk, begin, at = file.use(pread, min(wanted, end - position), position), position, 0
                wanted = _SCAN_CHUNK
            place = place_or_none(chunk, at, position)
            if place is None or place.size > end - position or place.base_offset < expected or place.last_offset > most:
                search = search or BatchSearch(self.read, end)
                behind = self._behind(search, before, position, expected)
                if behind is None:
                    return
                position, expected, before = behind.position, behind.header.base_offset, None
                chunk, begin = b"", position
                continue
            if place.size >= _SCAN_CHUNK:
                wanted = _FIRST_CHUNK  # a larger one would not reach the next header either
            yield place
            before = position, place.base_offset if position and before is None else expected
            expected = place.last_offset + 1
            position += place.size

    def _behind(
        self, search: BatchSearch, before: tuple[int, int] | None, position: int, expected: int
    ) -> FoundBatch | None:
        """The next good batch behind bytes at a position that are none. `before` is where the batch is that led there, and which offset
        was expected of it."""
        if before is not None and search.lies(before[0], self.offsets_from(before[1])):
            position, expected = before
        return search.batch_behind(position, self.offsets_from(expected))

    def end_offset(self) -> int:
        """The offset after the last batch, by the index and the batches after its last entry; -1 when the last batch is torn."""
        if not self.size:
            return self.base_offset
        entry = self.offset_index.last()
        position, end = 0, self.base_offset
        if entry is not None:
            self._check_entry(entry, self.size)
            position = entry[1]
        for place in self.places(position, self.size):
            position, end = place.position + place.size, place.last_offset + 1
        return end if position == self.size else -1

    def largest_timestamp(self, end: int) -> tuple[int, int]:
        """(timestamp, last offset of its batch) of the segment, from the time index and the batches after its last entry."""
        if self.max_time[0] == NO_TIMESTAMP and end:
            self.max_time = self._find_largest_timestamp(end)
        return self.max_time

    def _find_largest_timestamp(self, end: int) -> tuple[int, int]:
        last = self.time_index.last()
        end = max(end, self.size)  # the index may be newer than what the caller has seen
        start = 0
        if last is not None:
            _, place = self._around(last[1], self._floor(last[1], end), end)
            if place is None or (place.last_offset, place.max_timestamp) != (last[1], last[0]):
                raise IndexDamaged(f"{self.time_index.path} ends with {last}, which the log does not have")
            start = place.position
        return self.largest_timestamp_from(start, end)

    def largest_timestamp_from(self, start: int, end: int) -> tuple[int, int]:
        """(timestamp, last offset of its batch) of the batches from the one that begins at a position on."""
        best, rest = (NO_TIMESTAMP, self.base_offset), start
        for scan in scan_headers(self, start, end):
            best, rest = scan.max_time, scan.valid_size
        for place in self.places(rest, end):
            if place.max_timestamp > best[0]:
                best = (place.max_timestamp, place.last_offset)
        return best

    def locate_time(self, timestamp: int, from_offset: int, end: int) -> Place | None:
        """The first batch, not before an offset, that has a record of this time or later; it may be newer than `end`."""
        entry = self.time_index.floor_by_key(timestamp)
        end = max(end, self.size)  # as the index may be, which would otherwise look damaged
        begin = max(from_offset, self.base_offset)
        if entry is not None:
            _, place = self._around(entry[1], self._floor(entry[1], end), end)
            if place is None or (place.max_timestamp, place.last_offset) != entry:
                raise IndexDamaged(f"{self.time_index.path} has {entry}, which the log does not have")
            begin = max(begin, entry[1])
        first = (
            place if entry is not None and begin == entry[1] else self._around(begin, self._floor(begin, end), end)[1]
        )
        if first is None:
            return None
        position = first.position
        for scan in scan_headers(self, position, end):
            if scan.max_time[0] >= timestamp:
                break
            position = scan.valid_size
        return next((place for place in self.places(position, end) if place.max_timestamp >= timestamp), None)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size={self.size})"
