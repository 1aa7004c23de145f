"""How the rows of tasks become part of a topic for good: the interface between the writer and a delivery guarantee.

Role: a protocol is pickled with the writer. In a task it opens a `TaskOutput`, which takes rows and ends with the message for the
driver; on the driver it is given the messages of all tasks. `at_least_once.py` has nothing left to do there. An exactly-once protocol
leaves a transaction open in the task, names it in its own kind of `TaskDone`, and ends it in `commit`; the writer stays the same.
Thread: the task's, or the driver's. Lock: none.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CommitProtocol", "TaskDone", "TaskIdentity", "TaskOutput"]

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which task of which query this is: what replays of the same batch have in common, and what tells them apart."""

    query_id: str | None
    batch_id: int | None
    partition: int
    attempt: int

    @classmethod
    def current(cls) -> TaskIdentity:
        """The task that this Python worker runs now."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a sink writes inside a Spark task only")
        batch = context.getLocalProperty(_BATCH_ID)
        return cls(
            query_id=context.getLocalProperty(_QUERY_ID),
            batch_id=None if batch is None else int(batch),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
        )

    def __str__(self) -> str:
        batch = "" if self.batch_id is None else f" of batch {self.batch_id}"
        return f"task {self.partition}{batch} (attempt {self.attempt}, process {os.getpid()} on {socket.gethostname()})"


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver when all its rows are written."""

    partition: int
    attempt: int
    rows: int


class TaskOutput(ABC):
    """Takes the rows of one task. As a context: when the block fails, nothing of the task stays behind in this process."""

    @abstractmethod
    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Take rows with the columns of `send_arrow`; may wait for memory, and raises for rows taken earlier that failed."""

    @abstractmethod
    def finish(self) -> TaskDone:
        """Wait until every row has its outcome; raises unless all of them are written."""

    @abstractmethod
    def close(self, failed: bool) -> None:
        """Give back what the task held; `failed`: without waiting for what was not sent yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class CommitProtocol(ABC):
    """One delivery guarantee. `batch_id` is None for `df.write`."""

    @abstractmethod
    def open_task(self, task: TaskIdentity) -> TaskOutput:
        """In the task."""

    @abstractmethod
    def commit(self, done: Sequence[TaskDone], batch_id: int | None) -> None:
        """On the driver: every task is done."""

    @abstractmethod
    def abort(self, done: Sequence[TaskDone], batch_id: int | None) -> None:
        """On the driver: a task failed for good; `done` are those that had finished."""
