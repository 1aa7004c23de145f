"""The producer for asyncio."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from barnabas.errors import KafkaError
from barnabas.producer import AsyncProducer, ProducerClosed
from tests.both_brokers import broker_for_test


def test_outcomes_can_be_awaited() -> None:
    async def work(servers: str) -> None:
        async with AsyncProducer({"bootstrap.servers": servers}) as ours:
            assert (await ours.send_and_wait("orders", b"first", key=b"k")).offset == 0
            futures = [await ours.send("orders", b"%d" % number) for number in range(500)]
            written = await asyncio.gather(*futures)
            assert [metadata.offset for metadata in written] == list(range(1, 501))
            assert await ours.flush(5) == 0
            cancelled = await ours.send("orders", b"cancelled")
            cancelled.cancel()
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await ours.send("orders", b"x" * 2_000_000)
        with pytest.raises(ProducerClosed):
            await ours.send("orders", b"late")

    with broker_for_test(topics={"orders": 1}) as broker:
        asyncio.run(work(broker.bootstrap_servers))
        assert len(broker.records("orders")) == 502


def test_tables_and_partitions_can_be_awaited() -> None:
    async def work(servers: str) -> None:
        async with AsyncProducer({"bootstrap.servers": servers}) as ours:
            assert len(await ours.partitions_for("orders")) == 2
            table = pa.table({"value": [b"a", b"b", b"c"], "partition": pa.array([0, 0, 1], pa.int32())})
            ranges = await ours.send_arrow("orders", table)
            assert sorted((one.partition, one.first_offset, one.count) for one in ranges) == [(0, 0, 2), (1, 0, 1)]

    with broker_for_test(topics={"orders": 2}) as broker:
        asyncio.run(work(broker.bootstrap_servers))
        assert [record.value for record in broker.records("orders")] == [b"a", b"b", b"c"]


def test_full_memory_does_not_block_the_loop() -> None:
    """PP-6: the wait for memory is in a thread."""

    async def work(servers: str) -> None:
        settings = {"buffer.memory": 2_100_000, "batch.size": 100_000, "linger.ms": 0}
        async with AsyncProducer({"bootstrap.servers": servers, **settings}) as ours:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            ticker = asyncio.create_task(tick())
            futures = [await ours.send("orders", b"x" * 90_000) for _ in range(100)]
            await asyncio.gather(*futures)
            ticker.cancel()
            assert ticks > 10

    with broker_for_test(topics={"orders": 1}) as broker:
        asyncio.run(work(broker.bootstrap_servers))
        assert len(broker.records("orders")) == 100
