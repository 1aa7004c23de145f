"""`spark.readStream.format("barnabas")`: the source of a streaming query.

Role: says where a new query begins, how far the next micro-batch goes and which tasks read it; the tasks are range_reader.py's. Spark
keeps one planner process per query, in which this object lives; the tasks get pickled copies.
Thread: the planner's. Lock: none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from barnabas.spark.batch_reader import read_settings, starting_place
from barnabas.spark.discovery import Discovery
from barnabas.spark.offsets import LATEST, PartitionOffsets, SparkOffset, from_spark, to_spark
from barnabas.spark.options import Options
from barnabas.spark.planning import OffsetRange, plan
from barnabas.spark.starting import Missing, resolve

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the file header."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._settings = read_settings(options)
        self._discovery = Discovery(options)
        self._latest: PartitionOffsets = {}
        self._target: PartitionOffsets | None = None

    # ---------------------------------------------------------------- offsets

    def initialOffset(self) -> dict[str, Any]:
        partitions = self._discovery.partitions()
        option, place = starting_place(self._options, LATEST)
        missing = Missing(self._options["startingOffsetsByTimestampStrategy"] == "latest", option)
        return _to_spark(resolve(place, partitions, self._discovery, missing, time.time_ns() // 1_000_000))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._latest = self._ends() if self._target is None else self._target
        return _to_spark(self._latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return _to_spark(self._latest) if self._latest else None

    def _ends(self) -> PartitionOffsets:
        return self._discovery.latest(self._discovery.partitions())

    # ---------------------------------------------------------------- tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        starts, ends = from_spark(start), from_spark(end)
        new = [partition for partition in ends if partition not in starts]
        starts |= self._discovery.earliest(new)
        return list(plan(starts, ends, self._options["minPartitions"], self._options["maxRecordsPerPartition"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            raise TypeError(f"not a task of this source: {partition!r}")
        from barnabas.spark.range_reader import read_range

        return read_range(partition, self._settings)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint has the offsets; nothing else wants them."""

    def stop(self) -> None:
        self._discovery.close()


def _to_spark(offsets: PartitionOffsets) -> SparkOffset:
    return to_spark(offsets)
