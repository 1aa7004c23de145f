"""DescribeTopicPartitions (key 75), versions 0, flexible from version 0.

Metadata in pages with a cursor (KIP-966).
Pure declarations: any thread, no lock.
"""

import uuid

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Message, array, field, message, struct


@struct
class TopicRequest(Message):
    name: str = field(STRING, "0+")


@struct
class Cursor(Message):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = field(INT32, "0+", default=2000)
    cursor: Cursor | None = field(Cursor, "0+", nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+", default=-1)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    eligible_leader_replicas: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32, "0+")


@struct
class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = field(UUID, "0+")
    is_internal: bool = field(BOOL, "0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = field(INT32, "0+", default=-2147483648)


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = field(Cursor, "0+", nullable="0+", default=None)
