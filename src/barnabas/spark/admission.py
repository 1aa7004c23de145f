"""How far the next micro-batch goes: admission control.

Role: `Limits` is what the options allow; `admit` cuts the newest offsets down to it, in proportion to what waits in each partition, as
Spark's own connector does (its rateLimit). Whether a batch waits for more records is `Delay`'s. Thread: the planner's. Lock: none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.spark.offsets import Partition, PartitionOffsets
from barnabas.spark.options import Options

__all__ = ["Delay", "Limits", "admit", "waiting"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one micro-batch; None: no limit."""

    offsets: int | None
    bytes: int | None

    @classmethod
    def of(cls, options: Options) -> Limits:
        return cls(options["maxOffsetsPerTrigger"], options["maxBytesPerTrigger"])


def waiting(starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """How many offsets wait in each partition where some do."""
    return {part: end - starts[part] for part, end in ends.items() if part in starts and end > starts[part]}


def admit(
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    limits: Limits,
    record_bytes: Callable[[], Mapping[Partition, float]],
) -> PartitionOffsets:
    """The ends of the next micro-batch. `record_bytes` tells what an offset of each partition takes, when that is asked for."""
    sizes = waiting(starts, ends)
    found = dict(ends)
    if limits.offsets is not None and sizes:
        share = limits.offsets / sum(sizes.values())
        found |= {part: min(found[part], starts[part] + _at_least_one(size * share)) for part, size in sizes.items()}
    if limits.bytes is not None and sizes:
        weights = record_bytes()
        total = sum(size * weights.get(part, 0.0) for part, size in sizes.items())
        share = limits.bytes / total if total > limits.bytes else 1.0
        found |= {part: min(found[part], starts[part] + _at_least_one(size * share)) for part, size in sizes.items()}
    return found


def _at_least_one(rows: float) -> int:
    """No partition is starved, however small its share."""
    return math.ceil(rows) if rows < 1 else math.floor(rows)


class Delay:
    """Holds a micro-batch back until enough records wait, for some time at most (minOffsetsPerTrigger, maxTriggerDelay)."""

    def __init__(self, least: int | None, longest_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms: int | None = None

    def holds(self, waiting_offsets: int, now_ms: int) -> bool:
        """Whether to wait. The first batch never does."""
        if self._least is None:
            return False
        late = self._last_ms is None or now_ms - self._last_ms >= self._longest_ms
        if not late and waiting_offsets < self._least:
            return True
        self._last_ms = now_ms
        return False
