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
    """`buffer.memory` was full for `max.block.ms` (PP-6): the brokers take records more slowly than they are sent.

    try:
        producer.send("orders", b"value")
    except BufferExhausted:
        producer.flush(10)  # there is room again when it returns
    """


class DeliveryTimeout(ClientTimeout):
    """A record was not acknowledged within `delivery.timeout.ms`; it may have been written all the same, if it was ever sent.

    if isinstance(producer.send("orders", b"value").exception(130), DeliveryTimeout):
        print("not acknowledged in time")
    """


class ProducerClosed(ClientClosed):
    """The producer was closed, or is being closed.

    producer.close()
    try:
        producer.send("orders", b"late")
    except ProducerClosed as error:
        print(error)
    """


class ForkedProducer(ForkedClient):
    """A producer does not work in a child process that was forked after it was made: its thread is not there.

    try:
        producer.send("orders", b"value")
    except ForkedProducer:
        producer = Producer({"bootstrap.servers": "localhost:9092"})
    """


class RecordTooLarge(KafkaError):
    """A record is larger than `max.request.size` or `buffer.memory` (PP-7).

    try:
        producer.send("orders", b"x" * 2_000_000)
    except RecordTooLarge as error:
        print(error)
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class SerializationError(BarnabasError, TypeError):
    """A key, value or header is not bytes, and no serializer makes it so.

    try:
        producer.send("orders", {"price": 3})
    except SerializationError as error:
        print(error)
    """
