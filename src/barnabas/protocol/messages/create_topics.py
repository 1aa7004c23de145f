"""CreateTopics (key 19), versions 2-7, flexible from version 5.

v4 broker defaults with -1 (KIP-464); v5 configs in the answer (KIP-525); v6 quota errors; v7 topic id.
Pure declarations: any thread, no lock.
"""

import uuid

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, array, field, message, struct


@struct
class CreatableReplicaAssignment(Message):
    partition_index: int = field(INT32, "0+")
    broker_ids: list[int] = array(INT32, "0+")


@struct
class CreatableTopicConfig(Message):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


@struct
class CreatableTopic(Message):
    name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = field(INT32, "0+", default=60000)
    validate_only: bool = field(BOOL, "1+")


@struct
class CreatableTopicConfigs(Message):
    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+")


@struct
class CreatableTopicResult(Message):
    name: str = field(STRING, "0+")
    topic_id: uuid.UUID = field(UUID, "7+", ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "1+", nullable="0+")
    topic_config_error_code: int = field(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")
