"""What the outcomes say: verdicts, the table, JSON. No I/O but the console's.

Must: the bystander's p99 and longest wait, the memory that the attack cost, and that nobody was refused who should not be. Goal: a shorter
p99, and none longer than Apache Kafka's.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from bench.neighbours.measure import MARK_BUSY, Outcome
from bench.neighbours.rows import Row
from bench.rows import Bound, Side, Verdict
from bench.rows import Row as BoundRow
from bench.table import number

__all__ = ["Figures", "Judged", "as_json", "goal_missed", "judge", "table_of"]

MUST_P99_MS, MUST_MAX_MS, GOAL_P99_MS = 100.0, 500.0, 20.0
MUST_MEMORY_SHARE, MUST_MEMORY_MB = 3, 200
MB = 1e6
DESCRIPTORS_KEPT = 20
SAME_MS = 2.0
"""A p99 that is longer than Kafka's by less is as good."""
DEAD = math.inf


@dataclass(frozen=True, slots=True)
class Figures:
    """A side of a row, over all rounds: medians, but the longest wait and the most memory of any."""

    quiet_p99: float
    quiet_max: float
    p50: float
    p99: float
    longest: float
    late: float
    """How late the bystander itself was woken at worst."""
    before_mb: float
    peak_mb: float
    after_mb: float
    cost_mb: float
    """The most by which memory grew."""
    sent_mb: float
    remarks: tuple[str, ...]
    broken: tuple[str, ...]
    """What else somebody had to bear who should not."""

    @classmethod
    def of(cls, row: Row, outcomes: Sequence[Outcome]) -> Figures:
        died = any(outcome.fate for outcome in outcomes)
        attacked = [outcome.attacked for outcome in outcomes]
        memory = [outcome.memory for outcome in outcomes]
        return cls(
            median(outcome.quiet["p99_ms"] for outcome in outcomes),
            max(outcome.quiet["max_ms"] for outcome in outcomes),
            median(each["p50_ms"] for each in attacked),
            DEAD if died else median(each["p99_ms"] for each in attacked),
            DEAD if died else max(each["max_ms"] for each in attacked),
            max(each["late_ms"] for each in attacked),
            median(each.before for each in memory) / MB,
            max(each.peak for each in memory) / MB,
            median(each.after for each in memory) / MB,
            max(each.peak - each.before for each in memory) / MB,
            min(outcome.tally.get("sent_bytes", 0) for outcome in outcomes) / MB,
            tuple(dict.fromkeys(text for outcome in outcomes for text in remarks(outcome))),
            tuple(dict.fromkeys(text for outcome in outcomes for text in broken(row, outcome))),
        )


def remarks(outcome: Outcome) -> list[str]:
    """What is worth a line below the table."""
    tally = outcome.tally
    found = [outcome.fate, tally.get("remark", ""), tally.get("refusals", "")]
    if tally.get("closed") and not tally.get("answers"):
        found.append(f"refuses: closed all {tally['closed']} connections")
    elif tally.get("closed"):
        found.append(f"closed {tally['closed']} connections")
    if outcome.busy_after > MARK_BUSY:
        found.append(f"still busy a second later ({outcome.busy_after:.1f} cores)")
    return [text for text in found if text]


def broken(row: Row, outcome: Outcome) -> list[str]:
    found = [outcome.tally.get("suffered", "")]
    if outcome.fate:
        found.append(f"the broker {outcome.fate}")
    elif outcome.attacked["failed"]:
        found.append(f"{outcome.attacked['failed']:.0f} of the bystander's requests failed")
    if row.descriptors and outcome.descriptors_kept > DESCRIPTORS_KEPT:
        found.append(f"{outcome.descriptors_kept} descriptors kept")
    return [text for text in found if text]


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with both sides; either may be missing."""

    row: Row
    ours: Figures | None
    kafka: Figures | None

    def verdicts(self) -> list[Verdict]:
        """One for each must, in the form that all benchmarks share."""
        if self.ours is None:
            return []
        allowed = MUST_MEMORY_SHARE * self.ours.sent_mb + MUST_MEMORY_MB
        kafka = self.kafka
        return [
            self._verdict("p99", "ms", MUST_P99_MS, self.ours.p99, kafka.p99 if kafka else None),
            self._verdict("max", "ms", MUST_MAX_MS, self.ours.longest, kafka.longest if kafka else None),
            self._verdict("memory", "MB", allowed, self.ours.cost_mb, kafka.cost_mb if kafka else None),
            self._verdict("others", "", 0, len(self.ours.broken), len(kafka.broken) if kafka else None),
        ]

    def _verdict(self, what: str, unit: str, limit: float, ours: float, peer: float | None) -> Verdict:
        row = BoundRow(f"{self.row.name} {what}", self.row.name, self.row.work, unit, Bound.OURS_AT_MOST, limit)
        return Verdict(row, ours, peer, ours / peer if peer else None, ours <= limit)

    def goal(self) -> str:
        """What is missing to the goal."""
        if self.ours is None:
            return ""
        missing = [f"p99 > {GOAL_P99_MS:.0f}"] if self.ours.p99 > GOAL_P99_MS else []
        if self.kafka is not None and self.ours.p99 > self.kafka.p99 + SAME_MS:
            missing.append("worse than Kafka")
        return ", ".join(missing)


def judge(rows: Sequence[Row], outcomes: Mapping[tuple[str, Side], Sequence[Outcome]]) -> list[Judged]:
    def side(row: Row, of: Side) -> Figures | None:
        measured = outcomes.get((row.name, of))
        return Figures.of(row, measured) if measured else None

    both = [Judged(row, side(row, Side.OURS), side(row, Side.KAFKA)) for row in rows]
    return [judged for judged in both if judged.ours or judged.kafka]


def goal_missed(judged: Sequence[Judged]) -> list[str]:
    return [each.row.name for each in judged if each.goal()]


def table_of(judged: Sequence[Judged]) -> Table:
    """A line for each row. `late`: how late the bystander itself was woken at worst, which no figure counts."""
    table = Table(title="A bystander beside an attack: milliseconds, and MB of the broker", title_justify="left")
    table.add_column("row")
    heads = ("quiet p99", "max", "p50", "p99", "max", "late", "MB before", "peak", "after", "sent")
    for name in (*heads, "Kafka p99", "max", "late", "MB before", "peak", "must", "goal"):
        table.add_column(name, justify="right")
    for each in judged:
        table.add_row(each.row.name, *_ours(each.ours), *_kafkas(each), *_judgement(each))
    return table


def _ours(side: Figures | None) -> list[str]:
    if side is None:
        return ["-"] * 10
    times = (side.quiet_p99, side.quiet_max, side.p50, side.p99, side.longest, side.late)
    return [*map(_ms, times), *map(_mb, (side.before_mb, side.peak_mb, side.after_mb, side.sent_mb))]


def _kafkas(each: Judged) -> list[str]:
    side = each.kafka
    if side is None:
        return ["none" if each.row.not_on_kafka else "-"] + ["-"] * 4
    return [*map(_ms, (side.p99, side.longest, side.late)), _mb(side.before_mb), _mb(side.peak_mb)]


def _judgement(each: Judged) -> tuple[str, str]:
    missed = [verdict.row.name.rpartition(" ")[2] for verdict in each.verdicts() if not verdict.met]
    must = f"[red]MISSED {', '.join(missed)}[/]" if missed else "[green]met[/]"
    goal = each.goal()
    return ("-", "-") if each.ours is None else (must, f"[yellow]{goal}[/]" if goal else "[green]met[/]")


def _ms(value: float) -> str:
    return "died" if value == DEAD else number(value, "ms") if value < 10 else number(value, "")


def _mb(value: float) -> str:
    return number(value, "MB")


def remarks_of(judged: Sequence[Judged]) -> list[str]:
    """Below the table: what each side made of the attack."""
    lines = []
    for each in judged:
        for name, side in (("ours", each.ours), ("Kafka", each.kafka)):
            told = [*side.broken, *(text for text in side.remarks if text not in side.broken)] if side else []
            if told:
                lines.append(f"{each.row.name}, {name}: {'; '.join(told)}")
        if each.row.not_on_kafka:
            lines.append(f"{each.row.name}, Kafka: {each.row.not_on_kafka}")
    return lines


def as_json(
    judged: Sequence[Judged],
    outcomes: Mapping[tuple[str, Side], Sequence[Outcome]],
    notes: Mapping[str, Any],
) -> str:
    summary = [
        {
            "name": verdict.row.name,
            "ours": verdict.ours,
            "kafka": verdict.peer,
            "limit": verdict.row.limit,
            "met": verdict.met,
        }
        for each in judged
        for verdict in each.verdicts()
    ]
    raw: dict[str, dict[str, Any]] = {}
    for (name, side), measured in outcomes.items():
        raw.setdefault(name, {})[side.value] = [outcome.as_dict() for outcome in measured]
    document = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "goal_missed": {each.row.name: each.goal() for each in judged if each.goal()},
        "remarks": remarks_of(judged),
        **notes,
        "rows": summary,
        "figures": raw,
    }
    return json.dumps(document, indent=2)
