"""The writing half of a repair: each function does one thing to the files of a partition and leaves it on disk.

Role: called by repair.py under the lock of the log directory. What is taken away is safe in a side file before it goes, and files are
replaced whole, so that a crash in the middle leaves the old one. Temporary names end with `.tmp`, which a start removes.
Thread: the caller's. Lock: the caller holds the directory's.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.broker.log.checkpoints import (
    DAMAGED_SUFFIX,
    LEADER_EPOCH_FILE,
    encode_epochs,
    keep_damaged,
    write_offsets,
)
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.inspection.batch_scan import Batch, Damage, ScanRequest, SegmentScan, batch_bytes
from barnabas.broker.log.inspection.side_names import Gap, damaged_name, explained_gaps, is_explained, offset_of
from barnabas.broker.log.inspection.state_check import EpochWatch, ProducerReplay, usable_snapshot
from barnabas.broker.log.inspection.targets import Partition, SegmentFiles, segments_of
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, ProducerStates
from barnabas.broker.log.segment import LOG_SUFFIX, Segment, segment_name
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX, AbortedEntry, TransactionIndex
from barnabas.records.batch import HEADER_SIZE, CorruptBatch

_CHUNK = 1 << 20
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12


def merge(damages: Iterable[Damage]) -> list[Damage]:
    """In the order of the file; those that touch each other become one."""
    merged: list[Damage] = []
    for damage in sorted(damages):
        if merged and merged[-1].position + merged[-1].size == damage.position:
            merged[-1] = merged[-1]._replace(size=merged[-1].size + damage.size)
        else:
            merged.append(damage)
    return merged


def set_base_offset(files: FileSystem, path: str, position: int, offset: int) -> None:
    _write_at(files, path, position, _BASE_OFFSET.pack(offset))


def set_leader_epoch(files: FileSystem, path: str, position: int, epoch: int) -> None:
    _write_at(files, path, position + _LEADER_EPOCH_AT, _LEADER_EPOCH.pack(epoch))


def _write_at(files: FileSystem, path: str, position: int, data: bytes) -> None:
    with files.open(path) as file:
        files.write_fully(file.fileno(), data, position)
        files.sync(file.fileno())


def keep_aside(files: FileSystem, path: str, damage: Damage, log_end: int) -> str:
    """Copy a stretch of a segment into a side file; its path. `log_end` is what follows when nothing else does."""
    with files.open_read_only(path) as file:
        following = _offset_at(files, file, path, damage.position + damage.size, log_end)
        target = damaged_name(path, damage.position, damage.offset, max(damage.offset, following))
        target = _unused(files, target)
        with files.open(target + ".tmp", create=True) as copy:
            files.truncate(copy.fileno(), 0)
            _copy(files, file, damage.position, damage.position + damage.size, copy, 0)
            files.sync(copy.fileno())
    files.rename(target + ".tmp", target)
    files.sync_directory(os.path.dirname(path))
    return target


def note_lost(files: FileSystem, path: str, gap: Gap) -> None:
    """An empty side file says that offsets are lost, unless one says so already."""
    directory = os.path.dirname(path)
    if not is_explained(explained_gaps(files.list_directory(directory)), gap.first, gap.following):
        files.write_file(_unused(files, damaged_name(path, gap.position, gap.first, gap.following)), b"")
        files.sync_directory(directory)


def go_on_behind(files: FileSystem, path: str, gap: Gap) -> None:
    """Begin a segment behind offsets that are lost, and note that they are."""
    note_lost(files, path, gap)
    segment = Segment(files, os.path.dirname(path), gap.following)
    segment.create()
    segment.release()
    files.sync_directory(os.path.dirname(path))


def _unused(files: FileSystem, path: str) -> str:
    """A side file of an earlier repair is never overwritten."""
    number, candidate = 1, path
    while files.exists(candidate):
        candidate = f"{path.removesuffix(DAMAGED_SUFFIX)}.{number}{DAMAGED_SUFFIX}"
        number += 1
    return candidate


def _offset_at(files: FileSystem, file: OpenFile, path: str, position: int, default: int) -> int:
    """The base offset of the batch at a position; at the end of a file, of the next segment."""
    data = files.pread(file.fileno(), HEADER_SIZE, position)
    if len(data) >= _BASE_OFFSET.size:
        offset: int = _BASE_OFFSET.unpack_from(data)[0]
        return offset
    directory, name = os.path.split(path)
    bases = (offset_of(other, (LOG_SUFFIX,)) for other in files.list_directory(directory) if other > name)
    return min((base for base in bases if base is not None), default=default)


def rewrite_without(files: FileSystem, path: str, broken: list[Damage]) -> None:
    """Replace a segment by one without some stretches, which `keep_aside` has saved."""
    with files.open_read_only(path) as old, files.open(path + ".tmp", create=True) as new:
        files.truncate(new.fileno(), 0)
        position = written = 0
        for damage in broken:
            written = _copy(files, old, position, damage.position, new, written)
            position = damage.position + damage.size
        _copy(files, old, position, files.size(old.fileno()), new, written)
        files.sync(new.fileno())
    files.rename(path + ".tmp", path)
    files.sync_directory(os.path.dirname(path))


def _copy(files: FileSystem, source: OpenFile, start: int, end: int, target: OpenFile, at: int) -> int:
    """Copy from `start` to `end`; the position after it in the target."""
    while start < end:
        data = files.pread(source.fileno(), min(_CHUNK, end - start), start)
        if not data:
            break
        files.write_fully(target.fileno(), data, at)
        start += len(data)
        at += len(data)
    return at


def cut_tail(files: FileSystem, path: str, tail: Damage, log_end: int) -> None:
    keep_aside(files, path, tail, log_end)
    with files.open(path) as file:
        files.truncate(file.fileno(), tail.position)
        files.sync(file.fileno())


def rebuild_indexes(files: FileSystem, directory: str, base_offset: int) -> None:
    """Both indexes, with the default interval: what the topic is set to is not known here, and any interval is right."""
    path = os.path.join(directory, segment_name(base_offset) + LOG_SUFFIX)
    with files.open_read_only(path) as file:
        size = files.size(file.fileno())
    segment = Segment(files, directory, base_offset, size)
    try:
        segment.rebuild_indexes(LogConfig().index_interval_bytes)
        segment.sync()
    finally:
        segment.release()
    files.sync_directory(directory)


def replace_checkpoint(files: FileSystem, path: str) -> None:
    """An empty checkpoint in place of a damaged one, which is kept beside it."""
    keep_damaged(files, path)
    write_offsets(files, path, {})


@dataclass(frozen=True, slots=True)
class StateRequest:
    """What is to be made anew from the batches: snapshots by offset, transaction indexes by base offset, the epoch checkpoint."""

    snapshots: frozenset[int]
    transactions: frozenset[int]
    epochs: bool

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.transactions or self.epochs)


def rebuild_state(files: FileSystem, partition: Partition, request: StateRequest) -> None:
    """One pass over all batches. Snapshots that belong to no segment are only removed: the next start makes its own."""
    watch = EpochWatch([], 0)
    replay = ProducerReplay(partition.name)
    first = _trusted_snapshot(files, partition, request.snapshots)
    if first is not None:
        replay.begin_with(*first)
    for offset in request.snapshots:
        files.remove(partition.path(segment_name(offset) + SNAPSHOT_SUFFIX))
    for segment in segments_of(files, partition):
        if segment.base_offset in request.snapshots:
            files.write_file(partition.path(segment.name(SNAPSHOT_SUFFIX)), replay.states.encode())
        index = TransactionIndex(files, partition.path(segment.name(TXN_INDEX_SUFFIX)), segment.base_offset)
        rebuilt = segment.base_offset in request.transactions
        if rebuilt:
            index.reset()
        for aborted in _replay_segment(files, partition, segment, replay, watch):
            if rebuilt:
                index.append(aborted)
        index.sync()
    if request.epochs:
        files.replace_file(partition.path(LEADER_EPOCH_FILE), encode_epochs(list(watch.seen.entries) or [(0, 0)]))
    files.sync_directory(partition.directory)


def _replay_segment(
    files: FileSystem, partition: Partition, segment: SegmentFiles, replay: ProducerReplay, watch: EpochWatch
) -> Iterator[AbortedEntry]:
    """The transactions that the segment's markers abort."""
    request = ScanRequest(partition.path(segment.name(LOG_SUFFIX)), segment.base_offset, segment.base_offset)
    with SegmentScan(files, request) as scan:
        for piece in scan:
            if isinstance(piece, Batch):
                watch.problem(piece, [])
                with contextlib.suppress(CorruptBatch):  # a marker that cannot be read was left where it is
                    aborted = replay.note(piece, batch_bytes(scan, piece) if piece.header.control else b"")
                    if aborted is not None:
                        yield aborted


def _trusted_snapshot(
    files: FileSystem, partition: Partition, stale: frozenset[int]
) -> tuple[ProducerStates, int] | None:
    """The snapshot with which the log begins, when it is there and right."""
    segments = segments_of(files, partition)
    offset = segments[0].base_offset if segments else 0
    path = partition.path(segment_name(offset) + SNAPSHOT_SUFFIX)
    states = None if offset in stale or not files.exists(path) else usable_snapshot(files, path, partition.name)
    return (states, offset) if states is not None else None
