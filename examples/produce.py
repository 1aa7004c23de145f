"""Send records in four ways: one and wait, many with callbacks, a table, and from asyncio.

Run: python examples/produce.py localhost:9092
"""

from __future__ import annotations

import asyncio
import sys

import pyarrow as pa

from barnabas.producer import AsyncProducer, Producer, RecordMetadata

TOPIC = "example-orders"


def told(error: BaseException | None, metadata: RecordMetadata | None) -> None:
    if error is not None:
        print(f"not written: {error}")


def synchronous(servers: str) -> None:
    with Producer({"bootstrap.servers": servers, "compression.type": "zstd"}) as producer:
        metadata = producer.send(TOPIC, b"first", key=b"customer-1", headers=[("source", b"shop")]).result(30)
        print(f"the first record has offset {metadata.offset}")
        for number in range(10_000):
            producer.send(TOPIC, b"order %d" % number, on_delivery=told)
        table = pa.table({"value": [f"row {number}" for number in range(10_000)]})
        ranges = producer.send_arrow(TOPIC, table).result(30)
        print(f"{sum(one.count for one in ranges)} rows of a table in {len(ranges)} batches")


async def asynchronous(servers: str) -> None:
    async with AsyncProducer({"bootstrap.servers": servers}) as producer:
        futures = [await producer.send(TOPIC, b"async %d" % number) for number in range(100)]
        await asyncio.gather(*futures)
        print(f"{len(futures)} records from asyncio")


if __name__ == "__main__":
    synchronous(sys.argv[1])
    asyncio.run(asynchronous(sys.argv[1]))
