"""Repairing a partition: what can be made anew is made anew, what is broken is cut out, and nothing is destroyed.

Role: decides from what a verification found (`plan`), then does it (`surgery.py`), under the lock of the log directory. Bytes that leave a
segment go to a side file first (`side_names.py`). A dry run takes the same decisions and writes nothing.
Thread: the caller's. Lock: the lock file of the log directory, so that no broker starts meanwhile.

    indexes, snapshots, epochs     rebuilt from the batches
    a torn tail                    cut off, as the broker would at its next start
    offsets that are gone          the log goes on behind what was on disk: no offset is used twice
    offsets that are missing       left and reported, or with `drop_damaged` noted as lost
    a base offset or leader epoch  set back where the neighbours or the checkpoint leave only one value: the checksum does not cover them
    an impossible recovery point   set to the log's end; so is one below a gap that the repair leaves, which would seem to be torn
    what is no file                moved away, to a name with `.damaged`; the log of a segment is left, and its partition with it
    damage in the middle           left and reported, or with `drop_damaged` taken out; the batches behind it keep their offsets
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from barnabas.broker.log.batch_search import MAX_RELATIVE_OFFSET
from barnabas.broker.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    DAMAGED_SUFFIX,
    FILES_OF_A_DIRECTORY,
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_FILE,
    keep_damaged,
    write_offsets,
)
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection import surgery
from barnabas.broker.log.inspection.batch_scan import Damage
from barnabas.broker.log.inspection.checkpoint_check import DirectoryState, read_directory
from barnabas.broker.log.inspection.directory_check import check_directory
from barnabas.broker.log.inspection.findings import Code, PartitionReport
from barnabas.broker.log.inspection.side_names import Gap, offset_of
from barnabas.broker.log.inspection.targets import NotALog, Partition, Target
from barnabas.broker.log.inspection.verify import PartitionCheck, Progress, SegmentOutcome
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX
from barnabas.broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_name
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
from barnabas.errors import BarnabasError

_LOST_WITH = {
    RECOVERY_POINT_FILE: "the next start checks every batch",
    LOG_START_FILE: "records that DeleteRecords had hidden are visible again as far as their segments are there",
    REPLICATION_FILE: "nothing is lost by it",
}


_ANEW = "anew from the batches"
_MOST_PASSES = 4


class DirectoryInUse(BarnabasError):
    """A broker has the directory; repairing under it would damage it."""


def _later() -> None:
    """The act of a note whose work is done with that of others."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that was done, or would be; `done` is False for what was left as it is."""

    partition: str
    file: str
    what: str
    text: str
    done: bool = True

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class RepairReport:
    """What a repair did, and what a verification says afterwards (of a dry run: before)."""

    path: str
    dry_run: bool
    actions: list[Action] = field(default_factory=list)
    directory: PartitionReport = field(default_factory=lambda: PartitionReport("", ""))
    partitions: list[PartitionReport] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.directory.clean and all(report.clean for report in self.partitions)


@dataclass(frozen=True, slots=True)
class RepairOptions:
    drop_damaged: bool = False
    dry_run: bool = False


@contextlib.contextmanager
def locked(files: FileSystem, log_dir: str, create: bool) -> Iterator[None]:
    """Hold the lock of a log directory; DirectoryInUse when somebody else does. A partition that stands alone has none."""
    path = os.path.join(log_dir, LOCK_FILE)
    if not log_dir or (not create and not files.exists(path)):
        yield
        return
    with files.open(path, create=True) as file:
        if not files.lock(file):
            raise DirectoryInUse(f"{log_dir} is in use by a broker: stop it first")
        yield


def repair_target(files: FileSystem, target: Target, options: RepairOptions, progress: Progress) -> RepairReport:
    """Repair everything at a path, which must be a log directory or that of a partition."""
    if target.only:
        raise NotALog(f"{target.path} is one file: repair works on a partition or on a log directory")
    report = RepairReport(target.path, options.dry_run, directory=PartitionReport("", target.log_dir))
    with locked(files, target.log_dir, create=not options.dry_run):
        state = read_directory(files, target.log_dir)
        repairs = [
            _PartitionRepair(files, partition, state, options, report.actions) for partition in target.partitions
        ]
        before = [each.run(progress) for each in repairs]
        _DirectoryRepair(files, target, state, options, report).run(repairs)
        acted = bool(report.actions) and not options.dry_run
        state = read_directory(files, target.log_dir)
        for each, found in zip(repairs, before, strict=True):
            report.partitions.append(each.verify_again(state) if acted and each.touched else found)
    return report


class _PartitionRepair:
    """One partition. Acts through `_do`, which a dry run makes a mere note."""

    def __init__(
        self,
        files: FileSystem,
        partition: Partition,
        state: DirectoryState,
        options: RepairOptions,
        actions: list[Action],
    ) -> None:
        self._files = files
        self.partition = partition
        self._state = state
        self._options = options
        self._actions = actions
        self._changed_from: int | None = None
        self._acted = self._again = self._left_gap = False
        self.touched = False
        self._point = -1
        """Below it everything was on disk; -1 when that is not known."""
        self.end = 0
        """Where the log ends after the repair."""

    def run(self, progress: Progress) -> PartitionReport:
        """What was found before. One damage may hide another one, so it goes on until there is nothing more to do."""
        before = self._run_once(progress)
        for _ in range(_MOST_PASSES - 1):
            if self._options.dry_run or not self._acted:
                break
            self._again = True
            self._run_once(lambda _: None)
        if self._left_gap and 0 <= self._point < self.end:
            text = f"the recovery point goes from {self._point} to {self.end}: all that is left is on disk now"
            self._do(RECOVERY_POINT_FILE, "rewrote", text, self._bring_to_disk)
        return before

    def _run_once(self, progress: Progress) -> PartitionReport:
        self._acted, self._changed_from = False, None
        check = PartitionCheck(self._files, self.partition, self._state, False, progress)
        before = check.run()
        self.end = before.end
        self.touched = self.touched or bool(before.findings)
        if check.lost_logs:  # what is behind or beside it waits until somebody has brought the log back
            self.end = self._state.known(self.partition).recovery_point
            return before
        self._move_away(check)
        self._judge_recovery_point(check)
        for outcome in check.outcomes:
            self._repair_segment(outcome, outcome is check.outcomes[-1])
        for gap in check.gaps:
            self._note_gap(gap)
        self._go_on_at_recovery_point(check)
        self._repair_orphans(before)
        self._repair_state(check)
        return before

    # Offsets that are gone.

    def _judge_recovery_point(self, check: PartitionCheck) -> None:
        """A point that no segment reaches was never written: the broker would have begun another segment long before."""
        point = self._state.known(self.partition).recovery_point
        last = check.outcomes[-1] if check.outcomes else None
        possible = last is None or point <= last.files.base_offset + MAX_RELATIVE_OFFSET + 1
        self._point = point if possible else -1
        if not possible and last is not None and not last.damages:
            text = f"the recovery point goes from {point} to {check.report.end}: no segment reaches that far"
            self._do(RECOVERY_POINT_FILE, "rewrote", text, partial(self._set_recovery_point, check.report.end))

    def _bring_to_disk(self) -> None:
        """Above the recovery point a start would take a gap between segments for what a power cut left, and cut the log there."""
        for name in self._files.list_directory(self.partition.directory):
            if offset_of(name, (LOG_SUFFIX,)) is not None:
                with self._files.open(self.partition.path(name)) as file:
                    self._files.sync(file.fileno())
        self._files.sync_directory(self.partition.directory)
        self._set_recovery_point(self.end)

    def _set_recovery_point(self, offset: int) -> None:
        key = self.partition.key
        points = self._state.offsets[RECOVERY_POINT_FILE]
        if key is not None:
            points[key] = offset
        write_offsets(self._files, os.path.join(self._state.path, RECOVERY_POINT_FILE), points)

    def _note_gap(self, gap: Gap) -> None:
        if not self._options.drop_damaged:
            self._leave(gap.file, f"{gap.text}: bring the segment back, or note them as lost with --drop-damaged")
            return
        self._left_gap = self._left_gap or gap.following > self._point
        act = partial(surgery.note_lost, self._files, self.partition.path(gap.file), gap)
        self._do(gap.file, "noted", f"{gap.text}; an empty .damaged file says so", act)

    def _go_on_at_recovery_point(self, check: PartitionCheck) -> None:
        """Offsets that were on disk and are gone are never given to other records: the log goes on behind them, as the broker does it."""
        end = check.report.end
        last = check.outcomes[-1] if check.outcomes else None
        if end >= self._point or self._acted or (last is not None and last.damages):
            return  # what is broken comes first, and stays unless it may be dropped
        name = last.files.name(LOG_SUFFIX) if last is not None else segment_name(end) + LOG_SUFFIX
        gap = Gap(name, last.size if last is not None else 0, end, self._point)
        text = f"a new segment: offsets {end} to {self._point - 1} were on disk and are gone, no other record gets them"
        act = partial(surgery.go_on_behind, self._files, self.partition.path(name), gap)
        self._do(segment_name(self._point) + LOG_SUFFIX, "began", text, act)
        self.end = self._point

    def verify_again(self, state: DirectoryState) -> PartitionReport:
        return PartitionCheck(self._files, self.partition, state, False, lambda _: None).run()

    def _do(self, file: str, what: str, text: str, act: Callable[[], object]) -> None:
        self._acted = True
        self._actions.append(Action(self.partition.name, file, what, text))
        if not self._options.dry_run:
            act()

    def _leave(self, file: str, text: str) -> None:
        if not self._again:
            self._actions.append(Action(self.partition.name, file, "left", text, done=False))

    def _move_away(self, check: PartitionCheck) -> None:
        for name, problem in check.unusable.items():
            text = f"it {problem}; kept as {name}{DAMAGED_SUFFIX}"
            self._do(name, "moved away", text, partial(keep_damaged, self._files, self.partition.path(name)))

    # One segment.

    def _repair_segment(self, outcome: SegmentOutcome, last: bool) -> None:
        name = outcome.files.name(LOG_SUFFIX)
        path = self.partition.path(name)
        self._patch(path, name, outcome)
        broken = surgery.merge([damage for damage in outcome.damages if not damage.restorable])
        tail = broken.pop() if broken and last and self._is_torn_tail(broken[-1], outcome) else None
        left = bool(broken) and not self._options.drop_damaged
        if left:
            for damage in broken:
                self._leave(name, f"{damage.size} bytes at {damage.position}, offset {damage.offset}: {damage.text}")
        elif broken:
            self._take_out(path, name, broken)
        if tail is not None:
            self._cut(path, name, tail, shift=0 if left else sum(damage.size for damage in broken))
        if not left and (outcome.stale - {TXN_INDEX_SUFFIX} or outcome.damages):
            self._rebuild_indexes(outcome)

    def _patch(self, path: str, name: str, outcome: SegmentOutcome) -> None:
        for damage in outcome.damages:
            if damage.restorable:
                self._changed(damage.offset)
                self._do(
                    name,
                    "base offset",
                    f"the batch at {damage.position} gets its base offset {damage.offset} back",
                    partial(surgery.set_base_offset, self._files, path, damage.position, damage.offset),
                )
        for position, epoch in outcome.epochs:
            self._do(
                name,
                "leader epoch",
                f"the batch at {position} gets its leader epoch {epoch} back",
                partial(surgery.set_leader_epoch, self._files, path, position, epoch),
            )

    def _is_torn_tail(self, damage: Damage, outcome: SegmentOutcome) -> bool:
        """The end of the log that was being written: not whole, or above what was known to be on disk."""
        if damage.position + damage.size != outcome.size:
            return False
        return damage.code is Code.TORN or damage.offset >= self._state.known(self.partition).recovery_point

    def _take_out(self, path: str, name: str, broken: list[Damage]) -> None:
        self._changed(broken[0].offset)
        self._left_gap = self._left_gap or broken[-1].offset >= self._point
        for damage in broken:
            self._do(
                name,
                "took out",
                f"{damage.size} bytes at {damage.position}, offset {damage.offset}: {damage.text}; kept in a .damaged file",
                partial(surgery.keep_aside, self._files, path, damage, max(damage.offset, self._point)),
            )
        if not self._options.dry_run:
            surgery.rewrite_without(self._files, path, broken)

    def _cut(self, path: str, name: str, tail: Damage, shift: int) -> None:
        """`shift` bytes before the tail are gone already."""
        self._changed(tail.offset)
        now = tail._replace(position=tail.position - shift)
        self._do(
            name,
            "cut",
            f"the last {tail.size} bytes, after offset {tail.offset}: {tail.text}; kept in a .damaged file",
            partial(surgery.cut_tail, self._files, path, now, max(tail.offset, self._point)),
        )

    def _rebuild_indexes(self, outcome: SegmentOutcome) -> None:
        stem = outcome.files.name("")
        self._do(
            stem + INDEX_SUFFIX,
            "rebuilt",
            f"{INDEX_SUFFIX} and {TIME_INDEX_SUFFIX} anew from the batches",
            partial(surgery.rebuild_indexes, self._files, self.partition.directory, outcome.files.base_offset),
        )

    def _changed(self, offset: int) -> None:
        if self._changed_from is None or offset < self._changed_from:
            self._changed_from = offset

    # What is derived from the segments.

    def _repair_orphans(self, before: PartitionReport) -> None:
        for finding in before.findings:
            if finding.code is Code.ORPHAN:
                path = self.partition.path(finding.file)
                self._do(
                    finding.file,
                    "removed",
                    "it has no log, and can be made anew from one",
                    partial(self._files.remove, path),
                )

    def _repair_state(self, check: PartitionCheck) -> None:
        """What is derived from all batches: wrong files, and those behind a change, are made anew."""
        names = self._files.list_directory(self.partition.directory)
        bases = {outcome.files.base_offset for outcome in check.outcomes}
        snapshots = {
            offset
            for name in {*names, *check.bad_snapshots}
            if (offset := offset_of(name, (SNAPSHOT_SUFFIX,))) is not None
            and (self._is_behind_change(offset - 1) or name in check.bad_snapshots)
        }
        for offset in sorted(snapshots):
            what, text = ("rebuilt", _ANEW) if offset in bases else ("removed", "it is made anew at the next start")
            self._do(segment_name(offset) + SNAPSHOT_SUFFIX, what, text, _later)
        transactions = {
            outcome.files.base_offset
            for outcome in check.outcomes
            if TXN_INDEX_SUFFIX in outcome.stale
            or (outcome.files.has(TXN_INDEX_SUFFIX) and self._is_behind_change(outcome.end_offset))
        }
        for offset in sorted(transactions):
            self._do(segment_name(offset) + TXN_INDEX_SUFFIX, "rebuilt", _ANEW, _later)
        epochs = LEADER_EPOCH_FILE not in names or check.bad_epochs
        if epochs:
            self._do(LEADER_EPOCH_FILE, "rebuilt", _ANEW, _later)
        request = surgery.StateRequest(frozenset(snapshots), frozenset(transactions), epochs)
        if request and not self._options.dry_run:
            surgery.rebuild_state(self._files, self.partition, request)

    def _is_behind_change(self, offset: int) -> bool:
        return self._changed_from is not None and offset >= self._changed_from


class _DirectoryRepair:
    """The checkpoints of the log directory, after its partitions."""

    def __init__(
        self, files: FileSystem, target: Target, state: DirectoryState, options: RepairOptions, report: RepairReport
    ) -> None:
        self._files = files
        self._target = target
        self._state = state
        self._options = options
        self._report = report

    def run(self, repairs: list[_PartitionRepair]) -> None:
        if self._target.is_log_dir:
            self._replace_damaged()
            self._move_away()
        self._distrust_clean_marker(repairs)
        if self._target.is_log_dir:
            state = self._state if self._options.dry_run else read_directory(self._files, self._target.log_dir)
            check_directory(state, self._target, self._report.directory, live=False)

    def _do(self, file: str, what: str, text: str, act: Callable[[], object], partition: str = "") -> None:
        self._report.actions.append(Action(partition, file, what, text))
        if not self._options.dry_run:
            act()

    def _path(self, name: str) -> str:
        return os.path.join(self._target.log_dir, name)

    def _replace_damaged(self) -> None:
        for name, problem in self._state.damaged.items():
            path = self._path(name)
            self._do(
                name,
                "rewrote",
                f"empty, because {problem}; {_LOST_WITH.get(name, 'compaction begins anew')}",
                partial(surgery.replace_checkpoint, self._files, path),
            )

    def _move_away(self) -> None:
        """What the broker writes anew; the catalog and the lock are left to somebody who knows what happened."""
        for name, problem in self._state.misplaced.items():
            if name in FILES_OF_A_DIRECTORY:
                text = f"{problem}; kept as {name}{DAMAGED_SUFFIX}"
                self._do(name, "moved away", text, partial(keep_damaged, self._files, self._path(name)))

    def _distrust_clean_marker(self, repairs: list[_PartitionRepair]) -> None:
        """A log that goes on after the point at which the broker says that it stopped was written by somebody else."""
        points = self._state.offsets.get(RECOVERY_POINT_FILE, {})
        beyond = [each for each in repairs if each.partition.key and 0 <= points.get(each.partition.key, -1) < each.end]
        if self._state.clean_stop and beyond:
            text = f"{beyond[0].partition.name} goes on behind the clean stop; the next start checks it"
            path = self._path(CLEAN_SHUTDOWN_FILE)
            self._do(CLEAN_SHUTDOWN_FILE, "removed", text, partial(self._files.remove, path))
