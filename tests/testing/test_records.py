"""Records written by other people's clients, read back without a consumer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas.records.batch import CorruptBatch
from barnabas.testing import EmbeddedBroker
from barnabas.testing.records import Record, _Cursor


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_values_headers_and_times_of_every_codec(broker: EmbeddedBroker, codec: str) -> None:
    topic = broker.unique_topic_name(codec)
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50})
    expected = []
    for number in range(100):
        key = b"k%d" % number if number % 3 else None
        value = b"v" * (number * 10) if number % 7 else None
        headers = (("h", b"x"), ("none", None)) if number % 2 else ()
        producer.produce(topic, value, key, headers=list(headers), timestamp=1_700_000_000_000 + number)
        expected.append(Record(topic, 0, number, 1_700_000_000_000 + number, key, value, headers, codec))
    assert producer.flush(30) == 0
    assert broker.records(topic) == expected


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
