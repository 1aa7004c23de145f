"""The topics of `make bench-spark`: filled by a producer with Kafka's default settings, so that the batches in them are as a usual
topic's are (16 KiB).

Role: data. Thread: the harness's main one. Lock: none.
"""

from __future__ import annotations

import array
import os
import uuid

import pyarrow as pa

from barnabas.client.admin import Admin
from barnabas.consumer import Consumer
from barnabas.producer import Producer
from bench.workloads import create_topic

__all__ = ["delete_topic", "fill", "fresh_topic", "held"]

ROWS_PER_CALL = 100_000
KAFKAS_BATCH_SIZE = 16_384


def fresh_topic(bootstrap: str, partitions: int) -> str:
    """An empty topic of its own name."""
    return create_topic(bootstrap, f"bench-{uuid.uuid4().hex[:10]}", partitions)


def delete_topic(bootstrap: str, topic: str) -> None:
    """With its files, and so with the page cache that they have."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.delete_topics([topic])


def fill(bootstrap: str, topic: str, records: int, size: int) -> list[int]:
    """Write records with values of `size` bytes and no key; (rows, bytes, sum of the offsets) of what is then in the topic."""
    table = pa.table({"value": random_values(min(records, ROWS_PER_CALL), size)})
    with Producer({"bootstrap.servers": bootstrap, "batch.size": KAFKAS_BATCH_SIZE}) as producer:
        for first in range(0, records, ROWS_PER_CALL):
            producer.send_arrow(topic, table.slice(0, min(ROWS_PER_CALL, records - first)))
    ends = _ends(bootstrap, topic)
    if sum(ends) != records:
        raise RuntimeError(f"{sum(ends)} of {records} records are in {topic}")
    return [records, records * size, sum(end * (end - 1) // 2 for end in ends)]


def random_values(rows: int, size: int) -> pa.Array:
    """Binary values that no compression shortens."""
    ends = array.array("i", range(0, (rows + 1) * size, size))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(os.urandom(rows * size))])


def held(bootstrap: str, topic: str) -> int:
    """How many records the broker says that a topic holds which nothing was deleted from."""
    return sum(_ends(bootstrap, topic))


def _ends(bootstrap: str, topic: str) -> list[int]:
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        partitions = [(topic, info.partition) for info in consumer.partitions_for(topic)]
        return list(consumer.end_offsets(partitions).values())
