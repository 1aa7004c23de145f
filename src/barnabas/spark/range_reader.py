"""The executor's part: reads one range of one partition straight into Arrow batches with Spark's columns.

Role: `read_range` yields exactly the records of [start, end), each once, as the consumer's Arrow batches in Spark's types: no Python
object per record. Memory is bounded by the consumer's fetches; the next one is on its way while Spark takes a batch.
Thread: the task's (a Python worker of Spark). Lock: none.
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
from barnabas.spark.offsets import name_of
from barnabas.spark.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReadSettings", "read_range"]

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
    partition = (wanted.topic, wanted.partition)
    with Consumer(settings.client) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)
        position = wanted.start
        patience = time.monotonic() + settings.poll_timeout_s
        while position < wanted.end:
            try:
                batch = consumer.poll_arrow(timeout=_POLL_S)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                position = _after_loss(consumer, wanted, position, settings.loss)
                consumer.seek(partition, min(position, wanted.end))
                continue
            if batch.num_rows:
                yield from _spark_batches(batch, wanted, settings.include_headers)
            reached = consumer.position(partition)
            if reached > position:
                position = reached
                patience = time.monotonic() + settings.poll_timeout_s
            elif time.monotonic() > patience:
                raise BarnabasError(
                    f"{name_of(partition)}: nothing came at offset {position} within "
                    f"kafkaConsumer.pollTimeoutMs = {settings.poll_timeout_s * 1000:.0f}"
                )


def _after_loss(consumer: Consumer, wanted: OffsetRange, position: int, loss: DataLossPolicy) -> int:
    """Where to go on when the broker does not have `position` any more."""
    partition = (wanted.topic, wanted.partition)
    earliest = consumer.beginning_offsets([partition])[partition]
    if earliest > position:
        loss.overtaken(partition, position, min(earliest, wanted.end))
        return earliest
    loss.shrunk(partition, position, consumer.end_offsets([partition])[partition])
    return wanted.end


def _spark_batches(batch: pa.RecordBatch, wanted: OffsetRange, headers: bool) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema(headers)
    rows = batch.num_rows
    if batch.column(2)[rows - 1].as_py() >= wanted.end:
        rows = pc.sum(pc.less(batch.column(2), wanted.end)).as_py()
        batch = batch.slice(0, rows)
    if not rows:
        return
    columns: list[Any] = [
        batch.column("key"),
        batch.column("value"),
        pa.repeat(pa.scalar(wanted.topic, pa.string()), rows),
        batch.column("partition"),
        batch.column("offset"),
        batch.column("timestamp").cast(schema.field("timestamp").type),
        batch.column("timestamp_type").cast(pa.int32()),
    ]
    if headers:
        columns.append(batch.column("headers").cast(schema.field("headers").type))
    yield pa.RecordBatch.from_arrays(columns, schema=schema)
