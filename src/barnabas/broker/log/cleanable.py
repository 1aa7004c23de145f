"""Which part of a compacted log is dirty, how urgent it is, and which segments are cleaned together.

Role: pure decisions, as Kafka's LogCleanerManager and Cleaner take them; cleaner.py and compaction.py act on them.
Thread: a cleaner's. Lock: none; all input is what the log has published.

    start        first_dirty             first_uncleanable      end
      |   clean      |        dirty               |   not yet    |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.log.batch_search import MAX_RELATIVE_OFFSET
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.index import IndexDamaged, SparseIndex
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.segment import Segment

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)


class DirtyLog(NamedTuple):
    """A log and what a cleaning of it would do now."""

    log: PartitionLog
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    """For how long the oldest dirty record should have been cleaned already (max.compaction.lag.ms); 0: not at all."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.dirty_bytes

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def wants_cleaning(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.delay_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def look_at(log_: PartitionLog, checkpoint: int | None, now_ms: int) -> DirtyLog:
    """How dirty a log is, when everything below `checkpoint` was cleaned before."""
    segments = log_.segments
    first_dirty = _first_dirty(log_, checkpoint)
    dirty = _from_offset(segments[:-1], first_dirty)
    limit = min(log_.last_stable_offset, segments[-1].base_offset, _within_lag(dirty, log_.config, now_ms))
    uncleanable = max(first_dirty, limit)
    # Only whole segments: the first one that has something uncleanable ends the dirty part.
    later = _from_offset(segments, uncleanable)
    first_uncleanable = later[0].base_offset if later else segments[-1].base_offset
    begin = min(first_dirty, first_uncleanable)
    dirty_bytes = sum(
        segment.size for segment in _from_offset(segments, begin) if segment.base_offset < first_uncleanable
    )
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < first_dirty) - (
        dirty[0].size if dirty and dirty[0].base_offset < first_dirty else 0
    )
    return DirtyLog(log_, first_dirty, first_uncleanable, clean_bytes, dirty_bytes, _delay(dirty, log_.config, now_ms))


def _first_dirty(log_: PartitionLog, checkpoint: int | None) -> int:
    start, end = log_.log_start_offset, log_.log_end_offset
    if checkpoint is None or start <= checkpoint <= end:
        return start if checkpoint is None else checkpoint
    if not (
        checkpoint < start and log_.config.deletes
    ):  # with both policies retention overtakes the cleaner, as it may
        log.warning(
            "%s was cleaned up to %d, but reaches from %d to %d: all of it is dirty", log_.name, checkpoint, start, end
        )
    return start


def _from_offset(segments: tuple[Segment, ...], offset: int) -> tuple[Segment, ...]:
    """The segment that holds an offset, and all after it."""
    later = [number for number, segment in enumerate(segments) if segment.base_offset <= offset]
    return segments[later[-1] :] if later else segments


def _within_lag(dirty: tuple[Segment, ...], config: LogConfig, now_ms: int) -> int:
    """The base offset of the first segment with a record that is too young (min.compaction.lag.ms)."""
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if _largest_timestamp(segment) > now_ms - config.min_compaction_lag_ms:
                return segment.base_offset
    return 2**63


def _largest_timestamp(segment: Segment) -> int:
    """In doubt now and for ever: what cannot be read is not compacted for its age."""
    try:
        timestamp = _without_keeping_open(segment, lambda: segment.largest_timestamp(segment.size)[0])
        return timestamp if timestamp >= 0 else segment.modified_ms()
    except (IndexDamaged, CorruptLog, OSError):
        return 2**63


def _without_keeping_open(segment: Segment, read: Callable[[], int]) -> int:
    """A look at many segments leaves none of them open that was not."""
    was_open = segment.is_open
    try:
        return read()
    finally:
        if not was_open:
            segment.release()


def _delay(dirty: tuple[Segment, ...], config: LogConfig, now_ms: int) -> int:
    until = now_ms - config.max_compaction_lag_ms
    if until <= 0:
        return 0
    oldest = min((time for segment in dirty if (time := _first_timestamp(segment)) > 0), default=until)
    return max(0, until - oldest)


def _first_timestamp(segment: Segment) -> int:
    try:
        return _without_keeping_open(segment, segment.first_timestamp)
    except (CorruptLog, ValueError, OSError):
        return -1


def group_segments(segments: list[Segment], config: LogConfig, first_uncleanable: int) -> list[list[Segment]]:
    """Neighbours that become one segment: together not larger than a segment may be, so that cleaned logs do not end up as dust."""
    groups: list[list[Segment]] = []
    size = offset_bytes = time_bytes = 0
    for number, segment in enumerate(segments):
        sizes = segment.size, _entries(segment.offset_index) * 8, _entries(segment.time_index) * 12
        following = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable
        fits = (
            bool(groups)
            and size + sizes[0] <= config.segment_bytes
            and offset_bytes + sizes[1] <= config.segment_index_bytes
            and time_bytes + sizes[2] <= config.segment_index_bytes
            and (not sizes[0] or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if not fits:
            groups.append([])
            size = offset_bytes = time_bytes = 0
        groups[-1].append(segment)
        size, offset_bytes, time_bytes = size + sizes[0], offset_bytes + sizes[1], time_bytes + sizes[2]
    return groups


def _entries(index: SparseIndex) -> int:
    """A damaged index is made anew by the cleaning itself."""
    try:
        return index.entries
    except IndexDamaged:
        return 0
