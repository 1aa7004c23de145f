"""The settings of the broker: one row each, from which --help, DescribeConfigs and the reference are made.

Role: declaration only. Names and defaults are Kafka's; our own keys start with `barnabas.`.
Thread: any. Lock: none, the tables are immutable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from barnabas.broker.budget_settings import BUDGET
from barnabas.broker.connection_settings import CONNECTIONS, check_connection_limits, listener_row
from barnabas.broker.limit_settings import LIMITS
from barnabas.broker.metrics_settings import METRICS_PAGE
from barnabas.config import Allowed, Config, ConfigDef, ConfigKey, ConfigType, at_least, between, each_of, one_of

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


def gil_enabled() -> bool:
    """Whether this build of Python runs one thread at a time."""
    probe: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return probe() if probe else True


# With the GIL every further active thread costs more than it brings (measured, docs/adr/0001); without it, Kafka's numbers.
DEFAULT_NETWORK_THREADS = 1 if gil_enabled() else 3
DEFAULT_IO_THREADS = 3 if gil_enabled() else 8

MINUS_ONE_OR_MORE = at_least(-1)
NOT_EMPTY = Allowed("must not be empty", bool)
GZIP_LEVELS = Allowed("must be from 1 to 9, or -1", lambda level: 1 <= level <= 9 or level == -1)
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


MOST_THREADS = 512
"""More than any machine has use for; each has a stack, and with the GIL they only wait for each other."""
MOST_CLEANERS = 64
MOST_PARTITIONS = 10_000
"""As many as Kafka lets one request create."""
SHORTEST_PATIENCE_MS = 100
"""A shorter deadline would close the connections of clients that do nothing wrong."""
ZERO_OR_PATIENT = Allowed(
    f"must be 0 or at least {SHORTEST_PATIENCE_MS}", lambda ms: ms == 0 or ms >= SHORTEST_PATIENCE_MS
)


NETWORK = (
    ConfigKey(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the broker listens: NAME://host:port, separated by commas. An empty host means every interface; port 0 lets the "
        "system choose.",
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        (),
        "What clients are told to connect to, by listener name. Default: what it listens on.",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        LIST,
        ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "CONTROL:PLAINTEXT"),
        "The security protocol of each listener name.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener that connection limits protect: it is served although max.connections is reached.",
    ),
    ConfigKey(
        "control.plane.listener.name",
        STRING,
        None,
        "A listener with an acceptor, a processor, a request queue and a handler of its own, so that control requests never "
        "queue behind data.",
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        DEFAULT_NETWORK_THREADS,
        "Processors per listener. Default 3 on builds without the GIL, 1 with it. One change at run time at most doubles or halves it.",
        between(1, MOST_THREADS),
        dynamic=True,
        gradual=True,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        DEFAULT_IO_THREADS,
        "Request handler threads. Default 8 on builds without the GIL, 3 with it: one each for heavy requests, for administrators and "
        "for the rest. 1 gives two, so that a slow request never stops the others. One change at run time at most doubles or halves it.",
        between(1, MOST_THREADS),
        dynamic=True,
        gradual=True,
    ),
    ConfigKey(
        "barnabas.request.inline",
        STRING,
        "auto",
        "The short cut of ADR 1: while the request queue is empty, a processor itself runs a request that cannot block. auto: on with "
        "the GIL as long as neither num.network.threads nor num.io.threads is set.",
        one_of("auto", "true", "false"),
    ),
    ConfigKey(
        "barnabas.request.shared.core",
        BOOLEAN,
        True,
        "With the GIL, processors and handlers share one core as long as nobody else crowds it, because handing a request from core to "
        "core costs more than the request. Without effect while processors run requests themselves.",
    ),
    ConfigKey(
        "queued.max.requests",
        INT,
        500,
        "Requests that may wait for a handler; then processors stop reading.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        -1,
        "Bytes of requests read but not yet handled; -1 means no limit. Requests of up to 1/64 of it (64 KiB at most) count but never "
        "wait.",
        MINUS_ONE_OR_MORE,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        102_400,
        "SO_SNDBUF; -1 leaves it to the operating system, which may then hold megabytes for each client that does not read.",
        MINUS_ONE_OR_MORE,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        "SO_RCVBUF; -1 leaves it to the operating system.",
        MINUS_ONE_OR_MORE,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        4096,
        "Connections that may wait to be accepted; the operating system may allow fewer. A client that finds no room tries again after a "
        "second at the earliest. Kafka's default is 50.",
        at_least(1),
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        104857600,
        "The largest request; a larger one closes its connection.",
        at_least(1024),
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "An idle connection is closed after this time.",
        at_least(SHORTEST_PATIENCE_MS),
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long the close after a failed authentication is delayed.",
        at_least(0),
    ),
    ConfigKey(
        "barnabas.connection.first.request.ms",
        LONG,
        10_000,
        "A connection that has not sent its first whole request within this time is closed; 0 means never.",
        ZERO_OR_PATIENT,
    ),
    ConfigKey(
        "barnabas.request.read.ms",
        LONG,
        30_000,
        "A request that has begun must have arrived whole within this time, or its connection is closed; 0 means no limit.",
        ZERO_OR_PATIENT,
    ),
    ConfigKey(
        "barnabas.response.write.ms",
        LONG,
        60_000,
        "A client that takes no byte of its response for this time is disconnected; 0 means no limit.",
        ZERO_OR_PATIENT,
    ),
    ConfigKey(
        "barnabas.response.stuck.ms",
        LONG,
        10_000,
        "A response that a client has not taken completely after this time is named in the log; 0 means never.",
        at_least(0),
    ),
    ConfigKey(
        "barnabas.connection.read.on.bytes",
        INT,
        1_048_576,
        "While a client does not take its response, the broker goes on reading up to this many bytes of its further requests, so that the "
        "connection cannot stand still in both directions (ADR 14). 0: nothing is read meanwhile.",
        at_least(0),
    ),
    ConfigKey(
        "barnabas.request.log.threshold.ms",
        LONG,
        -1,
        "Requests that took at least this long are logged as one line of JSON by the logger kafka.request.logger; -1 means none.",
        MINUS_ONE_OR_MORE,
        dynamic=True,
    ),
)

IDENTITY = (
    ConfigKey(
        "barnabas.dynamic.settings.enable",
        BOOLEAN,
        True,
        "false: start without the broker settings that were changed at run time, to get in again when one of them keeps everybody out. "
        "They stay stored; change or delete them, then start with true.",
    ),
    ConfigKey("node.id", INT, 1, "The id of the broker.", at_least(0)),
    ConfigKey("broker.rack", STRING, None, "The rack that the broker tells its clients."),
    ConfigKey(
        "cluster.id",
        STRING,
        None,
        "The id of a new cluster; without it a random one. Data that belongs to another cluster is refused.",
    ),
    ConfigKey("process.roles", LIST, ("broker", "controller"), "Accepted for Kafka's sake: this node is always both."),
    ConfigKey(
        "controller.listener.names",
        LIST,
        (),
        "Accepted for Kafka's sake: listeners of these names are not opened, as this node needs no controller traffic.",
    ),
    ConfigKey("controller.quorum.voters", LIST, (), "Accepted for Kafka's sake: this node is its own quorum."),
    ConfigKey("log.dir", STRING, None, "One log directory; used when log.dirs is not set.", NOT_EMPTY),
    ConfigKey("log.dirs", LIST, None, "The directories of the log, separated by commas.", NOT_EMPTY),
)

TOPIC_DEFAULTS = (
    ConfigKey(
        "num.partitions",
        INT,
        1,
        "Partitions of a topic whose creator does not say.",
        between(1, MOST_PARTITIONS),
        dynamic=True,
        read_on_use=True,
    ),
    ConfigKey("default.replication.factor", INT, 1, "Always 1 on one node.", between(1, 1)),
    ConfigKey("auto.create.topics.enable", BOOLEAN, True, "Create a topic when a client asks for its metadata."),
    ConfigKey("delete.topic.enable", BOOLEAN, True, "Whether topics may be deleted."),
    ConfigKey("min.insync.replicas", INT, 1, "Always 1 on one node.", between(1, 1)),
    ConfigKey(
        "message.max.bytes",
        INT,
        1_048_588,
        "The largest record batch, unless the topic says otherwise.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "How batches are kept, unless the topic says otherwise.",
        one_of(*CODECS),
        dynamic=True,
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        -1,
        "The level for batches that are compressed anew with gzip; -1 is the default level.",
        GZIP_LEVELS,
        dynamic=True,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        9,
        "The level for batches that are compressed anew with lz4.",
        between(1, 17),
        dynamic=True,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        3,
        "The level for batches that are compressed anew with zstd.",
        between(-131_072, 22),
        dynamic=True,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records.",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=True,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        "How far a record's timestamp may lie in the past.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        "How far a record's timestamp may lie in the future.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "log.segment.bytes", INT, 1_073_741_824, "The size at which a new segment begins.", at_least(1024), dynamic=True
    ),
    ConfigKey(
        "log.roll.ms",
        LONG,
        None,
        "The age at which a new segment begins; without it, log.roll.hours.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey("log.roll.hours", INT, 168, "The age at which a new segment begins.", at_least(1)),
    ConfigKey(
        "log.index.interval.bytes",
        INT,
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "log.index.size.max.bytes",
        INT,
        10_485_760,
        "The largest index; a full one begins a new segment.",
        at_least(4),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        "What happens to old records.",
        each_of("delete", "compact"),
        dynamic=True,
    ),
    ConfigKey(
        "log.retention.ms",
        LONG,
        None,
        "How long records are kept; -1 for ever. Without it, log.retention.minutes.",
        MINUS_ONE_OR_MORE,
        dynamic=True,
    ),
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        "How long records are kept. Without it, log.retention.hours.",
        MINUS_ONE_OR_MORE,
    ),
    ConfigKey("log.retention.hours", INT, 168, "How long records are kept.", MINUS_ONE_OR_MORE),
    ConfigKey(
        "log.retention.bytes", LONG, -1, "Bytes kept per partition; -1 means no limit.", MINUS_ONE_OR_MORE, dynamic=True
    ),
    ConfigKey("log.retention.check.interval.ms", LONG, 300_000, "How often old segments are looked for.", at_least(1)),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "The dirty share of a compacted log above which it is compacted.",
        between(0, 1),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        86_400_000,
        "How long tombstones of a compacted topic stay.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "The shortest that a record stays uncompacted.",
        at_least(0),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        "The longest that a record may stay uncompacted.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        60_000,
        "How long a deleted segment's file stays.",
        at_least(0),
        dynamic=True,
    ),
)

STORAGE = (
    ConfigKey(
        "log.flush.acks.all",
        BOOLEAN,
        False,
        "Durable acks: a Produce with acks=-1 is answered after its bytes are on disk. Many share one flush (docs/durability.md).",
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "Partitions of a log directory that are recovered at the same time after a stop that was not clean.",
        between(1, MOST_THREADS),
    ),
    ConfigKey(
        "log.flush.interval.ms",
        LONG,
        1000,
        "Everything is flushed to disk at least this often.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey(
        "log.flush.interval.messages",
        LONG,
        MAX_LONG,
        "Flush a partition after this many records.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often the recovery point is written.", at_least(1)
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        "How long an idle producer's sequence numbers are remembered.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether topics with cleanup.policy=compact are compacted (docs/compaction.md).",
    ),
    ConfigKey(
        "log.cleaner.threads",
        INT,
        1,
        "Threads that compact. One change at run time at most doubles or halves it.",
        between(1, MOST_CLEANERS),
        dynamic=True,
        gradual=True,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        "The most memory for the keys of the dirty part of a log, over all threads: 24 bytes per key. More keys need several passes.",
        at_least(1_048_576),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "The share of log.cleaner.dedupe.buffer.size that is used.",
        between(0.01, 1),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        INT,
        524_288,
        "Memory for reading and writing, over all threads.",
        at_least(1024),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "The most that all threads together read and write per second.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long a thread rests when no log wants to be compacted.",
        at_least(1),
        dynamic=True,
    ),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions that are kept.", at_least(0)),
    ConfigKey("fetch.max.bytes", INT, 57_671_680, "The largest fetch response.", at_least(1024)),
)

QUOTAS = (
    ConfigKey("quota.window.num", INT, 11, "Windows over which a client's rate is measured.", between(1, 10_000)),
    ConfigKey("quota.window.size.seconds", INT, 1, "The length of such a window.", between(1, 86_400)),
)

BROKER = ConfigDef(
    "broker",
    NETWORK + CONNECTIONS + BUDGET + LIMITS + METRICS_PAGE + IDENTITY + TOPIC_DEFAULTS + STORAGE + QUOTAS,
    listener_row,
    check_connection_limits,
)


def broker_config(given: Mapping[str, object]) -> Config:
    """The broker's configuration; raises `ConfigError` when a value cannot be used."""
    return Config(BROKER, given)


def log_directories(config: Config) -> tuple[str, ...]:
    """Where the log lives: log.dirs, else log.dir, else a folder below the current one."""
    dirs: tuple[str, ...] | None = config["log.dirs"]
    if dirs:
        return dirs
    return (config["log.dir"] or "barnabas-data",)


def inline_requests(config: Config) -> bool:
    """Whether processors may run requests themselves (ADR 1)."""
    choice: str = config["barnabas.request.inline"]
    if choice != "auto":
        return choice == "true"
    return gil_enabled() and not (config.is_set("num.network.threads") or config.is_set("num.io.threads"))
