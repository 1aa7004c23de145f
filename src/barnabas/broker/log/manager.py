"""All logs of the broker: start, stop, create, delete, and the threads that care for them.

Role: owns the log directories, the partition logs, the flusher, the housekeeper and the cleaner. The composition root of the storage layer.
Thread: `get`, `logs` and `describe_dirs` from any thread without a lock; the rest from any thread.
Lock: `_lock` serialises create, delete, start and stop; a fair one, as topics of many partitions take it in a loop. `_logs` is a
dict whose single look-ups need no lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.log import checkpoints, ownership
from barnabas.broker.log.cleaner import LogCleaner
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.file_kinds import DANGLING, LOOP, NotAFile, kind_of, not_a_file
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.flusher import Flusher, FlushStats
from barnabas.broker.log.housekeeping import Housekeeper
from barnabas.broker.log.loading import load_logs
from barnabas.broker.log.log_dir import LogDir
from barnabas.broker.log.offline import offline_log
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.recovery import LoadRequest, load_log
from barnabas.broker.log.results import LogDirDescription, LogDirNotWritable
from barnabas.clock import Clock, SharedTimeout
from barnabas.errors import ErrorCode, KafkaError
from barnabas.fair_lock import FairLock
from barnabas.threads import FatalHandler

log = logging.getLogger(__name__)

Key = tuple[str, int]

_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,10})\Z")
_DELETED_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_LONGEST_NAME = 255
_FLUSH_SHARE = 0.8
"""Of the time for a stop: the rest is for answering, closing and the checkpoints."""


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition that should be there: the id of its topic and the settings of its log."""

    topic_id: uuid.UUID
    config: LogConfig


class LogManager:
    """The logs of all partitions. Thread-safe."""

    def __init__(
        self,
        settings: LogManagerSettings,
        clock: Clock,
        files: FileSystem | None = None,
        on_fatal: FatalHandler | None = None,
    ) -> None:
        self.settings = settings
        self.flush_stats = FlushStats()
        self._clock = clock
        self._files = files or FileSystem()
        if settings.max_open_files:
            self._files.open_files.limit = settings.max_open_files
        self._lock = FairLock()
        self._on_fatal = on_fatal
        self._loaded = False
        self._logs: dict[Key, PartitionLog] = {}
        self.strays: list[str] = []
        """Partition directories that belong to no known topic; left alone."""
        self.flusher = Flusher(clock, settings.flush_interval_ms, self.logs, self._all_dirs, on_fatal)
        self.housekeeper = Housekeeper(settings, clock, self._files, self.logs, self._all_dirs, on_fatal)
        self.cleaner = LogCleaner(settings.cleaner, clock, self._files, self.logs, self._all_dirs, on_fatal)
        self._dirs = [LogDir(path, self._files, clock, self.flusher, self.flush_stats) for path in settings.log_dirs]
        for directory in self._dirs:
            directory.discard = self.housekeeper.discard_segments
            directory.on_failed = self._on_directory_failed

    # Start and stop.

    def lock_directories(self) -> None:
        """Take every directory before anything in it is read, the catalog included; `startup` or `shutdown` must follow.

        A directory that cannot be used is offline from then on; LogDirNotWritable when none is left.
        """
        with self._lock:
            try:
                for directory in self._dirs:
                    try:
                        directory.lock()
                    except LogDirNotWritable as error:
                        directory.exclude(error.cause)
                self._check_usable()
            except BaseException:
                for directory in self._dirs:
                    directory.close()
                raise

    def stored_cluster_id(self) -> str:
        """The cluster that the first directory which knows it belongs to: a catalog that is made anew is of the same."""
        found = (ownership.stored_cluster_id(self._files, directory.path) for directory in self.usable_dirs())
        return next(filter(None, found), "")

    def claim_directories(self, cluster_id: str, wanted_cluster_id: str = "") -> None:
        """Note in every directory whose it is, before anything in it is compared with the catalog; ForeignLogDir when it is another's."""
        with self._lock:
            for directory in self._dirs:
                self._claim(directory, cluster_id, wanted_cluster_id)

    def _claim(self, directory: LogDir, cluster_id: str, wanted_cluster_id: str = "") -> None:
        if not directory.offline:
            try:
                directory.open(self.settings.node_id, cluster_id, wanted_cluster_id)
            except LogDirNotWritable as error:
                directory.exclude(error.cause)

    def startup(
        self, partitions: Mapping[Key, PartitionSpec] | None = None, threads: bool = True, cluster_id: str = ""
    ) -> None:
        """Lock the directories and load the logs; missing partitions are created. With None, whatever is there is loaded.

        A directory that cannot be read is offline, and then a missing partition may be in there: it is not made anew, empty, elsewhere.
        Without `threads`, nothing runs by itself: tests call `flusher.flush_now` and `housekeeper.run_due`.
        """
        with self._lock:
            try:
                for directory in self._dirs:
                    self._open_directory(directory, partitions, cluster_id or self.settings.cluster_id)
                self._check_usable()
                self._add_missing(partitions or {})
                self._loaded = True
            except BaseException:
                for directory in self._dirs:
                    directory.close()
                raise
        if threads:
            self.flusher.start()
            self.housekeeper.start()
            self.cleaner.start()

    def stop_by(self, timeout: float) -> None:
        """The broker stops: what is not on disk after the larger part of `timeout` seconds is left to the recovery of the next start."""
        end = self._clock.monotonic_ns() + round(timeout * _FLUSH_SHARE * 1e9)
        for directory in self._dirs:
            directory.stop_by_ns = min(directory.stop_by_ns, end)

    def shutdown(self, timeout: float = 30.0) -> bool:
        """Flush and close everything; the next start needs no recovery. What was only locked is left as it was. False when the next start
        has something to recover: not everything was flushed in time, a disk failed, or somebody was still making logs."""
        patience = SharedTimeout(self._clock, timeout)
        self.stop_by(timeout)
        self.cleaner.shutdown(patience.left)
        self.housekeeper.shutdown(patience.left)
        self.flusher.shutdown(patience.left)
        if not self._lock.acquire(timeout=patience.left):
            return False
        try:
            for each in list(self._logs.values()):
                each.close()
            clean = True
            for directory in self._dirs:
                if self._loaded:
                    clean = directory.finish() and clean
                directory.close()
            self._loaded = False
        finally:
            self._lock.release()
        return clean

    def _open_directory(
        self, directory: LogDir, partitions: Mapping[Key, PartitionSpec] | None, cluster_id: str
    ) -> None:
        """Load all logs of a directory; it is offline, with those that were loaded, when the disk fails at any of them."""
        self._claim(directory, cluster_id)
        try:
            if not directory.offline:
                self._load_directory(directory, partitions)
        except OSError as error:
            directory.exclude(error)
        directory.refuse_if_failed()

    def _check_usable(self) -> None:
        """LogDirNotWritable when every directory is offline: one error that names them all."""
        if not self.usable_dirs():
            paths = ", ".join(directory.path for directory in self._dirs)
            raise LogDirNotWritable(paths, next(directory.failure for directory in self._dirs if directory.failure))

    def _on_directory_failed(self) -> None:
        """One directory less; without any, the broker ends: it can serve nothing, and a supervisor should know."""
        if self._loaded and self._on_fatal is not None and all(directory.offline for directory in self._dirs):
            self._on_fatal("its disks", OSError(f"every log directory failed: {', '.join(self.settings.log_dirs)}"))

    def _add_missing(self, partitions: Mapping[Key, PartitionSpec]) -> None:
        missing = [key for key in partitions if key not in self._logs]
        offline = [directory for directory in self._dirs if directory.offline]
        for directory in offline:
            text = "log directory %s is offline until the next start, and its partitions with it (%d are missing): %s"
            log.critical(text, directory.path, len(missing), directory.failure)
        for key in missing:
            spec = partitions[key]
            if offline:
                self._add(offline_log(key, spec.topic_id, spec.config, offline[0]), offline[0])
            else:
                self._warn_of_loss(key)
                self._create(key, spec.topic_id, spec.config)
        for directory in self._dirs:
            directory.all_loaded()

    def _warn_of_loss(self, key: Key) -> None:
        """Begun anew, as Kafka does, but not in silence: a directory that is only elsewhere can still be brought back."""
        for directory in self._dirs:
            point = directory.found_point(key)
            if point:
                text = "%s has no directory of its own any more and begins anew at offset 0; %s knew it up to offset %d"
                name = os.path.join(directory.path, checkpoints.RECOVERY_POINT_FILE)
                log.warning(text, os.path.join(directory.path, f"{key[0]}-{key[1]}"), name, point)

    def _load_directory(self, directory: LogDir, partitions: Mapping[Key, PartitionSpec] | None) -> None:
        clean = directory.take_clean_marker()
        points, starts = directory.read_checkpoints()
        found: list[tuple[Key, PartitionSpec, LoadRequest]] = []
        for name in sorted(self._files.list_directory(directory.path)):
            path = os.path.join(directory.path, name)
            if name.endswith(_DELETED_SUFFIX):
                self.housekeeper.discard_directory(path)
                continue
            key = _key_of(name)
            if key is None:
                continue
            if not self._files.is_directory(path):
                self._note_lost_link(directory, path, key, (partitions or {}).get(key), clean)
                continue
            spec = self._wanted(path, key, partitions)
            if spec is not None:
                now = self._clock.monotonic_ns() // 1_000_000
                known = key in points
                point, start, digest = points.get(key, 0), starts.get(key, 0), directory.aborted_digests.get(key, 0)
                request = LoadRequest(
                    path, name, spec.config, point, start, clean, now, known, key in starts, digest if known else None
                )
                found.append((key, spec, request))
        requests = [request for _, _, request in found]
        all_loaded = load_logs(self._files, directory.path, requests, self.settings.recovery_threads, self._clock)
        for (key, spec, _), loaded in zip(found, all_loaded, strict=True):
            if isinstance(loaded, NotAFile):
                self._add_unreadable(key, spec, directory, loaded, clean)
            else:
                self._add(PartitionLog(key, spec.topic_id, loaded, spec.config, directory), directory)

    def _add_unreadable(self, key: Key, spec: PartitionSpec, directory: LogDir, error: NotAFile, clean: bool) -> None:
        """One partition less: nothing in its directory was changed, and the next start finds it as it is."""
        text = "%s-%d is offline until the next start: %s. Move it away, or let `barnabas log repair` do it, and start again"
        log.error(text, *key, error)
        self._logs[key] = refused = offline_log(key, spec.topic_id, spec.config, directory)
        directory.add_untouched(refused, clean)

    def _note_lost_link(self, directory: LogDir, path: str, key: Key, spec: PartitionSpec | None, clean: bool) -> None:
        """A link that leads nowhere in place of a partition's directory: its log may be on a disk that is away."""
        kind = kind_of(path)
        if kind in (DANGLING, LOOP) and spec is not None and key not in self._logs:
            self._add_unreadable(key, spec, directory, not_a_file(path, kind, "a directory"), clean)

    def _wanted(self, path: str, key: Key, partitions: Mapping[Key, PartitionSpec] | None) -> PartitionSpec | None:
        """How to load a directory; None when it belongs to no topic."""
        try:
            topic_id, readable = checkpoints.read_partition_metadata(self._files, path), True
        except NotAFile:
            topic_id, readable = None, False  # loading it finds that too, and says so
        if partitions is None:
            return PartitionSpec(topic_id or uuid.UUID(int=0), self.settings.defaults)
        spec = partitions.get(key)
        if spec is None or (topic_id is not None and topic_id != spec.topic_id) or key in self._logs:
            log.warning("%s %s; nothing in it is touched", path, _why_stray(spec, topic_id))
            self.strays.append(path)
            return None
        if topic_id is None and readable:  # a power cut took it before the first flush
            checkpoints.write_partition_metadata(self._files, path, spec.topic_id)
        return spec

    # Logs, from any thread.

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def logs(self) -> list[PartitionLog]:
        return list(self._logs.values())

    def _all_dirs(self) -> list[LogDir]:
        return self._dirs

    def offline_count(self) -> int:
        return len(self._dirs) - len(self.usable_dirs())

    def usable_dirs(self) -> list[LogDir]:
        return [directory for directory in self._dirs if not directory.offline]

    @property
    def directories(self) -> tuple[LogDir, ...]:
        return tuple(self._dirs)

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig | None = None) -> PartitionLog:
        """The log of a new partition; the existing one when it is there already."""
        with self._lock:
            existing = self._logs.get((topic, partition))
            return existing or self._create((topic, partition), topic_id, config or self.settings.defaults)

    def _create(self, key: Key, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        """In the directory with the fewest logs; when that one has no room or fails, in the next."""
        problem = "every log directory is offline"
        for directory in sorted(self.usable_dirs(), key=lambda each: len(each.logs)):
            try:
                return self._create_in(directory, key, topic_id, config)
            except OSError as error:
                problem = f"{directory.path}: {error}"
                directory.note_error(error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create {key[0]}-{key[1]}: {problem}")

    def _create_in(self, directory: LogDir, key: Key, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        name = f"{key[0]}-{key[1]}"
        path = os.path.join(directory.path, name)
        directory.forget_old(key)
        if self._files.exists(path) or self._files.is_link(path):
            # The catalog knows no such partition, or it is no directory: what is there belongs to a topic of another id, or to nobody.
            stray = os.path.join(directory.path, _unique_name(name, _STRAY_SUFFIX))
            log.warning("%s is %s that belongs to no known topic; it is renamed to %s", path, kind_of(path), stray)
            self._files.rename(path, stray)
        self._files.make_directory(path)
        directory.names_changed = True
        try:
            checkpoints.write_partition_metadata(self._files, path, topic_id)
            epochs = os.path.join(path, checkpoints.LEADER_EPOCH_FILE)
            self._files.write_file(epochs, checkpoints.encode_epochs([(0, 0)]), sync=False)
            request = LoadRequest(path, name, config, 0, 0, False, self._clock.monotonic_ns() // 1_000_000)
            loaded = load_log(self._files, request)
        except OSError:
            with contextlib.suppress(OSError):
                self.housekeeper.remove_directory(path)  # half a partition is not left behind on a full disk
            raise
        directory.has_new_logs = True
        return self._add(PartitionLog(key, topic_id, loaded, config, directory), directory)

    def _add(self, created: PartitionLog, directory: LogDir) -> PartitionLog:
        key = (created.topic, created.partition)
        directory.logs[key] = created
        self._logs[key] = created
        return created

    def delete(self, topic: str, partition: int) -> None:
        """Forget a partition at once; its files go in the background. One that is not there is no error."""
        with self._lock:
            gone = self._logs.pop((topic, partition), None)
            if gone is None:
                return
            directory = next(each for each in self._dirs if each.path == gone.log_dir)
            directory.forget((topic, partition))
            if directory.offline:
                gone.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # the first start that can read it removes the files
                return
            path = os.path.join(directory.path, _unique_name(gone.name, _DELETED_SUFFIX))
            try:
                gone.move_away(path)
            except OSError as error:
                directory.note_error(error)  # the next start removes the files
                return
        self.housekeeper.discard_directory(path)

    def describe_dirs(self) -> list[LogDirDescription]:
        """For DescribeLogDirs."""
        return [directory.describe() for directory in self._dirs]

    def __repr__(self) -> str:
        return f"<LogManager {len(self._logs)} logs in {len(self._dirs)} directories>"


def _why_stray(spec: PartitionSpec | None, topic_id: uuid.UUID | None) -> str:
    if spec is None:
        return "belongs to no known topic"
    if topic_id is not None and topic_id != spec.topic_id:
        ids = f"{checkpoints.PARTITION_METADATA_FILE} has the id {topic_id}, the topic has {spec.topic_id}"
        return f"belongs to another topic of that name: its {ids}"
    return "is the second directory of its partition"


def _key_of(name: str) -> Key | None:
    match = _PARTITION_NAME.match(name)
    return (match["topic"], int(match["partition"])) if match else None


def _unique_name(name: str, suffix: str) -> str:
    """As Kafka names them: <topic>-<partition>.<32 hex digits>-delete, at most 255 characters."""
    ending = f".{uuid.uuid4().hex}{suffix}"
    return name[: _LONGEST_NAME - len(ending)] + ending
