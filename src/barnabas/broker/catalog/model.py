"""The catalog's data: topics, quotas and the snapshot that holds them.

Role: values that never change once built. Thread: any. Lock: none; a change builds a new snapshot (see `catalog.py`).
The mappings are plain dicts behind a read-only type, because the Produce and Fetch paths look topics up in them.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted pairs of entity type (`user`, `client-id`, `ip`) and name; the name None stands for the default entity."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The canonical key of a quota entity, whatever the order in which a client names its parts."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def uuid_text(value: uuid.UUID) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; `topic_id` is given only when a log directory that already has an id is adopted."""

    name: str
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. `configs` holds only what was set on the topic itself."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    configs: Mapping[str, str]
    internal: bool


class CatalogSnapshot:
    """Everything the catalog knew after one change. Thread-safe because nobody ever changes it."""

    __slots__ = (
        "_partition_count",
        "_sorted_names",
        "broker_configs",
        "cluster_id",
        "derived",
        "epoch",
        "quotas",
        "topics",
        "topics_by_id",
    )

    def __init__(
        self,
        cluster_id: str,
        topics: Mapping[str, TopicInfo],
        topics_by_id: Mapping[uuid.UUID, TopicInfo],
        broker_configs: Mapping[str, Mapping[str, str]],
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        epoch: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = topics
        self.topics_by_id = topics_by_id
        self.broker_configs = broker_configs
        """Dynamic broker configs by resource name: the node id as text, or "" for the cluster-wide default."""
        self.quotas = quotas
        self.epoch = epoch
        """Grows by one with each change since start; lets caches ask "is it still this snapshot"."""
        self.derived: dict[Hashable, Any] = {}
        """What readers have computed from this snapshot and may use again; it goes when the snapshot goes. Two threads may
        compute the same value at the same time: the second store replaces an equal one."""
        self._sorted_names: tuple[str, ...] | None = None
        self._partition_count = -1

    @property
    def partition_count(self) -> int:
        """Of all topics. Computed on first use, as the names below."""
        if self._partition_count < 0:
            self._partition_count = sum(topic.partition_count for topic in self.topics.values())
        return self._partition_count

    @property
    def sorted_names(self) -> tuple[str, ...]:
        """Topic names in order. Computed on first use; two threads may both compute it and get the same."""
        names = self._sorted_names
        if names is None:
            names = self._sorted_names = tuple(sorted(self.topics))
        return names

    def __repr__(self) -> str:
        return (
            f"CatalogSnapshot(cluster_id={self.cluster_id!r}, epoch={self.epoch}, topics={len(self.topics)}, "
            f"quotas={len(self.quotas)})"
        )
