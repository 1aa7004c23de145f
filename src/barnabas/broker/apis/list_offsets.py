"""ListOffsets (key 2), versions 1-11: offsets by time and by name.

    -1 latest (high watermark, or last stable offset with read_committed)     -4 earliest local (v8+), here the same as -2
    -2 earliest                                                               -5 latest tiered (v9+), here none: offset -1
    -3 largest timestamp (v7+, KIP-734)                                       -6 earliest pending upload (v11+): offset -1
    0 and above: the first record at or after that time; offset -1 when there is none

v2  isolation level      v4  leader epochs, 74/75 when the client's is another      v10  timeout, not needed here
A timestamp that the version does not know: UNSUPPORTED_VERSION; a partition named twice: INVALID_REQUEST.

Thread: any handler; not inline, because a time look-up reads the log. Lock: none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.partition_lookup import check_leader_epoch, log_of, topic_by_name
from barnabas.broker.log.results import IsolationLevel
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

FIRST_VERSION_OF_TIMESTAMP = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
MAX_TIMESTAMP = -3
TIME_LOOKUP = 1 << 20
"""A look-up by time is always heavy: where many batches have one time, it goes over all of them."""
NEVER_TIERED = (-5, -6)
FIRST_VERSION_WITH_EPOCH = 4


def handle(request: Request, broker: BrokerServices) -> ListOffsetsResponse:
    body: ListOffsetsRequest = request.body
    version = request.header.api_version
    isolation = IsolationLevel.READ_COMMITTED if body.isolation_level else IsolationLevel.READ_UNCOMMITTED
    named = Counter((topic.name, p.partition_index) for topic in body.topics for p in topic.partitions)
    answers = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            try:
                if named[topic.name, partition.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                partitions.append(_look_up(broker, topic.name, partition, version, isolation))
            except KafkaError as error:
                partitions.append(_failed(partition, error))
        answers.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=answers)


def weigh(body: ListOffsetsRequest, broker: BrokerServices) -> int:
    """A look-up by time reads the log."""
    return TIME_LOOKUP * sum(
        p.timestamp >= 0 or p.timestamp == MAX_TIMESTAMP for topic in body.topics for p in topic.partitions
    )


def error_response(body: ListOffsetsRequest, version: int, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_failed(p, error) for p in topic.partitions])
            for topic in body.topics
        ]
    )


def _look_up(
    broker: BrokerServices, topic: str, partition: ListOffsetsPartition, version: int, isolation: IsolationLevel
) -> ListOffsetsPartitionResponse:
    timestamp = partition.timestamp
    if timestamp < 0 and version < FIRST_VERSION_OF_TIMESTAMP.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The timestamp {timestamp} is not known in version {version}.")
    log = log_of(broker, topic_by_name(broker, topic), partition.partition_index)
    check_leader_epoch(log, partition.current_leader_epoch)
    answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
    if timestamp in NEVER_TIERED:
        return answer
    found = log.offset_for_timestamp(timestamp, isolation)
    answer.timestamp = found.timestamp
    answer.offset = found.offset
    if version >= FIRST_VERSION_WITH_EPOCH and found.offset >= 0:
        answer.leader_epoch = found.leader_epoch
    return answer


def _failed(partition: Any, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
