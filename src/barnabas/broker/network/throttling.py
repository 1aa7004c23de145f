"""Runs a callback after a delay: the end of a channel's throttling (RP-39).

Role:    `schedule(delay_ms, callback)` for a broker that has no other timer; the purgatory's timer has the same form.
Thread:  `schedule` from any; the callbacks run on `barnabas-throttled-channel-reaper`, in order of their time.
Lock:    `_changed` guards the heap and is never held while a callback runs.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from barnabas.clock import Clock, SystemClock
from barnabas.threads import FatalHandler, ServerThread

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 1.0


class ThrottledChannelReaper(ServerThread):
    """One thread for all throttled channels. What is still waiting at shutdown is run at once, so that nobody stays muted."""

    def __init__(self, clock: Clock | None = None, on_fatal: FatalHandler | None = None) -> None:
        super().__init__("barnabas-throttled-channel-reaper", on_fatal)
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> None:
        due_ns = self._clock.monotonic_ns() + delay_ms * 1_000_000
        with self._changed:
            heapq.heappush(self._waiting, (due_ns, next(self._order), callback))
            self._changed.notify()

    def run_once(self) -> None:
        """Wait for the next due time, then run what is due."""
        with self._changed:
            if not self._take_due():
                self._changed.wait(self._seconds_to_next())
            due = self._due_now()
        for callback in due:
            self._run_callback(callback)

    def _take_due(self) -> bool:
        return bool(self._waiting) and self._waiting[0][0] <= self._clock.monotonic_ns()

    def _seconds_to_next(self) -> float:
        if not self.running:
            return 0.0
        if not self._waiting:
            return MAX_WAIT_SECONDS
        return min(MAX_WAIT_SECONDS, max(0.0, (self._waiting[0][0] - self._clock.monotonic_ns()) / 1e9))

    def _due_now(self) -> list[Callable[[], None]]:
        due = []
        while self._take_due():
            due.append(heapq.heappop(self._waiting)[2])
        return due

    def _run_callback(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("the end of a throttling failed")

    def wakeup(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def on_stop(self) -> None:
        with self._changed:
            left, self._waiting = sorted(self._waiting), []
        for _, _, callback in left:
            self._run_callback(callback)

    def __len__(self) -> int:
        return len(self._waiting)
