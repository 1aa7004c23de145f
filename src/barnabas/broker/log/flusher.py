"""The flusher: brings logs to the disk, for those who wait and for those who do not (RP-41).

Role: one thread, many waiters. A request that needs its bytes on disk registers with its log and asks here; while one flush runs, more
requests gather, and the next flush serves all of them (group commit). Besides, every log is flushed at least once per
`log.flush.interval.ms`. No lock is held while the disk works. A failed flush takes the log directory offline and is never tried again:
after a failed fsync the kernel may have dropped the pages, and a second one would lie.
Thread: its own, `barnabas-log-flusher`; `request` from any thread. Lock: `_wanted_lock` guards the logs that were asked for and whether
the bell was rung. The bell is a bare lock, held while nobody wants anything: every request of a producer with durable acks waits for this
thread to wake up, and an Event takes five times as long.
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

_DUE_CHECK_MS = 50
"""How often logs are looked at whose interval may be over; more often when the interval is shorter."""
_NS_PER_MS = 1_000_000
SLOW_FLUSH_NS = 5_000_000
"""After a flush that took longer, threads with other work leave the disk to the flusher for a while."""
_COMMIT_PAUSE_FACTOR = 10
"""For so many times as long as the flush took: one that met a busy disk by chance costs little, a slow disk is left alone."""
_LONGEST_COMMIT_PAUSE_NS = 1_000_000_000


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
        """May be set from any thread."""
        self._clock = clock
        self._logs = logs
        self._dirs = dirs
        self._wanted_lock = threading.Lock()
        self._wanted: dict[PartitionLog, None] = {}
        self._bell = threading.Lock()
        self._bell.acquire()
        self._rung = False
        self._due_from_ns = 0
        self._committers: frozenset[int] = frozenset()
        self._commit_from_ns = 0

    def request(self, log: PartitionLog) -> None:
        """Flush this log as soon as possible: by the calling thread, if it has joined, when it commits; else by this one."""
        with self._wanted_lock:
            self._wanted[log] = None
            if threading.get_ident() not in self._committers or self._clock.monotonic_ns() < self._commit_from_ns:
                self._ring()

    # Threads that commit for themselves: a good disk is quicker than waking another thread and being woken by it.

    @property
    def wanted(self) -> bool:
        return bool(self._wanted) and self._clock.monotonic_ns() >= self._commit_from_ns

    def join(self) -> None:
        with self._wanted_lock:
            self._committers |= {threading.get_ident()}

    def leave(self) -> None:
        with self._wanted_lock:
            self._committers -= {threading.get_ident()}
            self._ring()

    def commit(self) -> None:
        """Flush what was asked for, on the calling thread. When the disk is slow, this is left to the flusher for a while."""
        began = self._clock.monotonic_ns()
        self._flush_wanted()
        ended = self._clock.monotonic_ns()
        if ended - began > SLOW_FLUSH_NS:
            self._commit_from_ns = ended + min(_COMMIT_PAUSE_FACTOR * (ended - began), _LONGEST_COMMIT_PAUSE_NS)
            self.wakeup()

    def wakeup(self) -> None:
        with self._wanted_lock:
            self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.release()

    def run_once(self) -> None:
        if self._bell.acquire(True, self._due_check_ms() / 1000):
            with self._wanted_lock:
                self._rung = False
        self._flush_turn(self._clock.monotonic_ns() >= self._due_from_ns)

    def _due_check_ms(self) -> int:
        return max(1, min(_DUE_CHECK_MS, self.interval_ms))

    def flush_now(self) -> None:
        """One turn without waiting."""
        self._flush_turn(True)

    def _flush_turn(self, look_for_due: bool) -> None:
        for directory in self._dirs():
            directory.refuse_if_failed()
        self._flush_wanted()
        if look_for_due:
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
        self._due_from_ns = now + self._due_check_ms() * _NS_PER_MS
        for log in self._logs():
            if log.log_end_offset != log.durable_offset:
                interval = min(self.interval_ms, log.config.flush_ms) * _NS_PER_MS
                if now - log.last_flush_ns >= interval:
                    log.flush()
                    self._flush_wanted()  # nobody who waits is kept for a whole round

    def on_stop(self) -> None:
        self.flush_now()
