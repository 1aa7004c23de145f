"""Which anomalies there are, what they mean, and whether a broker may show them: the table of faults.md, section 2; and the report.

Role: the words of the checker. Thread: one. Lock: none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

EXAMPLES = 8

TABLE = {
    "lost-write": ("an acknowledged value was never read, although a later one of its partition was", "fail"),
    "unseen": ("an acknowledged value was never read, and none after it", "fail"),
    "duplicate": ("one value at two offsets", "fail when the producer is idempotent"),
    "inconsistent-offsets": ("one offset of a partition with two values", "fail"),
    "G1a": ("a value was read whose send failed, was aborted, or never was", "fail (transactions: read_committed)"),
    "precommitted-read": ("a transaction read its own uncommitted write", "fail"),
    "int-poll-skip": ("inside one operation, polls left out a record", "fail"),
    "int-nonmonotonic-poll": ("inside one operation, polls went back", "fail"),
    "poll-skip": ("a consumer left out a record between two operations", "fail with assign, allowed with subscribe"),
    "nonmonotonic-poll": ("a consumer went back between two operations", "fail with assign, allowed with subscribe"),
    "nonmonotonic-send": ("a later send of a producer got a lower offset", "fail"),
    "int-nonmonotonic-send": ("inside one operation, a later send got a lower offset", "fail"),
    "int-send-skip": ("between two sends of one operation stands a record of another", "allowed"),
    "G0": ("a cycle of writes: two transactions wrote in between each other", "allowed"),
    "G1c": ("a cycle of reads, or of reads and writes", "fail if of reads alone at read_committed, else allowed"),
}
"""Key: what it means, and the verdict. The order is that of the report."""


@dataclass(slots=True)
class Found:
    """The occurrences of one anomaly."""

    failures: int = 0
    allowed: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.failures} FAIL" if self.failures else "", f"{self.allowed} allowed" if self.allowed else ""]
        return ", ".join(part for part in parts if part)


@dataclass(slots=True)
class Report:
    """What a history says. `ok` is the verdict."""

    operations: int = 0
    acked: int = 0
    unknown: int = 0
    """Sends of which nobody knows what became of them."""
    failed: int = 0
    read: int = 0
    """Values that some consumer got."""
    faults: int = 0
    found: dict[str, Found] = field(default_factory=lambda: defaultdict(Found))

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> dict[str, int]:
        """How often each anomaly was found that no broker may show."""
        return {key: self.found[key].failures for key in TABLE if key in self.found and self.found[key].failures}

    def add(self, key: str, example: str, allowed: bool = False) -> None:
        if key not in TABLE:
            raise KeyError(key)
        found = self.found[key]
        found.failures += not allowed
        found.allowed += allowed
        if len(found.examples) < EXAMPLES:
            found.examples.append(example + (" (allowed)" if allowed else ""))

    def demand_clean(self) -> None:
        """For tests: an AssertionError with the whole text unless the verdict is good."""
        assert self.ok, "\n" + self.text()

    def figures(self) -> str:
        """One line for the list of fault rows."""
        lost = self.found["lost-write"].failures + self.found["unseen"].failures if self.found else 0
        duplicates = self.failures.get("duplicate", 0)
        return f"{self.acked} acked, {lost} lost, {duplicates} duplicates, {sum(self.failures.values())} anomalies"

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"{self.operations} operations, {self.faults} faults; "
            f"values: {self.acked} acked, {self.unknown} unknown, {self.failed} failed, {self.read} read"
        ]
        for key, (meaning, verdict) in TABLE.items():
            if key in self.found and self.found[key].examples:
                found = self.found[key]
                lines.append(f"  {key}: {found} - {meaning} [{verdict}]")
                lines += [f"      {example}" for example in found.examples]
                hidden = found.failures + found.allowed - len(found.examples)
                lines += [f"      ... and {hidden} more"] if hidden else []
        lines.append("OK: no anomaly that a broker may not show" if self.ok else f"FAIL: {self.failures}")
        return "\n".join(lines)
