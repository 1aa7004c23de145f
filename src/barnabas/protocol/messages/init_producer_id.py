"""InitProducerId (key 22), versions 0-5, flexible from version 2.

v3 the producer's present id and epoch (KIP-360); v4 PRODUCER_FENCED; v5 TRANSACTION_ABORTABLE (KIP-890).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, field, message


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    transactional_id: str | None = field(STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    producer_id: int = field(INT64, "0+", default=-1)
    producer_epoch: int = field(INT16, "0+")
