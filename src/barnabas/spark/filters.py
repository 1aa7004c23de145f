"""Filters of a query that narrow what is read: on topic, partition, offset and timestamp (pushdown, batch reads only).

Role: `Narrowing` takes the filters that it understands and cuts starts and ends accordingly. Topic, partition and offset are met exactly,
so Spark need not look at them again. A time gives a first offset only, because records of a partition are not in the order of their times:
Spark evaluates such filters too. Thread: the planner's. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from barnabas.spark.offsets import Partition, PartitionOffsets
from barnabas.spark.starting import OffsetLookup

__all__ = ["Narrowing", "PushFilters"]

_NEVER_NULL = {("topic",), ("partition",), ("offset",), ("timestamp",), ("timestampType",)}
_MAX = (1 << 63) - 1


class Narrowing:
    """See the file header; picklable once the tasks are planned."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self._first_offset = 0
        self._end_offset = _MAX
        self._first_ms = 0

    def take(self, filters: list[Filter]) -> Iterator[Filter]:
        """Those that Spark has to evaluate still."""
        for found in filters:
            if not self._takes(found):
                yield found

    def _takes(self, found: Filter) -> bool:
        """Whether what was taken of this filter is all that it says."""
        if isinstance(found, IsNotNull):
            return found.attribute in _NEVER_NULL
        attribute = getattr(found, "attribute", None)
        if attribute in (("topic",), ("partition",)):
            return self._takes_name(attribute[0], found)
        if attribute == ("offset",):
            return self._takes_offset(found)
        if attribute == ("timestamp",):
            self._see_time(found)
        return False

    def _takes_name(self, column: str, found: Filter) -> bool:
        if isinstance(found, EqualTo):
            self._values.setdefault(column, []).append((found.value,))
        elif isinstance(found, In):
            self._values.setdefault(column, []).append(tuple(found.value))
        else:
            return False
        return True

    def _takes_offset(self, found: Filter) -> bool:
        value = getattr(found, "value", None)
        if not isinstance(value, int):
            return False
        match found:
            case EqualTo():
                self._first_offset = max(self._first_offset, value)
                self._end_offset = min(self._end_offset, value + 1)
            case GreaterThan():
                self._first_offset = max(self._first_offset, value + 1)
            case GreaterThanOrEqual():
                self._first_offset = max(self._first_offset, value)
            case LessThan():
                self._end_offset = min(self._end_offset, value)
            case LessThanOrEqual():
                self._end_offset = min(self._end_offset, value + 1)
            case _:
                return False
        return True

    def _see_time(self, found: Filter) -> None:
        value = getattr(found, "value", None)
        if not isinstance(value, datetime) or not isinstance(found, EqualTo | GreaterThan | GreaterThanOrEqual):
            return
        if value.tzinfo is None:
            return  # a time without a zone is not the column's type; Spark evaluates it
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        if isinstance(found, GreaterThan):
            micros += 1
        self._first_ms = max(self._first_ms, -(-micros // 1000))

    # ---------------------------------------------------------------- what is left to read

    def apply(
        self, starts: PartitionOffsets, ends: PartitionOffsets, lookup: OffsetLookup
    ) -> tuple[PartitionOffsets, PartitionOffsets]:
        """The same offsets, narrowed; partitions that are not wanted are left out."""
        kept = [part for part in ends if self._wants(part)]
        first = {part: max(starts[part], self._first_offset) for part in kept}
        last = {part: min(ends[part], self._end_offset) for part in kept}
        if self._first_ms:
            open_parts: Mapping[Partition, int] = {part: self._first_ms for part in kept if first[part] < last[part]}
            for part, offset in lookup.at_times(open_parts).items():
                first[part] = last[part] if offset is None else max(first[part], offset)
        return first, last

    def _wants(self, part: Partition) -> bool:
        topics, numbers = self._values.get("topic", []), self._values.get("partition", [])
        return all(part[0] in allowed for allowed in topics) and all(part[1] in allowed for allowed in numbers)


class PushFilters:
    """What `reader.pushFilters` is, callable as Spark calls it.

    A reader with a method of its own fails every batch read unless spark.sql.python.filterPushdown.enabled is true, which is not its
    default; Spark tells by `__func__`. This one looks inherited: without pushdown it is never called, and Spark evaluates every filter.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, narrowing: Narrowing) -> None:
        self._narrowing = narrowing

    def __call__(self, filters: list[Filter]) -> Iterator[Filter]:
        return self._narrowing.take(filters)
