"""Asking brokers for offsets: the ends of partitions, and the first record at or after a time.

Role: ListOffsets requests to the leaders, answers per partition, retries while leaders move. Thread: its owner's; no lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.blocking import BlockingClient, Deadline
from barnabas.client.cluster import Node, Partition
from barnabas.client.errors import ClientTimeout
from barnabas.client.partition_check import PartitionCheck
from barnabas.errors import KafkaError, error_of
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["EARLIEST", "LATEST", "LEAST_TIME", "OffsetAndTimestamp", "OffsetFinder"]

EARLIEST, LATEST = -2, -1
LEAST_TIME = -6  # from here to -1 a time is a question of its own: the end, the beginning, the newest record
LIST_OFFSETS = int(ApiKey.LIST_OFFSETS)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_CONSUMER = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time that was asked for.

    found = consumer.offsets_for_times({("orders", 0): 0})[("orders", 0)]
    print(found.offset, found.timestamp)
    """

    offset: int
    timestamp: int


class OffsetFinder:
    """See the file header."""

    def __init__(self, client: BlockingClient, read_committed: bool = False) -> None:
        self._client = client
        self._isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED

    def find(self, wanted: Mapping[Partition, int], deadline: Deadline) -> dict[Partition, OffsetAndTimestamp]:
        """The offset of each partition at a time (or EARLIEST, LATEST); -1 where no record is that young."""
        self._client.topics(sorted({topic for topic, _ in wanted}), deadline)
        left = dict(wanted)
        check = PartitionCheck()
        found: dict[Partition, OffsetAndTimestamp] = {}
        attempt = 0
        while left:
            problem = self._ask_leaders(left, found, deadline)
            if not left:
                break
            for partition in left:
                check.look(self._client.metadata.fetch(), *partition)
            if deadline.over:
                names = ", ".join(f"{topic}-{number}" for topic, number in left)
                raise ClientTimeout(f"waited {deadline.timeout_s * 1000:.0f} ms for the offsets of {names} ({problem})")
            self._client.metadata.request_update()
            self._client.pause(attempt, deadline)
            attempt += 1
        return found

    def _ask_leaders(
        self, left: dict[Partition, int], found: dict[Partition, OffsetAndTimestamp], deadline: Deadline
    ) -> str:
        """One round; what was answered moves from `left` to `found`. The last problem, for an error message."""
        cluster = self._client.metadata.fetch()
        by_leader: dict[Node, list[Partition]] = defaultdict(list)
        problem = "no leader"
        for partition in left:
            leader = cluster.leader_for(*partition)
            if leader is not None:
                by_leader[leader].append(partition)
        for leader, partitions in by_leader.items():
            try:
                answer = self._client.send(leader, LIST_OFFSETS, self.request(partitions, left), deadline)
            except KafkaError as error:
                if not error.retriable or isinstance(error, ClientTimeout):
                    raise
                problem = str(error)
            else:
                problem = self._take(answer, left, found) or problem
        return problem

    def request(self, partitions: list[Partition], times: Mapping[Partition, int]) -> ListOffsetsRequest:
        """What to ask the leader of these partitions."""
        rows: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for topic, number in partitions:
            epoch = self._client.metadata.current_leader(topic, number).epoch
            time = times[topic, number]
            rows[topic].append(ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=time))
        topics = [ListOffsetsTopic(name=topic, partitions=found) for topic, found in rows.items()]
        timeout_ms = self._client.config["request.timeout.ms"]
        return ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=self._isolation, topics=topics, timeout_ms=timeout_ms
        )

    def _take(
        self, answer: ListOffsetsResponse, left: dict[Partition, int], found: dict[Partition, OffsetAndTimestamp]
    ) -> str:
        problem = ""
        for topic in answer.topics:
            for row in topic.partitions:
                partition = (topic.name, row.partition_index)
                if not row.error_code and left.pop(partition, None) is not None:
                    found[partition] = OffsetAndTimestamp(row.offset, row.timestamp)
                elif row.error_code:
                    code = error_of(row.error_code)
                    problem = f"{topic.name}-{row.partition_index}: {code.name}"
                    if not code.retriable:
                        raise KafkaError(code, f"{code.text}: {topic.name}-{row.partition_index}")
        return problem
