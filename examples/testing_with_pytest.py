"""A service, and its tests against a real broker that starts in a fraction of a second.

Run: pytest examples/testing_with_pytest.py      the fixtures are there as soon as the package is installed
"""

from __future__ import annotations

import pytest

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker


def shout(consumer: Consumer, producer: Producer, topic: str) -> int:
    """What is tested: reads what is there and answers to `topic`."""
    records = consumer.poll(timeout=5.0)
    for record in records:
        producer.send(topic, record.value.upper(), key=record.key)
    producer.flush()
    return len(records)


def test_a_record_is_written_and_read(kafka_producer: Producer, kafka_consumer: Consumer, kafka_topic: str) -> None:
    """`kafka_consumer` reads all of `kafka_topic`, which only this test has."""
    kafka_producer.send(kafka_topic, b"hello").result(10)
    assert [record.value for record in kafka_consumer.poll(timeout=5.0)] == [b"hello"]


@pytest.mark.kafka(partitions=3)
def test_a_service(
    kafka_broker: EmbeddedBroker, kafka_producer: Producer, kafka_consumer: Consumer, kafka_topic: str
) -> None:
    """What a topic holds can be seen without a consumer: `kafka_broker.records`."""
    kafka_producer.send(kafka_topic, b"hello", key=b"k").result(10)
    kafka_broker.create_topic("answers")
    assert shout(kafka_consumer, kafka_producer, "answers") == 1
    assert [(record.key, record.value) for record in kafka_broker.records("answers")] == [(b"k", b"HELLO")]
