"""What a crash left of a compaction: it is completed or undone before the directory is loaded.

Role: from the names in a partition's directory to one where every segment has its plain name. A swap goes through these steps
(swap.py), and any of them may be the last:

    1. the new segment is written and synced as <base>.*.cleaned             undone: removed
    2. its indexes are renamed to .swap, then its log                        undone until the log has the name, completed from then on
    3. the old segments are renamed to .deleted, one after the other         completed: what is left of them is removed
    4. the new one's indexes get their plain names, then its log             completed
    5. the .deleted files go                                                 completed

A .swap that is not whole replaces nothing: step 1 synced it, so it is damaged or no compaction made it. It is kept as .damaged, and the old
segment stays. Only when that is gone already (step 3 has begun) is it completed, damage and all, as it is all there is.

Kafka renames the log before its indexes; what it left is understood too: an index that is still .cleaned or .swap belongs to its log.
Thread: the loader's, before any other thread knows the log. Lock: none.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from barnabas.broker.log.batch_search import LARGEST_BASE_OFFSET
from barnabas.broker.log.checkpoints import keep_damaged
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from barnabas.broker.log.txn_index import TXN_INDEX_SUFFIX
from barnabas.broker.log.walk import walk

log = logging.getLogger(__name__)

_TEMPORARY = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
_SIDE_FILES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_NAME_DIGITS = 20
_PASS_NO_DAMAGE = -1
_ANY_INTERVAL = 4096
"""How far apart index entries are that nobody takes."""


def finish_interrupted(files: FileSystem, directory: str, names: list[str]) -> bool:
    """Complete or undo; whether anything was there to do, so that `names` is no longer true."""
    if not any(name.endswith(_TEMPORARY) for name in names):
        return False
    _Cleanup(files, directory, set(names)).run()
    return True


class _Cleanup:
    """The names of one directory, kept in step with the disk."""

    def __init__(self, files: FileSystem, directory: str, names: set[str]) -> None:
        self._files = files
        self._directory = directory
        self._names = names

    def run(self) -> None:
        for name in sorted(self._names):
            if name.endswith(DELETED_SUFFIX):
                self._remove(name)
        for stem in self._stems(LOG_SUFFIX + SWAP_SUFFIX):
            if stem + LOG_SUFFIX in self._names and not self._is_whole(stem):
                self._undo_damaged(stem)
            else:
                self._complete(stem)
        for name in sorted(self._names):
            if name.endswith(SWAP_SUFFIX):
                self._finish_index(name)
        for name in sorted(self._names):
            if name.endswith(CLEANED_SUFFIX):
                self._remove(name)
        self._files.sync_directory(self._directory)

    def _complete(self, stem: str) -> None:
        """The log has its .swap name: the new segment counts, the old ones go."""
        log.info("%s: completing the compaction that made %s", self._directory, stem)
        if self._has_new_index(stem):  # step 4 has not begun, so indexes with plain names are those of the old segment
            for ending in _SIDE_FILES:
                self._remove(stem + ending)
        self._remove_replaced(int(stem), self._end_of(stem))
        self._files.sync_directory(self._directory)
        for ending in _SIDE_FILES:
            for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
                if stem + ending + suffix in self._names:
                    self._rename(stem + ending + suffix, stem + ending)
        self._rename(stem + LOG_SUFFIX + SWAP_SUFFIX, stem + LOG_SUFFIX)

    def _has_new_index(self, stem: str) -> bool:
        return bool({stem + INDEX_SUFFIX + SWAP_SUFFIX, stem + INDEX_SUFFIX + CLEANED_SUFFIX} & self._names)

    def _is_whole(self, stem: str) -> bool:
        """Whether every byte of the new segment belongs to a good batch; it may be empty, when nothing was left of the old ones: then only
        its index, which has its plain name last, shows that a compaction made it."""
        with self._new_segment(stem) as segment:
            if not segment.size and not self._has_new_index(stem):
                return False
            *_, scan = walk(segment, 0, _ANY_INTERVAL, keep_below=_PASS_NO_DAMAGE)
            return scan.valid_size == segment.size

    def _undo_damaged(self, stem: str) -> None:
        """The log last: while it has its name, a start that is killed here begins anew, and no index is taken for the old log's."""
        for ending in _SIDE_FILES:
            self._keep_damaged(stem + ending + SWAP_SUFFIX)
        kept = self._keep_damaged(stem + LOG_SUFFIX + SWAP_SUFFIX)
        log.warning("%s was damaged, or no compaction made it; %s%s stays as it is", kept, stem, LOG_SUFFIX)

    def _keep_damaged(self, name: str) -> str:
        if name not in self._names:
            return ""
        self._names.discard(name)
        return keep_damaged(self._files, self._path(name))

    def _end_of(self, stem: str) -> int:
        """The offset after the last batch of the new segment; all of it is on disk since step 1."""
        with self._new_segment(stem) as segment:
            try:
                return segment.end_offset()
            except (IndexDamaged, CorruptLog):
                return max((place.last_offset + 1 for place in segment.places(0, segment.size)), default=int(stem))

    @contextlib.contextmanager
    def _new_segment(self, stem: str) -> Iterator[Segment]:
        with self._files.open_read_only(self._path(stem + LOG_SUFFIX + SWAP_SUFFIX)) as file:
            size = self._files.size(file.fileno())
        segment = Segment(self._files, self._directory, int(stem), size, SWAP_SUFFIX)
        try:
            yield segment
        finally:
            segment.release()

    def _remove_replaced(self, base: int, end: int) -> None:
        """Segments that the new one contains. One after its last batch may stay: its records are only not compacted yet."""
        for ending in (LOG_SUFFIX, *_SIDE_FILES):
            for stem in self._stems(ending):
                if base < int(stem) < end:
                    self._remove(stem + ending)

    def _finish_index(self, name: str) -> None:
        """An index of which the log is not .swap: before step 2 was done the log is .cleaned, after Kafka's step 4 it has its name."""
        plain = name.removesuffix(SWAP_SUFFIX)
        stem = plain.split(".", maxsplit=1)[0]
        if stem + LOG_SUFFIX + CLEANED_SUFFIX in self._names or stem + LOG_SUFFIX not in self._names:
            self._remove(name)
        else:
            self._rename(name, plain)

    def _stems(self, ending: str) -> list[str]:
        """The numbers of files with this ending."""
        stems = (name.removesuffix(ending) for name in self._names if name.endswith(ending))
        numbers = (stem for stem in stems if len(stem) == _NAME_DIGITS and stem.isdecimal())
        return sorted(stem for stem in numbers if int(stem) <= LARGEST_BASE_OFFSET)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _remove(self, name: str) -> None:
        if name in self._names:
            self._files.remove(self._path(name))
            self._names.discard(name)

    def _rename(self, old: str, new: str) -> None:
        self._files.rename(self._path(old), self._path(new))
        self._names.discard(old)
        self._names.add(new)
