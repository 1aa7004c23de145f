"""What kafka-python and aiokafka ask of a broker beyond a plain round trip: administration, searching by time, idempotence."""

from __future__ import annotations

import asyncio
import warnings

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic

from bench.brokers import BrokerProcess
from tests.waiting import wait_until

with warnings.catch_warnings():
    # kafka-python reads its message schemas on import through a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

SECONDS = 30.0
BASE_TIME_MS = 1_700_000_000_000


def test_kafka_python_administers_topics(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([NewTopic(name="made-by-kafka-python", num_partitions=3, replication_factor=1)])
        wait_until(lambda: "made-by-kafka-python" in admin.list_topics(), what="the new topic")
        [described] = admin.describe_topics(["made-by-kafka-python"])
        assert len(described["partitions"]) == 3
        admin.delete_topics(["made-by-kafka-python"])
        wait_until(lambda: "made-by-kafka-python" not in admin.list_topics(), what="the end of the topic")
    finally:
        admin.close()


def test_kafka_python_finds_offsets_by_time_and_at_both_ends(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=BASE_TIME_MS + number * 1000)
    producer.flush(SECONDS)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        partition = TopicPartition(topic, 0)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: BASE_TIME_MS + 3500})[partition]
        assert (found.offset, found.timestamp) == (4, BASE_TIME_MS + 4000)
    finally:
        consumer.close()


def test_aiokafka_writes_idempotently_and_seeks(broker: BrokerProcess, topic: str) -> None:
    async def write_and_read() -> list[bytes | None]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            for number in range(1000):
                await producer.send(topic, b"%d" % number, partition=0)
            await producer.flush()
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            partition = AioTopicPartition(topic, 0)
            consumer.assign([partition])
            assert await consumer.end_offsets([partition]) == {partition: 1000}
            consumer.seek(partition, 990)
            return [(await consumer.getone()).value for _ in range(10)]
        finally:
            await consumer.stop()

    read = asyncio.run(asyncio.wait_for(write_and_read(), SECONDS))
    assert read == [b"%d" % number for number in range(990, 1000)]


def test_aiokafka_administers_topics(broker: BrokerProcess) -> None:
    async def create_and_delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("made-by-aiokafka", 2, 1)])
            assert "made-by-aiokafka" in await admin.list_topics()
            await admin.delete_topics(["made-by-aiokafka"])
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(create_and_delete(), SECONDS))
