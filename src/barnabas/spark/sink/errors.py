"""What a task raises when rows could not be written: which task, what of it, and why.

Role: Spark shows the text of the exception that a task ended with; it must say everything without the log of the executor.
Thread: the task's. Lock: none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from barnabas.client.errors import ClientTimeout
from barnabas.errors import BarnabasError
from barnabas.spark.sink.commit_protocol import TaskIdentity

__all__ = ["WriteFailed"]

_UNREACHABLE = (
    ". Whether the brokers can be reached from this host and from the driver is what "
    "`barnabas doctor spark --bootstrap-server …` finds out"
)


class WriteFailed(BarnabasError):
    """Rows of a task were not written, or it is not known that they were."""

    def __init__(self, task: TaskIdentity, what: str, cause: BaseException | None = None) -> None:
        because = "" if cause is None else f": {type(cause).__name__}: {cause}"
        advice = _UNREACHABLE if type(cause) is ClientTimeout else ""
        super().__init__(f"{task}: {what}{because}{advice}")

    @classmethod
    @contextlib.contextmanager
    def told_by(cls, task: TaskIdentity, what: str) -> Iterator[None]:
        """Errors of the block, with the task and what it was about."""
        try:
            yield
        except (BarnabasError, ValueError, TypeError) as error:
            raise cls(task, what, error) from error
