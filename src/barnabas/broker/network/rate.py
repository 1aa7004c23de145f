"""A rate over sampled windows, as Kafka measures it for quotas.

Role:    counts events in the last N windows; says how long to wait for the rate to come down to a limit.
Thread:  one at a time; the owner's lock guards it. Lock: none.
"""

from __future__ import annotations

from collections import deque


class SampledRate:
    """Events per second. A young rate is taken over all but one of the windows, so that a burst at the start is no violation
    by itself."""

    __slots__ = ("_count", "_samples", "_window_ns", "_windows", "limit")

    def __init__(self, limit: int, windows: int, window_ns: int) -> None:
        self.limit = limit
        self._windows = windows
        self._window_ns = window_ns
        self._samples: deque[list[int]] = deque()  # [start ns, events], oldest first
        self._count = 0

    def record(self, now_ns: int) -> int:
        """Count an event. Returns the milliseconds to wait when the limit is exceeded, else 0; at most one window."""
        self._add(now_ns, 1)
        rate = self.rate(now_ns)
        if rate <= self.limit:
            return 0
        window_ms = self._window_ns // 1_000_000
        if self.limit <= 0:
            return window_ms
        wait_ms = round((rate - self.limit) / self.limit * self._elapsed_ns(now_ns) / 1e6)
        return max(1, min(window_ms, wait_ms))

    def unrecord(self, now_ns: int) -> None:
        """Take the last event back: it was refused."""
        self._add(now_ns, -1)

    def rate(self, now_ns: int) -> float:
        self._purge(now_ns)
        if not self._samples:
            return 0.0
        return self._count * 1e9 / self._elapsed_ns(now_ns)

    def _add(self, now_ns: int, amount: int) -> None:
        self._purge(now_ns)
        if not self._samples or now_ns - self._samples[-1][0] >= self._window_ns:
            self._samples.append([now_ns, 0])
        self._samples[-1][1] += amount
        self._count += amount

    def _purge(self, now_ns: int) -> None:
        oldest_ns = now_ns - self._windows * self._window_ns
        while self._samples and self._samples[0][0] <= oldest_ns:
            self._count -= self._samples.popleft()[1]

    def _elapsed_ns(self, now_ns: int) -> int:
        elapsed = now_ns - self._samples[0][0]
        missing = self._windows - 1 - elapsed // self._window_ns
        return max(elapsed + max(0, missing) * self._window_ns, self._window_ns)

    def __repr__(self) -> str:
        return f"SampledRate(limit={self.limit}, count={self._count})"
