"""DeleteRecords (key 21), versions 0-2: move the log start offset forward (KIP-107); -1 means the high watermark.

Refused: internal topics (INVALID_TOPIC_EXCEPTION), topics that are only compacted (POLICY_VIOLATION), offsets below -1 or
above the high watermark (OFFSET_OUT_OF_RANGE). Kafka waits here until every replica has moved; on one node the low
watermark has moved when the log has, so the answer is immediate and `broker.delete_purgatory` stays empty.

Thread: any handler; not inline, because the new start offset is written down. Lock: the log's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.partition_lookup import log_of, topic_by_name
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

MOVED_START = 10
"""How many elements of a list a partition weighs: its new start is written to the disk."""
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(request: Request, broker: BrokerServices) -> DeleteRecordsResponse:
    body: DeleteRecordsRequest = request.body
    answers = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                low = _delete(broker, topic.name, index, partition.offset)
                partitions.append(DeleteRecordsPartitionResult(partition_index=index, low_watermark=low))
            except KafkaError as error:
                partitions.append(_failed(index, error))
        answers.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=answers)


def weigh(body: DeleteRecordsRequest, broker: BrokerServices) -> int:
    return MOVED_START * sum(len(topic.partitions) for topic in body.topics)


def error_response(body: DeleteRecordsRequest, version: int, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failed(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _delete(broker: BrokerServices, topic: str, partition: int, offset: int) -> int:
    info = topic_by_name(broker, topic)
    if info.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Records of the internal topic {topic} stay.")
    log = log_of(broker, info, partition)
    if not log.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The cleanup.policy of {topic} does not allow deletion.")
    if offset < HIGH_WATERMARK:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {offset} is not valid.")
    return log.delete_records_before(offset)


def _failed(partition: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=error.code
    )
