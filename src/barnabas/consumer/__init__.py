"""The consumer: reads assigned partitions as records or as Arrow batches. Groups have their place in `consumer.py`."""

from typing import TYPE_CHECKING

from barnabas.client.offsets import OffsetAndTimestamp
from barnabas.consumer.consumer import Consumer
from barnabas.records.kernel.fetched import Record

if TYPE_CHECKING:
    from barnabas.consumer.aio import AsyncConsumer

__all__ = ["AsyncConsumer", "Consumer", "OffsetAndTimestamp", "Record"]


def __getattr__(name: str) -> object:
    """asyncio takes as long to import as all the rest; a Spark worker that reads does not need it."""
    if name != "AsyncConsumer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.consumer.aio import AsyncConsumer

    return AsyncConsumer
