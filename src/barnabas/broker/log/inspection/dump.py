"""What is in the files of a log, as plain rows.

Role: one dict after the other, never more than a batch in memory; the command line prints them as columns or as JSON lines. Damage does not
end a dump: it is a row of its own. Thread: the caller's. Lock: none; files are opened read-only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from barnabas.broker.log.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    encode_topic_id,
    read_partition_metadata,
)
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.batch_scan import Batch, Damage, ScanRequest, SegmentScan, batch_bytes
from barnabas.broker.log.inspection.checkpoint_check import CheckpointDamaged, strict_epochs, strict_offsets
from barnabas.broker.log.inspection.index_check import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, read_entries
from barnabas.broker.log.inspection.record_check import LARGEST_BATCH, records_of
from barnabas.broker.log.inspection.side_names import offset_of
from barnabas.broker.log.inspection.state_check import read_snapshot
from barnabas.broker.log.inspection.targets import OFFSET_CHECKPOINTS, Partition, SegmentFiles, Target, segments_of
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot
from barnabas.broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
from barnabas.records.batch import BatchHeader, CorruptBatch
from barnabas.records.compression import CODEC_NAMES

Row: TypeAlias = dict[str, Any]
Bytes: TypeAlias = Callable[[bytes | None], Any]
"""How keys and values are shown."""

BATCHES, RECORDS, INDEXES, SNAPSHOTS, CHECKPOINTS = "batches", "records", "indexes", "snapshots", "checkpoints"
PARTS = (BATCHES, RECORDS, INDEXES, SNAPSHOTS, CHECKPOINTS)
LAST_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows: parts of PARTS, and offsets from `first` to `last`, both included."""

    parts: frozenset[str]
    show: Bytes
    first: int = 0
    last: int = LAST_OFFSET


def rows(files: FileSystem, target: Target, selection: Selection) -> Iterator[Row]:
    """Everything that was selected, partition by partition, segment by segment."""
    if target.only:
        yield from _single_file(files, target, selection)
        return
    if CHECKPOINTS in selection.parts and target.is_log_dir:
        for name in OFFSET_CHECKPOINTS:
            yield from _offset_checkpoint(files, os.path.join(target.log_dir, name))
    for partition in target.partitions:
        yield from _partition(files, partition, selection)


def _single_file(files: FileSystem, target: Target, selection: Selection) -> Iterator[Row]:
    name = target.only
    if name in OFFSET_CHECKPOINTS:
        yield from _offset_checkpoint(files, target.path)
        return
    partition = target.partitions[0]
    if name == LEADER_EPOCH_FILE:
        yield from _epochs(files, partition)
    elif name.endswith(SNAPSHOT_SUFFIX):
        yield from _snapshot(files, partition, name)
    else:
        everything = segments_of(files, partition)
        for segment in everything:
            if name == segment.name(LOG_SUFFIX):
                yield from _batches(files, partition, segment, selection)
        base = offset_of(name, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
        if base is not None:
            yield from _index(files, partition, name, base)


def _partition(files: FileSystem, partition: Partition, selection: Selection) -> Iterator[Row]:
    parts = selection.parts
    misplaced = files.misplaced(partition.directory)
    for name, kind in sorted(misplaced.items()):
        yield _row("damage", partition, file=name, code="unreadable", text=f"is {kind}, not a file")
    yield from _small_files(files, partition, parts, misplaced.keys())
    for segment in _selected_segments(segments_of(files, partition), selection):
        if parts & {BATCHES, RECORDS}:
            yield from _batches(files, partition, segment, selection)
        if INDEXES in parts:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                if segment.has(suffix):
                    yield from _index(files, partition, segment.name(suffix), segment.base_offset)


def _small_files(
    files: FileSystem, partition: Partition, parts: Collection[str], misplaced: Collection[str]
) -> Iterator[Row]:
    if CHECKPOINTS in parts and PARTITION_METADATA_FILE not in misplaced:
        topic_id = read_partition_metadata(files, partition.directory)
        yield _row("metadata", partition, topic_id=encode_topic_id(topic_id) if topic_id else None)
    if CHECKPOINTS in parts and LEADER_EPOCH_FILE not in misplaced:
        yield from _epochs(files, partition)
    if SNAPSHOTS in parts:
        for name in sorted({*files.list_directory(partition.directory)}.difference(misplaced)):
            if offset_of(name, (SNAPSHOT_SUFFIX,)) is not None:
                yield from _snapshot(files, partition, name)


def _selected_segments(segments: list[SegmentFiles], selection: Selection) -> Iterator[SegmentFiles]:
    """Those that can hold a selected offset."""
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else LAST_OFFSET
        if segment.base_offset <= selection.last and selection.first < following:
            yield segment


def _row(kind: str, partition: Partition | str, **values: Any) -> Row:
    return {"kind": kind, "partition": partition if isinstance(partition, str) else partition.name, **values}


# Segments.


def _batches(files: FileSystem, partition: Partition, segment: SegmentFiles, selection: Selection) -> Iterator[Row]:
    name = segment.name(LOG_SUFFIX)
    request = ScanRequest(partition.path(name), segment.base_offset, segment.base_offset)
    with SegmentScan(files, request) as scan:
        for piece in scan:
            if isinstance(piece, Damage):
                yield _damage(partition, name, piece)
                continue
            if piece.header.base_offset > selection.last:
                return
            if piece.header.last_offset < selection.first:
                continue
            yield _batch(partition, name, piece)
            if RECORDS in selection.parts:
                yield from _records(scan, partition, piece, selection)


def _damage(partition: Partition, name: str, piece: Damage) -> Row:
    return _row(
        "damage",
        partition,
        file=name,
        position=piece.position,
        size=piece.size,
        offset=piece.offset,
        code=piece.code.value,
        text=piece.text,
    )


def _batch(partition: Partition, name: str, batch: Batch) -> Row:
    header = batch.header
    return _row(
        "batch",
        partition,
        file=name,
        position=batch.position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        records=header.record_count,
        codec=CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec),
        timestamp_type="LogAppendTime" if header.log_append_time else "CreateTime",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        transactional=header.transactional,
        control=header.control,
        leader_epoch=header.partition_leader_epoch,
        crc=header.crc,
    )


def _records(scan: SegmentScan, partition: Partition, batch: Batch, selection: Selection) -> Iterator[Row]:
    header: BatchHeader = batch.header
    if header.size > LARGEST_BATCH:
        yield _row("damage", partition, offset=header.base_offset, code="records", text="too large to look into")
        return
    try:
        for record in records_of(header, batch_bytes(scan, batch)):
            if selection.first <= record.offset <= selection.last:
                yield _row(
                    "record",
                    partition,
                    offset=record.offset,
                    timestamp=record.timestamp,
                    key=selection.show(record.key),
                    value=selection.show(record.value),
                    headers=[[selection.show(name), selection.show(value)] for name, value in record.headers],
                )
    except CorruptBatch as error:
        yield _row("damage", partition, offset=header.base_offset, code="records", text=str(error))


# The files beside them.


def _index(files: FileSystem, partition: Partition, name: str, base: int) -> Iterator[Row]:
    path = partition.path(name)
    if name.endswith(TXN_INDEX_SUFFIX):
        names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        for entry in read_entries(files, path, TXN_ENTRY):
            yield _row("txnindex", partition, file=name, **dict(zip(names, entry, strict=True)))
    elif name.endswith(TIME_INDEX_SUFFIX):
        for timestamp, relative in read_entries(files, path, TIME_ENTRY):
            yield _row("timeindex", partition, file=name, timestamp=timestamp, offset=base + relative)
    else:
        for relative, position in read_entries(files, path, OFFSET_ENTRY):
            yield _row("index", partition, file=name, offset=base + relative, position=position)


def _snapshot(files: FileSystem, partition: Partition, name: str) -> Iterator[Row]:
    try:
        states = read_snapshot(files, partition.path(name), partition.name)
    except CorruptSnapshot as error:
        yield _row("damage", partition, file=name, code="snapshot", text=str(error))
        return
    for producer_id, entry in states.entries.items():
        last = entry.batches[-1] if entry.batches else None
        yield _row(
            "producer",
            partition,
            file=name,
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=last.last_sequence if last else -1,
            last_offset=last.last_offset if last else -1,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            txn_first_offset=entry.txn_first_offset,
        )


def _epochs(files: FileSystem, partition: Partition) -> Iterator[Row]:
    if not files.exists(partition.path(LEADER_EPOCH_FILE)):
        return
    try:
        for epoch, start in strict_epochs(files, partition.directory):
            yield _row("epoch", partition, leader_epoch=epoch, start_offset=start)
    except CheckpointDamaged as damage:
        yield _row("damage", partition, file=LEADER_EPOCH_FILE, code="checkpoint", text=str(damage))


def _offset_checkpoint(files: FileSystem, path: str) -> Iterator[Row]:
    name = os.path.basename(path)
    if not files.exists(path) and not files.is_link(path):
        return
    try:
        for (topic, number), offset in strict_offsets(files, path).items():
            yield _row("checkpoint", f"{topic}-{number}", file=name, offset=offset)
    except CheckpointDamaged as damage:
        yield _row("damage", "", file=name, code="checkpoint", text=str(damage))
