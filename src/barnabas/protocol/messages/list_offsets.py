"""ListOffsets (key 2), versions 1-11, flexible from version 6.

v2 isolation level; v4 leader epoch; v7 max timestamp (KIP-734); v8 local log start (KIP-405); v9 last tiered
offset; v10 timeout (KIP-1075); v11 earliest pending upload (KIP-1023).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field, message, struct


@struct
class ListOffsetsPartition(Message):
    partition_index: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64, "0+")


@struct
class ListOffsetsTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: int = field(INT32, "0+")
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = field(INT32, "10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse(Message):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
