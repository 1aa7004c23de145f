"""Loading a partition's directory on start, and recovery after a crash.

Role: from files to a `LoadedLog`. After a clean stop nothing is read but names, sizes and the producer snapshot. Otherwise every
batch from the recovery point on is checked with its checksum, a torn tail is cut off at the last valid batch, and indexes and producer
state are rebuilt. Damage never raises: what cannot be believed is rebuilt from the log. What was on disk stays: below the recovery point
nothing is cut off and no offset is given a second time, whatever became of the bytes. Above it good batches behind a bad one leave the
log, but not the disk: they are kept in a side file (`.damaged`), which the broker never looks at.
Thread: the manager's, before any other thread knows the log. Lock: none.

An interrupted compaction (`.cleaned`, `.swap`) is completed or undone first, by interrupted.py.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from barnabas.broker.log.batch_search import LARGEST_BASE_OFFSET, MAX_RELATIVE_OFFSET, BatchSearch, FoundBatch
from barnabas.broker.log.checkpoints import keep_damaged, keep_damaged_bytes, read_epochs
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.file_kinds import NotAFile
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.interrupted import finish_interrupted
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, ProducerStates
from barnabas.broker.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from barnabas.broker.log.transactions import index_digest, rebuild_all, replay_rows, replay_segment
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
from barnabas.broker.log.walk import NOWHERE, end_of_damage, is_zero_from
from barnabas.records.batch import HEADER, HEADER_SIZE, BatchHeader
from barnabas.records.kernel.scan import EPOCH_ROW, PROBLEMS, BatchScan

log = logging.getLogger(__name__)

OnChecked = Callable[[int], None]

_TEMPORARY = (".tmp",)
_NAME_DIGITS = 20


def _ignore(_checked_bytes: int) -> None:
    """Nobody wants to know how far a recovery is."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What the manager knows about a partition's directory before it is read."""

    directory: str
    name: str
    config: LogConfig
    recovery_point: int
    start_offset: int
    clean: bool
    now_ms: int
    known: bool = False
    """Whether the recovery point was noted by this broker; else the directory may come from anywhere."""
    start_known: bool = False
    """Whether the start was."""
    aborted_digest: int | None = None
    """The checksum of the transaction indexes at the last clean stop; None when nobody knows."""


@dataclass(slots=True)
class LoadedLog:
    """What a partition's directory holds."""

    directory: str
    segments: list[Segment]
    start: int
    end: int
    recovery_point: int
    producers: ProducerStates
    epochs: LeaderEpochs
    snapshot_offset: int = -1
    cut_bytes: int = 0


def load_log(files: FileSystem, request: LoadRequest, on_checked: OnChecked = _ignore) -> LoadedLog:
    """Read a directory, recovering it when the last stop was not clean; `on_checked` is told of bytes that were checked."""
    return _Loader(files, request, on_checked).load()


def unflushed_bytes(files: FileSystem, request: LoadRequest) -> int:
    """About how much recovery will read: the segments that are not known to be on disk."""
    _, sizes = files.list_sizes(request.directory, LOG_SUFFIX)
    bases = {name: _offset_of(name, LOG_SUFFIX) or 0 for name in sizes}
    first = max((base for base in bases.values() if base <= request.recovery_point), default=0)
    return sum(size for name, size in sizes.items() if bases[name] >= first)


class _Loader:
    """One load; a class only to share what each step needs."""

    def __init__(self, files: FileSystem, request: LoadRequest, on_checked: OnChecked) -> None:
        self._files = files
        self._request = request
        self._on_checked = on_checked
        self._directory = request.directory
        self._names, self._sizes = files.list_sizes(request.directory, LOG_SUFFIX)
        if finish_interrupted(files, request.directory, self._names):
            self._names, self._sizes = files.list_sizes(request.directory, LOG_SUFFIX)
        self._producers = ProducerStates(request.name)
        self._epochs = LeaderEpochs(read_epochs(files, request.directory))
        self._cut = 0
        self._damaged = False
        self._ends_early: Segment | None = None
        """The segment whose batches end before the recovery point, which is where the log must go on."""

    def load(self) -> LoadedLog:
        self._believe_start()
        self._remove_temporary_files()
        segments = self._open_segments()
        request = self._believe_checkpoints(segments)
        clean = request.clean and self._ends_at_recovery_point(segments)
        end = self._load_clean(segments) if clean else self._recover(segments)
        segments, end = self._fit_start(segments, end)
        start = max(request.start_offset, segments[0].base_offset)
        self._epochs.truncate(start, end)
        if not self._epochs.entries and end > start:
            self._restore_epochs(segments)
        point = end if clean else min(request.recovery_point, end)
        for segment, following in pairwise(segments):
            segment.synced = following.base_offset < point
        for segment in segments:
            segment.release()  # files are opened on use: a thousand idle partitions hold no descriptor
        snapshot = self._remove_stray_snapshots(segments, end)
        loaded = LoadedLog(self._directory, segments, start, end, point, self._producers, self._epochs)
        loaded.snapshot_offset = snapshot if clean else -1
        loaded.cut_bytes = self._cut
        return loaded

    def _believe_start(self) -> None:
        """Before anything below the start is removed. Up to a new start everything is flushed before it is noted: after a clean stop a
        start behind the end comes from damage."""
        request = self._request
        if request.clean and request.known and request.start_offset > request.recovery_point:
            text = "%s: the start %d is not believed: the log ends at %d; it begins with its first segment"
            log.error(text, self._directory, request.start_offset, request.recovery_point)
            self._request = replace(request, start_offset=0, start_known=False)

    def _believe_checkpoints(self, segments: list[Segment]) -> LoadRequest:
        """What the checkpoints say is compared with the names of the segments."""
        request, last = self._request, segments[-1].base_offset if segments else 0
        if segments and request.recovery_point > last + MAX_RELATIVE_OFFSET + 1:
            text = "%s: the recovery point %d is not believed: the last segment begins at %d; everything is checked"
            log.warning(text, self._directory, request.recovery_point, last)
            request = self._request = replace(request, recovery_point=0, clean=False, known=False)
        if segments and request.start_known and segments[0].base_offset > request.start_offset:
            text = "%s: the segments with offsets %d to %d are missing"
            log.error(text, self._directory, request.start_offset, segments[0].base_offset - 1)
        for segment, following in pairwise(segments):
            if not segment.size and not request.config.compacted:
                text = "%s is empty: offsets %d to %d are lost"
                log.error(text, segment.path, segment.base_offset, following.base_offset - 1)
        return request

    def _ends_at_recovery_point(self, segments: list[Segment]) -> bool:
        """After a clean stop the last batch ends at the recovery point and at the end of the file; else do not believe the marker."""
        if not segments:
            return False
        last = segments[-1]
        try:
            return last.end_offset() == self._request.recovery_point
        except (IndexDamaged, CorruptLog):
            return False

    def _restore_epochs(self, segments: list[Segment]) -> None:
        """The checkpoint knows no epoch of what is here: the first batches of the segments do."""
        log.warning("%s: no leader epoch is known of what is there; it is read from the segments", self._directory)
        for segment in segments:
            first = _first_batch(segment)
            if first is not None:
                self._epochs.assign(first.header.partition_leader_epoch, first.header.base_offset)

    # Names.

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _remove_temporary_files(self) -> None:
        for name in self._names:
            if name.endswith(_TEMPORARY):
                self._files.remove(self._path(name))
            elif name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                self._remove_orphan(name)

    def _remove_orphan(self, name: str) -> None:
        if name.split(".", maxsplit=1)[0] + LOG_SUFFIX not in self._sizes:
            log.warning("%s: %s has no log and is removed", self._directory, name)
            self._files.remove(self._path(name))

    def _open_segments(self) -> list[Segment]:
        found = []
        for name, size in self._sizes.items():
            base = _offset_of(name, LOG_SUFFIX)
            if base is not None:
                found.append(Segment(self._files, self._directory, base, size))
        found.sort(key=lambda segment: segment.base_offset)
        # A power cut may bring back some of the segments below the start that were removed before it.
        while len(found) > 1 and found[1].base_offset <= self._request.start_offset:
            found.pop(0).remove_files()
        return found

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._files, self._directory, base_offset)
        segment.create()
        return segment

    def _fit_start(self, segments: list[Segment], end: int) -> tuple[list[Segment], int]:
        """A log that ends before its start has lost its files; it goes on, empty, at its start. There is always one segment."""
        start = self._request.start_offset
        if segments and end >= start:
            return segments, end
        if segments:
            log.warning("%s ends at %d, before its start %d: its segments are removed", self._directory, end, start)
        for segment in segments:
            segment.remove_files()
        self._producers.clear()
        return [self._new_segment(start)], start

    # Producers.

    def _snapshots(self) -> list[int]:
        offsets = (_offset_of(name, SNAPSHOT_SUFFIX) for name in self._names)
        return sorted((offset for offset in offsets if offset is not None), reverse=True)

    def _load_snapshot(self, at_most: int, segments: Sequence[Segment] = ()) -> int | None:
        """Load the newest usable snapshot that is not after an offset; its offset. `segments`: what it must know the last batch of."""
        for offset in self._snapshots():
            if offset > at_most:
                continue
            path = self._path(segment_name(offset) + SNAPSHOT_SUFFIX)
            try:
                self._producers.load(self._files.read_file(path), self._request.now_ms)
                self._compare_with_last_batch(segments, offset)
                return offset
            except (CorruptSnapshot, OSError) as error:
                log.warning("%s: %s; the state of producers is rebuilt from the log", path, error)
                self._files.remove(path)
                self._names.remove(os.path.basename(path))
        self._producers.clear()
        return None

    def _compare_with_last_batch(self, segments: Sequence[Segment], offset: int) -> None:
        """A snapshot that is older than its name, or another partition's, does not know who wrote the last batch before it. (Nor does one
        whose producer expired since: then an older snapshot and the batches behind it are read, once.)"""
        before = [segment for segment in segments if segment.size and segment.base_offset < offset]
        last = _last_batch(before[-1]) if before else None
        if last is None or self._knows(last.header):
            return
        if (
            BatchSearch(before[-1].read, before[-1].size).batch_at(last.position, before[-1].offsets_from(0))
            is not None
        ):
            writer = f"producer {last.header.producer_id} that ends at {last.header.last_offset}"
            raise CorruptSnapshot(f"it does not know the batch of {writer}")

    def _knows(self, header: BatchHeader) -> bool:
        entry = self._producers.entries.get(header.producer_id)
        if header.producer_id < 0 or (entry is not None and header.control):
            return True
        return entry is not None and bool(entry.batches) and entry.batches[-1].last_offset == header.last_offset

    def _remove_stray_snapshots(self, segments: list[Segment], end: int) -> int:
        """Keep the snapshots of segments and the one of the end; others would never be used. The newest one's offset, or -1."""
        kept = {segment.base_offset for segment in segments} | {end}
        newest = -1
        for offset in self._snapshots():
            if offset in kept:
                newest = max(newest, offset)
            else:
                self._files.remove(self._path(segment_name(offset) + SNAPSHOT_SUFFIX))
        return newest

    def _replay_producers(self, segments: list[Segment], from_offset: int, end: int) -> None:
        """Read batch headers from an offset on, without their records."""
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if following > from_offset:
                replay_segment(self._producers, segment, from_offset, self._request.now_ms, following)

    # The two ways.

    def _load_clean(self, segments: list[Segment]) -> int:
        """After a clean stop the recovery point is the end of the log."""
        end = self._request.recovery_point
        snapshot = self._load_snapshot(end, segments)
        begin = segments[0].base_offset if snapshot is None else snapshot
        if begin < end:
            self._replay_producers(segments, begin, end)
        self._check_transaction_indexes(segments)
        return end

    def _check_transaction_indexes(self, segments: list[Segment]) -> None:
        """What was aborted must not be read as committed because a file is missing."""
        wanted = self._request.aborted_digest
        if wanted is None or (not wanted and not any(name.endswith(TXN_INDEX_SUFFIX) for name in self._names)):
            return
        if index_digest(segments) != wanted:
            log.warning("%s: a transaction index is not as it was; rebuilding all from the log", self._directory)
            rebuild_all(self._files, segments)

    def _recover(self, segments: list[Segment]) -> int:
        """Check what was not known to be on disk; the end of what is valid."""
        point = self._request.recovery_point
        if not segments:
            if not self._request.known or point <= self._request.start_offset:
                return self._request.start_offset
            log.error(
                "%s: everything below offset %d was on disk and is lost: there is no segment", self._directory, point
            )
            segments.append(self._new_segment(point))
            return point
        # The segment that ends at the point too: its batches are on disk, but perhaps not that the zeros behind them were cut off.
        first = max([i for i, segment in enumerate(segments) if segment.base_offset < point], default=0)
        self._load_state_before(segments, first)
        end = segments[first].base_offset
        rest = segments[first:]
        del segments[first:]
        for number, segment in enumerate(rest):
            if segment.base_offset < end:
                self._drop([segment], "it begins before the previous segment ends")
                continue
            if segment.base_offset > end and number and self._is_torn(rest[number:]):
                self._drop(rest[number:], "the end of the segment before it is lost")
                break
            end, whole = self._recover_segment(segment, point, self._ends_by(rest[number + 1 :]))
            segments.append(segment)
            if not whole:
                self._drop(rest[number + 1 :], "a batch before it is damaged")
                break
        if segments[-1] is self._ends_early:
            segments.append(self._new_segment(end))
        if self._damaged:
            self._restore_producers(segments, end)
        log.info("%s: recovered from offset %d to %d, %d bytes cut", self._directory, point, end, self._cut)
        return end

    def _ends_by(self, following: Sequence[Segment]) -> int:
        """What the offsets of a segment cannot go beyond: a good batch that follows, or where the broker stopped in order."""
        request = self._request
        end = request.recovery_point if request.clean and request.known else NOWHERE
        return min(end, following[0].base_offset) if following and _first_batch(following[0]) is not None else end

    def _restore_producers(self, segments: list[Segment], end: int) -> None:
        """What damaged and lost batches said of their producers is not known, unless a snapshot was written behind them."""
        snapshot = self._load_snapshot(self._request.recovery_point)
        self._replay_producers(segments, segments[0].base_offset if snapshot is None else snapshot, end)

    def _is_torn(self, rest: list[Segment]) -> bool:
        """Whether a gap before segments means that a power cut took what was there. Compaction leaves gaps too, also such that are a
        whole, empty segment, and where a directory comes from elsewhere nobody knows: then they stay, unless there is nothing behind
        them."""
        return (self._request.known and not self._request.config.compacted) or not any(each.size for each in rest)

    def _load_state_before(self, segments: list[Segment], first: int) -> None:
        base = segments[first].base_offset
        snapshot = self._load_snapshot(base)
        begin = segments[0].base_offset if snapshot is None else snapshot
        if begin < base:
            self._replay_producers(segments[:first], begin, base)

    def _drop(self, segments: list[Segment], reason: str) -> None:
        for segment in segments:
            keep = partial(keep_damaged, self._files, segment.path)
            kept = self._keep_if_good(segment, 0, segment.base_offset, keep)
            log.warning("%s: %s is removed: %s%s", self._directory, segment.path, reason, kept)
            self._cut += segment.size
            segment.remove_files()

    def _keep_if_good(self, segment: Segment, position: int, offset: int, keep: Callable[[], str]) -> str:
        """Good batches go because others before them are bad, or missing: they are kept in a side file. What to say of it in the log.
        OSError, before anything is cut off, when they cannot be kept: a start that cannot go on loses less than one that does."""
        search, offsets = BatchSearch(segment.read, segment.size), segment.offsets_from(offset)
        if search.batch_at(position, offsets) is None and search.batch_behind(position, offsets) is None:
            return ""
        try:
            return f"; the good batches in it are kept in {os.path.basename(keep())}"
        except OSError as error:
            if isinstance(error, NotAFile):
                raise
            text = f"the good batches that must leave {segment.path} cannot be kept in a side file: {error.strerror}"
            raise OSError(error.errno, text) from error

    def _keep_behind(self, segment: Segment, position: int) -> str:
        keep = partial(keep_damaged_bytes, self._files, segment, position)
        return self._keep_if_good(segment, position, segment.base_offset, keep)

    def _recover_segment(self, segment: Segment, recovery_point: int, ends_by: int) -> tuple[int, bool]:
        """Check a segment and rebuild what belongs to it. Its end offset, and whether nothing had to be cut off."""
        segment.txn_index.reset()
        checked = 0
        interval, epoch = self._request.config.index_interval, self._epochs.latest
        for scan in segment.rebuild(recovery_point, interval, epoch, recovery_point, ends_by):
            replay_rows(self._producers, scan, self._request.now_ms, segment, recovery_point)
            for epoch, offset in EPOCH_ROW.iter_unpack(scan.take_epochs()):
                self._epochs.assign(epoch, offset)
            self._on_checked(scan.read_position - checked)
            checked = scan.read_position
        self._damaged = self._damaged or scan.holes > 0
        end, torn = scan.next_offset, scan.valid_size < segment.size
        if end < recovery_point and self._request.known:
            self._keep_what_was_on_disk(segment, scan)
            end, torn = recovery_point, False
        elif torn:
            self._cut_off(segment, scan)
        segment.finish()
        return end, not torn

    def _keep_what_was_on_disk(self, segment: Segment, scan: BatchScan) -> None:
        """A segment ends before the recovery point. Damaged bytes stay, for whoever can mend them. Behind them there may be zeros that
        were written ahead of batches, and batches that nobody knew to be on disk; those go, as behind every damage."""
        size = end_of_damage(segment, scan.valid_size, scan.next_offset)
        lost = f"{segment.path}: offsets {scan.next_offset} to {self._request.recovery_point - 1} were on disk and"
        if size > scan.valid_size:
            text = "%s are damaged: %d bytes at %d are left as they are (%s)"
            log.error(text, lost, size - scan.valid_size, scan.valid_size, PROBLEMS[scan.problem])
        elif not self._request.config.compacted:
            log.error("%s are lost: the file ends before them", lost)
        self._cut += segment.size - size
        if size < segment.size:
            if not is_zero_from(segment, size):
                kept = self._keep_behind(segment, size)
                log.warning("%s: %d bytes behind them are cut off%s", segment.path, segment.size - size, kept)
            segment.cut(size)
        self._ends_early = segment
        self._damaged = True

    def _cut_off(self, segment: Segment, scan: BatchScan) -> None:
        cut = segment.size - scan.valid_size
        if is_zero_from(segment, scan.valid_size):
            log.info("%s: %d bytes that were written ahead of batches are cut off", segment.path, cut)
        else:
            why = PROBLEMS[scan.problem] + self._keep_behind(segment, scan.valid_size)
            log.warning("%s: %d bytes after offset %d are cut off: %s", segment.path, cut, scan.next_offset, why)
        self._cut += cut
        segment.cut(scan.valid_size)


def _header_at(segment: Segment, position: int) -> BatchHeader | None:
    data = segment.read(position, HEADER_SIZE)
    return BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER_SIZE else None


def _first_batch(segment: Segment) -> FoundBatch | None:
    """The good batch at the beginning of a segment."""
    return BatchSearch(segment.read, segment.size).batch_at(0, segment.offsets_from(segment.base_offset))


def _last_batch(segment: Segment) -> FoundBatch | None:
    """Found by the index and the batches after its last entry; None when something is wrong with them. No checksum is compared."""
    try:
        entry = segment.offset_index.last()
        # Where the index is empty these are all that the segment has: none but the last is kept.
        last = deque(segment.places(0 if entry is None else entry[1], segment.size), maxlen=1)
    except (IndexDamaged, CorruptLog):
        return None
    header = _header_at(segment, last[0].position) if last else None
    return None if header is None else FoundBatch(last[0].position, header)


def _offset_of(name: str, suffix: str) -> int | None:
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _NAME_DIGITS or not stem.isdecimal() or int(stem) > LARGEST_BASE_OFFSET:
        return None
    return int(stem)
