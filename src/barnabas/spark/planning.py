"""From offsets to tasks: ranges of partitions, split where options ask for more or smaller ones.

Role: the arithmetic of Spark's own connector (its KafkaOffsetRangeCalculator), so that a query has the same tasks with both.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from barnabas.spark.offsets import Partition

__all__ = ["OffsetRange", "plan"]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads: the offsets from `start` to before `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    """The topic that the driver saw; None when it does not know."""

    @property
    def size(self) -> int:
        return self.end - self.start

    def of_topic(self, topic_id: str | None) -> OffsetRange:
        return replace(self, topic_id=topic_id)


def plan(
    starts: Mapping[Partition, int], ends: Mapping[Partition, int], least: int | None, most: int | None
) -> list[OffsetRange]:
    """The tasks; empty ranges have none. `least` is minPartitions, `most` maxRecordsPerPartition."""
    ranges = [OffsetRange(*part, starts[part], ends[part]) for part in sorted(ends) if ends[part] > starts[part]]
    if most is not None:
        ranges = [piece for found in ranges for piece in _divide(found, -(-found.size // most))]
    if least is not None and least > len(ranges):
        ranges = _split_to(ranges, least)
    return ranges


def _split_to(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """About `least` ranges: small ones stay whole and are left out of the proportions of the others."""
    total = sum(found.size for found in ranges)
    small = [found for found in ranges if _parts(found.size, total, least) == 1]
    large_total = total - sum(found.size for found in small)
    wanted = max(least - len(small), 1)
    whole = set(small)
    return [
        piece
        for found in ranges
        for piece in _divide(found, 1 if found in whole else _parts(found.size, large_total, wanted))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    return max(int(size / total * wanted + 0.5), 1)


def _divide(found: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    start, left = found.start, found.size
    for number in range(parts):
        size = left // (parts - number)
        if size:
            yield OffsetRange(found.topic, found.partition, start, start + size)
        start += size
        left -= size
