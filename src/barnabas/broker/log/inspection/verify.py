"""Verifying a partition: every batch, every record, every file beside them.

Role: reads the segments of a partition in order and compares all that is known about them. Nothing is written and no lock is taken, so it
also runs beside a broker; what such a broker is writing at this moment is no damage.
Thread: the caller's; one `PartitionCheck` per thread. Lock: none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.log.checkpoints import (
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_FILE,
)
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.batch_scan import (
    UNBOUNDED,
    Batch,
    Damage,
    ScanRequest,
    SegmentScan,
    batch_bytes,
)
from barnabas.broker.log.inspection.checkpoint_check import (
    CheckpointDamaged,
    DirectoryState,
    Known,
    has_bad_metadata,
    read_directory,
    strict_epochs,
)
from barnabas.broker.log.inspection.directory_check import check_directory
from barnabas.broker.log.inspection.findings import NO_PLACE, NOWHERE, Code, Finding, PartitionReport, Severity, Where
from barnabas.broker.log.inspection.index_check import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    IndexWalks,
    OffsetIndexWalk,
    TimeIndexWalk,
    TxnIndexWalk,
    size_problem,
)
from barnabas.broker.log.inspection.lock_owner import LockOwner, owner_of
from barnabas.broker.log.inspection.record_check import LARGEST_BATCH, check_records
from barnabas.broker.log.inspection.side_names import Gap, explained_gaps, is_beyond_offsets, is_explained, offset_of
from barnabas.broker.log.inspection.state_check import (
    EpochCorrections,
    EpochWatch,
    ProducerReplay,
    read_snapshot,
    usable_snapshot,
)
from barnabas.broker.log.inspection.targets import NotALog, Partition, SegmentFiles, Target, segments_of
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot
from barnabas.broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_name
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
from barnabas.records.batch import CorruptBatch

Progress = Callable[[int], None]
"""Told how many more bytes of segments were read."""
_PROGRESS_BYTES = 1 << 20


@dataclass(slots=True)
class SegmentOutcome:
    """What repair needs to know about a segment. `stale` are the suffixes of files that must be made anew."""

    files: SegmentFiles
    size: int = 0
    end_offset: int = 0
    damages: list[Damage] = field(default_factory=list)
    epochs: EpochCorrections = field(default_factory=list)
    stale: set[str] = field(default_factory=set)

    @property
    def ends_in_damage(self) -> bool:
        """Where its offsets end is not known then: those up to the next segment were in the damaged bytes."""
        return bool(self.damages) and self.damages[-1].position + self.damages[-1].size >= self.size


@dataclass(slots=True)
class TargetReport:
    """All that a verification found."""

    path: str
    owner: LockOwner
    directory: PartitionReport
    """Findings about the files of the log directory itself."""
    partitions: list[PartitionReport] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.directory.clean and all(report.clean for report in self.partitions)


def verify_target(files: FileSystem, target: Target, progress: Progress) -> TargetReport:
    """Verify everything at a path."""
    owner = owner_of(target.log_dir)
    state = read_directory(files, target.log_dir)
    report = TargetReport(target.path, owner, PartitionReport("", target.log_dir))
    if target.is_log_dir:
        check_directory(state, target, report.directory, owner.held)
    for partition in target.partitions:
        check = PartitionCheck(files, partition, state, owner.held, progress)
        report.partitions.append(check.run(target.only))
    return report


def total_bytes(files: FileSystem, target: Target) -> int:
    """How much there is to read, for a progress bar."""
    total = 0
    for partition in target.partitions:
        try:
            total += sum(files.list_sizes(partition.directory, LOG_SUFFIX)[1].values())
        except OSError:
            continue  # deleted meanwhile, or something is there that the check will name
    return total


class PartitionCheck:
    """One pass over one partition. `outcomes` is for repair."""

    def __init__(
        self, files: FileSystem, partition: Partition, state: DirectoryState, live: bool, progress: Progress
    ) -> None:
        self._files = files
        self._partition = partition
        self._known: Known = state.known(partition)
        self._in_log_dir = bool(state.path)
        self._clean_stop = state.clean_stop
        self._live = live
        self._progress = progress
        self._tainted = False
        self._explained: list[tuple[int, int]] = []
        self.report = PartitionReport(partition.name, partition.directory)
        self.replay = ProducerReplay(partition.name)
        self.epochs = EpochWatch([], 0)
        self.outcomes: list[SegmentOutcome] = []
        self.gaps: list[Gap] = []
        """Those that are damage."""
        self.bad_snapshots: list[str] = []
        self.bad_epochs = False
        self.unusable: dict[str, str] = {}
        """Files to be moved away, and why: what is no file, and a partition.metadata that says nothing."""
        self.lost_logs: list[int] = []
        """The base offsets of segments whose log is no file."""

    def run(self, only: str = "") -> PartitionReport:
        """Verify the partition, or the one segment that a file belongs to."""
        try:
            self._find_unusable()
            segments = segments_of(self._files, self._partition)
            names = [
                each for each in self._files.list_directory(self._partition.directory) if each not in self.unusable
            ]
            self._explained = explained_gaps(names)
            chosen = self._choose(segments, only)
            self._load_epochs()
            self._check_segments(segments, chosen)
            if not only:
                self._check_names(names, segments)
                self._check_known()
        except FileNotFoundError as error:
            self._vanished(error)
        except OSError as error:
            name = os.path.basename(error.filename or "")
            self._damaged(Code.UNREADABLE, name, error.strerror or str(error))
        return self.report

    def _find_unusable(self) -> None:
        for name, kind in sorted(self._files.misplaced(self._partition.directory).items()):
            self.unusable[name] = f"is {kind}, not a file"
            self._damaged(Code.UNREADABLE, name, self.unusable[name])
        bases = (offset_of(name, (LOG_SUFFIX,)) for name in self.unusable)
        self.lost_logs = [base for base in bases if base is not None]
        self.bad_snapshots = [name for name in self.unusable if offset_of(name, (SNAPSHOT_SUFFIX,)) is not None]
        self.bad_epochs = LEADER_EPOCH_FILE in self.unusable
        if PARTITION_METADATA_FILE not in self.unusable and has_bad_metadata(self._files, self._partition):
            self.unusable[PARTITION_METADATA_FILE] = "has no topic id that can be read"
            self._damaged(Code.CHECKPOINT, PARTITION_METADATA_FILE, self.unusable[PARTITION_METADATA_FILE])

    def _choose(self, segments: list[SegmentFiles], only: str) -> list[SegmentFiles]:
        if not only or only == LEADER_EPOCH_FILE:
            return segments
        chosen = [segment for segment in segments if only in segment.names]
        if not chosen:
            raise NotALog(f"{only} has no log beside it: give the directory instead")
        return chosen

    def _vanished(self, error: FileNotFoundError) -> None:
        name = os.path.basename(error.filename or "")
        if self._live:
            self._note(Code.LIVE, name, "was removed by the broker meanwhile")
        else:
            self._damaged(Code.UNREADABLE, name, "is missing")

    # Segments.

    def _check_segments(self, segments: list[SegmentFiles], chosen: list[SegmentFiles]) -> None:
        if not chosen:
            return
        end = chosen[0].base_offset
        self._begin_replay(chosen[0])
        self.report.start = max(self._known.start, end)
        if chosen[0] is segments[0]:
            self._check_beginning(chosen[0])
        for segment in chosen:
            following = segments[segments.index(segment) + 1 :]
            next_base = following[0].base_offset if following else UNBOUNDED
            if any(end <= base < segment.base_offset for base in self.lost_logs):
                self._tainted = True  # nobody knows what was in there
            elif segment.base_offset > end and not (self.outcomes and self.outcomes[-1].ends_in_damage):
                self._gap(Gap(segment.name(LOG_SUFFIX), 0, end, segment.base_offset))
            self._check_snapshot_at(segment.base_offset, segment is chosen[0])
            request = ScanRequest(
                self._partition.path(segment.name(LOG_SUFFIX)),
                segment.base_offset,
                max(end, segment.base_offset),
                next_base,
                self._live and not following,
            )
            end = max(end, self._check_segment(segment, request))
        self.report.end = end
        if self.epochs.refutes_checkpoint:
            self._distrust_epochs("no batch has the leader epoch that it says")
        elif self.epochs.first_known > end:
            self._distrust_epochs(f"its first epoch begins at {self.epochs.first_known}, the log ends at {end}")
        if not segments[-1].base_offset > chosen[-1].base_offset:
            self._check_snapshot_at(end, False)

    def _check_beginning(self, first: SegmentFiles) -> None:
        """Segments go only after the new start was written down: after a stop in order the first one is not behind it."""
        start, base = self._known.start, first.base_offset
        if not 0 <= start < base or any(start <= lost < base for lost in self.lost_logs):
            return
        doubt = "" if self._clean_stop and not self._live else "the broker did not stop in order"
        self._gap(Gap(first.name(LOG_SUFFIX), 0, start, base), doubt)

    def _begin_replay(self, first: SegmentFiles) -> None:
        path = self._partition.path(first.name(SNAPSHOT_SUFFIX))
        states = usable_snapshot(self._files, path, self._partition.name) if first.has(SNAPSHOT_SUFFIX) else None
        self.replay = ProducerReplay(self._partition.name)
        if states is not None:
            self.replay.begin_with(states, first.base_offset)
        else:
            self.replay.begin_without(first.base_offset)

    def _check_segment(self, segment: SegmentFiles, request: ScanRequest) -> int:
        outcome = SegmentOutcome(segment)
        self.outcomes.append(outcome)
        name = segment.name(LOG_SUFFIX)
        with SegmentScan(self._files, request) as scan:
            walks = self._open_walks(segment, outcome)
            self._walk(scan, outcome, walks, name)
            outcome.size, outcome.end_offset = scan.size, scan.end_offset
            if scan.written_ahead:
                text = f"{scan.written_ahead} zero bytes were written ahead of the batches; a stop or start of the broker cuts them"
                self._note(Code.LIVE, name, text, Where(scan.end_offset, scan.size))
            if scan.growing:
                self._note(
                    Code.LIVE, name, "is being written; it was read up to here", Where(scan.end_offset, scan.size)
                )
        self._finish_walks(walks, outcome)
        self.report.segments += 1
        self.report.bytes += outcome.size
        return scan.end_offset

    def _walk(self, scan: SegmentScan, outcome: SegmentOutcome, walks: IndexWalks, name: str) -> None:
        reported, expected, damaged = 0, scan.end_offset, False
        for piece in scan:
            if isinstance(piece, Damage):
                outcome.damages.append(piece)
                damaged = self._tainted = True
                self._damage(name, piece, scan.size, outcome)
                expected = piece.offset
                continue
            if piece.header.base_offset > expected and not damaged:
                self._gap(Gap(name, piece.position, expected, piece.header.base_offset))
            expected, damaged = piece.header.next_offset, False
            self._check_batch(scan, piece, outcome, walks)
            walks.note(piece)
            if piece.position - reported >= _PROGRESS_BYTES:
                self._progress(piece.position - reported)
                reported = piece.position
        self._progress(scan.size - reported)

    def _check_batch(self, scan: SegmentScan, batch: Batch, outcome: SegmentOutcome, walks: IndexWalks) -> None:
        header, name = batch.header, outcome.files.name(LOG_SUFFIX)
        where = Where(header.base_offset, batch.position, header.size)
        self.report.batches += 1
        self.report.records += header.record_count
        problem = self.epochs.problem(batch, outcome.epochs)
        if problem:
            self._damaged(Code.EPOCH, name, problem, where)
        if header.size > LARGEST_BATCH:
            self._note(Code.RECORDS, name, "the batch is too large to look into", where)
            return
        try:
            data = batch_bytes(scan, batch)
            lie = check_records(header, data)
            aborted = self.replay.note(batch, data)
        except CorruptBatch as error:
            damage = Damage(
                batch.position, header.size, header.base_offset, Code.RECORDS, f"the records cannot be read: {error}"
            )
            outcome.damages.append(damage)
            self._tainted = True
            self._damage(name, damage, scan.size, outcome)
            return
        if lie:
            self._note(Code.RECORDS, name, lie, where)
        if aborted is not None:
            walks.note_aborted(aborted, self._tainted)

    def _damage(self, name: str, piece: Damage, size: int, outcome: SegmentOutcome) -> None:
        text = piece.text
        if piece.position + piece.size == size and piece.code is not Code.RECORDS:
            text += "; this is the end of the file"
        if piece.restorable:
            text += f"; the batch is whole, its base offset must be {piece.offset}"
        outcome.stale.update((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        self._damaged(piece.code, name, text, Where(piece.offset, piece.position, piece.size))

    def _gap(self, gap: Gap, doubt: str = "") -> None:
        """Compaction leaves gaps, and so does a repair, which keeps what it took out, or the mere fact, in a side file."""
        if gap.following <= self._known.cleaned:
            return
        self._tainted = True  # what the lost batches said about producers is only in the next snapshot
        if is_explained(self._explained, gap.first, gap.following):
            return
        if not doubt and not (self._in_log_dir and self._known.cleaned < 0):
            doubt = "compaction may have removed them"
        where = Where(gap.first, gap.position)
        if doubt:
            self._note(Code.GAP, gap.file, f"{gap.text}; {doubt}", where)
        else:
            self.gaps.append(gap)
            self._damaged(Code.GAP, gap.file, gap.text, where)

    # Indexes.

    def _open_walks(self, segment: SegmentFiles, outcome: SegmentOutcome) -> IndexWalks:
        walks = IndexWalks()
        for suffix, code, entry in (
            (INDEX_SUFFIX, Code.INDEX, OFFSET_ENTRY),
            (TIME_INDEX_SUFFIX, Code.TIME_INDEX, TIME_ENTRY),
        ):
            name = segment.name(suffix)
            report = self._index_report(outcome, suffix, code)
            if name in self.unusable:
                outcome.stale.add(suffix)
                continue
            if not segment.has(suffix):
                report("is missing", NOWHERE, NOWHERE)
                continue
            problem = size_problem(self._files, self._partition.path(name), entry)
            if problem:
                report(problem, NOWHERE, NOWHERE)
            elif suffix == INDEX_SUFFIX:
                walks.offsets = OffsetIndexWalk(self._files, self._partition.path(name), segment.base_offset, report)
            else:
                walks.times = TimeIndexWalk(self._files, self._partition.path(name), segment.base_offset, report)
        if segment.name(TXN_INDEX_SUFFIX) in self.unusable:
            outcome.stale.add(TXN_INDEX_SUFFIX)
        elif self._known.cleaned < 0:
            path = self._partition.path(segment.name(TXN_INDEX_SUFFIX))
            report = self._index_report(outcome, TXN_INDEX_SUFFIX, Code.TXN_INDEX)
            problem = size_problem(self._files, path, TXN_ENTRY) if segment.has(TXN_INDEX_SUFFIX) else ""
            if problem:
                report(problem, NOWHERE, NOWHERE)
            else:
                walks.aborted = TxnIndexWalk(self._files, path, segment.base_offset, report)
                walks.aborted.begun_before = self.replay.knows_open_from
        return walks

    def _index_report(self, outcome: SegmentOutcome, suffix: str, code: Code) -> Callable[[str, int, int], None]:
        def report(text: str, position: int, offset: int) -> None:
            outcome.stale.add(suffix)
            if outcome.damages:
                return  # of course it does not fit: the log itself is damaged
            self._damaged(code, outcome.files.name(suffix), text, Where(offset, position))

        return report

    def _finish_walks(self, walks: IndexWalks, outcome: SegmentOutcome) -> None:
        growing = self._live and outcome.files is self.outcomes[-1].files
        if growing:
            return  # the index may know batches that were written after the log was read
        if walks.offsets is not None:
            walks.offsets.finish(outcome.size)
            left = walks.offsets.uncovered(outcome.size)
            if left and not outcome.damages:
                outcome.stale.add(INDEX_SUFFIX)
                text = f"has no entry for the last {left} bytes of the log: look-ups there are slow"
                self._note(Code.INDEX, outcome.files.name(INDEX_SUFFIX), text)
        if walks.times is not None:
            walks.times.finish(outcome.end_offset)
        if walks.aborted is not None and not self._tainted:
            walks.aborted.finish(outcome.end_offset)

    # Snapshots, epochs and checkpoints.

    def _check_snapshot_at(self, offset: int, first: bool) -> None:
        name = segment_name(offset) + SNAPSHOT_SUFFIX
        path = self._partition.path(name)
        if first or not self._files.exists(path):
            return
        states = usable_snapshot(self._files, path, self._partition.name)
        if states is None:
            return  # reported by _check_names
        if (
            self._tainted or offset <= self._known.cleaned
        ):  # compaction removes batches of producers that are forgotten since
            self.replay.begin_with(states, offset)
            self._tainted = False
            return
        problem = self.replay.contradiction(states)
        if problem:
            self.bad_snapshots.append(name)
            self._damaged(Code.SNAPSHOT, name, problem, Where(offset))

    def _check_names(self, names: list[str], segments: list[SegmentFiles]) -> None:
        """Files that belong to no segment, and snapshots that cannot be read."""
        bases = {segment.base_offset for segment in segments} | {*self.lost_logs}
        for name in sorted(names):
            if is_beyond_offsets(name):
                self._note(Code.OFFSET, name, "is no segment: the number is too large")
            offset = offset_of(name, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
            if offset is not None and offset not in bases:
                self._note(Code.ORPHAN, name, "has no log; the broker removes it")
            if offset_of(name, (SNAPSHOT_SUFFIX,)) is not None:
                self._check_snapshot_file(name)

    def _check_snapshot_file(self, name: str) -> None:
        try:
            read_snapshot(self._files, self._partition.path(name), self._partition.name)
        except CorruptSnapshot as error:
            self.bad_snapshots.append(name)
            self._damaged(Code.SNAPSHOT, name, str(error))
        except FileNotFoundError:
            if not self._live:
                raise

    def _load_epochs(self) -> None:
        entries: list[tuple[int, int]] = []
        if not self.bad_epochs and self._files.exists(self._partition.path(LEADER_EPOCH_FILE)):
            try:
                entries = strict_epochs(self._files, self._partition.directory)
            except CheckpointDamaged as damage:
                self.bad_epochs = True
                self._damaged(Code.CHECKPOINT, LEADER_EPOCH_FILE, str(damage))
        self.epochs = EpochWatch(entries, self._known.recovery_point)

    def _distrust_epochs(self, why: str) -> None:
        """One damaged number in a small file, not damage in every batch of the log."""
        self.bad_epochs = True
        for outcome in self.outcomes:
            outcome.epochs.clear()
        self.report.take_back(Code.EPOCH, self.epochs.contradictions)
        self._damaged(Code.CHECKPOINT, LEADER_EPOCH_FILE, why)

    def _check_known(self) -> None:
        """What the log directory's checkpoints say about this partition."""
        known, end = self._known, self.report.end
        if self.lost_logs:
            return  # of course it is not all there
        if known.recovery_point > end:
            text = f"{RECOVERY_POINT_FILE} says that everything below {known.recovery_point} was on disk, the log ends at {end}"
            self._damaged(Code.CHECKPOINT, RECOVERY_POINT_FILE, text, Where(end))
        elif self._clean_stop and not self._live and 0 <= known.recovery_point < end and not self._tainted:
            text = f"the broker stopped in order at {known.recovery_point}, the log ends at {end}"
            self._damaged(Code.CHECKPOINT, RECOVERY_POINT_FILE, text, Where(end))
        if known.start > end:
            text = f"{LOG_START_FILE} says that the log begins at {known.start}, it ends at {end}"
            self._damaged(Code.CHECKPOINT, LOG_START_FILE, text, Where(end))
        if max(known.recovery_point, end) < known.high_watermark:
            text = f"{known.high_watermark - end} records that were written are gone: they were not flushed ({REPLICATION_FILE})"
            self._note(Code.CHECKPOINT, REPLICATION_FILE, text, Where(end))

    def _damaged(self, code: Code, file: str, text: str, where: Where = NO_PLACE) -> None:
        self.report.add(Finding(Severity.DAMAGE, code, self._partition.name, file, text, *where))

    def _note(self, code: Code, file: str, text: str, where: Where = NO_PLACE) -> None:
        self.report.add(Finding(Severity.NOTE, code, self._partition.name, file, text, *where))
