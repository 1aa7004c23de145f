"""What a client knows of a cluster: an immutable snapshot, replaced whole by each metadata update (PP-23).

Role: nodes, topics and leaders, indexed for the questions that the sender and the fetcher ask in every turn.
Thread: any. Lock: none, nothing here changes after it was built.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["EMPTY_CLUSTER", "Cluster", "Node", "Partition", "PartitionInfo", "TopicInfo", "bootstrap_cluster"]

NO_EPOCH = -1

Partition = tuple[str, int]
"""(topic, number)"""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker. Bootstrap servers have negative ids, because their real ones are not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition. `leader_id` is -1 without a leader, `leader_epoch` -1 when the broker is too old to say."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicInfo:
    """One topic; `partitions` in the order of their numbers. `id` is None when the broker is too old to have ids."""

    __slots__ = ("available", "by_number", "id", "internal", "name", "partitions")

    def __init__(
        self, name: str, topic_id: uuid.UUID | None, partitions: Iterable[PartitionInfo], internal: bool = False
    ) -> None:
        self.name = name
        self.id = topic_id
        self.internal = internal
        self.partitions: tuple[PartitionInfo, ...] = tuple(sorted(partitions, key=lambda info: info.partition))
        self.by_number: dict[int, PartitionInfo] = {info.partition: info for info in self.partitions}
        self.available: tuple[PartitionInfo, ...] = tuple(info for info in self.partitions if info.leader_id >= 0)

    def __repr__(self) -> str:
        return f"<TopicInfo {self.name} id={self.id} partitions={len(self.partitions)} available={len(self.available)}>"


@dataclass(frozen=True, slots=True)
class Cluster:
    """See the file header. A topic that could not be described is in `topic_errors` with its error code instead."""

    nodes_by_id: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_errors: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    is_bootstrap: bool = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.nodes_by_id.values())

    @property
    def controller(self) -> Node | None:
        return self.nodes_by_id.get(self.controller_id)

    def node(self, node_id: int) -> Node | None:
        return self.nodes_by_id.get(node_id)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        info = self.topics.get(topic)
        return None if info is None else info.by_number.get(partition)

    def leader_for(self, topic: str, partition: int) -> Node | None:
        """The node that leads the partition, or None when nobody does or nothing is known."""
        info = self.topics.get(topic)
        if info is None:
            return None
        found = info.by_number.get(partition)
        return None if found is None else self.nodes_by_id.get(found.leader_id)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """All partitions of a topic in order; empty when the topic is not known."""
        info = self.topics.get(topic)
        return () if info is None else info.partitions

    def available_partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic that have a leader."""
        info = self.topics.get(topic)
        return () if info is None else info.available

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        return {name: info.id for name, info in self.topics.items() if info.id is not None}

    def topic_id(self, topic: str) -> uuid.UUID | None:
        info = self.topics.get(topic)
        return None if info is None else info.id


EMPTY_CLUSTER = Cluster()


def bootstrap_cluster(addresses: Sequence[tuple[str, int]]) -> Cluster:
    """The cluster before the first answer: only the addresses that the user gave."""
    nodes = {-1 - index: Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)}
    return Cluster(nodes, is_bootstrap=True)
