"""Which partition a record goes to when its sender did not say (PP-12).

Role: records with a key go where Java's client would send them (murmur2). Records without one stick to a partition for about
`batch.size` bytes, then move on at random: all partitions alike (KIP-480), or the ones with short queues more often (KIP-794).
Thread: any, under the lock of the topic; the I/O thread replaces the load figures. Lock: the topic's (`TopicLane`).
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas.client.cluster import Cluster
from barnabas.records.kernel.builder import murmur2

__all__ = ["BuiltInPartitioner", "Partitioner", "partition_for_key"]


class Partitioner(Protocol):
    """What may stand in `partitioner.class`."""

    def partition(self, topic: str, key: Any, key_bytes: bytes | None, value: Any, cluster: Cluster) -> int:
        """The partition of a record."""
        ...


def partition_for_key(key: bytes, partitions: int) -> int:
    """As Java's `BuiltInPartitioner.partitionForKey`."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


class BuiltInPartitioner:
    """The choice of the next partition of one topic."""

    __slots__ = ("_choices", "_random", "_sums", "topic")

    def __init__(self, topic: str, random_below: Callable[[int], int] = random.randrange) -> None:
        self.topic = topic
        self._random = random_below
        self._sums: Sequence[int] = ()  # running sums of the weights
        self._choices: Sequence[int] = ()  # the partitions they belong to

    def next_partition(self, cluster: Cluster, partition_count: int) -> int:
        """The partition that records without a key go to from now on."""
        if self._sums:
            return self._choices[bisect.bisect_right(self._sums, self._random(self._sums[-1]))]
        available = cluster.available_partitions(self.topic)
        if available:
            return available[self._random(len(available))].partition
        return self._random(partition_count)

    def update_load(self, queue_sizes: Sequence[int], partitions: Sequence[int], all_count: int) -> None:
        """Queues of the partitions that may be chosen; `all_count` is how many the topic has. Equal queues need no weights."""
        if not queue_sizes or all_count < 2 or (len(set(queue_sizes)) == 1 and len(queue_sizes) == all_count):
            self._sums, self._choices = (), ()
            return
        # Sizes 0 3 1 become weights 4 1 3 (the longest queue plus one, minus the own), and those the running sums 4 5 8.
        most = max(queue_sizes) + 1
        total = 0
        sums = []
        for size in queue_sizes:
            total += most - size
            sums.append(total)
        self._choices, self._sums = tuple(partitions), tuple(sums)

    @property
    def weighs(self) -> bool:
        """Whether the next choice prefers some partitions to others."""
        return bool(self._sums)
