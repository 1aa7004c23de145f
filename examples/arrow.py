"""Whole tables in, whole tables out: no Python object per record.

Run: python examples/arrow.py [localhost:9092]      without an address it starts a broker of its own
"""

from __future__ import annotations

import sys
import uuid

import pyarrow as pa
import pyarrow.compute as pc

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker

ROWS = 100_000


def produce(servers: str, topic: str) -> None:
    table = pa.table(
        {
            "key": pa.array([b"sensor-%d" % (number % 10) for number in range(ROWS)]),
            "value": pa.array([b"%d" % (number % 100) for number in range(ROWS)]),
        }
    )
    with Producer({"bootstrap.servers": servers, "batch.size": 1_000_000, "compression.type": "lz4"}) as producer:
        ranges = producer.send_arrow(topic, table).result(30)
    print(f"{sum(one.count for one in ranges)} rows written in {len(ranges)} batches")


def consume(servers: str, topic: str) -> None:
    batches: list[pa.RecordBatch] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        while sum(batch.num_rows for batch in batches) < ROWS:
            batches.append(consumer.poll_arrow(timeout=1.0))
    numbers = pc.cast(pc.cast(pa.Table.from_batches(batches)["value"], pa.string()), pa.int64())
    print(f"{len(numbers)} rows read, their mean is {pc.mean(numbers)}")


def main(servers: str) -> None:
    topic = f"measurements-{uuid.uuid4().hex[:8]}"
    produce(servers, topic)
    consume(servers, topic)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
