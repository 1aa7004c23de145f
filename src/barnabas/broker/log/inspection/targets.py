"""What a path is: a log directory, the directory of a partition, or one file of it.

Role: from a path that a user typed to partitions and their segments, by names alone. Thread: any. Lock: none.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from barnabas.broker.log.checkpoints import (
    CLEANER_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_FILE,
)
from barnabas.broker.log.file_kinds import kind_of, wrong_kind
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.side_names import is_beyond_offsets
from barnabas.broker.log.segment import LOG_SUFFIX
from barnabas.errors import BarnabasError

OFFSET_CHECKPOINTS = (RECOVERY_POINT_FILE, LOG_START_FILE, REPLICATION_FILE, CLEANER_FILE)
_SEGMENT_FILE = re.compile(r"(?P<base>\d{20})\.(log|index|timeindex|txnindex|snapshot)\Z")
_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,10})\Z")
_REMOVED = re.compile(r".*\.[0-9a-f]{32}-(delete|stray|future)\Z")


class NotALog(BarnabasError):
    """A path at which there is nothing that these tools understand."""


def key_of(name: str) -> tuple[str, int] | None:
    """Topic and partition, when a name is that of a partition's directory."""
    match = _PARTITION_NAME.match(name)
    return (match["topic"], int(match["partition"])) if match else None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """One segment by name. `names` are those of all files that begin with its base offset."""

    base_offset: int
    names: frozenset[str]

    def name(self, suffix: str) -> str:
        return f"{self.base_offset:020d}{suffix}"

    def has(self, suffix: str) -> bool:
        return self.name(suffix) in self.names


@dataclass(frozen=True, slots=True)
class Partition:
    """The directory of a partition. `log_dir` is the directory above it when that is a log directory, else empty."""

    name: str
    directory: str
    log_dir: str = ""

    @property
    def key(self) -> tuple[str, int] | None:
        return key_of(self.name)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be inspected. `only` is a single file of the only partition; `removed` are directories that the broker will remove;
    `misplaced` has what else is named like a partition, and what it is."""

    path: str
    log_dir: str
    partitions: tuple[Partition, ...]
    only: str = ""
    removed: tuple[str, ...] = field(default=())
    misplaced: dict[str, str] = field(default_factory=dict)

    @property
    def is_log_dir(self) -> bool:
        return bool(self.log_dir) and self.path == self.log_dir


def find(files: FileSystem, path: str) -> Target:
    """What a path is; NotALog when it is nothing that can be inspected."""
    path = os.path.abspath(path)
    if _SEGMENT_FILE.match(os.path.basename(path)) and (kind := wrong_kind(path)):
        raise NotALog(f"{path} is {kind}, not a file")
    if not files.exists(path):
        raise NotALog(f"{path} does not exist")
    if not files.is_directory(path):
        return _single_file(files, path)
    names = files.list_directory(path)
    if any(_SEGMENT_FILE.match(name) for name in names) or PARTITION_METADATA_FILE in names:
        return Target(path, _log_dir_above(files, path), (_partition(files, path),))
    if _is_log_dir(names) or any(_PARTITION_NAME.match(name) for name in names):
        return _whole_log_dir(files, path, names)
    raise NotALog(f"{path} is neither a log directory nor the directory of a partition")


def segments_of(files: FileSystem, partition: Partition) -> list[SegmentFiles]:
    """The segments of a partition, oldest first; only those that have a log. What is no file is not there,
    nor what has a number that is no offset."""
    by_base: dict[int, set[str]] = {}
    misplaced = files.misplaced(partition.directory)
    for name in files.list_directory(partition.directory):
        match = _SEGMENT_FILE.match(name)
        if match and name not in misplaced and not is_beyond_offsets(name):
            by_base.setdefault(int(match["base"]), set()).add(name)
    found = [SegmentFiles(base, frozenset(names)) for base, names in sorted(by_base.items())]
    return [segment for segment in found if segment.has(LOG_SUFFIX)]


def _single_file(files: FileSystem, path: str) -> Target:
    directory, name = os.path.split(path)
    if kind := wrong_kind(path):
        raise NotALog(f"{path} is {kind}, not a file")
    if is_beyond_offsets(name):
        raise NotALog(f"{path} is no segment: the number is too large")
    if _SEGMENT_FILE.match(name) or name == LEADER_EPOCH_FILE:
        return Target(path, _log_dir_above(files, directory), (_partition(files, directory),), only=name)
    if name in OFFSET_CHECKPOINTS:
        return Target(path, directory, (), only=name)
    raise NotALog(f"{path} is no file of a log: segments are named 00000000000000000000.log and so on")


def _partition(files: FileSystem, directory: str) -> Partition:
    return Partition(os.path.basename(directory), directory, _log_dir_above(files, directory))


def _log_dir_above(files: FileSystem, directory: str) -> str:
    parent = os.path.dirname(directory)
    return parent if _is_log_dir(files.list_directory(parent)) else ""


def _is_log_dir(names: list[str]) -> bool:
    return META_PROPERTIES_FILE in names or RECOVERY_POINT_FILE in names


def _whole_log_dir(files: FileSystem, path: str, names: list[str]) -> Target:
    directories = [name for name in sorted(names) if files.is_directory(os.path.join(path, name))]
    removed = tuple(name for name in directories if _REMOVED.match(name))
    partitions = [
        Partition(name, os.path.join(path, name), path) for name in directories if _PARTITION_NAME.match(name)
    ]
    others = (name for name in names if _PARTITION_NAME.match(name) and name not in directories)
    misplaced = {name: kind_of(os.path.join(path, name)) for name in others}
    return Target(path, path, tuple(sorted(partitions, key=_by_number)), removed=removed, misplaced=misplaced)


def _by_number(partition: Partition) -> tuple[str, int]:
    """orders-2 before orders-10."""
    return partition.key or (partition.name, 0)
