"""Requests that work: a message of any API and version about topics that are there, to be broken by mutations.

Thread: any. Lock: none.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from barnabas.protocol.schema import ZERO_UUID, FieldSpec, Message, Primitive
from tests.fuzz.target_records import sample_batches

TOPICS = ("fuzz", "fuzz-compacted", "fuzz-timed")
PARTITIONS = 2
NEW_TOPICS = tuple(f"made-{number}" for number in range(10))
ENTITY = "somebody"

_BATCHES = tuple(sample_batches().values())
_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (1, -1, 0),
    "broker_ids": (1,),
    "config_operation": (0, 1, 2, 3),
    "count": (PARTITIONS + 1,),
    "current_leader_epoch": (-1, 0),
    "fetch_offset": (0, 5),
    "isolation_level": (0, 1),
    "key_type": (0, 1),
    "leader_epoch": (0,),
    "max_bytes": (1 << 20, 100),
    "max_wait_ms": (0, 20),
    "min_bytes": (0, 1, 1 << 20),
    "num_partitions": (1, 3, -1),
    "offset": (0, 3, -1),
    "partition": tuple(range(PARTITIONS)),
    "partition_index": tuple(range(PARTITIONS)),
    "partition_indexes": tuple(range(PARTITIONS)),
    "partition_max_bytes": (1 << 20, 100),
    "partitions": tuple(range(PARTITIONS)),
    "producer_epoch": (-1, 0),
    "producer_id": (-1, 7),
    "replica_id": (-1,),
    "replication_factor": (1, -1),
    "resource_type": (2, 2, 2, 4, 8),
    "response_partition_limit": (10,),
    "session_epoch": (-1, 0, 1),
    "session_id": (0, 1),
    "timeout_ms": (20, 1000),
    "timestamp": (-1, -2, 1_700_000_000_000),
}
_TEXTS: dict[str, tuple[str | None, ...]] = {
    "client_software_name": ("fuzz",),
    "client_software_version": ("1.0",),
    "coordinator_keys": ("group",),
    "entity_name": (ENTITY,),
    "entity_type": ("client-id",),
    "host": ("localhost",),
    "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    "match": (ENTITY,),
    "topic": TOPICS,
    "topic_name": TOPICS,
    "topic_names": TOPICS,
    "topics": TOPICS,
    "transactional_id": (None,),
}
_CONFIGS = {
    "retention.ms": "60000",
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "compression.type": "zstd",
}


class Work:
    """Makes messages. `topic_ids` are those of the topics that are there."""

    def __init__(self, rng: random.Random, topic_ids: tuple[uuid.UUID, ...]) -> None:
        self._rng = rng
        self.topic_ids = topic_ids

    def message(self, cls: type[Message], version: int) -> Message:
        values = {spec.name: self._value(cls, spec, version) for spec in cls.schema.fields if version in spec.versions}
        return cls(**values)

    def _value(self, cls: type[Message], spec: FieldSpec, version: int) -> Any:
        rng = self._rng
        if version in spec.nullable and spec.tag is not None:
            return None
        if spec.is_array:
            return [self._one(cls, spec, version) for _ in range(rng.choice((1, 1, 1, 2, 0)))]
        return self._one(cls, spec, version)

    def _one(self, cls: type[Message], spec: FieldSpec, version: int) -> Any:
        if not isinstance(spec.kind, Primitive):
            return self.message(spec.kind, version)
        rng, kind = self._rng, spec.kind.name
        if kind == "STRING":
            return self._text(cls, spec)
        if kind == "RECORDS":
            return rng.choice(_BATCHES)
        if kind == "UUID":
            return rng.choice((*self.topic_ids, ZERO_UUID))
        if kind == "BOOL":
            return rng.random() < 0.5
        if kind == "FLOAT64":
            return 1e6
        if kind == "BYTES":
            return b"bytes"
        return rng.choice(_NUMBERS.get(spec.name, (0, 1)))

    def _text(self, cls: type[Message], spec: FieldSpec) -> str | None:
        rng, owner = self._rng, cls.schema.name
        if "Config" in owner and spec.name in ("name", "value", "configuration_keys"):
            return rng.choice(tuple(_CONFIGS.values() if spec.name == "value" else _CONFIGS))
        if spec.name == "name":
            return rng.choice(NEW_TOPICS if owner == "CreatableTopic" else (*TOPICS, *NEW_TOPICS))
        if spec.name == "resource_name":
            return rng.choice((*TOPICS, "1", ""))
        return rng.choice(_TEXTS.get(spec.name, ("",)))


TEXTS = (*TOPICS, *NEW_TOPICS, *_CONFIGS, *_CONFIGS.values(), ENTITY)
"""What mutations put in the place of texts, beside nonsense."""
