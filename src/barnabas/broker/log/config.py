"""The settings of one partition's log.

Role: typed values of a topic's configuration, as the log needs them on the hot path (plain ints, no look-ups).
Thread: any; immutable. Lock: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
PRODUCER_CODEC = "producer"
UNCOMPRESSED = "uncompressed"

MAX_INDEX_INTERVAL = 65_536
"""Whatever a topic asks for: a read that begins between two entries goes over all batches between them."""

_TOPIC_KEYS = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_index_bytes": "segment.index.bytes",
    "index_interval_bytes": "index.interval.bytes",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "max_message_bytes": "max.message.bytes",
    "timestamp_type": "message.timestamp.type",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "cleanup_policy": "cleanup.policy",
    "min_cleanable_dirty_ratio": "min.cleanable.dirty.ratio",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "compression_type": "compression.type",
    "gzip_level": "compression.gzip.level",
    "lz4_level": "compression.lz4.level",
    "zstd_level": "compression.zstd.level",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic settings that concern the log, with Kafka's defaults."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = MAX_LONG
    timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    compression_type: str = PRODUCER_CODEC
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG

    @classmethod
    def from_topic_config(cls, values: Mapping[str, Any]) -> LogConfig:
        """From a topic's settings by Kafka's names; text or typed values, keys that are missing keep the default."""
        kinds = {field.name: type(field.default) for field in fields(cls)}
        given = {
            name: _typed(kinds[name], values[key]) for name, key in _TOPIC_KEYS.items() if values.get(key) is not None
        }
        return cls(**given)

    @property
    def keeps_plain_batches(self) -> bool:
        """Whether an uncompressed batch whose timestamps are not too late is written as it comes."""
        created = self.timestamp_type != LOG_APPEND_TIME and self.timestamp_before_max_ms == MAX_LONG
        return created and not self.compacted and self.compression_type in (PRODUCER_CODEC, UNCOMPRESSED)

    @property
    def index_interval(self) -> int:
        """Bytes between two entries of the offset index."""
        return min(self.index_interval_bytes, MAX_INDEX_INTERVAL)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is complete: what is in the active one is not compacted (Kafka's maxSegmentMs)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms


def _typed(kind: type, value: Any) -> Any:
    if kind is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(part.strip() for part in parts if part.strip())
    return kind(value)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The settings log.cleaner.*, with Kafka's defaults. Memory is for all threads together."""

    enabled: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_size: int = 524_288
    max_bytes_per_second: float = 1.7976931348623157e308
    backoff_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker's settings that concern all logs. Intervals in milliseconds."""

    log_dirs: tuple[str, ...]
    node_id: int = 1
    cluster_id: str = ""
    defaults: LogConfig = LogConfig()
    flush_interval_ms: int = 1000
    checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    recovery_threads: int = 2
    max_open_files: int = 0
    """0: half of the descriptors that the process may have."""
    cleaner: CleanerSettings = CleanerSettings()
