"""CreatePartitions (key 37), versions 0-3, flexible from version 2.

v3 quota errors.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array(INT32, "0+")


@struct
class CreatePartitionsTopic(Message):
    name: str = field(STRING, "0+")
    count: int = field(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = field(INT32, "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class CreatePartitionsTopicResult(Message):
    name: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
