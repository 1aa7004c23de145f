"""The housekeeper: retention, checkpoints, expiry of producers, and the removal of what was deleted.

Role: everything about the logs that nobody waits for. Each turn does a bounded amount of work.
Thread: its own, `barnabas-log-housekeeper`; `discard_*` from any thread. Lock: `_garbage_lock` guards what is to be removed.

Files of deleted segments stay for file.delete.delay.ms under another name (`.deleted`), as in Kafka; compaction has a thread of its own.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.log import retention
from barnabas.broker.log.config import LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.segment import Segment
from barnabas.clock import Clock
from barnabas.threads import FatalHandler, ServerThread

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

_TURN_SECONDS = 0.5
_REMOVALS_PER_TURN = 64
_NS_PER_MS = 1_000_000


class Housekeeper(ServerThread):
    """Runs tasks when they are due by the monotonic clock, and removes files."""

    def __init__(
        self,
        settings: LogManagerSettings,
        clock: Clock,
        files: FileSystem,
        logs: Callable[[], Iterable[PartitionLog]],
        dirs: Callable[[], Iterable[LogDir]],
        on_fatal: FatalHandler | None = None,
    ) -> None:
        super().__init__("barnabas-log-housekeeper", on_fatal)
        self._settings = settings
        self.producer_id_expiration_ms = settings.producer_id_expiration_ms
        """May be set from any thread."""
        self._clock = clock
        self._files = files
        self._logs = logs
        self._dirs = dirs
        self._garbage_lock = threading.Lock()
        self._garbage: list[tuple[int, int, Callable[[], None]]] = []
        """A heap: when something may go, by the monotonic clock, a running number, and how."""
        self._garbage_count = 0
        self._signal = threading.Event()
        now = clock.monotonic_ns()
        self._retention_due = now + settings.retention_check_interval_ms * _NS_PER_MS
        self._checkpoint_due = now + settings.checkpoint_interval_ms * _NS_PER_MS

    # What others hand over, from any thread.

    def discard_segments(self, owner: PartitionLog, segments: list[Segment]) -> None:
        """Remove segments that left their log, after the topic's file.delete.delay.ms."""
        due = self._clock.monotonic_ns() + owner.config.file_delete_delay_ms * _NS_PER_MS
        for segment in segments:
            self._discard(due, lambda gone=segment: owner.swap.remove(gone))  # type: ignore[misc]
        self._signal.set()

    def discard_directory(self, path: str) -> None:
        """Remove a directory that was renamed for deletion."""
        self._discard(self._clock.monotonic_ns(), lambda: self.remove_directory(path))
        self._signal.set()

    def _discard(self, due: int, remove: Callable[[], None]) -> None:
        with self._garbage_lock:
            self._garbage_count += 1
            heapq.heappush(self._garbage, (due, self._garbage_count, remove))

    # The thread.

    def wakeup(self) -> None:
        self._signal.set()

    def run_once(self) -> None:
        self._signal.wait(_TURN_SECONDS)
        self._signal.clear()
        self.run_due()

    def run_due(self) -> None:
        """One turn without waiting."""
        self._remove_garbage(_REMOVALS_PER_TURN)
        now = self._clock.monotonic_ns()
        if now >= self._retention_due:
            self._retention_due = now + self._settings.retention_check_interval_ms * _NS_PER_MS
            self.apply_retention()
        due = now >= self._checkpoint_due
        if due:
            self._checkpoint_due = now + self._settings.checkpoint_interval_ms * _NS_PER_MS
        for directory in self._dirs():
            if due or directory.has_new_logs:
                directory.write_checkpoints()

    def apply_retention(self) -> int:
        """Retention and expiry of producers for all logs; how many segments went."""
        now_ms = self._clock.wall_ms()
        dropped = 0
        for each in self._logs():
            if each.available:
                dropped += retention.apply(each, now_ms)
                each.expire_producers(self.producer_id_expiration_ms)
        return dropped

    def on_stop(self) -> None:
        self._remove_garbage(_REMOVALS_PER_TURN)  # the rest is found and removed by the next start

    def _remove_garbage(self, limit: int) -> None:
        for _ in range(limit):
            with self._garbage_lock:
                if not self._garbage or self._garbage[0][0] > self._clock.monotonic_ns():
                    return
                _, _, remove = heapq.heappop(self._garbage)
            try:
                remove()
            except OSError as error:
                log.warning("cannot remove what was deleted: %s", error)
        self._signal.set()

    def remove_directory(self, path: str) -> None:
        """A directory and all that is in it; any thread. Of links only the link goes, what they lead to is somebody else's."""
        if self._files.is_link(path) or not self._files.is_directory(path):
            self._files.remove(path)
            return
        for name in self._files.list_directory(path):
            inside = os.path.join(path, name)
            if self._files.is_directory(inside):
                self.remove_directory(inside)
            else:
                self._files.remove(inside)
        self._files.remove_directory(path)
