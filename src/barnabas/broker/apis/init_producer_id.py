"""InitProducerId (key 22), versions 0-5: an id for an idempotent producer (KIP-98).

Without a transactional id every request gets a new id with epoch 0, also one that names its present id (KIP-360).
Transactions are not there yet: a transactional id is refused with UNSUPPORTED_VERSION, an empty one with INVALID_REQUEST.

v3  the producer's present id and epoch; only one of the two: INVALID_REQUEST
v4  PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE: only for transactional ids

Thread: any handler; not inline, because once per block of ids the catalog is written. Lock: the catalog's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

NO_PRODUCER_ID = -1
NO_EPOCH = -1


def handle(request: Request, broker: BrokerServices) -> InitProducerIdResponse:
    body: InitProducerIdRequest = request.body
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Producer id and epoch must be given both or not at all.")
    if body.transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.catalog.next_producer_id(), producer_epoch=0)
    if not body.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no transactions.")


def error_response(body: Any, version: int, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
