"""The checkpoint files of a log directory, read strictly.

Role: what is known about a partition besides its own directory, and what is wrong with the files that say it. Thread: the caller's.
Lock: none; files are read only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from barnabas.broker.log.checkpoints import (
    CATALOG_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    FILES_OF_A_DIRECTORY,
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    NUMBER_LIMIT,
    OFFSET_LIMIT,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_FILE,
    ImpossibleNumber,
    OffsetMap,
    number_of,
    read_partition_metadata,
)
from barnabas.broker.log.file_kinds import NotAFile, wrong_kind
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.targets import OFFSET_CHECKPOINTS, Partition

_LARGEST_CHECKPOINT = 64 * 1024 * 1024


class CheckpointDamaged(Exception):
    """A checkpoint file cannot be believed."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the checkpoints say about one partition; -1 where they say nothing."""

    recovery_point: int = -1
    start: int = -1
    high_watermark: int = -1
    cleaned: int = -1


@dataclass(slots=True)
class DirectoryState:
    """The checkpoints of one log directory. `damaged` has a text for each that cannot be used, `misplaced` for whatever else should be a
    file and is none."""

    path: str = ""
    offsets: dict[str, OffsetMap] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    misplaced: dict[str, str] = field(default_factory=dict)
    clean_stop: bool = False

    def known(self, partition: Partition) -> Known:
        key = partition.key
        if key is None:
            return Known()
        names = (RECOVERY_POINT_FILE, LOG_START_FILE, REPLICATION_FILE, CLEANER_FILE)
        return Known(*(self.offsets.get(name, {}).get(key, -1) for name in names))


def read_directory(files: FileSystem, log_dir: str) -> DirectoryState:
    """All checkpoints of a log directory; nothing known when there is none."""
    state = DirectoryState(log_dir)
    if not log_dir:
        return state
    for name in (*FILES_OF_A_DIRECTORY, LOCK_FILE, CATALOG_FILE):
        kind = wrong_kind(os.path.join(log_dir, name))
        if kind:
            found = state.damaged if name in OFFSET_CHECKPOINTS else state.misplaced
            found[name] = f"it is {kind}, not a file"
    marker = os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)
    state.clean_stop = files.exists(marker) and CLEAN_SHUTDOWN_FILE not in state.misplaced
    for name in OFFSET_CHECKPOINTS:
        path = os.path.join(log_dir, name)
        if name not in state.damaged and files.exists(path):
            try:
                state.offsets[name] = strict_offsets(files, path)
            except CheckpointDamaged as damage:
                state.damaged[name] = str(damage)
    return state


def strict_offsets(files: FileSystem, path: str) -> OffsetMap:
    """(topic, partition) -> offset; CheckpointDamaged when one byte is not as it must be."""
    found: OffsetMap = {}
    for words in _entries(files, path):
        if len(words) != 3:
            raise CheckpointDamaged(f"{' '.join(words)!r} is not a topic, a partition and an offset")
        key = (words[0], _number(words[1], NUMBER_LIMIT))
        if key in found:
            raise CheckpointDamaged(f"{words[0]}-{words[1]} stands in it twice")
        found[key] = _number(words[2], OFFSET_LIMIT)
    return found


def strict_epochs(files: FileSystem, directory: str) -> list[tuple[int, int]]:
    """(leader epoch, its first offset), ascending; CheckpointDamaged when it is not."""
    found: list[tuple[int, int]] = []
    for words in _entries(files, os.path.join(directory, LEADER_EPOCH_FILE)):
        if len(words) != 2:
            raise CheckpointDamaged(f"{' '.join(words)!r} is not an epoch and an offset")
        entry = (_number(words[0], NUMBER_LIMIT), _number(words[1], OFFSET_LIMIT))
        if found and not (entry[0] > found[-1][0] and entry[1] >= found[-1][1]):
            raise CheckpointDamaged(
                f"epoch {entry[0]} from offset {entry[1]} follows {found[-1][0]} from {found[-1][1]}"
            )
        found.append(entry)
    return found


def has_bad_metadata(files: FileSystem, partition: Partition) -> bool:
    """Whether partition.metadata says something, but not whose the log is. A power cut before the first flush leaves it empty."""
    path = partition.path(PARTITION_METADATA_FILE)
    try:
        return bool(files.read_file(path)) and read_partition_metadata(files, partition.directory) is None
    except FileNotFoundError:
        return False


def _entries(files: FileSystem, path: str) -> list[list[str]]:
    try:
        with files.open_read_only(path) as file:
            size = files.size(file.fileno())
    except NotAFile as error:
        raise CheckpointDamaged(f"it {error.strerror}") from error
    if size > _LARGEST_CHECKPOINT:
        raise CheckpointDamaged(f"{size} bytes are too many for a checkpoint")
    try:
        lines = files.read_file(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointDamaged("it is not text") from error
    if not lines or lines[0] != "0":
        raise CheckpointDamaged("the first line must be the version, 0")
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise CheckpointDamaged(f"the second line must be the number of entries, {len(entries)}")
    return entries


def _number(word: str, limit: int) -> int:
    try:
        return number_of(word, limit)
    except ImpossibleNumber as error:
        raise CheckpointDamaged(str(error)) from error
