"""Segments that leave a log while it is written and read: those that retention drops, and those that a compacted one replaces.

Role: the order of renames, of changes to the list of segments, and of syncs of the directory. Each step leaves names from which the next
start can go on (interrupted.py). The old files are gone from the directory, on disk, before the new one gets its name: the two never
overlap, not even after a power cut.
Thread: a cleaner's, the housekeeper's, and whoever deletes records.
Lock: the log's `_maintenance` all the time, its append lock only to publish and for the last renames, never over a sync.

Readers take no lock. Those that hold the old list find the old segments retired when they need a file of theirs, and look again
(LogReader.look_again); regions that are being sent keep their files open. The new segment is readable from the moment it is in the list:
under its .swap name, and open.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from barnabas.broker.log.files import OpenFile, may_pass
from barnabas.broker.log.producer_state import SNAPSHOT_SUFFIX
from barnabas.broker.log.reading import LogReader
from barnabas.broker.log.segment import DELETED_SUFFIX, SWAP_SUFFIX, Segment, segment_name

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog


class SegmentSwap:
    """Takes segments out of the list of one log, and puts others in their place."""

    __slots__ = ("_dir", "_lock", "_log", "_maintenance", "_reader")

    def __init__(
        self, log: PartitionLog, log_dir: LogDir, reader: LogReader, locks: tuple[threading.Lock, threading.Lock]
    ) -> None:
        self._log = log
        self._dir = log_dir
        self._reader = reader
        self._maintenance, self._lock = locks

    def replace(self, old: list[Segment], new: Segment, end: int) -> bool:
        """`new` is complete, on disk and called .cleaned, and covers everything below `end`; False when the log has changed meanwhile,
        OSError when there is no room or no descriptor, and then nothing was done."""
        if not self._dir.secure_up_to(self._log, end) and self._log.available and not self._dir.offline:
            raise OSError(errno.ENOSPC, f"the recovery point of {self._log.name} cannot be noted")
        with self._maintenance, self._dir.files.open_directory(self._log.directory) as names:
            if not self._log.available or self._dir.offline or not {*old} <= {*self._reader.view.segments}:
                return False
            for segment in old:
                if segment.suffix == SWAP_SUFFIX:
                    self._name(segment)
            new.rename(SWAP_SUFFIX)
            try:
                aside = self._swap(old, new, names)
            except OSError as error:
                self._dir.fail(error)  # the names say how far it came; the next start completes it
                return False
        self._dir.discard(self._log, aside)
        return True

    def _swap(self, old: list[Segment], new: Segment, names: OpenFile) -> list[Segment]:
        """The old segments whose files wait for their removal. Nothing can be undone here, so what may pass is no failure."""
        self._sync_names(names)
        with self._lock:
            segments = sorted({*self._reader.view.segments, new} - {*old}, key=lambda each: each.base_offset)
            self._reader.publish(segments)
            for segment in old:
                segment.retire()
        aside = [segment for segment in old if self._set_aside_or_remove(segment)]
        self._sync_names(names)
        try:
            self._name(new)
        except OSError as error:
            self._dir.note_error(error)  # it is found under its .swap name as well, until the next cleaning or start
        self._reader.note_open(new)
        self._sync_names(names)
        return aside

    def _name(self, new: Segment) -> None:
        with self._lock:
            new.rename("")

    def drop_below(self, start: int) -> list[Segment]:
        """Take segments whose every offset is below the start out of the list and out of the way; under `_maintenance`."""
        with self._lock:
            dropped = self._reader.drop_below(start)
            for segment in dropped:
                segment.retire()
        try:
            for segment in dropped:
                self._set_aside(segment)
        except OSError as error:
            self._dir.note_error(error)
        return dropped

    def _set_aside(self, segment: Segment) -> None:
        """The files wait under another name for their removal; of what the log knew when the segment began nobody asks any more."""
        segment.rename(DELETED_SUFFIX)
        if segment.base_offset not in self._reader.view.bases:
            name = segment_name(segment.base_offset) + SNAPSHOT_SUFFIX
            self._dir.files.remove(os.path.join(self._log.directory, name))

    def _set_aside_or_remove(self, segment: Segment) -> bool:
        """Without room for another name the files go at once: that needs none, and theirs is wanted."""
        try:
            self._set_aside(segment)
        except OSError as error:
            if not may_pass(error):
                raise
            segment.remove_files()
            return False
        return True

    def remove(self, segment: Segment) -> None:
        """Remove the files of a segment that left the log; not after the log was moved away, when their names may be a new topic's."""
        with self._maintenance:
            if os.path.dirname(segment.path) == self._log.directory:
                segment.remove_files()

    def _sync_names(self, names: OpenFile) -> None:
        self._dir.files.sync_directory(self._log.directory, names)

    def __repr__(self) -> str:
        return f"SegmentSwap({self._log.name})"
