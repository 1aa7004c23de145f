"""The settings of a producer, with Kafka's names and, but for batch.size, defaults, and the combinations that cannot work (PP-4).

Role: rows above those that all clients share (`client/config.py`). Objects (serializers, interceptors, a partitioner) may be given
where Java takes a class name. Thread: import time, then read-only. Lock: none.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from barnabas.client.config import MAX_IN_FLIGHT, check_mapping, client_config
from barnabas.config import Config, ConfigKey, ConfigType, at_least, between, one_of
from barnabas.errors import ConfigError
from barnabas.records.compression import CODEC_NAMES

__all__ = ["OBJECT_ROWS", "PRODUCER_ROWS", "producer_config", "take_objects"]

log = logging.getLogger(__name__)

_LONG, _INT, _STRING, _BOOLEAN = ConfigType.LONG, ConfigType.INT, ConfigType.STRING, ConfigType.BOOLEAN
_MAX_INT = 2_147_483_647
MAX_IDEMPOTENT_IN_FLIGHT = 5
_KAFKAS_BATCH_SIZE = 16_384
_BATCHES_IN_MEMORY = 256

PRODUCER_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "acks",
        _STRING,
        "all",
        "Who must have a record before it counts as sent: all, 1 (the leader), 0 (nobody).",
        one_of("all", "-1", "1", "0"),
    ),
    ConfigKey(
        "batch.size",
        _INT,
        131_072,
        "Bytes of a batch. Smaller: more requests; larger: more memory. Unless set, less where buffer.memory has no room for 256, "
        "down to Kafka's 16384.",
        at_least(0),
    ),
    ConfigKey(
        "buffer.memory", _LONG, 33_554_432, "Bytes for records that were not sent yet or not answered.", at_least(1024)
    ),
    ConfigKey("compression.type", _STRING, "none", "How batches are compressed.", one_of(*CODEC_NAMES)),
    ConfigKey("compression.gzip.level", _INT, 6, "1 (fast) to 9 (small); -1: 6.", between(-1, 9)),
    ConfigKey("compression.lz4.level", _INT, 9, "1 (fast) to 17 (small).", between(1, 17)),
    ConfigKey("compression.zstd.level", _INT, 3, "-131072 (fast) to 22 (small).", between(-131_072, 22)),
    ConfigKey(
        "delivery.timeout.ms",
        _INT,
        120_000,
        "How long after `send` a record may still be delivered, all attempts together.",
        at_least(0),
    ),
    ConfigKey("enable.idempotence", _BOOLEAN, True, "Retries neither double nor reorder records."),
    ConfigKey("linger.ms", _LONG, 5, "How long a batch waits for more records.", at_least(0)),
    ConfigKey("max.block.ms", _LONG, 60_000, "How long `send` may wait for metadata and for memory.", at_least(0)),
    ConfigKey("max.request.size", _INT, 1_048_576, "The largest request, and the largest record.", at_least(0)),
    ConfigKey("metadata.max.idle.ms", _LONG, 300_000, "Topics not sent to for so long are forgotten.", at_least(5000)),
    ConfigKey(
        "partitioner.adaptive.partitioning.enable",
        _BOOLEAN,
        True,
        "Records without a key avoid slow brokers (KIP-794).",
    ),
    ConfigKey(
        "partitioner.availability.timeout.ms",
        _LONG,
        0,
        "A partition whose broker takes nothing for so long gets no records without a key; 0: never mind.",
        at_least(0),
    ),
    ConfigKey("partitioner.ignore.keys", _BOOLEAN, False, "Choose the partition as if records had no key."),
    ConfigKey(
        "retries",
        _INT,
        _MAX_INT,
        "How often a failed batch is sent again, within delivery.timeout.ms.",
        between(0, _MAX_INT),
    ),
    MAX_IN_FLIGHT,
)
_OBJECTS = ("key.serializer", "value.serializer", "partitioner.class", "interceptor.classes")
OBJECT_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey("key.serializer", ConfigType.CLASS, None, "A function from a key to bytes, or its dotted name."),
    ConfigKey("value.serializer", ConfigType.CLASS, None, "A function from a value to bytes, or its dotted name."),
    ConfigKey(
        "partitioner.class", ConfigType.CLASS, None, "A partitioner, or its dotted name; None: the built-in one."
    ),
    ConfigKey("interceptor.classes", ConfigType.LIST, (), "Interceptors, or their dotted names."),
)


def take_objects(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Any]]:
    """The settings that are text, and those that are objects."""
    check_mapping("producer", given)
    plain = {key: value for key, value in given.items() if key not in _OBJECTS}
    objects = {key: given.get(key) for key in _OBJECTS}
    chain = objects["interceptor.classes"] or ()
    objects["interceptor.classes"] = chain.split(",") if isinstance(chain, str) else list(chain)  # type: ignore[call-overload]
    return plain, {key: _loaded(key, value) for key, value in objects.items()}


def _loaded(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_loaded(key, item) for item in value]
    if not isinstance(value, str):
        return value
    module, _, name = value.strip().rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(key, value, f"cannot be loaded: {error}") from error
    return found() if isinstance(found, type) else found


def producer_config(given: Mapping[str, object]) -> Config:
    """Parse and check; ConfigError names the key, the value and what is allowed."""
    if given.get("transactional.id") is not None:
        raise ConfigError("transactional.id", given["transactional.id"], "this producer has no transactions yet")
    config = client_config("producer", given, PRODUCER_ROWS)
    if batch_size(config) > config["buffer.memory"]:
        raise ConfigError(
            "batch.size", config["batch.size"], f"must be at most buffer.memory = {config['buffer.memory']}"
        )
    _check_delivery_timeout(config)
    return config


def batch_size(config: Config) -> int:
    """Eight times Kafka's where there is room (ADR 10): who gives a producer little memory, or small requests, gets batches that fit."""
    chosen: int = config["batch.size"]
    if config.is_set("batch.size"):
        return chosen
    memory: int = config["buffer.memory"]
    request: int = config["max.request.size"]
    return min(max(min(chosen, memory // _BATCHES_IN_MEMORY, request), _KAFKAS_BATCH_SIZE), memory)


def delivery_timeout_ms(config: Config) -> int:
    """As Kafka: when only linger.ms or request.timeout.ms was raised, the delivery time-out follows."""
    least: int = config["linger.ms"] + config["request.timeout.ms"]
    chosen: int = config["delivery.timeout.ms"]
    return chosen if config.is_set("delivery.timeout.ms") else max(chosen, least)


def _check_delivery_timeout(config: Config) -> None:
    least = config["linger.ms"] + config["request.timeout.ms"]
    if delivery_timeout_ms(config) < least:
        raise ConfigError(
            "delivery.timeout.ms",
            config["delivery.timeout.ms"],
            f"must be at least linger.ms + request.timeout.ms = {config['linger.ms']} + {config['request.timeout.ms']} = {least}",
        )


def acks_of(config: Config) -> int:
    return -1 if config["acks"] == "all" else int(config["acks"])


def is_idempotent(config: Config) -> bool:
    """On by default; off by itself when another setting that somebody chose rules it out; an error when both were chosen (Kafka 3.2)."""
    if not config["enable.idempotence"]:
        return False
    asked_for = config.is_set("enable.idempotence")
    conflicts = {
        "acks": acks_of(config) != -1,
        "retries": config["retries"] == 0,
        "max.in.flight.requests.per.connection": config[MAX_IN_FLIGHT.name] > MAX_IDEMPOTENT_IN_FLIGHT,
    }
    allowed = {"acks": "all", "retries": "at least 1", "max.in.flight.requests.per.connection": "at most 5"}
    for key, conflict in conflicts.items():
        if conflict and (asked_for or key == "max.in.flight.requests.per.connection"):
            raise ConfigError(key, config[key], f"must be {allowed[key]} with enable.idempotence")
        if conflict:
            log.info("enable.idempotence is off, because %s = %s", key, config[key])
            return False
    return True
