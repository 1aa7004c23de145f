"""Loading the logs of a directory: one after the other after a clean stop, several at a time when they must be recovered.

Role: spreads recovery over threads (num.recovery.threads.per.data.dir) and says how far it is. The checks of a recovery run without the
GIL when the record kernel is compiled, so that threads help.
Thread: the manager's, and the pool's threads while they last. Lock: `RecoveryProgress._lock` guards its counts, a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from barnabas.broker.log.file_kinds import NotAFile
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.recovery import LoadedLog, LoadRequest, load_log, unflushed_bytes
from barnabas.clock import Clock

log = logging.getLogger(__name__)

REPORT_INTERVAL_NS = 2_000_000_000
_MIB = 1 << 20


class RecoveryProgress:
    """How much of a directory's recovery is done. Thread-safe."""

    def __init__(self, directory: str, partitions: int, total_bytes: int, clock: Clock) -> None:
        self._directory = directory
        self._partitions = partitions
        self._total = total_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._began_ns = self._reported_ns = clock.monotonic_ns()
        self.done_partitions = 0
        self.done_bytes = 0

    def begin(self) -> None:
        text = "%s: the last stop was not clean; checking %d partitions, %.1f MiB that may not be on disk"
        log.info(text, self._directory, self._partitions, self._total / _MIB)

    def advance(self, checked_bytes: int, partitions: int = 0) -> None:
        """Some more is checked; reports now and then."""
        with self._lock:
            self.done_bytes += checked_bytes
            self.done_partitions += partitions
            now = self._clock.monotonic_ns()
            due = now - self._reported_ns >= REPORT_INTERVAL_NS
            if due:
                self._reported_ns = now
        if due:
            log.info("%s: recovering: %s", self._directory, self)

    def end(self) -> None:
        seconds = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        log.info("%s: recovered %s, in %.1f s", self._directory, self, seconds)

    def __str__(self) -> str:
        share = 100 * self.done_bytes / self._total if self._total else 100.0
        done, total = self.done_bytes / _MIB, self._total / _MIB
        return f"{self.done_partitions} of {self._partitions} partitions, {done:.1f} of {total:.1f} MiB ({share:.0f} %)"


def load_logs(
    files: FileSystem, directory: str, requests: Sequence[LoadRequest], threads: int, clock: Clock
) -> Iterator[LoadedLog | NotAFile]:
    """What each directory of a partition holds, in the order of the requests, or what stands in the way of a file of it.

    OSError when the disk fails.
    """
    if not requests or requests[0].clean:
        for request in requests:  # quick: a thousand of them in a fraction of a second
            yield _load(files, request)
        return
    total = sum(_unflushed_bytes(files, request) for request in requests)
    progress = RecoveryProgress(directory, len(requests), total, clock)

    def load(request: LoadRequest) -> LoadedLog | NotAFile:
        loaded = _load(files, request, progress.advance)
        progress.advance(0, 1)
        return loaded

    progress.begin()
    if threads == 1 or len(requests) == 1:
        yield from map(load, requests)
    else:
        pool = ThreadPoolExecutor(threads, "barnabas-log-recovery")
        try:
            yield from pool.map(load, requests)
        finally:
            pool.shutdown(cancel_futures=True)
    progress.end()


def _load(
    files: FileSystem, request: LoadRequest, on_checked: Callable[[int], None] = lambda _: None
) -> LoadedLog | NotAFile:
    try:
        return load_log(files, request, on_checked)
    except NotAFile as error:
        return error


def _unflushed_bytes(files: FileSystem, request: LoadRequest) -> int:
    try:
        return unflushed_bytes(files, request)
    except NotAFile:
        return 0
