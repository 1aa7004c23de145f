"""What is wrong with a log directory itself: its checkpoints, what stands in it, what does not.

Role: findings from what `checkpoint_check` read and `targets` found. Thread: the caller's. Lock: none; nothing is read here.
"""

from __future__ import annotations

from barnabas.broker.log.checkpoints import RECOVERY_POINT_FILE
from barnabas.broker.log.inspection.checkpoint_check import DirectoryState
from barnabas.broker.log.inspection.findings import Code, Finding, PartitionReport, Severity
from barnabas.broker.log.inspection.targets import Target


def check_directory(state: DirectoryState, target: Target, report: PartitionReport, live: bool) -> None:
    for name, problem in state.damaged.items():
        report.add(Finding(Severity.DAMAGE, Code.CHECKPOINT, "", name, problem))
    for name, problem in state.misplaced.items():
        report.add(Finding(Severity.DAMAGE, Code.UNREADABLE, "", name, problem))
    _check_missing(state, target, report, live)
    for name in target.removed:
        report.add(
            Finding(Severity.NOTE, Code.ORPHAN, "", name, "is left over; the broker removes it or leaves it alone")
        )


def _check_missing(state: DirectoryState, target: Target, report: PartitionReport, live: bool) -> None:
    """Partitions that the recovery points know and that have no directory. Who stops in order forgets those of deleted topics."""
    there = {partition.key for partition in target.partitions}
    for key, offset in state.offsets.get(RECOVERY_POINT_FILE, {}).items():
        name = f"{key[0]}-{key[1]}"
        known = f"{RECOVERY_POINT_FILE} knew it up to offset {offset}"
        kind = target.misplaced.get(name)
        if kind:
            text = f"is {kind}, not the directory of a partition; {known}"
            report.add(Finding(Severity.DAMAGE, Code.MISSING, "", name, text, offset))
        elif key not in there and offset:
            certain = state.clean_stop and not live
            text = f"has no directory; {known}" + ("" if certain else ", unless its topic was deleted")
            severity = Severity.DAMAGE if certain else Severity.NOTE
            report.add(Finding(severity, Code.MISSING, "", name, text, offset))
