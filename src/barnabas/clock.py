"""Clocks: the only place where time is read, so that tests can drive it.

Role: monotonic time for every deadline, idle limit, quota and metric; wall-clock time only for record timestamps.
Thread: any. Lock: `ManualClock` guards its own value; `SystemClock` has no state.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What every component asks for the time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; only differences mean anything."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps have them; may jump."""
        ...


class SystemClock:
    """The operating system's clocks, bound directly: reading them is one C call."""

    __slots__ = ()

    monotonic_ns = staticmethod(time.monotonic_ns)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"


class SharedTimeout:
    """A time that several waits share, one after the other. What comes late still gets as long as a thread with nothing to do needs."""

    __slots__ = ("_clock", "_deadline_ns", "_least")

    def __init__(self, clock: Clock, seconds: float, least: float = 1.0) -> None:
        self._clock = clock
        self._least = min(seconds, least)
        self._deadline_ns = clock.monotonic_ns() + round(seconds * 1e9)

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self._least, (self._deadline_ns - self._clock.monotonic_ns()) / 1e9)


class ManualClock:
    """A clock that stands still until a test advances it. Thread-safe."""

    __slots__ = ("_lock", "_monotonic_ns", "_wall_ms")

    def __init__(self, monotonic_ns: int = 1_000_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._monotonic_ns = monotonic_ns
        self._wall_ms = wall_ms

    def monotonic_ns(self) -> int:
        with self._lock:
            return self._monotonic_ns

    def wall_ms(self) -> int:
        with self._lock:
            return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Let both clocks move forward by `seconds`."""
        with self._lock:
            self._monotonic_ns += round(seconds * 1e9)
            self._wall_ms += round(seconds * 1e3)

    def jump_wall(self, seconds: float) -> None:
        """Let only the wall clock jump, forward or back, as an NTP step does."""
        with self._lock:
            self._wall_ms += round(seconds * 1e3)

    def __repr__(self) -> str:
        return f"ManualClock(monotonic_ns={self._monotonic_ns}, wall_ms={self._wall_ms})"
