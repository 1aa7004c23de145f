"""DeleteRecords (key 21), versions 0-2, flexible from version 2.

v2 is the first flexible version. Offset -1 means the high watermark.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, array, field, message, struct


@struct
class DeleteRecordsPartition(Message):
    partition_index: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


@struct
class DeleteRecordsTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = field(INT32, "0+")


@struct
class DeleteRecordsPartitionResult(Message):
    partition_index: int = field(INT32, "0+")
    low_watermark: int = field(INT64, "0+")
    error_code: int = field(INT16, "0+")


@struct
class DeleteRecordsTopicResult(Message):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
