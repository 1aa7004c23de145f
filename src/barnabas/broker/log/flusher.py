"""The flusher: brings logs to the disk, for those who wait and for those who do not (RP-41).

Role: one thread, many waiters. A request that needs its bytes on disk registers with its log and asks here; while one flush runs, more
requests gather, and the next flush serves all of them (group commit). Besides, every log is flushed at least once per
`log.flush.interval.ms`. No lock is held while the disk works. A failed flush takes the log directory offline and is never tried again:
after a failed fsync the kernel may have dropped the pages, and a second one would lie.
Thread: its own, `barnabas-log-flusher`; `request` from any thread. Lock: `_wanted_lock` guards the logs that were asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.clock import Clock
from barnabas.metrics import Histogram
from barnabas.threads import FatalHandler, ServerThread

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog

_LONGEST_WAIT_SECONDS = 0.5
_SHORTEST_WAIT_SECONDS = 0.001
_NS_PER_MS = 1_000_000


class FlushStats:
    """How many flushes there were and how long they took, in nanoseconds. Any thread may record."""

    __slots__ = ("_lock", "histogram")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.histogram = Histogram()

    @property
    def count(self) -> int:
        return self.histogram.count

    def record(self, nanoseconds: int) -> None:
        with self._lock:
            self.histogram.record(nanoseconds)

    def __repr__(self) -> str:
        return f"FlushStats({self.histogram!r})"


class Flusher(ServerThread):
    """Flushes what was asked for at once, and everything else in its interval."""

    def __init__(
        self,
        clock: Clock,
        interval_ms: int,
        logs: Callable[[], Iterable[PartitionLog]],
        dirs: Callable[[], Iterable[LogDir]],
        on_fatal: FatalHandler | None = None,
    ) -> None:
        super().__init__("barnabas-log-flusher", on_fatal)
        self.interval_ms = interval_ms
        self._clock = clock
        self._logs = logs
        self._dirs = dirs
        self._wanted_lock = threading.Lock()
        self._wanted: dict[PartitionLog, None] = {}
        self._signal = threading.Event()

    def request(self, log: PartitionLog) -> None:
        """Flush this log as soon as possible."""
        with self._wanted_lock:
            self._wanted[log] = None
        self._signal.set()

    def wakeup(self) -> None:
        self._signal.set()

    def run_once(self) -> None:
        self._signal.wait(min(_LONGEST_WAIT_SECONDS, max(_SHORTEST_WAIT_SECONDS, self.interval_ms / 1000)))
        self.flush_now()

    def flush_now(self) -> None:
        """One turn without waiting."""
        self._signal.clear()
        for directory in self._dirs():
            directory.refuse_if_failed()
        self._flush_wanted()
        self._flush_due()
        for directory in self._dirs():
            directory.refuse_if_failed()

    def _flush_wanted(self) -> None:
        with self._wanted_lock:
            wanted, self._wanted = self._wanted, {}
        for log in wanted:
            log.flush()

    def _flush_due(self) -> None:
        """Logs with something new whose interval is over; a log that nobody writes to costs a comparison."""
        now = self._clock.monotonic_ns()
        for log in self._logs():
            if log.log_end_offset != log.durable_offset:
                interval = min(self.interval_ms, log.config.flush_ms) * _NS_PER_MS
                if now - log.last_flush_ns >= interval:
                    log.flush()
                    self._flush_wanted()  # nobody who waits is kept for a whole round

    def on_stop(self) -> None:
        self.flush_now()
