"""How fast a cleaner may go.

Role: after each piece of work the cleaner stops by here: it ends when it shall, keeps to `log.cleaner.io.max.bytes.per.second`, and
lets others have the processor: cleaning is never urgent, requests are. Under the GIL a thread that computes makes every other one wait for
up to a switch interval each time that one wakes, so a cleaner works in short turns and sleeps between them.
Thread: `Pacer` belongs to one cleaner, `Throttle` is shared by all. Lock: `Throttle._lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.broker.log.compaction import CleaningAborted
from barnabas.clock import Clock

TURN_NS = 4_000_000
PAUSE_SECONDS = 0.002
_NS = 1_000_000_000
_LONGEST_WAIT_SECONDS = 0.3


class Throttle:
    """Bytes per second, reads and writes together, over all cleaners."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0

    def set_rate(self, bytes_per_second: float) -> None:
        """Another rate from now on; what was to be waited for at the old one is forgotten."""
        with self._lock:
            if bytes_per_second != self.bytes_per_second:
                self.bytes_per_second = bytes_per_second
                self._free_at = 0

    def delay_ns(self, size: int) -> int:
        """Account for some bytes; how long to wait now so that the rate is kept."""
        now = self._clock.monotonic_ns()
        with self._lock:
            cost = int(size / self.bytes_per_second * _NS)
            self._free_at = max(self._free_at, now) + cost
            return self._free_at - now


class Pacer:
    """Called with the bytes of each piece of work; raises CleaningAborted when `stopped` says so."""

    def __init__(
        self, clock: Clock, throttle: Throttle, stopped: Callable[[], bool], wait: Callable[[float], object]
    ) -> None:
        self._clock = clock
        self._throttle = throttle
        self._stopped = stopped
        self._wait = wait
        self._turn_began = clock.monotonic_ns()

    def __call__(self, size: int) -> None:
        self._check()
        delay = self._throttle.delay_ns(size)
        now = self._clock.monotonic_ns()
        if now - self._turn_began >= TURN_NS:
            self._wait(PAUSE_SECONDS)
            self._turn_began = self._clock.monotonic_ns()
        self._wait_until(now + delay)

    def _wait_until(self, deadline: int) -> None:
        """Or until the rate is another one."""
        rate = self._throttle.bytes_per_second
        while (left := deadline - self._clock.monotonic_ns()) > TURN_NS and self._throttle.bytes_per_second == rate:
            self._wait(min(left / _NS, _LONGEST_WAIT_SECONDS))
            self._check()
            self._turn_began = self._clock.monotonic_ns()

    def _check(self) -> None:
        if self._stopped():
            raise CleaningAborted("the cleaner stops")
