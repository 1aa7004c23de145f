"""The settings of topics: one row each, and where a topic takes what it does not set itself.

Role: declaration, and the rule topic override, then broker setting, then default. Names and defaults are Kafka's.
Thread: any. Lock: none, the table is immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.broker.settings import (
    BOOLEAN,
    CODECS,
    DOUBLE,
    GZIP_LEVELS,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    MINUS_ONE_OR_MORE,
    STRING,
)
from barnabas.config import Allowed, Config, ConfigDef, ConfigKey, at_least, between, each_of, one_of

TOPIC = ConfigDef(
    "topic",
    (
        ConfigKey(
            "cleanup.policy",
            LIST,
            ("delete",),
            "What happens to old records.",
            each_of("delete", "compact"),
            fallback="log.cleanup.policy",
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "producer",
            "How batches are kept.",
            one_of(*CODECS),
            fallback="compression.type",
        ),
        ConfigKey(
            "compression.gzip.level",
            INT,
            -1,
            "The level when compression.type is gzip and the producer used another codec; -1 is the default level.",
            GZIP_LEVELS,
            fallback="compression.gzip.level",
        ),
        ConfigKey(
            "compression.lz4.level",
            INT,
            9,
            "The level when compression.type is lz4 and the producer used another codec.",
            between(1, 17),
            fallback="compression.lz4.level",
        ),
        ConfigKey(
            "compression.zstd.level",
            INT,
            3,
            "The level when compression.type is zstd and the producer used another codec.",
            between(-131_072, 22),
            fallback="compression.zstd.level",
        ),
        ConfigKey(
            "delete.retention.ms",
            LONG,
            86_400_000,
            "How long tombstones of a compacted topic stay.",
            at_least(0),
            fallback="log.cleaner.delete.retention.ms",
        ),
        ConfigKey(
            "file.delete.delay.ms",
            LONG,
            60_000,
            "How long a deleted segment's file stays.",
            at_least(0),
            fallback="log.segment.delete.delay.ms",
        ),
        ConfigKey(
            "flush.messages",
            LONG,
            MAX_LONG,
            "Flush after this many records.",
            at_least(1),
            fallback="log.flush.interval.messages",
        ),
        ConfigKey(
            "flush.ms", LONG, MAX_LONG, "Flush at least this often.", at_least(0), fallback="log.flush.interval.ms"
        ),
        ConfigKey(
            "index.interval.bytes",
            INT,
            4096,
            "Bytes between two entries of the offset index.",
            at_least(0),
            fallback="log.index.interval.bytes",
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            LONG,
            MAX_LONG,
            "The longest that a record may stay uncompacted.",
            at_least(1),
            fallback="log.cleaner.max.compaction.lag.ms",
        ),
        ConfigKey(
            "max.message.bytes", INT, 1_048_588, "The largest record batch.", at_least(0), fallback="message.max.bytes"
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            LONG,
            3_600_000,
            "How far a timestamp may lie in the future.",
            at_least(0),
            fallback="log.message.timestamp.after.max.ms",
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            LONG,
            MAX_LONG,
            "How far a timestamp may lie in the past.",
            at_least(0),
            fallback="log.message.timestamp.before.max.ms",
        ),
        ConfigKey(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whose clock stamps records.",
            one_of("CreateTime", "LogAppendTime"),
            fallback="log.message.timestamp.type",
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            "The share of uncompacted records that starts a compaction.",
            between(0, 1),
            fallback="log.cleaner.min.cleanable.ratio",
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            LONG,
            0,
            "The shortest that a record stays uncompacted.",
            at_least(0),
            fallback="log.cleaner.min.compaction.lag.ms",
        ),
        ConfigKey(
            "min.insync.replicas", INT, 1, "Always 1 on one node.", between(1, 1), fallback="min.insync.replicas"
        ),
        ConfigKey("preallocate", BOOLEAN, False, "Accepted for Kafka's sake; files are never preallocated."),
        ConfigKey(
            "retention.bytes",
            LONG,
            -1,
            "Bytes kept per partition; -1 means no limit.",
            MINUS_ONE_OR_MORE,
            fallback="log.retention.bytes",
        ),
        ConfigKey(
            "retention.ms",
            LONG,
            604_800_000,
            "How long records are kept; -1 for ever.",
            MINUS_ONE_OR_MORE,
            fallback="log.retention.ms",
        ),
        ConfigKey(
            "segment.bytes",
            INT,
            1_073_741_824,
            "The size at which a new segment begins.",
            at_least(1024),
            fallback="log.segment.bytes",
        ),
        ConfigKey(
            "segment.index.bytes",
            INT,
            10_485_760,
            "The largest index.",
            at_least(4),
            fallback="log.index.size.max.bytes",
        ),
        ConfigKey(
            "segment.jitter.ms", LONG, 0, "Accepted for Kafka's sake; segments roll without jitter.", at_least(0)
        ),
        ConfigKey(
            "segment.ms",
            LONG,
            604_800_000,
            "The age at which a new segment begins.",
            at_least(1),
            fallback="log.roll.ms",
        ),
        ConfigKey(
            "unclean.leader.election.enable", BOOLEAN, False, "Accepted for Kafka's sake; one node elects nobody."
        ),
        ConfigKey(
            "leader.replication.throttled.replicas", LIST, (), "Accepted for Kafka's sake; nothing is replicated."
        ),
        ConfigKey(
            "follower.replication.throttled.replicas", LIST, (), "Accepted for Kafka's sake; nothing is replicated."
        ),
        ConfigKey(
            "remote.storage.enable",
            BOOLEAN,
            False,
            "Always false: there is no tiered storage.",
            Allowed("must be false", lambda v: not v),
        ),
        ConfigKey("local.retention.ms", LONG, -2, "Accepted for Kafka's sake; -2 means retention.ms.", at_least(-2)),
        ConfigKey(
            "local.retention.bytes", LONG, -2, "Accepted for Kafka's sake; -2 means retention.bytes.", at_least(-2)
        ),
    ),
)


def topic_default(config: Config, row: ConfigKey) -> Any:
    """What a topic config is worth when the topic does not set it: the broker's setting, else the row's default."""
    if row.name == "retention.ms" and config["log.retention.ms"] is None:
        return _retention_from_longer_units(config)
    if row.name == "segment.ms" and config["log.roll.ms"] is None:
        return config["log.roll.hours"] * 3_600_000
    if row.name == "flush.ms":
        return row.default  # the broker's own interval is the flusher's, not a limit of each topic
    value = config[row.fallback] if row.fallback else None
    return row.default if value is None else value


def _retention_from_longer_units(config: Config) -> int:
    minutes: int | None = config["log.retention.minutes"]
    milliseconds = config["log.retention.hours"] * 3_600_000 if minutes is None else minutes * 60_000
    return max(-1, milliseconds)


def topic_values(config: Config, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Every topic config with its typed value for one topic; raises `ConfigError`."""
    values = {row.name: topic_default(config, row) for row in TOPIC}
    for name, text in overrides.items():
        if name in TOPIC:
            values[name] = TOPIC[name].parse(text)
    return values
