"""CreatePartitions (key 37), versions 0-3.

`count` is the new total; it must be larger than the present one (37). A manual assignment has one entry per new partition
and names this node only (39). Each topic is answered by itself.
Thread: handler (writes the catalog, never inline). Lock: none of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.apis.create_topics import NEW_PARTITION, NewPartitions, check_replicas
from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.catalog import TopicInfo
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> CreatePartitionsResponse:
    body: CreatePartitionsRequest = request.body
    times = Counter(topic.name for topic in body.topics)
    room = NewPartitions(broker)
    texts = ErrorTexts()
    results = []
    for name, topic in {topic.name: topic for topic in body.topics}.items():
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _grow(topic, broker, room, body.validate_only)
        except KafkaError as error:
            results.append(_failure(name, error, texts))
        else:
            results.append(CreatePartitionsTopicResult(name=name, error_code=0))
    return CreatePartitionsResponse(results=results)


def error_response(body: CreatePartitionsRequest, version: int, error: KafkaError) -> CreatePartitionsResponse:
    texts = ErrorTexts()
    return CreatePartitionsResponse(results=[_failure(topic.name, error, texts) for topic in body.topics])


def weigh(body: CreatePartitionsRequest, broker: BrokerServices) -> int:
    most: int = broker.config["barnabas.request.max.partitions"]
    return NEW_PARTITION * sum(max(0, min(most, topic.count)) for topic in body.topics)


def _grow(topic: CreatePartitionsTopic, broker: BrokerServices, room: NewPartitions, validate_only: bool) -> None:
    current = broker.catalog.snapshot.topics.get(topic.name)
    if current is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' does not exist.")
    _check(topic, current, broker.node.id)
    room.take(topic.count - current.partition_count)
    if not validate_only:
        broker.topics.add_partitions(topic.name, topic.count)


def _check(topic: CreatePartitionsTopic, current: TopicInfo, node_id: int) -> None:
    added = topic.count - current.partition_count
    if added == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.count} partition(s).")
    if added < 0:
        text = f"The topic {topic.name} currently has {current.partition_count} partition(s); {topic.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if not topic.assignments:
        return
    if len(topic.assignments) != added:
        text = f"Attempted to add {added} partitions, but only {len(topic.assignments)} assignments were specified."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for assignment in topic.assignments:
        check_replicas(assignment.broker_ids, node_id)


def _failure(name: str, error: KafkaError, texts: ErrorTexts) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=texts.of(error))
