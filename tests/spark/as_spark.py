"""Drives the source as Spark does, without Spark: the same calls in the same order, everything pickled or written as JSON in between.

What an option means is tested this way in milliseconds; that Spark really calls like this is what the other tests of this directory show.
Runs in the test's thread.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.spark.datasource import BarnabasDataSource

__all__ = ["Stream", "batch_table", "batch_tasks", "places", "values"]


def _source(options: Mapping[str, str]) -> BarnabasDataSource:
    lower = {name.lower(): value for name, value in options.items()}  # as Spark hands them over
    return pickle.loads(pickle.dumps(BarnabasDataSource(lower)))  # type: ignore[no-any-return]


def batch_tasks(options: Mapping[str, str], filters: Iterable[Filter] = ()) -> tuple[Any, list[Any], list[Filter]]:
    """The reader, its tasks, and the filters that are left to Spark."""
    source = _source(options)
    reader = source.reader(source.schema())
    left = list(reader.pushFilters(list(filters)))
    tasks = reader.partitions()
    return pickle.loads(pickle.dumps(reader)), [pickle.loads(pickle.dumps(task)) for task in tasks], left


def batch_table(options: Mapping[str, str], filters: Iterable[Filter] = ()) -> pa.Table:
    """What a batch read gives, in the order of the tasks."""
    reader, tasks, _ = batch_tasks(options, filters)
    return _table(reader, tasks)


def _table(reader: Any, tasks: list[Any]) -> pa.Table:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return pa.Table.from_batches(batches) if batches else pa.table({"partition": [], "offset": [], "value": []})


def places(table: pa.Table) -> list[tuple[int, int]]:
    """(partition, offset) of each row."""
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def values(table: pa.Table) -> list[bytes | None]:
    found: list[bytes | None] = table["value"].to_pylist()
    return found


class Stream:
    """One run of a streaming query; its `checkpoint` can be given to the next one."""

    def __init__(self, options: Mapping[str, str], checkpoint: str | None = None, available_now: bool = False) -> None:
        source = _source(options)
        self.reader = source.streamReader(source.schema())
        self._tasks_reader = pickle.loads(pickle.dumps(self.reader))
        self._limit = self.reader.getDefaultReadLimit()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.checkpoint = json.dumps(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def batch(self, everything: bool = False) -> pa.Table | None:
        """The next micro-batch; None when there is nothing new."""
        limit = ReadAllAvailable() if everything else self._limit
        end = json.dumps(self.reader.latestOffset(json.loads(self.checkpoint), limit))
        if end == self.checkpoint:
            return None
        table = self.planned(end)
        self.reader.commit(json.loads(end))
        self.checkpoint = end
        return table

    def planned(self, end: str) -> pa.Table:
        """The records from the checkpoint to an end, as a replay reads them too."""
        tasks = self.reader.partitions(json.loads(self.checkpoint), json.loads(end))
        return _table(self._tasks_reader, [pickle.loads(pickle.dumps(task)) for task in tasks])

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
