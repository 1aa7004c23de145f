"""Bringing one log to the disk: its batches, its names, and the word to those who wait (RP-41).

Role: what a flush does, in which order, and what it tells the appender about the next ones.
Thread: `flush` on the flusher's, or on a processor's that commits for itself; `on_durable` on request threads.
Lock: the log's `_maintenance` all through a flush, its append lock only to look at what there is; see partition_log.py.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from barnabas.broker.log.flusher import SLOW_FLUSH_NS
from barnabas.broker.log.segment import FILL_LIMIT, Segment
from barnabas.broker.log.waiters import DurableCallback, DurableWaiters

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog


class Durability:
    """What of one log is on disk. Thread-safe."""

    __slots__ = (
        "_dir",
        "_lock",
        "_log",
        "_maintenance",
        "begins_early",
        "fills",
        "last_flush_ns",
        "names_changed",
        "waiters",
    )

    def __init__(
        self, log: PartitionLog, log_dir: LogDir, locks: tuple[threading.Lock, threading.Lock], durable: int
    ) -> None:
        self._log = log
        self._dir = log_dir
        self._maintenance, self._lock = locks
        self.waiters = DurableWaiters(durable)
        self.fills = False
        """Whether batches go where zeros are: flushes bring little."""
        self.begins_early = False
        """Whether the disk begins before the flush: flushes bring much."""
        self.names_changed = True
        """Nobody knows what of the names a crash would leave: the first flush syncs them."""
        # What a killed broker had not flushed is due at once: its interval began long before this start.
        self.last_flush_ns = log_dir.clock.monotonic_ns() if log.log_end_offset == durable else 0

    def on_durable(self, offset: int, callback: DurableCallback) -> None:
        """Call back once everything below `offset` is on disk, with NONE, or with the error when it cannot be."""
        if self.waiters.add(offset, callback):
            self._dir.flusher.request(self._log)

    def flush(self) -> bool:
        """Bring everything that is written now to the disk; a failed sync takes the log directory offline, for ever. False when something
        may not be there: the disk failed, or the broker stops and has no more time."""
        with self._maintenance:
            if not self._log.available or self._dir.offline:
                return False
            with self._lock:
                end, active, size = self._log.tail()
                complete = [segment for segment in self._log.segments if not segment.synced and segment is not active]
                if end == self.waiters.durable and not complete:
                    return True  # nothing new; a name alone, of an empty segment, need not be durable
                new, waiting = active.note_flush(size), self.waiters.waiting
                self.fills = waiting and new < FILL_LIMIT
            began = self._dir.clock.monotonic_ns()
            try:
                if not self._sync(active, complete):
                    return False
            except OSError as error:
                self._dir.note_error(error)
                return False
            self.last_flush_ns = ended = self._dir.clock.monotonic_ns()
            self._dir.flush_stats.record(ended - began)
            self.begins_early = waiting and new >= FILL_LIMIT and ended - began < SLOW_FLUSH_NS
        self.waiters.complete(end)
        return True

    def _sync(self, active: Segment, complete: list[Segment]) -> bool:
        """False when the time of a stop is up in between; the segments that were synced by then need no other sync."""
        for segment in complete:
            if self._dir.time_is_up:
                return False
            segment.sync()
        if self._dir.time_is_up:
            return False
        active.sync_data()
        if self._log.epochs.changed:
            self._dir.write_epochs(self._log.directory, self._log.epochs)
        self.sync_names()
        return True

    def sync_names(self) -> None:
        """Everything by which a start finds this log and knows it as this topic's; under `_maintenance`."""
        with self._lock:
            changed, self.names_changed = self.names_changed, False
        try:
            self._dir.sync_names(self._log.directory if changed else None)
        except OSError:
            self.names_changed = True
            raise

    def __repr__(self) -> str:
        return f"Durability({self._log.name}, {self.waiters})"
