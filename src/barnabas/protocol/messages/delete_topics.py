"""DeleteTopics (key 20), versions 1-6, flexible from version 4.

v5 error message; v6 topics by name or by id (KIP-516).
Pure declarations: any thread, no lock.
"""

import uuid

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, array, field, message, struct


@struct
class DeleteTopicState(Message):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: uuid.UUID = field(UUID, "6+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = field(INT32, "0+")


@struct
class DeletableTopicResult(Message):
    name: str | None = field(STRING, "0+", nullable="6+")
    topic_id: uuid.UUID = field(UUID, "6+", ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, "1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
