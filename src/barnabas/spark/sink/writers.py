"""The writers that Spark asks for: one for `df.write`, one for `df.writeStream`.

Role: what is pickled and sent to the tasks; both do the same with one commit protocol. Nothing lives from `write` to `commit` but the
messages: `commit` runs in another process, on a writer that was made anew.
Thread: `write` in a task, `commit` and `abort` on the driver. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.settling import settle
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.commit_protocol import CommitProtocol, TaskDone, TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter"]

Messages = list[WriterCommitMessage | None]


class _TaskSide:
    def __init__(self, protocol: CommitProtocol, columns: SinkColumns) -> None:
        self._protocol = protocol
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        from barnabas.spark.sink.task_writer import write_task

        settle()
        return write_task(self._protocol, self._columns, TaskIdentity.current(), iterator)


class BatchWriter(_TaskSide, DataSourceArrowWriter):
    """Of `df.write`."""

    def commit(self, messages: Messages) -> None:
        settle()
        self._protocol.commit(_done(messages), None)

    def abort(self, messages: Messages) -> None:
        self._protocol.abort(_done(messages), None)


class StreamWriter(_TaskSide, DataSourceStreamArrowWriter):
    """Of `df.writeStream`."""

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        settle()
        self._protocol.commit(_done(messages), batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        self._protocol.abort(_done(messages), batchId)


def _done(messages: Messages) -> list[TaskDone]:
    """Without those that failed, which have no message."""
    return [message for message in messages if isinstance(message, TaskDone)]
