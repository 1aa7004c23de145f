"""OffsetForLeaderEpoch (key 23), versions 2-4, flexible from version 4.

v3 replica id (-2 = consumer or debug); v4 is the first flexible version.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, array, field, message, struct


@struct
class OffsetForLeaderPartition(Message):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "2+", default=-1)
    leader_epoch: int = field(INT32, "0+")


@struct
class OffsetForLeaderTopic(Message):
    topic: str = field(STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


@struct
class EpochEndOffset(Message):
    error_code: int = field(INT16, "0+")
    partition: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "1+", default=-1)
    end_offset: int = field(INT64, "0+", default=-1)


@struct
class OffsetForLeaderTopicResult(Message):
    topic: str = field(STRING, "0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
