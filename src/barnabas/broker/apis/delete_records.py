"""DeleteRecords (key 21), versions 0-2: move the log start offset forward (KIP-107); -1 means the high watermark.

Refused: internal topics (INVALID_TOPIC_EXCEPTION), topics that are only compacted (POLICY_VIOLATION), offsets below -1 or
above the high watermark (OFFSET_OUT_OF_RANGE). A partition that is named twice is answered once; the last offset counts, as
in Kafka. Kafka waits here until every replica has moved; on one node the low watermark has moved when the log has, so the
answer is immediate and `broker.delete_purgatory` stays empty.

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

MOVED_START = 200
"""How many elements of a list a partition weighs: its new start is written to the disk."""
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(request: Request, broker: BrokerServices) -> DeleteRecordsResponse:
    body: DeleteRecordsRequest = request.body
    wanted: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((partition.partition_index, partition.offset) for partition in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic, partitions=[_answer(broker, topic, index, offset) for index, offset in offsets.items()]
            )
            for topic, offsets in wanted.items()
        ]
    )


def _answer(broker: BrokerServices, topic: str, partition: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low = _delete(broker, topic, partition, offset)
    except KafkaError as error:
        return _failed(partition, error)
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=low)


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
