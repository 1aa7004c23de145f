"""The log cleaner: chooses the dirtiest log and has it compacted, again and again.

Role: owns the cleaner threads, knows what is being cleaned, what cannot be, and how far each log is clean (Kafka's LogCleaner and
LogCleanerManager). The work on one log is compaction.py's.
Thread: `barnabas-log-cleaner-<n>`, `log.cleaner.threads` of them; `reconfigure` and the figures from any thread.
Lock: `_resizing` makes one start or reconfiguration at a time, a stop does not take it; `_lock` guards the threads and what is in
progress or set aside, held for a few look-ups.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.log.cleanable import DirtyLog, look_at
from barnabas.broker.log.compaction import CleaningAborted, CleaningLimits, CleaningStats, Compaction
from barnabas.broker.log.config import MAX_LONG, CleanerSettings
from barnabas.broker.log.files import FileSystem, may_pass
from barnabas.broker.log.pacing import Pacer, Throttle
from barnabas.broker.log.places import CorruptLog
from barnabas.clock import Clock, SharedTimeout
from barnabas.threads import FatalHandler, ServerThread, wait_seconds

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000
_STOP_SECONDS = 30.0
_REMEDY = "barnabas log repair --drop-damaged"


class CleanerFigures:
    """What the metrics show; written by the cleaners, read on scrape."""

    def __init__(self, now_ns: int) -> None:
        self.last_run_ns = now_ns
        self.max_dirty_ratio = 0.0
        self.max_delay_ms = 0
        self.cleanings = 0
        self.last = CleaningStats()
        self.last_seconds = 0.0


class LogCleaner:
    """All cleaners of the broker. Thread-safe."""

    def __init__(
        self,
        settings: CleanerSettings,
        clock: Clock,
        files: FileSystem,
        logs: Callable[[], Iterable[PartitionLog]],
        dirs: Callable[[], Iterable[LogDir]],
        on_fatal: FatalHandler | None = None,
    ) -> None:
        self.settings = settings
        self.figures = CleanerFigures(clock.monotonic_ns())
        self._clock = clock
        self._files = files
        self._logs = logs
        self._dirs = dirs
        self._on_fatal = on_fatal
        self._throttle = Throttle(clock, settings.max_bytes_per_second)
        self._lock = threading.Lock()
        self._in_progress: set[PartitionLog] = set()
        self._uncleanable: dict[PartitionLog, str] = {}
        self._set_aside: dict[PartitionLog, int] = {}
        """Logs that could not be cleaned for want of room or descriptors, and when to try again."""
        self._resizing = threading.Lock()
        self._threads: list[_CleanerThread] = []
        self._running = False

    # Start and stop.

    def start(self) -> None:
        with self._lock:
            self._running = True
        self.reconfigure(self.settings)

    def shutdown(self, timeout: float = _STOP_SECONDS) -> None:
        """A cleaning in progress is given up; nothing of it is left but what it had swapped in."""
        with self._lock:
            self._running = False
            threads, self._threads = self._threads, []
        self._end(threads, timeout)

    def reconfigure(self, settings: CleanerSettings) -> None:
        """New settings at run time (log.cleaner.*). When a thread cannot be started, that is raised, and those that run stay."""
        with self._resizing:
            self.settings = settings
            self._throttle.set_rate(settings.max_bytes_per_second)
            count = settings.threads if settings.enabled else 0
            while (thread := self._new_thread(count)) is not None:
                self._start(thread)
            with self._lock:
                surplus, rest = self._threads[count:], self._threads[:count]
                self._threads = rest
            for thread in rest:
                thread.wakeup()
            self._end(surplus, _STOP_SECONDS)

    def _new_thread(self, count: int) -> _CleanerThread | None:
        """One that is still to be started; None when there are enough, or when the cleaner has stopped."""
        with self._lock:
            number = len(self._threads)
            if not self._running or number >= count:
                return None
            thread = _CleanerThread(f"barnabas-log-cleaner-{number}", self, self._on_fatal)
            self._threads.append(thread)
            return thread

    def _start(self, thread: _CleanerThread) -> None:
        """Without the lock: a stop does not wait for it."""
        try:
            thread.start()
        except BaseException:
            with self._lock:
                if thread in self._threads:
                    self._threads.remove(thread)
            raise

    def _end(self, threads: list[_CleanerThread], timeout: float) -> None:
        patience = SharedTimeout(self._clock, timeout)
        for thread in threads:
            thread.initiate_shutdown()
        for thread in threads:
            thread.await_shutdown(patience.left)

    # Cleaning.

    def clean_dirtiest(self, stopped: Callable[[], bool], wait: Callable[[float], object]) -> bool:
        """Clean one log, if one wants it; whether there was one."""
        dirty = self._choose()
        if dirty is None:
            return False
        target = dirty.log
        pacer = Pacer(self._clock, self._throttle, lambda: stopped() or not target.available, wait)
        try:
            self._clean(dirty, pacer)
        except CleaningAborted as reason:
            log.info("cleaning of %s was given up: %s", target.name, reason)
        except OSError as error:
            self._disk_failed(target, error)
        except Exception as error:
            self._mark_uncleanable(target, error)
        finally:
            with self._lock:
                self._in_progress.discard(target)
        return True

    def _choose(self) -> DirtyLog | None:
        """The dirtiest log of those that want cleaning, and mark it as in progress."""
        now_ms, now_ns = self._clock.wall_ms(), self._clock.monotonic_ns()
        self.figures.last_run_ns = now_ns
        dirty_logs = [dirty for each in self._candidates(now_ns) if (dirty := self._look_at(each, now_ms)) is not None]
        self.figures.max_dirty_ratio = max((dirty.dirty_ratio for dirty in dirty_logs), default=0.0)
        self.figures.max_delay_ms = max((dirty.delay_ms for dirty in dirty_logs), default=0)
        wanting = sorted((each for each in dirty_logs if each.wants_cleaning), key=lambda each: each.dirty_ratio)
        with self._lock:
            while wanting:
                dirtiest = wanting.pop()
                if dirtiest.log not in self._in_progress:  # another cleaner may have been faster
                    self._in_progress.add(dirtiest.log)
                    return dirtiest
        return None

    def _candidates(self, now_ns: int) -> list[PartitionLog]:
        logs = [each for each in self._logs() if each.config.compacted and each.available]
        with self._lock:
            self._forget_gone({*logs})
            return [
                each
                for each in logs
                if each not in self._in_progress
                and each not in self._uncleanable
                and self._set_aside.get(each, 0) <= now_ns
            ]

    def _forget_gone(self, logs: set[PartitionLog]) -> None:
        for kept in (self._uncleanable, self._set_aside):
            for gone in kept.keys() - logs:
                kept.pop(gone, None)

    def _look_at(self, target: PartitionLog, now_ms: int) -> DirtyLog | None:
        try:
            if target.config.max_compaction_lag_ms < MAX_LONG:
                oldest = now_ms - target.config.max_compaction_lag_ms
                target.roll_when(lambda _end, active: 0 <= active.first_timestamp() < oldest)
            directory = self._dir_of(target)
            checkpoint = directory.clean_offset(target)
            dirty = look_at(target, checkpoint, now_ms)
            if checkpoint is not None and dirty.first_dirty != checkpoint:
                directory.set_clean_offset(target, dirty.first_dirty)  # it cannot be: said once, then put right
            return dirty
        except OSError as error:
            self._disk_failed(target, error)
        except Exception as error:
            self._mark_uncleanable(target, error)
        return None

    def _clean(self, dirty: DirtyLog, pacer: Pacer) -> None:
        began = self._clock.monotonic_ns()
        settings = self.settings
        limits = CleaningLimits(
            settings.dedupe_buffer_size // settings.threads,
            settings.load_factor,
            max(1, settings.io_buffer_size // settings.threads // 2),
        )
        compaction = Compaction(dirty, self._files, limits, self._clock.wall_ms(), pacer)
        end = compaction.run()
        self._dir_of(dirty.log).set_clean_offset(dirty.log, end)
        seconds = (self._clock.monotonic_ns() - began) / 1e9
        self._note(dirty, end, compaction.stats, seconds)

    def _note(self, dirty: DirtyLog, end: int, stats: CleaningStats, seconds: float) -> None:
        self.figures.last, self.figures.last_seconds = stats, seconds
        self.figures.cleanings += 1
        log.info(
            "cleaned %s up to offset %d in %.1f s: %d of %d records and %d of %d bytes are left, the map was %.0f %% full",
            dirty.log.name,
            end,
            seconds,
            stats.records_written,
            stats.records_read,
            stats.bytes_written,
            stats.bytes_read,
            100 * stats.map_utilization,
        )
        if stats.records_without_key:
            log.warning("%s had %d records without a key; they were dropped", dirty.log.name, stats.records_without_key)

    # What goes wrong.

    def _disk_failed(self, target: PartitionLog, error: OSError) -> None:
        if not target.available:
            return  # deleted meanwhile: its files are gone
        if may_pass(error):
            log.warning("%s cannot be cleaned now: %s", target.name, error)
            with self._lock:
                self._set_aside[target] = self._clock.monotonic_ns() + self.settings.backoff_ms * _NS_PER_MS
        else:
            self._dir_of(target).fail(error)

    def _mark_uncleanable(self, target: PartitionLog, error: Exception) -> None:
        if isinstance(error, CorruptLog):  # the place says all there is to know, and a traceback would not
            text = "%s cannot be cleaned and is left as it is until the next start: %s; stop the broker and run `%s %s`"
            log.error(text, target.name, error, _REMEDY, target.directory)
        else:
            text = "%s cannot be cleaned and is left as it is until the next start: %s"
            log.error(text, target.name, error, exc_info=error)
        with self._lock:
            self._uncleanable[target] = str(error)

    def _dir_of(self, target: PartitionLog) -> LogDir:
        return next(directory for directory in self._dirs() if directory.path == target.log_dir)

    # Figures, from any thread.

    @property
    def dead_threads(self) -> int:
        return sum(not thread.is_alive() for thread in self._threads)

    def uncleanable(self) -> dict[PartitionLog, str]:
        """Logs that cannot be cleaned, and why."""
        with self._lock:
            return dict(self._uncleanable)

    def uncleanable_count(self, directory: LogDir) -> int:
        return sum(each.log_dir == directory.path for each in self.uncleanable())

    def uncleanable_bytes(self, directory: LogDir) -> int:
        """Bytes that should be cleaned and cannot, in one directory."""
        now_ms = self._clock.wall_ms()
        logs = [each for each in self.uncleanable() if each.log_dir == directory.path and each.available]
        return sum(look_at(each, directory.clean_offset(each), now_ms).dirty_bytes for each in logs)

    def milliseconds_since_last_run(self) -> float:
        return (self._clock.monotonic_ns() - self.figures.last_run_ns) / _NS_PER_MS

    def __repr__(self) -> str:
        return f"<LogCleaner {len(self._threads)} threads, {self.figures.cleanings} cleanings>"


class _CleanerThread(ServerThread):
    """Cleans while something is dirty, then waits for `log.cleaner.backoff.ms`."""

    def __init__(self, name: str, owner: LogCleaner, on_fatal: FatalHandler | None) -> None:
        super().__init__(name, on_fatal)
        self._owner = owner
        self._signal = threading.Event()

    def wakeup(self) -> None:
        self._signal.set()

    def run_once(self) -> None:
        cleaned = self._owner.clean_dirtiest(lambda: not self.running, self._stop_requested.wait)
        if not cleaned:
            self._signal.wait(wait_seconds(self._owner.settings.backoff_ms))
            self._signal.clear()
