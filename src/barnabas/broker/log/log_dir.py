"""One log directory (an entry of log.dirs): its lock, its small files, and whether it still works.

Role: owns the lock file and the checkpoints of all partitions inside; knows which logs live here; decides what an error of the disk
means: a full disk is a state that passes (the write failed and was undone), anything else takes the directory offline until the next start.
Thread: any. Lock: `_files_lock` serialises writing the checkpoint files, `_names_lock` syncing names; never held while calling a log.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.log import checkpoints, ownership
from barnabas.broker.log.file_kinds import require_file
from barnabas.broker.log.files import FileSystem, OpenFile, may_pass
from barnabas.broker.log.flusher import Flusher, FlushStats
from barnabas.broker.log.results import LogDirDescription, LogDirLocked, LogDirNotWritable
from barnabas.broker.log.segment import Segment
from barnabas.broker.log.transactions import index_digest
from barnabas.clock import Clock
from barnabas.errors import ErrorCode
from barnabas.log_limit import LogLimit

if TYPE_CHECKING:
    from barnabas.broker.log.epochs import LeaderEpochs
    from barnabas.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

_NEVER = 2**63 - 1

Discard = Callable[["PartitionLog", list[Segment]], None]

_CHECKPOINTS = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.REPLICATION_FILE,
    checkpoints.ABORTED_FILE,
)


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
        self.on_failed: Callable[[], None] = lambda: None
        """Told once, when the directory goes offline; may be called under a log's lock."""
        self.failure: OSError | None = None
        self.clean = True
        """Whether a stop may say that nothing needs recovery."""
        self.stop_by_ns = _NEVER
        """When the broker stops: from then on nothing more is brought to the disk, however much there is."""
        self.names_changed = True
        self.stale_starts = False
        """Whether some log has a start that could not be noted."""
        self.has_new_logs = False
        """Whether the checkpoints do not know some log yet; the housekeeper mends that soon."""
        self._troubles = LogLimit(log, clock.monotonic_ns)
        self._on_file: set[tuple[str, int]] = set()
        self.aborted_digests: checkpoints.OffsetMap = {}
        """The checksum of the transaction indexes of each partition that has any, as it was at the last clean stop."""
        self._found: dict[str, checkpoints.OffsetMap] = {}
        """What the checkpoints said at the start, until all logs are loaded."""
        self._untouched: dict[tuple[str, int], dict[str, int]] = {}
        """What each of them said about logs that could not be loaded: it holds on, because nothing was changed there."""
        self._clean_offsets: checkpoints.OffsetMap = {}
        self._points_on_file: checkpoints.OffsetMap = {}
        self._refused = False
        self._lock_file: OpenFile | None = None
        self._files_lock = threading.Lock()
        self._names_lock = threading.Lock()

    def monotonic_ms(self) -> int:
        """For what is forgotten after a time, such as producers: the wall clock may jump."""
        return self.clock.monotonic_ns() // 1_000_000

    @property
    def time_is_up(self) -> bool:
        return self.clock.monotonic_ns() >= self.stop_by_ns

    # Start and stop.

    def lock(self) -> None:
        """Create the directory and take its lock; LogDirLocked or LogDirNotWritable when that fails. Locking twice is once."""
        if self._lock_file is not None:
            return
        try:
            self.files.make_durable_directory(self.path)
            lock_file = self.files.open(self._file(checkpoints.LOCK_FILE), create=True)
        except OSError as error:
            raise LogDirNotWritable(self.path, error) from error
        if not self.files.lock(lock_file):
            lock_file.close()
            raise LogDirLocked(self.path)
        self._lock_file = lock_file

    def open(self, node_id: int, cluster_id: str, wanted_cluster_id: str = "") -> None:
        """Lock the directory and note whose it is; ForeignLogDir when it is another's. Opening twice is once."""
        self.lock()
        try:
            for name in checkpoints.FILES_OF_A_DIRECTORY:
                require_file(self._file(name))
            ownership.claim(self.files, self.path, node_id, cluster_id, wanted_cluster_id)
        except OSError as error:
            self.close()
            raise LogDirNotWritable(self.path, error) from error

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean. The marker goes before anything is written: it holds for one start only."""
        path = self._file(checkpoints.CLEAN_SHUTDOWN_FILE)
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_directory(self.path)
        return True

    def finish(self) -> bool:
        """Every log is closed: note where they end, and, if all are flushed, that the next start needs no recovery; whether that is so.

        Of a directory that was away since the start, nothing can be left to do.
        """
        if self.offline:
            return self.clean
        if not (self.write_checkpoints() and self.clean and self._write_aborted_digests()):
            log.error("log directory %s was not stopped in order: the next start recovers it", self.path)
            return False
        try:
            self.files.write_file(self._file(checkpoints.CLEAN_SHUTDOWN_FILE), checkpoints.encode_clean_shutdown())
            self.files.sync_directory(self.path)
        except OSError as error:
            self.note_error(error)  # half a marker is as good as a whole one: what it says is true
            return False
        return True

    def close(self) -> None:
        """Give the lock back."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    # Checkpoints.

    def read_checkpoints(self) -> tuple[checkpoints.OffsetMap, checkpoints.OffsetMap]:
        """Recovery points and start offsets, as far as they are known."""
        self._found = {name: checkpoints.read_offsets(self.files, self._file(name)) for name in _CHECKPOINTS}
        recovery_points = self._found[checkpoints.RECOVERY_POINT_FILE]
        start_offsets = self._found[checkpoints.LOG_START_FILE]
        self._clean_offsets = checkpoints.read_offsets(self.files, self._file(checkpoints.CLEANER_FILE))
        self.aborted_digests = self._found[checkpoints.ABORTED_FILE]
        self._on_file = {*recovery_points, *start_offsets, *self._clean_offsets}
        return recovery_points, start_offsets

    def found_point(self, key: tuple[str, int]) -> int:
        """Up to where the checkpoint knew a partition when it was read; 0 when it did not."""
        return self._found.get(checkpoints.RECOVERY_POINT_FILE, {}).get(key, 0)

    def add_untouched(self, log_: PartitionLog, clean: bool) -> None:
        """A log that could not be loaded: what the checkpoints say about it is kept as it is. The stop may promise no more than the one
        before did, `clean`: nobody has looked at the log since."""
        key = (log_.topic, log_.partition)
        self.logs[key] = log_
        self.clean = self.clean and clean
        self._untouched[key] = {name: offsets[key] for name, offsets in self._found.items() if key in offsets}

    def forget(self, key: tuple[str, int]) -> None:
        """The partition was deleted."""
        self.logs.pop(key, None)
        self._untouched.pop(key, None)

    def all_loaded(self) -> None:
        self._found = {}

    def forget_old(self, key: tuple[str, int]) -> None:
        """Before a partition is created: offsets of a deleted one of the same name must not be found after a crash."""
        if key in self._on_file:
            self._clean_offsets.pop(key, None)
            if not (self.write_checkpoints() and self._write_clean_offsets()):
                raise OSError(errno.ENOSPC, f"the checkpoints of {self.path} cannot be written")
            self._on_file.discard(key)

    def write_checkpoints(self) -> bool:
        """Recovery points, start offsets and high watermarks of all logs here; False when something is not on disk."""
        self.has_new_logs = False
        return (
            self.write_recovery_points()
            and self.write_start_offsets()
            and self._write(checkpoints.REPLICATION_FILE, lambda each: each.high_watermark)
        )

    def write_recovery_points(self) -> bool:
        return self._write(checkpoints.RECOVERY_POINT_FILE, lambda each: each.durable_offset)

    def secure_up_to(self, log_: PartitionLog, offset: int) -> bool:
        """Have the recovery point of a log on disk at or behind an offset. A recovery looks for gaps from there on, and compaction
        leaves some: they must not be taken for what a power cut took, whatever the policy of the topic is by then."""
        key = (log_.topic, log_.partition)
        if self._points_on_file.get(key, 0) < offset:
            log_.flush()
            self.write_recovery_points()
        return self._points_on_file.get(key, 0) >= offset

    def _write_aborted_digests(self) -> bool:
        """What the transaction indexes are at a clean stop; False when it is not on disk."""
        try:
            digests = self._of_all(checkpoints.ABORTED_FILE, lambda each: index_digest(each.segments))
        except OSError as error:
            self.note_error(error)
            return False
        self.aborted_digests, before = {key: digest for key, digest in digests.items() if digest}, self.aborted_digests
        if not self.aborted_digests and not before:
            return True
        return self._write_offsets(checkpoints.ABORTED_FILE, lambda: self.aborted_digests)

    def write_start_offsets(self) -> bool:
        self.stale_starts = not self._write(checkpoints.LOG_START_FILE, lambda each: each.start_to_persist)
        return not self.stale_starts

    def note_start(self, sync_names: Callable[[], None]) -> bool:
        """A log has a new start: first what it is the start of, else a power cut could leave it to a log that is made anew."""
        self.stale_starts = True
        try:
            sync_names()
        except OSError as error:
            self.note_error(error)
            return False
        return self.write_start_offsets()

    def clean_offset(self, log_: PartitionLog) -> int | None:
        """Everything below was compacted before."""
        return self._clean_offsets.get((log_.topic, log_.partition))

    def set_clean_offset(self, log_: PartitionLog, offset: int) -> None:
        """A cleaning is done. Of a log that was deleted meanwhile nothing is noted: its name may belong to another one."""
        key = (log_.topic, log_.partition)
        with self._files_lock:
            if self.logs.get(key) is not log_:
                return
            self._clean_offsets[key] = offset
        self._write_clean_offsets()

    def _write_clean_offsets(self) -> bool:
        if self._clean_offsets:
            return self._write_offsets(checkpoints.CLEANER_FILE, lambda: self._clean_offsets)
        return True

    def _write(self, name: str, offset_of: Callable[[PartitionLog], int]) -> bool:
        return self._write_offsets(name, lambda: self._of_all(name, offset_of))

    def _of_all(self, name: str, offset_of: Callable[[PartitionLog], int]) -> checkpoints.OffsetMap:
        untouched = dict(self._untouched)
        offsets = {key: offset_of(each) for key, each in list(self.logs.items()) if key not in untouched}
        return offsets | {key: found[name] for key, found in untouched.items() if name in found}

    def _write_offsets(self, name: str, find: Callable[[], checkpoints.OffsetMap]) -> bool:
        """Replace a checkpoint. On a full disk the old one stays: what it says holds on, and costs a longer recovery at most."""
        if self.offline:
            return False
        try:
            with self._files_lock:
                offsets = {key: offset for key, offset in find().items() if key in self.logs}
                self._on_file.update(offsets)
                checkpoints.write_offsets(self.files, self._file(name), offsets)
                if name == checkpoints.RECOVERY_POINT_FILE:
                    self._points_on_file = offsets
        except OSError as error:
            self.note_error(error)
            return False
        return True

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def write_epochs(self, directory: str, epochs: LeaderEpochs) -> None:
        """The leader epochs of one partition. On a full disk later; until then a recovery finds them in the batches."""
        epochs.changed = False
        try:
            path = os.path.join(directory, checkpoints.LEADER_EPOCH_FILE)
            self.files.replace_file(path, checkpoints.encode_epochs(list(epochs.entries)))
        except OSError as error:
            if not may_pass(error):
                raise
            epochs.changed = True
            self.note_error(error)

    def sync_names(self, partition: str | None = None) -> None:
        """Make durable where a partition's files are and whose they are, then the names of all partitions, once for many of them."""
        if partition is not None:
            checkpoints.sync_partition_metadata(self.files, partition)
            self.files.sync_directory(partition)
        with self._names_lock:  # who finds it done knows that it is done, not only begun
            if self.names_changed:
                self.names_changed = False
                try:
                    self.files.sync_directory(self.path)
                except OSError:
                    self.names_changed = True
                    raise

    # Failure.

    @property
    def offline(self) -> bool:
        return self.failure is not None

    def note_error(self, error: OSError) -> None:
        """A call failed and was undone. What may pass is waited out, with a line in the log once a second; else the directory fails."""
        if not may_pass(error):
            self.fail(error)
        elif not self.offline:
            self._troubles.error("", "log directory %s cannot be written until that passes: %s", self.path, error)

    def exclude(self, error: OSError) -> None:
        """The directory cannot be used from the start; who starts the logs says so, because he knows whether another one can."""
        self.failure = self.failure or error

    def fail(self, error: OSError) -> None:
        """The directory cannot be trusted any more. Its logs are refused by the flusher, outside every lock of theirs."""
        if self.failure is None:
            self.failure = error
            self.clean = False
            log.critical("log directory %s failed and is offline until the next start: %s", self.path, error)
            self.on_failed()
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
