"""Partition directories as they are on disk before the logs are started.

Role: lets `Topics.reconcile` compare them with the catalog. Thread: the main thread at start. Lock: none; the catalog's file
is open and with it locked, and no log is loaded yet.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from barnabas.broker.log import checkpoints
from barnabas.broker.log.files import FileSystem

log = logging.getLogger(__name__)

_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,9})\Z")

_LONGEST_KEPT = 200  # with the ending still below the 255 characters of a file name


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory with the name of a partition."""

    path: str
    topic: str
    partition: int

    def topic_id(self, files: FileSystem) -> uuid.UUID | None:
        """The id that was stored with the log, None when there is none to read."""
        return checkpoints.read_partition_metadata(files, self.path)

    def mark_deleted(self, files: FileSystem) -> None:
        """Rename it as a deleted log, which `LogManager.startup` removes in the background."""
        log.info("Removing %s, which is left from a deleted topic", self.path)
        parent, name = os.path.split(self.path)
        files.rename(self.path, os.path.join(parent, f"{name[:_LONGEST_KEPT]}.{uuid.uuid4().hex}-delete"))


def scan(files: FileSystem, log_dir: str, known: Collection[str]) -> Iterator[PartitionDirectory]:
    """The partition directories of topics that are not in `known`. Raises OSError when the log directory cannot be read."""
    if not files.exists(log_dir):
        return
    for name in sorted(files.list_directory(log_dir)):
        match = _PARTITION_NAME.match(name)
        if match is None or match["topic"] in known:
            continue
        path = os.path.join(log_dir, name)
        if files.is_directory(path):
            yield PartitionDirectory(path, match["topic"], int(match["partition"]))
