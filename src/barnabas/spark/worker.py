"""What outlives a task in a Python worker of Spark: consumers for the next task.

Role: Spark uses a worker for one task after the other, so a micro-batch need not connect anew. A task
takes a consumer out and has it for itself; it comes back only when its range was read to the end, so that nothing is on its way to it. It
has no thread; its sockets go with the worker, which Spark ends when it was idle for a minute, or when the broker's idle limit is over.
Thread: that of the task. Lock: `_lock` guards the list; consumers are made and closed outside of it. A forked child begins with nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from barnabas.consumer.consumer import Consumer

__all__ = ["ConsumerCache", "of_this_process"]

MOST_IDLE = 4
Key = tuple[object, ...]


class ConsumerCache:
    """Consumers that wait for the next task of this process."""

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self._most_idle = most_idle
        self.forget()

    def forget(self) -> None:
        """At the start, and in a forked child: the connections there are the parent's, and its lock may have been held."""
        self._lock = threading.Lock()
        self._idle: list[tuple[Key, Consumer]] = []

    @contextmanager
    def borrow(self, settings: Mapping[str, object], topic: str, topic_id: str | None) -> Iterator[Consumer]:
        """A consumer with these settings that nobody else has. One that waited has read the same topic, by its id: what it knows of a topic
        that was deleted and made anew would be wrong."""
        key = (*sorted(settings.items()), topic, topic_id)
        consumer = self._take(key) or Consumer(settings)
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        self._keep(key, consumer)

    def _take(self, key: Key) -> Consumer | None:
        with self._lock:
            for number, (found, consumer) in enumerate(self._idle):
                if found == key:
                    del self._idle[number]
                    return consumer
        return None

    def _keep(self, key: Key, consumer: Consumer) -> None:
        with self._lock:
            self._idle.append((key, consumer))
            surplus = self._idle[: -self._most_idle]
            del self._idle[: -self._most_idle]
        for _, old in surplus:
            old.close()

    def close(self) -> None:
        """Close every consumer that waits."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, consumer in idle:
            consumer.close()

    def __len__(self) -> int:
        return len(self._idle)


of_this_process = ConsumerCache()
os.register_at_fork(after_in_child=of_this_process.forget)
