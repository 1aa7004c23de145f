"""Produce (key 0), versions 3-13, flexible from version 9.

v3 record batches v2 and transactions; v5 log start offset; v8 record errors (KIP-467); v10 leader hints (KIP-951);
v12 implicit partition add (KIP-890); v13 topic ids instead of names (KIP-516).
Pure declarations: any thread, no lock.
"""

import uuid

from barnabas.protocol.schema import INT16, INT32, INT64, RECORDS, STRING, UUID, Message, array, field, message, struct


@struct
class PartitionProduceData(Message):
    index: int = field(INT32, "0+")
    records: memoryview | None = field(RECORDS, "0+", nullable="0+")


@struct
class TopicProduceData(Message):
    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest(Message):
    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16, "0+")
    timeout_ms: int = field(INT32, "0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


@struct
class BatchIndexAndErrorMessage(Message):
    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


@struct
class PartitionProduceResponse(Message):
    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    base_offset: int = field(INT64, "0+")
    log_append_time_ms: int = field(INT64, "2+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse(Message):
    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@struct
class NodeEndpoint(Message):
    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = field(INT32, "1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
