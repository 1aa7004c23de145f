"""Consume, process, produce: the same chain with our clients and with other people's, each as its users would write it.

`chain(address, source, target)` reads partition 0 of `source` from the beginning and writes `processed(value)` to `target` in order, with
an idempotent producer, until it has read END; it returns when everything is acknowledged. Without groups and transactions the
place of the chain is in its memory: exactly once holds as long as its process lives. Runs in the caller's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from barnabas import AsyncConsumer, AsyncProducer, Consumer, Producer

END = b"end"
DEADLINE_SECONDS = 90.0
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "request.timeout.ms": 3000,
}

Chain = Callable[[str, str, str], None]


def processed(value: bytes) -> bytes:
    return b"processed " + value


class Deadline:
    """Time runs out for a chain that hangs."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + DEADLINE_SECONDS

    def check(self) -> None:
        assert time.monotonic() < self._ends, f"the chain did not end within {DEADLINE_SECONDS} s"


def ours(address: str, source: str, target: str) -> None:
    deadline = Deadline()
    settings = {"bootstrap.servers": address, **QUICK}
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer, Producer(settings) as producer:
        consumer.assign([(source, 0)])
        values: list[bytes] = []
        sent = []
        while END not in values:
            deadline.check()
            values = [record.value for record in consumer.poll(timeout=0.5)]
            sent += [producer.send(target, processed(value)) for value in values]
        for future in sent:
            future.result(DEADLINE_SECONDS)


def ours_with_asyncio(address: str, source: str, target: str) -> None:
    async def work() -> None:
        settings = {"bootstrap.servers": address, **QUICK}
        async with (
            AsyncConsumer({**settings, "auto.offset.reset": "earliest"}) as consumer,
            AsyncProducer(settings) as producer,
        ):
            await consumer.assign([(source, 0)])
            sent: list[Awaitable[object]] = []
            async for record in consumer:
                sent.append(await producer.send(target, processed(record.value)))
                if record.value == END:
                    break
            await asyncio.gather(*sent)

    asyncio.run(asyncio.wait_for(work(), DEADLINE_SECONDS))


def librdkafka(address: str, source: str, target: str) -> None:
    deadline = Deadline()
    settings = {"bootstrap.servers": address, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
    consumer = confluent_kafka.Consumer({**settings, "group.id": "none", "enable.auto.commit": False})
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "retry.backoff.ms": 10})
    failed: list[object] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(source, 0, confluent_kafka.OFFSET_BEGINNING)])
        value: bytes | None = b""
        while value != END:
            deadline.check()
            producer.poll(0)
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue  # an error of a connection, which the client mends itself
            value = message.value()
            producer.produce(
                target, processed(value or b""), on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert producer.flush(DEADLINE_SECONDS) == 0
    finally:
        consumer.close()
    assert failed == []


def kafka_python(address: str, source: str, target: str) -> None:
    deadline = Deadline()
    settings = {"bootstrap_servers": address, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
    consumer = KafkaConsumer(**settings, enable_auto_commit=False, auto_offset_reset="earliest")
    producer = KafkaProducer(**settings, enable_idempotence=True, retry_backoff_ms=10)
    try:
        consumer.assign([PythonTopicPartition(source, 0)])
        values: list[bytes] = []
        sent = []
        while END not in values:
            deadline.check()
            values = [message.value for batch in consumer.poll(timeout_ms=500).values() for message in batch]
            sent += [producer.send(target, processed(value)) for value in values]
        producer.flush(DEADLINE_SECONDS)
        for future in sent:
            future.get(DEADLINE_SECONDS)
    finally:
        consumer.close()
        producer.close()


def aiokafka(address: str, source: str, target: str) -> None:
    async def work() -> None:
        settings = {"bootstrap_servers": address, "retry_backoff_ms": 20}
        consumer = AIOKafkaConsumer(**settings, enable_auto_commit=False, auto_offset_reset="earliest")
        producer = AIOKafkaProducer(**settings, enable_idempotence=True)
        async with consumer, producer:
            consumer.assign([AioTopicPartition(source, 0)])
            sent = []
            async for message in consumer:
                sent.append(await producer.send(target, processed(message.value)))
                if message.value == END:
                    break
            await asyncio.gather(*sent)

    asyncio.run(asyncio.wait_for(work(), DEADLINE_SECONDS))


CHAINS: dict[str, Chain] = {
    "ours": ours,
    "ours with asyncio": ours_with_asyncio,
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
