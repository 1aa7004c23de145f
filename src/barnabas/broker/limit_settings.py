"""The settings of what single APIs do for one request at most: rows of the broker's table, kept apart because that file is long.

Role: declaration only. Thread: any. Lock: none, the rows are immutable.
"""

from __future__ import annotations

from barnabas.config import Allowed, ConfigKey, ConfigType, between

MAX_INT = 2**31 - 1
MOST_NEW_PARTITIONS = 10_000

FEWEST_FILES = 16
MIN_SEGMENT_BYTES_KEY = "barnabas.topic.min.segment.bytes"

LIMITS = (
    ConfigKey(
        "barnabas.fetch.max.wait.ms",
        ConfigType.INT,
        300_000,
        "The longest that a Fetch waits for data; a client that asks for more waits this long. The default is the most that librdkafka "
        "can be set to, and ten times the request timeout of Java's consumer.",
        between(0, MAX_INT),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        "barnabas.fetch.session.cache.partitions",
        ConfigType.INT,
        500_000,
        "Partitions that all fetch sessions together may remember, about 300 bytes each. A consumer for whose session there is no room "
        "works without one.",
        between(0, MAX_INT),
    ),
    ConfigKey(
        "barnabas.log.max.open.files",
        ConfigType.INT,
        0,
        "About how many files of segments may be open at a time, those included that are being sent to clients. Files that were not used "
        "lately are closed, and opened again on use. 0: half of the descriptors that the process may have (`ulimit -n`).",
        Allowed(f"must be 0 or at least {FEWEST_FILES}", lambda files: files == 0 or FEWEST_FILES <= files <= MAX_INT),
    ),
    ConfigKey(
        "barnabas.produce.light.bytes",
        ConfigType.INT,
        1_572_864,
        "What a network thread does of a Produce request itself: bytes of batches and bytes that are decompressed for them, and 16 KiB for "
        "each partition. The rest is left to a request handler.",
        between(0, MAX_INT),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        "barnabas.produce.max.expanded.bytes",
        ConfigType.LONG,
        1_073_741_824,
        "About what the compressed batches of one Produce request may hold in all; those beyond it are refused with MESSAGE_TOO_LARGE. The "
        "default is ten times the largest request.",
        between(1_048_576, 2**63 - 1),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        "barnabas.produce.max.recompressed.bytes",
        ConfigType.INT,
        16_777_216,
        "About how many bytes of records of one Produce request the broker compresses as their topics' compression.type wants it; batches "
        "beyond it are refused with MESSAGE_TOO_LARGE. With zstd from level 13 on each byte counts four times. A request whose producer "
        "compresses so itself is not concerned.",
        between(1_048_576, MAX_INT),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        "barnabas.response.max.bytes",
        ConfigType.INT,
        33_554_432,
        "About the largest answer of DescribeConfigs and CreateTopics: in DescribeConfigs, resources that do not fit are answered with "
        "INVALID_REQUEST and ask for a smaller request; CreateTopics leaves out the configs of topics that do not fit.",
        between(1024, MAX_INT),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        MIN_SEGMENT_BYTES_KEY,
        ConfigType.INT,
        1_048_576,
        "The smallest segment.bytes that a topic may be given: each segment takes four files. What a topic has already stays. The default "
        "is Kafka's limit since 4.0 (KIP-1030).",
        between(1024, MAX_INT),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey(
        "barnabas.request.max.partitions",
        ConfigType.INT,
        MOST_NEW_PARTITIONS,
        "Partitions that one request may create, by CreateTopics, CreatePartitions or Metadata; topics beyond it are refused with "
        "POLICY_VIOLATION. The default is Kafka's limit.",
        between(1, 1_000_000),
        dynamic=True,
        read_on_use=True,
    ),
)
