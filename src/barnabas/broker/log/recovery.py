"""Loading a partition's directory on start, and recovery after a crash.

Role: from files to a `LoadedLog`. After a clean stop nothing is read but names, sizes and the producer snapshot. Otherwise every
batch from the recovery point on is checked with its checksum, a torn tail is cut off at the last valid batch, and indexes and producer
state are rebuilt. Damage never raises: what cannot be believed is rebuilt from the log.
Thread: the manager's, before any other thread knows the log. Lock: none.

An interrupted compaction (`.cleaned`, `.swap`) is completed or undone first, by interrupted.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from barnabas.broker.log.checkpoints import read_epochs
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.interrupted import finish_interrupted
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, ProducerStates
from barnabas.broker.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    CorruptLog,
    Segment,
    segment_name,
)
from barnabas.broker.log.transactions import index_digest, rebuild_all, replay_rows, replay_segment
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
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

    def load(self) -> LoadedLog:
        request = self._request
        self._remove_temporary_files()
        segments = self._open_segments()
        clean = request.clean and self._ends_at_recovery_point(segments)
        end = self._load_clean(segments) if clean else self._recover(segments)
        segments, end = self._fit_start(segments, end)
        start = max(request.start_offset, segments[0].base_offset)
        self._epochs.truncate(start, end)
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

    def _ends_at_recovery_point(self, segments: list[Segment]) -> bool:
        """After a clean stop the last batch ends at the recovery point and at the end of the file; else do not believe the marker."""
        if not segments:
            return False
        last = segments[-1]
        try:
            return last.end_offset() == self._request.recovery_point
        except (IndexDamaged, CorruptLog):
            return False

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

    def _load_snapshot(self, at_most: int) -> int | None:
        """Load the newest usable snapshot that is not after an offset; its offset."""
        for offset in self._snapshots():
            if offset > at_most:
                continue
            path = self._path(segment_name(offset) + SNAPSHOT_SUFFIX)
            try:
                self._producers.load(self._files.read_file(path), self._request.now_ms)
                return offset
            except (CorruptSnapshot, OSError) as error:
                log.warning("%s: %s; the state of producers is rebuilt from the log", path, error)
                self._files.remove(path)
        self._producers.clear()
        return None

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
                replay_segment(self._producers, segment, from_offset, self._request.now_ms)

    # The two ways.

    def _load_clean(self, segments: list[Segment]) -> int:
        """After a clean stop the recovery point is the end of the log."""
        end = self._request.recovery_point
        snapshot = self._load_snapshot(end)
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
        if not segments:
            return self._request.start_offset
        point = self._request.recovery_point
        # The segment that ends at the point too: its batches are on disk, but perhaps not that the zeros behind them were cut off.
        first = max([i for i, segment in enumerate(segments) if segment.base_offset < point], default=0)
        self._load_state_before(segments, first)
        end = segments[first].base_offset
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset < end:
                self._drop_from(segments, number, "it begins before the previous segment ends")
                break
            if segment.base_offset > end and number > first and self._is_torn(segments[number:]):
                self._drop_from(segments, number, "the end of the segment before it is lost")
                break
            end, whole = self._recover_segment(segment, point)
            if not whole:
                self._drop_from(segments, number + 1, "a batch before it is damaged")
                break
        log.info("%s: recovered from offset %d to %d, %d bytes cut", self._directory, point, end, self._cut)
        return end

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

    def _drop_from(self, segments: list[Segment], number: int, reason: str) -> None:
        for segment in segments[number:]:
            log.warning("%s: %s is removed: %s", self._directory, segment.path, reason)
            self._cut += segment.size
            segment.remove_files()
        del segments[number:]

    def _recover_segment(self, segment: Segment, recovery_point: int) -> tuple[int, bool]:
        """Check a segment and rebuild what belongs to it. Its end offset, and whether nothing had to be cut off."""
        segment.txn_index.reset()
        checked = 0
        for scan in segment.rebuild(recovery_point, self._request.config.index_interval_bytes, self._epochs.latest):
            replay_rows(self._producers, scan, self._request.now_ms, segment)
            for epoch, offset in EPOCH_ROW.iter_unpack(scan.take_epochs()):
                self._epochs.assign(epoch, offset)
            self._on_checked(scan.read_position - checked)
            checked = scan.read_position
        cut = segment.size - scan.valid_size
        if cut:
            self._cut_off(segment, scan)
        segment.finish()
        return scan.next_offset, not cut

    def _cut_off(self, segment: Segment, scan: BatchScan) -> None:
        cut = segment.size - scan.valid_size
        if segment.is_zero_from(scan.valid_size):
            log.info("%s: %d bytes that were written ahead of batches are cut off", segment.path, cut)
        else:
            why = PROBLEMS[scan.problem]
            log.warning("%s: %d bytes after offset %d are cut off: %s", segment.path, cut, scan.next_offset, why)
        self._cut += cut
        segment.cut(scan.valid_size)


def _offset_of(name: str, suffix: str) -> int | None:
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _NAME_DIGITS or not stem.isdecimal():
        return None
    return int(stem)
