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

_VERSION = "0"

OffsetMap = dict[tuple[str, int], int]


def _read_lines(files: FileSystem, path: str) -> list[list[str]] | None:
    """The entries of a checkpoint, split at blanks; None when it is missing or damaged."""
    try:
        lines = files.read_file(path).decode("utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if not lines:
        return []
    entries = [line.split() for line in lines[2:]]
    if lines[0] != _VERSION or len(lines) < 2 or lines[1] != str(len(entries)):
        log.warning("%s is damaged and is ignored", path)
        return None
    return entries


def read_offsets(files: FileSystem, path: str) -> OffsetMap:
    """(topic, partition) -> offset; empty when the file cannot be used."""
    try:
        return {(topic, int(number)): int(offset) for topic, number, offset in _read_lines(files, path) or ()}
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
        return sorted((int(epoch), int(start)) for epoch, start in _read_lines(files, path) or ())
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


def read_properties(files: FileSystem, path: str) -> dict[str, str]:
    try:
        lines = files.read_file(path).decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def write_properties(files: FileSystem, path: str, values: Mapping[str, str]) -> None:
    text = "#\n" + "".join(f"{name}={value}\n" for name, value in values.items())
    files.replace_file(path, text.encode())


def encode_clean_shutdown() -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": -1}).encode()
