"""OffsetForLeaderEpoch (key 23), versions 2-4: where an epoch ends in the log, so that a consumer notices truncation (KIP-320).

The answer names the largest epoch that is not above the requested one, and the offset at which the next one begins (the
log end for the newest); both -1 when there is no such epoch. The client's own leader epoch is checked first: 74/75.

Thread: a processor (inline) or any handler; reads memory only. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.partition_lookup import check_leader_epoch, log_of, topic_by_name
from barnabas.errors import KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> OffsetForLeaderEpochResponse:
    body: OffsetForLeaderEpochRequest = request.body
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(broker, topic.topic, p) for p in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def error_response(body: OffsetForLeaderEpochRequest, version: int, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=p.partition, error_code=error.code) for p in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _look_up(broker: BrokerServices, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = log_of(broker, topic_by_name(broker, topic), partition.partition)
        check_leader_epoch(log, partition.current_leader_epoch)
        found = log.end_offset_for_epoch(partition.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=partition.partition, error_code=error.code)
    return EpochEndOffset(partition=partition.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset)
