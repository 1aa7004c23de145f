"""The consumer's settings, with Kafka's names and defaults.

Role: rows, and the checks of combinations that cannot work. Thread: import time, then read-only. Lock: none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from barnabas.client.config import client_config
from barnabas.config import Allowed, Config, ConfigKey, ConfigType, at_least, between, one_of
from barnabas.errors import ConfigError

__all__ = ["consumer_config", "duration_ms"]

log = logging.getLogger(__name__)

_INT, _LONG, _STRING, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.BOOLEAN
_MAX_INT = 2_147_483_647
_DURATION = re.compile(r"^by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$")
_RESETS = ("earliest", "latest", "none")
_OF_GROUPS = frozenset(
    (
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
    )
)
"""Settings that other clients need and that mean nothing here yet."""


def duration_ms(reset: str) -> int | None:
    """The milliseconds of `by_duration:P1DT2H` (KIP-1106); None when it is something else."""
    match = _DURATION.match(reset)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


CONSUMER_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "auto.offset.reset",
        _STRING,
        "latest",
        "Where to begin without a position, or with one that is gone: earliest, latest, by_duration:PT1H, or none (an error).",
        Allowed(
            "must be earliest, latest, none or by_duration: and an ISO 8601 duration",
            lambda value: value in _RESETS or duration_ms(value) is not None,
        ),
    ),
    ConfigKey("fetch.min.bytes", _INT, 1, "The broker answers when it has this much.", at_least(0)),
    ConfigKey("fetch.max.wait.ms", _INT, 500, "The broker answers at the latest after this time.", at_least(0)),
    ConfigKey("fetch.max.bytes", _INT, 52_428_800, "How much one answer may hold.", between(0, _MAX_INT)),
    ConfigKey(
        "max.partition.fetch.bytes",
        _INT,
        1_048_576,
        "How much of one partition one answer may hold. Unless it is set, poll_arrow asks for up to 4 MiB.",
        between(0, _MAX_INT),
    ),
    ConfigKey("max.poll.records", _INT, 500, "How many records one poll returns at most.", at_least(1)),
    ConfigKey(
        "consumer.timeout.ms",
        _INT,
        -1,
        "`for record in consumer` ends when no record came for so long; -1: never (kafka-python's consumer_timeout_ms).",
        at_least(-1),
    ),
    ConfigKey("check.crcs", _BOOLEAN, True, "Whether the checksum of each batch is verified."),
    ConfigKey(
        "isolation.level",
        _STRING,
        "read_uncommitted",
        "read_committed: only records of committed transactions, and none that are not transactional behind an open one.",
        one_of("read_uncommitted", "read_committed"),
    ),
    ConfigKey(
        "barnabas.fetch.max.decompressed.bytes",
        _INT,
        134_217_728,
        "A batch that is larger when decompressed is refused as corrupt.",
        at_least(1024),
    ),
    ConfigKey("client.rack", _STRING, "", "Where this client is; sent to the broker."),
    ConfigKey(
        "default.api.timeout.ms", _INT, 60_000, "How long calls without a time-out of their own may take.", at_least(1)
    ),
    ConfigKey(
        "allow.auto.create.topics",
        _BOOLEAN,
        True,
        "Whether asking for an unknown topic may create it, where the broker does that.",
    ),
    ConfigKey("receive.buffer.bytes", _INT, -1, "SO_RCVBUF of the connections; -1: the system's choice.", at_least(-1)),
)


def consumer_config(given: Mapping[str, object]) -> Config:
    """The values of a consumer; ConfigError for what cannot work."""
    of_groups = sorted(given.keys() & _OF_GROUPS)
    if of_groups:
        log.warning("%s: ignored, because there are no consumer groups yet", ", ".join(of_groups))
    config = client_config(
        "consumer", {name: value for name, value in given.items() if name not in _OF_GROUPS}, CONSUMER_ROWS
    )
    if config["fetch.max.wait.ms"] >= config["request.timeout.ms"]:
        raise ConfigError(
            "fetch.max.wait.ms",
            config["fetch.max.wait.ms"],
            f"must be below request.timeout.ms = {config['request.timeout.ms']}",
        )
    if config["fetch.min.bytes"] > config["fetch.max.bytes"]:
        raise ConfigError(
            "fetch.min.bytes",
            config["fetch.min.bytes"],
            f"must not be above fetch.max.bytes = {config['fetch.max.bytes']}",
        )
    return config
