"""The table that the benchmark prints: one row per piece of work, with the bound that it has to meet. No I/O, no clock.

A row belongs to a group; all rows of a group are measured on one freshly started broker per side and round (`bench.workloads`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median


class Side(Enum):
    OURS = "ours"
    KAFKA = "kafka"


class Bound(Enum):
    """How `Row.limit` is meant."""

    RATIO_AT_LEAST = "ratio ≥"
    RATIO_AT_MOST = "ratio ≤"
    OURS_AT_MOST = "ours ≤"
    OURS_AT_LEAST = "ours ≥"
    NONE = "-"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    group: str
    work: str
    unit: str
    bound: Bound
    limit: float


def _ratio(name: str, group: str, work: str, unit: str, limit: float) -> Row:
    return Row(name, group, work, unit, Bound.RATIO_AT_LEAST, limit)


ROWS = (
    _ratio("produce-100", "produce", "ProducerPerformance 100 B × 1.5 M, 6 partitions", "records/s", 1.2),
    _ratio("produce-1000", "produce", "ProducerPerformance 1000 B × 1 M", "records/s", 1.2),
    _ratio("produce-256k", "produce", "the same, 256 KiB batches, linger 10 ms", "records/s", 1.1),
    _ratio("durable-100", "durable", "durable acks: 100 B × 1.5 M, 6 partitions", "records/s", 1.5),
    _ratio("durable-1000", "durable", "durable acks: 1000 B × 1 M", "records/s", 1.5),
    _ratio("durable-256k", "durable", "durable acks: the same, 256 KiB batches, linger 10 ms", "records/s", 1.5),
    _ratio("fetch-1", "fetch", "reading 1000 B records, 1 partition, 1 connection", "MB/s", 1.0),
    _ratio("fetch-8", "fetch", "the same, 8 connections", "MB/s", 1.0),
    _ratio("rr-1", "rr", "one-record Produce, closed loop, 1 connection", "requests/s", 1.0),
    _ratio("rr-16", "rr", "the same, 16 connections", "requests/s", 0.6),
    _ratio("rr-64", "rr", "the same, 64 connections", "requests/s", 0.6),
    _ratio("threads-1", "threads", "full path, 3 network and 8 I/O threads, 1 connection", "requests/s", 0.8),
    _ratio("threads-16", "threads", "the same, 16 connections", "requests/s", 0.25),
    _ratio("threads-64", "threads", "the same, 64 connections", "requests/s", 0.25),
    Row("start", "start", "start until the first ApiVersions answer", "s", Bound.OURS_AT_MOST, 0.4),
    Row("memory-idle", "start", "memory, idle", "MB", Bound.OURS_AT_MOST, 60),
    Row("memory-load", "produce", "memory after the load (largest of all groups)", "MB", Bound.OURS_AT_MOST, 200),
    Row(
        "idle-10000",
        "idle",
        "64 connections beside 10 000 idle ones, to the rate without",
        "×",
        Bound.OURS_AT_LEAST,
        0.9,
    ),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all rounds say about one row: the medians of both sides, the median of the rounds' ratios, whether the bound is met."""

    row: Row
    ours: float
    peer: float | None
    ratio: float | None
    met: bool


def judge(row: Row, ours: list[float], peer: list[float]) -> Verdict:
    """`ours[i]` and `peer[i]` were measured in the same round, one right after the other: the ratio is taken per round.

    The medians of the sides come from all rounds; on a machine whose speed drifts their quotient may differ from the ratio.
    """
    ratio = median(a / b for a, b in zip(ours, peer, strict=True)) if peer else None
    mine = median(ours)
    met = {
        Bound.RATIO_AT_LEAST: ratio is not None and ratio >= row.limit,
        Bound.RATIO_AT_MOST: ratio is not None and ratio <= row.limit,
        Bound.OURS_AT_MOST: mine <= row.limit,
        Bound.OURS_AT_LEAST: mine >= row.limit,
        Bound.NONE: True,
    }[row.bound]
    return Verdict(row, mine, median(peer) if peer else None, ratio, met)


def select_groups(only: tuple[str, ...]) -> tuple[str, ...]:
    """The groups to run for `--only` names, each the name of a group or of a row; without names all of them."""
    if not only:
        return GROUPS
    group_of = {row.name: row.group for row in ROWS} | {group: group for group in GROUPS}
    unknown = [name for name in only if name not in group_of]
    if unknown:
        raise KeyError(f"{', '.join(unknown)}: choose from {', '.join(sorted(group_of))}")
    wanted = {group_of[name] for name in only}
    return tuple(group for group in GROUPS if group in wanted)


def selected_rows(only: tuple[str, ...]) -> tuple[Row, ...]:
    """The rows that `--only` asks for: a group's name stands for all its rows."""
    return tuple(row for row in ROWS if not only or row.name in only or row.group in only)
