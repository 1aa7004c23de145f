"""Read from one topic, work on each record, write to another, all in one event loop.

Run: python examples/asyncio_pipeline.py [localhost:9092]      without an address it starts a broker of its own
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from barnabas import AsyncConsumer, AsyncProducer
from barnabas.testing import EmbeddedBroker

COUNT = 200


async def fill(producer: AsyncProducer, topic: str) -> None:
    outcomes = [await producer.send(topic, b"order %d" % number) for number in range(COUNT)]
    await asyncio.gather(*outcomes)


async def transform(servers: str, producer: AsyncProducer, source: str, target: str) -> None:
    """Runs until it is cancelled."""
    async with AsyncConsumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(source, 0)])
        async for record in consumer:
            await producer.send(target, record.value.upper(), key=b"%d" % record.offset)


async def watch(servers: str, topic: str) -> None:
    async with AsyncConsumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        seen = 0
        async for record in consumer:
            seen += 1
            if seen == COUNT:
                print(f"{seen} records went through, the last is {record.value!r}")
                return


async def pipeline(servers: str) -> None:
    run = uuid.uuid4().hex[:8]
    source, target = f"orders-{run}", f"loud-orders-{run}"
    async with AsyncProducer({"bootstrap.servers": servers}) as producer:
        await fill(producer, source)
        worker = asyncio.create_task(transform(servers, producer, source, target))
        async with asyncio.timeout(30):
            await watch(servers, target)
        worker.cancel()
        await asyncio.wait([worker])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(pipeline(sys.argv[1]))
    else:
        with EmbeddedBroker() as broker:
            asyncio.run(pipeline(broker.bootstrap_servers))
