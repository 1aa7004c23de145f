"""ListPartitionReassignments (key 46), versions 0, flexible from version 0.

Null topics = all (KIP-455).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT16, INT32, STRING, Message, array, field, message, struct


@struct
class ListPartitionReassignmentsTopics(Message):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = array(INT32, "0+")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment(Message):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] = array(INT32, "0+")
    adding_replicas: list[int] = array(INT32, "0+")
    removing_replicas: list[int] = array(INT32, "0+")


@struct
class OngoingTopicReassignment(Message):
    name: str = field(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
