"""Small text files of the log: checkpoints of offsets and epochs, partition.metadata, meta.properties, the clean-shutdown marker.

Role: read and write Kafka's own formats. A file that is missing or damaged reads as "nothing known", which costs a longer recovery,
never data.
Thread: the log manager's and the flusher's threads, start and stop. Lock: `LogDir` serialises writes of its files.

    offset checkpoint            leader-epoch-checkpoint      partition.metadata
      0            version         0        version             version: 0
      2            entries         1        entries             topic_id: <22 characters, base64url>
      topic 0 42   offset          0 0      epoch, start
"""

from __future__ import annotations

import base64
import json
import logging
import os
import uuid
from collections.abc import Mapping
from typing import Protocol

from barnabas.broker.log.files import FileSystem

log = logging.getLogger(__name__)

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
REPLICATION_FILE = "replication-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
ABORTED_FILE = "barnabas-aborted-checkpoint"
"""Our own: the checksum of the transaction indexes of each partition at a clean stop, see transactions.index_digest."""
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
CATALOG_FILE = "barnabas-metadata.sqlite"
"""The catalog's; it only stands beside the others, in the first directory."""
FILES_OF_A_DIRECTORY = (
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    LOG_START_FILE,
    REPLICATION_FILE,
    CLEANER_FILE,
    ABORTED_FILE,
    CLEAN_SHUTDOWN_FILE,
)
"""All small files that are read or replaced in a log directory, but for the lock."""
DAMAGED_SUFFIX = ".damaged"
"""What cannot be believed is kept under this ending, and never looked at again."""
_COPIED_AT_ONCE = 1 << 20

_VERSION = "0"

OffsetMap = dict[tuple[str, int], int]

OFFSET_LIMIT = 2**62
"""No log reaches it. A checkpoint that says so is damaged, and calculating with its numbers would not fit the file formats."""
NUMBER_LIMIT = 2**31
"""Of partitions, of leader epochs and of nodes."""
_MOST_DIGITS = 20


class ImpossibleNumber(ValueError):
    """What stands in a checkpoint where a number must be."""


def number_of(word: str, limit: int) -> int:
    """A number of a checkpoint, from 0 to below a limit; ImpossibleNumber when it is none."""
    if not word.isascii() or not word.isdecimal():
        raise ImpossibleNumber(f"{word[:40]!r} is not a number")
    if len(word) > _MOST_DIGITS or int(word) >= limit:
        raise ImpossibleNumber(f"{word[:40]} is too large")
    return int(word)


def _read_lines(files: FileSystem, path: str) -> list[list[str]] | None:
    """The entries of a checkpoint, split at blanks; None when it is missing or damaged."""
    try:
        lines = files.read_file(path).decode("utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        log.warning("%s is damaged and is ignored", path)
        return None
    if not lines:
        return []
    entries = [line.split() for line in lines[2:]]
    if lines[0] != _VERSION or len(lines) < 2 or lines[1] != str(len(entries)):
        log.warning("%s is damaged and is ignored", path)
        return None
    return entries


def read_offsets(files: FileSystem, path: str) -> OffsetMap:
    """(topic, partition) -> offset; empty when the file cannot be used, or says what cannot be."""
    try:
        entries = _read_lines(files, path) or []
        found = {
            (topic, number_of(number, NUMBER_LIMIT)): number_of(offset, OFFSET_LIMIT)
            for topic, number, offset in entries
        }
        if len(found) != len(entries):
            raise ImpossibleNumber("a partition stands in it twice")
        return found
    except ValueError:
        log.warning("%s is damaged and is ignored", path)
        return {}


def write_offsets(files: FileSystem, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    files.replace_file(path, ("\n".join(lines) + "\n").encode())


def read_epochs(files: FileSystem, directory: str) -> list[tuple[int, int]]:
    """(leader epoch, its first offset), ascending."""
    path = os.path.join(directory, LEADER_EPOCH_FILE)
    try:
        return sorted(
            (number_of(epoch, NUMBER_LIMIT), number_of(start, OFFSET_LIMIT))
            for epoch, start in _read_lines(files, path) or ()
        )
    except ValueError:
        log.warning("%s is damaged and is ignored", path)
        return []


def encode_epochs(epochs: list[tuple[int, int]]) -> bytes:
    lines = [_VERSION, str(len(epochs))] + [f"{epoch} {start}" for epoch, start in epochs]
    return ("\n".join(lines) + "\n").encode()


def encode_topic_id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def write_partition_metadata(files: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    text = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}\n"
    files.write_file(os.path.join(directory, PARTITION_METADATA_FILE), text.encode(), sync=False)


def sync_partition_metadata(files: FileSystem, directory: str) -> None:
    """Before the first record is called durable, the topic that it belongs to is."""
    with files.open(os.path.join(directory, PARTITION_METADATA_FILE), create=True) as file:
        files.sync(file.fileno())


def read_partition_metadata(files: FileSystem, directory: str) -> uuid.UUID | None:
    """The id of the topic that a directory belongs to; None when there is none or it is damaged. OSError when it cannot be read."""
    try:
        text = files.read_file(os.path.join(directory, PARTITION_METADATA_FILE)).decode()
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name == "topic_id":
                return decode_topic_id(value.strip())
    except (FileNotFoundError, ValueError):
        pass
    return None


class PropertiesDamaged(Exception):
    """meta.properties is not what a broker writes."""


def read_properties(files: FileSystem, path: str) -> dict[str, str]:
    """What meta.properties says, nothing when it is missing; PropertiesDamaged when it cannot be believed."""
    try:
        lines = files.read_file(path).decode().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise PropertiesDamaged("it is not text") from error
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    for name, value in {
        "version": found.get("version", ""),
        "node.id": found.get("node.id") or found.get("broker.id", ""),
    }.items():
        try:
            number_of(value, NUMBER_LIMIT)
        except ImpossibleNumber as error:
            raise PropertiesDamaged(f"it has no {name}: {error}" if value else f"it has no {name}") from error
    return found


class Readable(Protocol):
    """A file that is open elsewhere: a segment's."""

    @property
    def path(self) -> str: ...

    def read(self, position: int, length: int, /) -> bytes: ...


def keep_damaged(files: FileSystem, path: str) -> str:
    """Give whatever is at a path a name under which it is kept and never looked at; the new path. Nothing is overwritten."""
    target = _free_damaged_path(files, path)
    files.rename(path, target)
    files.sync_directory(os.path.dirname(path))
    return target


def keep_damaged_bytes(files: FileSystem, source: Readable, position: int) -> str:
    """Copy what a file has from a position on to where it is kept and never looked at; the new path."""
    target = _free_damaged_path(files, f"{source.path}.{position}")
    temporary = target + ".tmp"
    try:
        with files.open(temporary, create=True) as file:
            copied = 0
            while chunk := source.read(position + copied, _COPIED_AT_ONCE):
                files.write_fully(file.fileno(), chunk, copied)
                copied += len(chunk)
            files.truncate(file.fileno(), copied)
            files.sync(file.fileno())
    except OSError:
        files.remove(temporary)  # where there is no room, half a copy must not take the rest
        raise
    files.rename(temporary, target)
    files.sync_directory(os.path.dirname(target))
    return target


def _free_damaged_path(files: FileSystem, path: str) -> str:
    number, target = 1, path + DAMAGED_SUFFIX
    while files.exists(target) or files.is_link(target):
        target = f"{path}.{number}{DAMAGED_SUFFIX}"
        number += 1
    return target


def write_properties(files: FileSystem, path: str, values: Mapping[str, str]) -> None:
    text = "#\n" + "".join(f"{name}={value}\n" for name, value in values.items())
    files.replace_file(path, text.encode())


def encode_clean_shutdown() -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": -1}).encode()
