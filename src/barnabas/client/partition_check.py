"""A partition that a topic does not have: found out, instead of waited for.

Role: counts what the brokers answer of a topic. Two answers that it has no such partition are enough: the first may have been on its
way when the partition was added. A topic that is not there at all may still come; it is waited for. Thread: the caller's. Lock: none.
"""

from __future__ import annotations

from barnabas.client.cluster import Cluster, TopicInfo
from barnabas.client.errors import UnknownPartition

__all__ = ["PartitionCheck"]

CERTAIN = 2


class PartitionCheck:
    """Remembers what it was told of each partition that is missing."""

    def __init__(self) -> None:
        self._missing: dict[tuple[str, int], tuple[TopicInfo, int]] = {}

    def look(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Call it with what is known now, again after each update; UnknownPartition when it is certain."""
        info = cluster.topics.get(topic)
        place = (topic, partition)
        if info is None or not info.partitions or partition in info.by_number:
            self._missing.pop(place, None)
            return
        last, answers = self._missing.get(place, (None, -1))  # what was known before anybody asked does not count
        answers += info is not last
        self._missing[place] = (info, answers)
        if answers >= CERTAIN:
            raise UnknownPartition(topic, partition, len(info.partitions))
