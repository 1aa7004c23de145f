"""What share of its time a thread spends in one state: idle (RP-32) or blocked (RP-6).

Role:    the thread adds the nanoseconds it spent; whoever reads gets the share over the last minute or so.
Thread:  `add` belongs to one thread, `share` to any.
Lock:    `_lock` guards the readers' samples; the writer takes none.
"""

from __future__ import annotations

import threading
from collections import deque

from barnabas.clock import Clock, SystemClock

WINDOW_NS = 60_000_000_000
SAMPLE_EVERY_NS = 1_000_000_000


class TimeShare:
    """A running total of nanoseconds, read as a share of elapsed time between 0 and 1."""

    __slots__ = ("_clock", "_lock", "_samples", "total_ns")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.total_ns = 0
        self._samples: deque[tuple[int, int]] = deque([(self._clock.monotonic_ns(), 0)])

    def add(self, ns: int) -> None:
        self.total_ns += ns

    def share(self) -> float:
        """The share since the oldest sample of the window; readers leave the samples, at most one a second."""
        now, total = self._clock.monotonic_ns(), self.total_ns
        with self._lock:
            samples = self._samples
            while len(samples) > 1 and now - samples[0][0] > WINDOW_NS:
                samples.popleft()
            since, before = samples[0]
            if now - samples[-1][0] >= SAMPLE_EVERY_NS:
                samples.append((now, total))
        if now <= since:
            return 0.0
        return min(1.0, (total - before) / (now - since))

    def __repr__(self) -> str:
        return f"TimeShare(total_ns={self.total_ns})"
