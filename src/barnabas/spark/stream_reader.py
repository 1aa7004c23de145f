"""`spark.readStream.format("barnabas")`: the source of a streaming query.

Role: says where a new query begins, how far the next micro-batch goes and which tasks read it; the tasks are range_reader.py's. Spark
keeps one planner process per query, in which this object lives; the tasks get pickled copies.
Thread: the planner's. Lock: none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.spark.admission import Delay, Limits, admit, waiting
from barnabas.spark.batch_reader import read_settings, starting_place, warn_of
from barnabas.spark.data_loss import DataLossPolicy
from barnabas.spark.discovery import Discovery
from barnabas.spark.offsets import LATEST, Partition, PartitionOffsets, from_spark, name_of, names_of, to_spark
from barnabas.spark.options import Options
from barnabas.spark.planning import OffsetRange, plan
from barnabas.spark.starting import Missing, resolve

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the file header."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._settings = read_settings(options)
        self._loss = DataLossPolicy(options["failOnDataLoss"])
        self._discovery = Discovery(options)
        self._limits = Limits.of(options)
        self._delay = Delay(options["minOffsetsPerTrigger"], options["maxTriggerDelay"])
        self._attempts: int = options["fetchOffset.numRetries"]
        self._pause_s: float = options["fetchOffset.retryIntervalMs"] / 1000
        self._latest: PartitionOffsets = {}
        self._available_now = False
        self._target: PartitionOffsets | None = None
        self._topic_ids: dict[str, str] = {}
        self._recreated: set[str] = set()
        warn_of(options)

    # ---------------------------------------------------------------- offsets

    def initialOffset(self) -> dict[str, Any]:
        partitions = self._discovery.partitions()
        option, place = starting_place(self._options, LATEST)
        missing = Missing(self._options["startingOffsetsByTimestampStrategy"] == "latest", option)
        return to_spark(resolve(place, partitions, self._discovery, missing, time.time_ns() // 1_000_000))

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the ends that are seen first are the target (as Spark's own connector has it)."""
        self._available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits, so that Spark knows there are some; all of them are looked at in `latestOffset`."""
        if self._limits.offsets is not None:
            return ReadMaxRows(self._limits.offsets)
        if self._limits.bytes is not None:
            return ReadMaxBytes(self._limits.bytes)
        least = self._options["minOffsetsPerTrigger"]
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        starts = from_spark(start)
        self._latest = ends = self._ends(starts)
        if isinstance(limit, ReadAllAvailable):
            return to_spark(ends)
        begins = self._with_new(starts, ends)
        if not self._available_now and self._delay.holds(sum(waiting(begins, ends).values()), _monotonic_ms()):
            return to_spark(starts)
        return to_spark(admit(begins, ends, self._limits, lambda: self._record_bytes(ends)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_spark(self._latest) if self._latest else None

    def _ends(self, starts: PartitionOffsets) -> PartitionOffsets:
        if self._target is not None:
            return self._target
        ends = self._ends_now(starts)
        if self._available_now:
            self._target = ends
        return ends

    def _ends_now(self, starts: PartitionOffsets) -> PartitionOffsets:
        """The newest offsets. A broker may answer with an old end for a moment: one that lies before the start is asked for again."""
        for attempt in range(self._attempts):
            ends = self._discovery.latest(self._discovery.partitions())
            behind = [part for part, end in ends.items() if end < starts.get(part, 0)]
            if not behind or self._notice_recreated():
                break
            log.warning("The ends of %s lie before what was read; asking again", names_of(behind))
            if attempt + 1 < self._attempts:
                time.sleep(self._pause_s)
        self._notice_recreated()
        return ends

    def _notice_recreated(self) -> bool:
        """Whether a topic that is read has another id than before: it was deleted and made anew."""
        ids = self._discovery.topic_ids
        self._recreated |= {topic for topic, known in self._topic_ids.items() if ids.get(topic, known) != known}
        self._topic_ids |= ids
        return bool(self._recreated)

    def _with_new(self, starts: PartitionOffsets, ends: Mapping[Partition, int]) -> PartitionOffsets:
        """Partitions that have appeared begin at their earliest record."""
        return {**self._discovery.earliest([part for part in ends if part not in starts]), **starts}

    def _record_bytes(self, ends: PartitionOffsets) -> dict[Partition, float]:
        earliest = self._discovery.earliest(ends)
        sizes = self._discovery.sizes(ends)
        return {part: sizes.get(part, 0) / max(end - earliest[part], 1) for part, end in ends.items()}

    # ---------------------------------------------------------------- tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        starts, ends = from_spark(start), from_spark(end)
        if starts == ends:
            return []
        if gone := starts.keys() - ends.keys():
            self._loss.report(
                f"{names_of(gone)}: gone, and what was not read yet with them. Likely cause: topics deleted"
            )
        begins = self._begins(starts, ends)
        tasks = plan(begins, ends, self._options["minPartitions"], self._options["maxRecordsPerPartition"])
        return [task.of_topic(self._topic_ids.get(task.topic)) for task in tasks]

    def _begins(self, starts: PartitionOffsets, ends: PartitionOffsets) -> PartitionOffsets:
        """Where the tasks begin: where the last batch ended, or at the earliest record of what is new."""
        new = [part for part in ends if part not in starts]
        added = self._discovery.earliest(new)
        for part in sorted(new):
            if added[part]:
                self._loss.report(f"{name_of(part)}: was added and begins at offset {added[part]}, not at 0")
        anew = [part for part in starts if part in ends and part[0] in self._recreated]
        if anew:
            self._loss.report(f"{names_of(anew)}: the topic was deleted and created anew while the query ran")
            added |= self._discovery.earliest(anew)
            self._recreated.clear()
        for part in sorted(starts.keys() & ends.keys() - added.keys()):
            if ends[part] < starts[part]:
                self._loss.shrunk(part, starts[part], ends[part])
        return {**starts, **added}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            raise TypeError(f"not a task of this source: {partition!r}")
        from barnabas.spark.range_reader import read_range

        return read_range(partition, self._settings)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint has the offsets; nothing else wants them."""

    def stop(self) -> None:
        self._discovery.close()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
