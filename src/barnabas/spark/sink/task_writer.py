"""Arrow batches of a task to topics, without an object per row.

Role: picks the columns, splits batches by topic where rows name theirs, and hands them to the protocol's output.
Thread: the task's. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.sink.columns import TOPIC, SinkColumns
from barnabas.spark.sink.commit_protocol import CommitProtocol, TaskDone, TaskIdentity
from barnabas.spark.sink.errors import WriteFailed

__all__ = ["write_task"]


def write_task(
    protocol: CommitProtocol, columns: SinkColumns, task: TaskIdentity, batches: Iterable[pa.RecordBatch]
) -> TaskDone:
    """Write all rows of a task; whatever goes wrong, nothing of it stays in this process."""
    with protocol.open_task(task) as output:
        for batch in batches:
            for topic, rows in _by_topic(batch, columns, task):
                output.send(topic, rows)
        return output.finish()


def _by_topic(batch: pa.RecordBatch, columns: SinkColumns, task: TaskIdentity) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
    if batch.num_rows == 0:
        return
    rows = _with_milliseconds(batch.select(columns.sent))
    if columns.topic is not None:
        yield columns.topic, rows
        return
    topics = batch.column(TOPIC)
    if topics.null_count:
        raise WriteFailed(
            task, "a row has no topic (null in the column topic); set the option topic, or filter such rows"
        )
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    # The sort is stable, so that the rows of a topic keep their order.
    rows = rows.take(pc.sort_indices(encoded.indices))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(encoded.indices).to_pylist()}
    start = 0
    for number, name in enumerate(names):
        yield name, rows.slice(start, counts[number])
        start += counts[number]


def _with_milliseconds(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A column timestamp of doubles has seconds, as Spark casts them; what is no number is no time."""
    at = rows.schema.get_field_index("timestamp")
    if at < 0 or not pa.types.is_floating(rows.schema.field(at).type):
        return rows
    seconds = rows.column(at)
    known = pc.if_else(pc.is_finite(seconds), seconds, pa.scalar(None, seconds.type))
    return rows.set_column(at, "timestamp", pc.floor(pc.multiply(known, 1000.0)).cast(pa.int64()))
