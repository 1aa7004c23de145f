"""`spark.read.format("barnabas")`: a batch read of what is there when it is planned.

Role: the planner's part (offsets, tasks) and the entry of the tasks. Pickled by Spark, so it holds plain values only.
Thread: the planner process, then each task in its own worker. Lock: none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.errors import ConfigError
from barnabas.spark.data_loss import DataLossPolicy
from barnabas.spark.discovery import Discovery, client_id
from barnabas.spark.filters import Narrowing, PushFilters
from barnabas.spark.offsets import EARLIEST, PartitionOffsets, name_of
from barnabas.spark.options import Options
from barnabas.spark.planning import OffsetRange, plan
from barnabas.spark.starting import AtEnd, Missing, Place, resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.spark.range_reader import ReadSettings

__all__ = ["BatchReader", "read_settings", "starting_place", "warn_of"]

log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """See the file header."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._settings = read_settings(options)
        self._narrowing = Narrowing()
        warn_of(options)

    @property
    def pushFilters(self) -> PushFilters:
        return PushFilters(self._narrowing)

    def partitions(self) -> list[InputPartition]:
        discovery = Discovery(self._options)
        try:
            starts, ends = self._bounds(discovery)
            starts, ends = self._narrowing.apply(starts, ends, discovery)
            ids = discovery.topic_ids
        finally:
            discovery.close()
        tasks = plan(starts, ends, self._options["minPartitions"], self._options["maxRecordsPerPartition"])
        return [task.of_topic(ids.get(task.topic)) for task in tasks]

    def _bounds(self, discovery: Discovery) -> tuple[PartitionOffsets, PartitionOffsets]:
        options = self._options
        partitions = discovery.partitions()
        now_ms = time.time_ns() // 1_000_000
        option, place = starting_place(options, EARLIEST)
        latest = options["startingOffsetsByTimestampStrategy"] == "latest"
        starts = resolve(place, partitions, discovery, Missing(latest, option), now_ms)
        option, place = _ending_place(options)
        ends = resolve(place, partitions, discovery, Missing(True, option), now_ms)
        self._check_order(starts, ends)
        return starts, ends

    def _check_order(self, starts: PartitionOffsets, ends: PartitionOffsets) -> None:
        """A read that would end before it begins is a mistake, or retention was faster than the reader."""
        name, place = starting_place(self._options, EARLIEST)
        for part in sorted(starts):
            if starts[part] > ends[part] and place == AtEnd(EARLIEST):
                self._settings.loss.overtaken(part, ends[part], starts[part])
            elif starts[part] > ends[part]:
                raise ConfigError(name, starts[part], f"{name_of(part)} ends before that, at {ends[part]}")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            return iter(())  # where there is nothing to read Spark makes a task of its own
        from barnabas.spark.range_reader import read_range

        return read_range(partition, self._settings)


def warn_of(options: Options) -> None:
    """Say what was asked for and does nothing."""
    for name in options.ignored:
        log.warning("%s does nothing in a %s", name, options.use.value)
    if "group.id" in options.client:
        log.warning(
            "kafka.group.id does nothing: offsets are in the query's checkpoint and are not committed to a group"
        )


def read_settings(options: Options) -> ReadSettings:
    """What the tasks of a query need to know."""
    from barnabas.spark.range_reader import ReadSettings

    client = {name: value for name, value in options.client.items() if name != "group.id"}
    client.setdefault("client.id", client_id(options, "executor"))
    client.setdefault("allow.auto.create.topics", "false")
    client["auto.offset.reset"] = "none"
    loss = DataLossPolicy(options["failOnDataLoss"])
    poll_s = options["kafkaConsumer.pollTimeoutMs"] / 1000
    return ReadSettings(client, options["includeHeaders"], poll_s, loss)


def starting_place(options: Options, default: int) -> tuple[str, Place]:
    """The option that says where to begin, and what it says."""
    for name in ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"):
        if options[name] is not None:
            return name, options[name]
    return "startingOffsets", AtEnd(default)


def _ending_place(options: Options) -> tuple[str, Place]:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if options[name] is not None:
            return name, options[name]
    return "endingOffsets", options["endingOffsets"]
