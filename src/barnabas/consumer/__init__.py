"""The consumer: reads assigned partitions as records or as Arrow batches. Groups have their place in `consumer.py`."""

from barnabas.client.offsets import OffsetAndTimestamp
from barnabas.consumer.aio import AsyncConsumer
from barnabas.consumer.consumer import Consumer
from barnabas.records.kernel.fetched import Record

__all__ = ["AsyncConsumer", "Consumer", "OffsetAndTimestamp", "Record"]
