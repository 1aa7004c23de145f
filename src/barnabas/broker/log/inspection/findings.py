"""What an inspection finds.

Role: one value per finding, with the place where it is, and the sum over one partition.
Thread: any; findings never change, a report belongs to whoever fills it. Lock: none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, NamedTuple

NOWHERE = -1
MOST_KEPT = 10_000
"""Findings of one partition that are kept; the rest is counted."""


class Severity(Enum):
    """Damage makes the exit code 1; a note is worth knowing and nothing is wrong with the data."""

    DAMAGE = "damage"
    NOTE = "note"


class Code(Enum):
    """What kind of thing is wrong; the words are part of the JSON output."""

    CHECKSUM = "checksum"
    HEADER = "header"
    TORN = "torn"
    OFFSET = "offset"
    EPOCH = "epoch"
    RECORDS = "records"
    GAP = "gap"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    CHECKPOINT = "checkpoint"
    ORPHAN = "orphan"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    LIVE = "live"


class Where(NamedTuple):
    """A place: the offset in the log, the position and the number of bytes in the file; NOWHERE when that has no meaning."""

    offset: int = NOWHERE
    position: int = NOWHERE
    size: int = 0


NO_PLACE = Where()


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; the last three are its `Where`."""

    severity: Severity
    code: Code
    partition: str
    file: str
    text: str
    offset: int = NOWHERE
    position: int = NOWHERE
    size: int = 0

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self) | {"severity": self.severity.value, "code": self.code.value}
        return {name: value for name, value in values.items() if value != NOWHERE and (name, value) != ("size", 0)}


@dataclass(slots=True)
class PartitionReport:
    """What one partition holds and what is wrong with it. `start` and `end` are offsets; `end` is after the last record."""

    partition: str
    directory: str
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    start: int = 0
    end: int = 0
    damage: int = 0
    notes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        if finding.severity is Severity.DAMAGE:
            self.damage += 1
        else:
            self.notes += 1
        if len(self.findings) < MOST_KEPT:
            self.findings.append(finding)

    def take_back(self, code: Code, count: int) -> None:
        """All damage of a kind, which was found so many times, is explained by something else."""
        self.damage -= count
        self.findings = [finding for finding in self.findings if finding.code is not code]

    @property
    def clean(self) -> bool:
        return not self.damage

    def as_dict(self) -> dict[str, Any]:
        numbers = ("segments", "bytes", "batches", "records", "start", "end", "damage", "notes")
        return {
            "partition": self.partition,
            "directory": self.directory,
            **{name: getattr(self, name) for name in numbers},
            "findings": [finding.as_dict() for finding in self.findings],
        }
