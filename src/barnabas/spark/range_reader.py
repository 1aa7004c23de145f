"""The executor's part: reads one range of one partition straight into Arrow batches with Spark's columns.

Role: `read_range` yields exactly the records of [start, end), each once, as the consumer's Arrow batches in Spark's types: no Python
object per record. Memory is bounded by the consumer's fetches (three times `max.partition.fetch.bytes`); the next one is on its way while
Spark takes a batch. Offsets that compaction or transaction markers left empty are passed over; only what lies before the partition's
first record is lost. Thread: the task's (a Python worker of Spark). Lock: none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.consumer.consumer import Consumer
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.spark.columns import arrow_schema
from barnabas.spark.data_loss import DataLossPolicy
from barnabas.spark.offsets import Partition, name_of
from barnabas.spark.planning import OffsetRange
from barnabas.spark.settling import settle
from barnabas.spark.worker import of_this_process

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReadSettings", "read_range"]

_FETCH_BYTES = 4 << 20
"""Larger than a consumer's default: one task reads one partition, and each fetch becomes one Arrow batch. 1 to 8 MiB were tried."""
_FETCH_BYTES_LEAST = 256 << 10
_BYTES_PER_OFFSET = 512
"""A guess, so that a task of few offsets does not fetch much more than it needs."""
_RECEIVE_BUFFER = 1 << 20
_POLL_S = 1.0


@dataclass(frozen=True)
class ReadSettings:
    """What is the same for all tasks of a query; picklable."""

    client: Mapping[str, str]
    include_headers: bool
    poll_timeout_s: float
    loss: DataLossPolicy


def read_range(wanted: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """The records of the range. DataLoss when some are gone and that matters, BarnabasError when nothing comes in time."""
    columns = _SparkColumns(wanted, settings.include_headers)
    client = {**_fetch_settings(wanted), **settings.client}
    settle()
    with of_this_process.borrow(client, wanted.topic, wanted.topic_id) as consumer:
        place = _Place(consumer, wanted, settings)
        while place.position < wanted.end:
            batch = place.poll()
            if batch is not None and (rows := _rows_before(batch, wanted.end)):
                yield columns.of(batch, rows)
        place.check_topic()


def _fetch_settings(wanted: OffsetRange) -> dict[str, object]:
    size = min(max(wanted.size * _BYTES_PER_OFFSET, _FETCH_BYTES_LEAST), _FETCH_BYTES)
    size = 1 << (size - 1).bit_length()  # few sizes, so that a consumer can be used again
    return {"max.partition.fetch.bytes": size, "receive.buffer.bytes": _RECEIVE_BUFFER}


class _Place:
    """Where a task is in its range, and what moves it on."""

    def __init__(self, consumer: Consumer, wanted: OffsetRange, settings: ReadSettings) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._patience_s = settings.poll_timeout_s
        self._loss = settings.loss
        self._partition: Partition = (wanted.topic, wanted.partition)
        self.position = wanted.start
        consumer.assign([self._partition])
        self.check_topic()
        consumer.seek(self._partition, wanted.start, wanted.end)
        self._moved_at = time.monotonic()

    def check_topic(self) -> None:
        """Offsets of a topic that was deleted mean nothing in one that was made anew under its name."""
        planned = self._wanted.topic_id
        if planned is None:
            return
        found = self._consumer.topic_id(self._wanted.topic, timeout=self._patience_s)
        if found is not None and str(found) != planned:
            self._loss.report(
                f"{name_of(self._partition)}: the topic was deleted and created anew since the read was planned"
            )

    def poll(self) -> pa.RecordBatch | None:
        """The next records; None when there were none, and the position may have moved all the same."""
        try:
            batch = self._consumer.poll_arrow(timeout=min(_POLL_S, self._patience_s))
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._go_on_after_loss()
            return None
        reached = self._consumer.position(self._partition)
        if reached > self.position:
            self.position = reached
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at > self._patience_s:
            raise BarnabasError(
                f"{name_of(self._partition)}: nothing came at offset {self.position} (until {self._wanted.end}) within "
                f"kafkaConsumer.pollTimeoutMs = {self._patience_s * 1000:.0f}; is the broker overloaded or away?"
            )
        return batch if batch.num_rows else None

    def _go_on_after_loss(self) -> None:
        """The broker does not have what is wanted: deleted from the front, or the partition is another one than before."""
        earliest = self._consumer.beginning_offsets([self._partition])[self._partition]
        if earliest > self.position:
            self._loss.overtaken(self._partition, self.position, min(earliest, self._wanted.end))
            self.position = min(earliest, self._wanted.end)
        else:
            latest = self._consumer.end_offsets([self._partition])[self._partition]
            self._loss.shrunk(self._partition, self.position, latest)
            self.position = self._wanted.end
        self._consumer.seek(self._partition, self.position, self._wanted.end)
        self._moved_at = time.monotonic()


def _rows_before(batch: pa.RecordBatch, end: int) -> int:
    """How many of the rows have an offset before `end`; offsets rise."""
    offsets = batch.column("offset")
    rows: int = batch.num_rows
    if offsets[rows - 1].as_py() < end:
        return rows
    low, high = 0, rows - 1
    while low < high:
        middle = (low + high) // 2
        if offsets[middle].as_py() < end:
            low = middle + 1
        else:
            high = middle
    return low


class _SparkColumns:
    """Makes Spark's columns of the consumer's. What is the same in every row is made once, for as many rows as the largest batch had."""

    def __init__(self, wanted: OffsetRange, headers: bool) -> None:
        self._topic = wanted.topic
        self._headers = headers
        self._schema = arrow_schema(headers)
        self._topics: Any = None

    def of(self, batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        """The first `rows` of a batch."""
        import pyarrow as pa

        if rows < batch.num_rows:
            batch = batch.slice(0, rows)
        columns: list[Any] = [
            batch.column("key"),
            batch.column("value"),
            self._topic_column(rows),
            batch.column("partition"),
            batch.column("offset"),
            batch.column("timestamp").cast(self._schema.field("timestamp").type),
            batch.column("timestamp_type").cast(pa.int32()),
        ]
        if self._headers:
            columns.append(batch.column("headers").cast(self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _topic_column(self, rows: int) -> Any:
        import pyarrow as pa

        if self._topics is None or len(self._topics) < rows:
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), rows)
        return self._topics.slice(0, rows)
