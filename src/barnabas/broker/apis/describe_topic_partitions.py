"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Topics in the order of their names, page by page: an answer holds at most `response_partition_limit` partitions (never more
than 2000; a topic that is unknown counts as one) and a cursor to where the next one begins. No topics: all of them. Never creates a topic.
Thread: handler. Lock: none, reads one snapshot per page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized_operations import TOPIC_OPERATIONS
from barnabas.broker.apis.partition_lookup import leader_epoch
from barnabas.broker.catalog import TopicInfo
from barnabas.broker.topic_names import name_problem
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

MAX_PARTITIONS_PER_PAGE = 2000


def handle(request: Request, broker: BrokerServices) -> DescribeTopicPartitionsResponse:
    body: DescribeTopicPartitionsRequest = request.body
    snapshot = broker.catalog.snapshot
    names: Sequence[str] = sorted({topic.name for topic in body.topics}) if body.topics else snapshot.sorted_names
    first, first_partition = _start(names, body.cursor)
    room = max(1, min(body.response_partition_limit, MAX_PARTITIONS_PER_PAGE))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for place in range(first, len(names)):
        name = names[place]
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = snapshot.topics.get(name)
        if topic is None:
            topics.append(_unknown(name))
            first_partition = 0
            room -= 1
            continue
        end = min(topic.partition_count, first_partition + room)
        topics.append(_describe(topic, broker, first_partition, end))
        if end < topic.partition_count:
            cursor = Cursor(topic_name=name, partition_index=end)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        room -= max(1, end - first_partition)
        first_partition = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def weigh(body: DescribeTopicPartitionsRequest, broker: BrokerServices) -> int:
    return min(max(1, body.response_partition_limit), MAX_PARTITIONS_PER_PAGE, broker.catalog.snapshot.partition_count)


def error_response(
    body: DescribeTopicPartitionsRequest, version: int, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    topics = [DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in body.topics]
    return DescribeTopicPartitionsResponse(topics=topics)


def _start(names: Sequence[str], cursor: Cursor | None) -> tuple[int, int]:
    """Place of the first topic, and its first partition. The cursor's topic may be gone: then the next one, from 0."""
    if cursor is None:
        return 0, 0
    if cursor.partition_index < 0:
        text = f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    place = bisect_left(names, cursor.topic_name)
    same = place < len(names) and names[place] == cursor.topic_name
    return place, cursor.partition_index if same else 0


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(topic: TopicInfo, broker: BrokerServices, start: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _partition(broker.node.id, index, leader_epoch(broker, topic.name, index)) for index in range(start, end)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


@lru_cache(maxsize=4096)
def _partition(node_id: int, index: int, epoch: int) -> DescribeTopicPartitionsResponsePartition:
    """The same for every topic, so they share one object that nobody changes."""
    return DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=node_id,
        leader_epoch=epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[],
    )
