"""What the admin client takes and gives: plain typed records.

Role: one class per kind of thing; nothing here talks to anybody. Thread: any. Lock: none, everything is immutable.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from barnabas.client.cluster import Node, Partition, PartitionInfo
from barnabas.errors import KafkaError

__all__ = [
    "AdminError",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "LogDir",
    "NewTopic",
    "Quota",
    "Replica",
    "ResourceType",
    "TopicDescription",
]


class AdminError(KafkaError):
    """Some of a call failed: `failures` has the error of each, `results` what was done all the same."""

    def __init__(self, failures: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        first = next(iter(failures.values()))
        super().__init__(
            first.code, "; ".join(f"{_words_of(item)}: {error.message}" for item, error in failures.items())
        )
        self.failures = dict(failures)
        self.results = dict(results)


def _words_of(item: object) -> str:
    """What failed, for a person: a topic, a resource, a partition, a broker, or whose quota."""
    match item:
        case (str(topic), int(number)):
            return f"{topic}-{number}"
        case tuple():
            return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in item)
        case int():
            return f"broker {item}"
    return str(item)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to make. -1: as the broker is configured. `assignments`: replicas by partition, instead of the two numbers.

    admin.create_topics([NewTopic("orders", partitions=3, configs={"retention.ms": "60000"})])
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic that is there."""

    name: str
    id: uuid.UUID | None
    partitions: tuple[PartitionInfo, ...]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Who is there."""

    cluster_id: str
    controller: Node | None
    nodes: tuple[Node, ...]


class ResourceType(IntEnum):
    """What can be configured, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """One thing that can be configured: a topic by its name, a broker by its id (an empty name: the default of all brokers).

    admin.describe_configs([ConfigResource.topic("orders"), ConfigResource.broker(1)])
    """

    type: ResourceType
    name: str

    @staticmethod
    def topic(name: str) -> ConfigResource:
        """A topic."""
        return ConfigResource(ResourceType.TOPIC, name)

    @staticmethod
    def broker(node_id: int | None = None) -> ConfigResource:
        """A broker; None: what holds for all of them."""
        return ConfigResource(ResourceType.BROKER, "" if node_id is None else str(node_id))

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource; `value` is None when it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class Replica:
    """One partition in a log directory."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of one broker; -1 bytes: the broker is too old to say. `error` when it failed."""

    path: str
    replicas: Mapping[Partition, Replica]
    total_bytes: int = -1
    usable_bytes: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one entity, for example {"client-id": "app"}; a name of None is the default of that kind."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]
