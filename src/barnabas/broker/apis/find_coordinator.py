"""FindCoordinator (key 10), versions 0-6: where a group or a transactional id is looked after.

Groups and transactions are not there yet, so no key has a coordinator. A transactional id or a share group gets
UNSUPPORTED_VERSION, as Kafka answers an API whose feature is switched off. A consumer group gets the retriable
COORDINATOR_NOT_AVAILABLE: librdkafka asks for its group's coordinator even when partitions are assigned by hand, and would take
any other error for the end of the consumer. The API itself is served because librdkafka compresses with lz4 only for brokers
that have it.

v1  kind of key (0 group, 1 transactional id, 2 share group), error message; v4 several keys at once, each answered once

Thread: any; inline. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
NO_NODE = -1
KINDS = {
    0: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has no consumer groups; assign partitions by hand."),
    1: (ErrorCode.UNSUPPORTED_VERSION, "This broker has no transactions."),
    2: (ErrorCode.UNSUPPORTED_VERSION, "This broker has no share groups."),
}


def handle(request: Request, broker: BrokerServices) -> FindCoordinatorResponse:
    kind = KINDS.get(request.body.key_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The kind of key {request.body.key_type} is unknown.")
    raise KafkaError(*kind)


def error_response(body: FindCoordinatorRequest, version: int, error: KafkaError) -> FindCoordinatorResponse:
    if version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            error_code=error.code, error_message=error.message, node_id=NO_NODE, port=NO_NODE
        )
    texts = ErrorTexts()
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=error.code, error_message=texts.of(error))
            for key in dict.fromkeys(body.coordinator_keys)
        ]
    )
