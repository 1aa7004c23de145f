"""What a producer raises, beside `KafkaError` with the code that a broker answered. Thread: any. Lock: none."""

from __future__ import annotations

from barnabas.client.errors import ClientClosed, ClientTimeout, ForkedClient
from barnabas.errors import BarnabasError, ErrorCode, KafkaError

__all__ = [
    "BufferExhausted",
    "DeliveryTimeout",
    "ForkedProducer",
    "ProducerClosed",
    "RecordTooLarge",
    "SerializationError",
]


class BufferExhausted(ClientTimeout):
    """`buffer.memory` was full for `max.block.ms` (PP-6): the brokers take records more slowly than they are sent."""


class DeliveryTimeout(ClientTimeout):
    """A record was not acknowledged within `delivery.timeout.ms`; it may have been written all the same, if it was ever sent."""


class ProducerClosed(ClientClosed):
    """The producer was closed, or is being closed."""


class ForkedProducer(ForkedClient):
    """A producer does not work in a child process that was forked after it was made: its thread is not there."""


class RecordTooLarge(KafkaError):
    """A record is larger than `max.request.size` or `buffer.memory` (PP-7)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class SerializationError(BarnabasError, TypeError):
    """A key or value is not bytes, and no serializer makes it so."""
