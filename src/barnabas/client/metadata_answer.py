"""Reading a metadata response: from a message to a `Cluster` (PP-23).

Role: pure but for `LeaderEpochs`, the newest leader epoch seen of each partition: a response of a broker that lags behind names an
older one and is ignored for that partition, unless the topic id says that the topic was made anew.
Thread: under the lock of `Metadata`; `LeaderEpochs.get` from any thread. Lock: none of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from barnabas.client.cluster import NO_EPOCH, Cluster, Node, PartitionInfo, TopicInfo
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from barnabas.protocol.schema import ZERO_UUID

__all__ = ["LeaderEpochs", "is_stale_leader_error", "read_answer", "with_partitions"]

# Errors by which a broker says that somebody's view of the cluster is old.
STALE_METADATA_ERRORS = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class LeaderEpochs:
    """The newest leader epoch that any broker named, per partition."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, int], int] = {}

    def get(self, topic: str, partition: int) -> int | None:
        return self._epochs.get((topic, partition))

    def set(self, topic: str, partition: int, epoch: int) -> None:
        self._epochs[topic, partition] = epoch

    def forget(self, topic: str, partition: int) -> None:
        self._epochs.pop((topic, partition), None)

    def advance(self, topic: str, partition: int, epoch: int) -> bool:
        """Take a newer epoch of a partition that is known; says whether it was one."""
        known = self._epochs.get((topic, partition))
        if known is None or epoch <= known:
            return False
        self._epochs[topic, partition] = epoch
        return True

    def retain(self, keep: Callable[[str], bool]) -> None:
        """Forget the partitions of topics that nobody needs."""
        topics = {topic for topic, _ in self._epochs}
        gone = {topic for topic in topics if not keep(topic)}
        if gone:
            self._epochs = {place: epoch for place, epoch in self._epochs.items() if place[0] not in gone}


def read_answer(
    response: MetadataResponse, before: Cluster, epochs: LeaderEpochs, retains: Callable[[str], bool]
) -> tuple[Cluster, bool]:
    """The cluster that the response describes, and whether it tells anything new about leaders."""
    topics: dict[str, TopicInfo] = {}
    errors: dict[str, int] = {}
    progress = False
    for topic in response.topics:
        name = topic.name or ""
        if not retains(name):
            continue
        if topic.error_code:
            errors[name] = topic.error_code
            continue
        topics[name], changed = _read_topic(name, topic, before, epochs)
        progress |= changed
    nodes = {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in response.brokers}
    return Cluster(nodes, topics, errors, response.cluster_id, response.controller_id), progress


def _read_topic(
    name: str, topic: MetadataResponseTopic, before: Cluster, epochs: LeaderEpochs
) -> tuple[TopicInfo, bool]:
    topic_id: uuid.UUID | None = None if topic.topic_id == ZERO_UUID else topic.topic_id
    made_anew = topic_id is not None and topic_id != before.topic_id(name)
    partitions = []
    progress = False
    for row in topic.partitions:
        info, changed = _newest(_partition(name, row), made_anew, before, epochs)
        partitions.append(info)
        progress |= changed
    return TopicInfo(name, topic_id, partitions, topic.is_internal), progress


def _partition(topic: str, row: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        topic,
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
        row.error_code,
    )


def _newest(info: PartitionInfo, made_anew: bool, before: Cluster, epochs: LeaderEpochs) -> tuple[PartitionInfo, bool]:
    """Of what the response says and what is known, that with the newer leader epoch; and whether it is news."""
    if info.leader_epoch == NO_EPOCH:
        epochs.forget(info.topic, info.partition)
        return info, True
    known = epochs.get(info.topic, info.partition)
    if known is None or made_anew or info.leader_epoch >= known:
        epochs.set(info.topic, info.partition, info.leader_epoch)
        return info, made_anew or info.leader_epoch != known
    return before.partition(info.topic, info.partition) or info, False


def is_stale_leader_error(cluster: Cluster) -> bool:
    """Whether the answer itself says that asking again soon will tell more."""
    if any(code in STALE_METADATA_ERRORS for code in cluster.topic_errors.values()):
        return True
    return any(
        info.error_code in STALE_METADATA_ERRORS for topic in cluster.topics.values() for info in topic.partitions
    )


def with_partitions(cluster: Cluster, changed: Iterable[PartitionInfo]) -> dict[str, TopicInfo]:
    """The cluster's topics with these partitions in place of the old ones."""
    topics = dict(cluster.topics)
    for info in changed:
        old = topics[info.topic]
        rows = {**old.by_number, info.partition: info}
        topics[info.topic] = TopicInfo(old.name, old.id, rows.values(), old.internal)
    return topics
