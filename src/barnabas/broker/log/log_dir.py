"""One log directory (an entry of log.dirs): its lock, its small files, and whether it still works.

Role: owns the lock file and the checkpoints of all partitions inside; knows which logs live here.
Thread: any. Lock: `_files_lock` serialises writing the checkpoint files; never held while calling a log.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.log import checkpoints
from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.flusher import Flusher, FlushStats
from barnabas.broker.log.results import LogDirDescription, LogDirLocked, LogDirNotWritable
from barnabas.broker.log.segment import Segment
from barnabas.clock import Clock
from barnabas.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

Discard = Callable[["PartitionLog", list[Segment]], None]


class LogDir:
    """A directory with the logs of some partitions. Thread-safe."""

    def __init__(self, path: str, files: FileSystem, clock: Clock, flusher: Flusher, flush_stats: FlushStats) -> None:
        self.path = os.path.abspath(path)
        self.files = files
        self.clock = clock
        self.flusher = flusher
        self.flush_stats = flush_stats
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.discard: Discard = lambda _log, segments: None
        self.offline = False
        self.names_changed = True
        self._on_file: set[tuple[str, int]] = set()
        self._refused = False
        self._lock_file: OpenFile | None = None
        self._files_lock = threading.Lock()

    def monotonic_ms(self) -> int:
        """For what is forgotten after a time, such as producers: the wall clock may jump."""
        return self.clock.monotonic_ns() // 1_000_000

    # Start and stop.

    def lock(self) -> None:
        """Create the directory and take its lock; LogDirLocked or LogDirNotWritable when that fails. Locking twice is once."""
        if self._lock_file is not None:
            return
        try:
            self.files.make_directory(self.path)
            lock_file = self.files.open(self._file(checkpoints.LOCK_FILE), create=True)
        except OSError as error:
            raise LogDirNotWritable(self.path, error.strerror or str(error)) from error
        if not self.files.lock(lock_file):
            lock_file.close()
            raise LogDirLocked(self.path)
        self._lock_file = lock_file

    def open(self, node_id: int, cluster_id: str) -> None:
        """Lock the directory and note whose it is."""
        self.lock()
        try:
            self._write_meta_properties(node_id, cluster_id)
        except OSError as error:
            self.close()
            raise LogDirNotWritable(self.path, error.strerror or str(error)) from error

    def _write_meta_properties(self, node_id: int, cluster_id: str) -> None:
        path = self._file(checkpoints.META_PROPERTIES_FILE)
        old = checkpoints.read_properties(self.files, path)
        new = {
            "version": "1",
            "node.id": str(node_id),
            "cluster.id": cluster_id or old.get("cluster.id", ""),
            "directory.id": old.get("directory.id") or checkpoints.encode_topic_id(uuid.uuid4()),
        }
        if {**old, **new} != old:
            checkpoints.write_properties(self.files, path, {**old, **new})

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean. The marker goes before anything is written: it holds for one start only."""
        path = self._file(checkpoints.CLEAN_SHUTDOWN_FILE)
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_directory(self.path)
        return True

    def write_clean_marker(self) -> None:
        path = self._file(checkpoints.CLEAN_SHUTDOWN_FILE)
        self.files.write_file(path, checkpoints.encode_clean_shutdown())
        self.files.sync_directory(self.path)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    # Checkpoints.

    def read_checkpoints(self) -> tuple[checkpoints.OffsetMap, checkpoints.OffsetMap]:
        """Recovery points and start offsets, as far as they are known."""
        recovery_points = checkpoints.read_offsets(self.files, self._file(checkpoints.RECOVERY_POINT_FILE))
        start_offsets = checkpoints.read_offsets(self.files, self._file(checkpoints.LOG_START_FILE))
        self._on_file = {*recovery_points, *start_offsets}
        return recovery_points, start_offsets

    def forget_old(self, key: tuple[str, int]) -> None:
        """Before a partition is created: offsets of a deleted one of the same name must not be found after a crash."""
        if key in self._on_file:
            self.write_checkpoints()
            self._on_file.discard(key)

    def write_checkpoints(self) -> None:
        """Recovery points, start offsets and high watermarks of all logs here."""
        self.write_recovery_points()
        self.write_start_offsets()
        self._write(checkpoints.REPLICATION_FILE, lambda each: each.high_watermark)

    def write_recovery_points(self) -> None:
        self._write(checkpoints.RECOVERY_POINT_FILE, lambda each: each.durable_offset)

    def write_start_offsets(self) -> None:
        self._write(checkpoints.LOG_START_FILE, lambda each: each.start_to_persist)

    def _write(self, name: str, offset_of: Callable[[PartitionLog], int]) -> None:
        if self.offline:
            return
        try:
            with self._files_lock:
                offsets = {key: offset_of(each) for key, each in list(self.logs.items())}
                self._on_file.update(offsets)
                checkpoints.write_offsets(self.files, self._file(name), offsets)
        except OSError as error:
            self.fail(error)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def sync_names(self) -> None:
        """Make new partition directories durable; once for many of them."""
        if self.names_changed:
            self.names_changed = False
            self.files.sync_directory(self.path)

    # Failure.

    def fail(self, error: OSError) -> None:
        """The directory cannot be trusted any more. Its logs are refused by the flusher, outside every lock of theirs."""
        if not self.offline:
            self.offline = True
            log.critical("log directory %s failed and is offline until the next start: %s", self.path, error)
        self.flusher.wakeup()

    def refuse_if_failed(self) -> None:
        if self.offline and not self._refused:
            self._refused = True
            for each in list(self.logs.values()):
                each.refuse(ErrorCode.KAFKA_STORAGE_ERROR)

    def describe(self) -> LogDirDescription:
        try:
            total, usable = self.files.space(self.path)
        except OSError:
            total = usable = -1
        sizes = {key: each.size for key, each in list(self.logs.items())}
        return LogDirDescription(self.path, self.offline, sizes, total, usable)

    def __repr__(self) -> str:
        state = "offline" if self.offline else "online"
        return f"<LogDir {self.path} {state}, {len(self.logs)} logs>"
