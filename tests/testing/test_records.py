"""Records written by other people's clients, read back without a consumer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from barnabas.records.batch import CorruptBatch
from barnabas.testing import EmbeddedBroker
from barnabas.testing.records import Record, _Cursor


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "zstd"])
def test_keys_values_headers_and_times_of_the_codecs_of_librdkafka(broker: EmbeddedBroker, codec: str) -> None:
    topic = broker.unique_topic_name(codec)
    broker.create_topic(topic)
    # The linger ends with `flush`. Without it a slow machine sends a small batch, which librdkafka leaves uncompressed.
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 2000})
    expected = []
    for number in range(100):
        key = b"k%d" % number if number % 3 else None
        value = b"v" * (number * 10) if number % 7 else None
        headers = (("h", b"x"), ("none", None)) if number % 2 else ()
        producer.produce(topic, value, key, headers=list(headers), timestamp=1_700_000_000_000 + number)
        expected.append(Record(topic, 0, number, 1_700_000_000_000 + number, key, value, headers, codec))
    assert producer.flush(30) == 0
    assert broker.records(topic) == expected


def test_lz4_is_read_too(broker: EmbeddedBroker) -> None:
    """With another client: librdkafka turns lz4 off when a broker has no FindCoordinator."""
    topic = broker.unique_topic_name("lz4")
    broker.create_topic(topic)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type="lz4", linger_ms=20)
    try:
        for number in range(20):
            producer.send(topic, b"v" * 200, b"k%d" % number, timestamp_ms=1_700_000_000_000, partition=0)
        producer.flush(30)
    finally:
        producer.close()
    records = broker.records(topic)
    assert [(r.offset, r.key, r.value) for r in records] == [(n, b"k%d" % n, b"v" * 200) for n in range(20)]
    assert {r.compression for r in records} == {"lz4"}


def test_the_broker_s_time_is_shown_when_the_topic_wants_it(broker: EmbeddedBroker) -> None:
    topic = broker.unique_topic_name()
    broker.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"x", timestamp=1)
    assert producer.flush(30) == 0
    assert broker.records(topic)[0].timestamp > 1_700_000_000_000


def test_a_field_longer_than_the_batch_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="claims 5 bytes, 2 are left"):
        _Cursor(b"ab").take(5)
    with pytest.raises(CorruptBatch):
        _Cursor(b"ab").take(-2)
