"""Producers that wait for the next task of this Python worker.

Role: Spark uses a worker process for one task after the other, so a micro-batch need not connect anew. A task takes a producer out and
has it for itself; it comes back only when all its records were written. Whatever failed is closed, never kept.
Thread: that of the task, and one timer per producer that waits, which closes it when no task came. Lock: `_lock` guards the dict;
producers are made and closed outside of it. A forked child begins with nothing.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping

from barnabas.producer import Producer

__all__ = ["ProducerCache", "of_this_process"]

IDLE_SECONDS = 60.0
MOST_IDLE = 4

Key = tuple[tuple[str, str], ...]
Idle = tuple[Producer, threading.Timer]


class ProducerCache:
    """See the file header."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS, most_idle: int = MOST_IDLE) -> None:
        self._idle_seconds = idle_seconds
        self._most_idle = most_idle
        self._closes_at_exit = False
        self.forget()

    def take(self, settings: Mapping[str, str]) -> Producer:
        """A producer with these settings that nobody else has: one that waited, or a new one."""
        with self._lock:
            producer, timer = self._idle.pop(_key(settings), (None, None))
        if timer is not None:
            timer.cancel()
        return producer or Producer(settings)

    def keep(self, settings: Mapping[str, str], producer: Producer) -> None:
        """For the next task; the producer must have nothing left to send."""
        key = _key(settings)
        timer = threading.Timer(self._idle_seconds, self._close_idle, (key, producer))
        timer.name = f"barnabas-idle-{producer.client_id}"
        timer.daemon = True
        with self._lock:
            if not self._closes_at_exit:
                # Only now: what is registered later runs earlier, and a producer's own way to end, registered when it was made, complains.
                atexit.register(self.close)
                self._closes_at_exit = True
            surplus = [self._idle.pop(key, None)]
            if len(self._idle) >= self._most_idle:
                surplus.append(self._idle.pop(next(iter(self._idle))))
            self._idle[key] = (producer, timer)
            timer.start()
        _close(found for found in surplus if found is not None)

    def close(self) -> None:
        """Close every producer that waits."""
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        _close(idle)

    def __len__(self) -> int:
        return len(self._idle)

    def _close_idle(self, key: Key, producer: Producer) -> None:
        """The timer's work. A task may have taken the producer a moment ago, or even brought it back: then it is not ours."""
        with self._lock:
            found = self._idle.get(key)
            if found is None or found[0] is not producer or found[1] is not threading.current_thread():
                return
            del self._idle[key]
        producer.close()

    def forget(self) -> None:
        """At the start, and in a forked child: the producers there are the parent's, and its lock may have been held."""
        self._lock = threading.Lock()
        self._idle: dict[Key, Idle] = {}


def _key(settings: Mapping[str, str]) -> Key:
    return tuple(sorted(settings.items()))


def _close(idle: Iterable[Idle]) -> None:
    for producer, timer in idle:
        timer.cancel()
        producer.close()


of_this_process = ProducerCache()
os.register_at_fork(after_in_child=of_this_process.forget)
