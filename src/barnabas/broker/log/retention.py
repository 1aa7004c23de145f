"""Which segments are too old or too many, and letting them go.

Role: the decision is pure; PartitionLog moves its start as it says.
Thread: the housekeeper's. Lock: none.

Compaction (`cleanup.policy=compact`) is compaction.py's work: a log that is only compacted is not shortened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.places import CorruptLog
from barnabas.broker.log.segment import Segment

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog


def apply(log: PartitionLog, now_ms: int) -> int:
    """Drop segments that are too old or too many; how many were dropped."""
    before, last = log.segment_count, log.segments[-1]
    wanted = wanted_start(log, now_ms)
    log.roll_when(lambda end, active: wanted >= end > active.base_offset)
    if log.segments[-1] is not last:
        before += 1
    log.move_start(max(wanted, log.log_start_offset))
    return before - log.segment_count


def wanted_start(log: PartitionLog, now_ms: int) -> int:
    """The offset that the log should begin at, as retention.ms and retention.bytes demand."""
    config, segments = log.config, log.segments
    if not config.deletes:
        return log.log_start_offset
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    count = max(_too_many(config, segments), _too_old(config, segments, now_ms))
    return max(log.log_start_offset, ends[count - 1]) if count else log.log_start_offset


def _too_many(config: LogConfig, segments: tuple[Segment, ...]) -> int:
    """Oldest segments that can go while at least retention.bytes stay; never the active one."""
    if config.retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments[:-1]:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _too_old(config: LogConfig, segments: tuple[Segment, ...], now_ms: int) -> int:
    """Oldest segments whose every record is older than retention.ms; the active one too, when it has records."""
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if not segment.size and segment is not segments[-1]:
            count += 1  # compaction left nothing of it
            continue
        if not segment.size or now_ms - _age_mark(segment) <= config.retention_ms:
            break
        count += 1
    return count


def _age_mark(segment: Segment) -> int:
    """The largest timestamp; records without one have the time at which the file was written. In doubt, now: nothing goes."""
    try:
        timestamp = segment.largest_timestamp(segment.size)[0]
        return timestamp if timestamp >= 0 else segment.modified_ms()
    except (IndexDamaged, CorruptLog, OSError):
        return 2**63
