"""The sending side: `Producer`, and the parts that a record passes on its way to a broker (spec/producer-path.md).

send_path (records/kernel)   one record into the open batch of its partition
accumulator.py, topic_queues.py, batch.py, buffer_pool.py, partitioner.py
sender.py, produce_answers.py, transaction_manager.py   the I/O thread
"""

from typing import TYPE_CHECKING

from barnabas.producer.errors import (
    BufferExhausted,
    DeliveryTimeout,
    ForkedProducer,
    ProducerClosed,
    RecordTooLarge,
    SerializationError,
)
from barnabas.producer.producer import Producer, RecordFuture, RecordMetadata

if TYPE_CHECKING:
    from barnabas.producer.aio import AsyncProducer

__all__ = [
    "AsyncProducer",
    "BufferExhausted",
    "DeliveryTimeout",
    "ForkedProducer",
    "Producer",
    "ProducerClosed",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "SerializationError",
]


def __getattr__(name: str) -> object:
    """asyncio takes as long to import as all the rest; a Spark worker that writes does not need it."""
    if name != "AsyncProducer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.producer.aio import AsyncProducer

    return AsyncProducer
