"""At least once: a task is done when the brokers have acknowledged all its rows.

Role: the commit protocol of `deliveryGuarantee=at-least-once`. The producer is idempotent, so that its own retries double nothing; a
task or a batch that Spark runs again writes its rows again. There is nothing to do on the driver.
Thread: the task's. Lock: none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.spark.sink.commit_protocol import CommitProtocol, TaskDone, TaskIdentity, TaskOutput
from barnabas.spark.sink.errors import WriteFailed
from barnabas.spark.sink.producers import of_this_process

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.producer.arrow import TableFuture

__all__ = ["AtLeastOnce"]


class AtLeastOnce(CommitProtocol):
    """See the file header."""

    def __init__(self, producer_settings: Mapping[str, str]) -> None:
        self._settings = dict(producer_settings)

    def open_task(self, task: TaskIdentity) -> TaskOutput:
        return _Output(self._settings, task)

    def commit(self, done: Sequence[TaskDone], batch_id: int | None) -> None:
        """Nothing: what a task reported was acknowledged."""

    def abort(self, done: Sequence[TaskDone], batch_id: int | None) -> None:
        """Nothing: written rows stay, and come again when the job is run again."""


class _Output(TaskOutput):
    def __init__(self, settings: Mapping[str, str], task: TaskIdentity) -> None:
        self._task = task
        self._rows = 0
        self._waiting: deque[tuple[str, TableFuture]] = deque()
        self._settings = settings
        with WriteFailed.told_by(task, "the producer cannot be made"):
            self._producer = of_this_process.take(settings)

    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        self._look_at_outcomes()
        with WriteFailed.told_by(self._task, f"rows for topic {topic} cannot be sent"):
            self._waiting.append((topic, self._producer.send_arrow(topic, rows)))
        self._rows += rows.num_rows

    def _look_at_outcomes(self) -> None:
        """Forget what was written, and fail soon when something was not: the futures of a task stay few."""
        while self._waiting and self._waiting[0][1].done():
            self._check(*self._waiting.popleft())

    def _check(self, topic: str, future: TableFuture) -> None:
        failure = future.failure()
        if failure is not None:
            where, error = failure
            raise WriteFailed(self._task, f"{where.count} rows for {topic}-{where.partition} were not written", error)

    def finish(self) -> TaskDone:
        self._producer.flush()  # ends: every record has an outcome by delivery.timeout.ms
        while self._waiting:
            self._check(*self._waiting.popleft())
        return TaskDone(self._task.partition, self._task.attempt, self._rows)

    def close(self, failed: bool) -> None:
        if failed:
            self._producer.close(0)
        else:
            of_this_process.keep(self._settings, self._producer)
