"""Our producer against a broker in a process of its own, ours or Apache Kafka (BARNABAS_TEST_AGAINST=kafka), read by librdkafka."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.producer import Producer, RecordTooLarge
from barnabas.producer.partitioner import partition_for_key
from barnabas.records.compression import CODEC_NAMES
from bench.brokers import BrokerProcess
from tests.live_broker import fresh_topic, own_live_broker

COUNT = 2000


def read_all(broker: BrokerProcess, topic: str, count: int, partitions: int = 1) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Any] = []
        while len(found) < count:
            batch = consumer.consume(count - len(found), 15)
            assert batch, f"{len(found)} of {count} records came"
            found.extend(batch)
        assert all(message.error() is None for message in found)
        return found
    finally:
        consumer.close()


def producer(broker: BrokerProcess, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_is_understood_and_nothing_is_lost_or_doubled(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    """PP-10, PP-31."""
    with producer(broker, compression_type=codec) as ours:
        futures = [
            ours.send(topic, b"value %d" % n, key=b"key", headers=[("n", b"%d" % n)], timestamp=1_700_000_000_000 + n)
            for n in range(COUNT)
        ]
    assert [future.result(0).offset for future in futures] == list(range(COUNT))
    found = read_all(broker, topic, COUNT)
    assert [message.value() for message in found] == [b"value %d" % n for n in range(COUNT)]
    assert found[7].headers() == [("n", b"7")]
    assert found[7].timestamp()[1] == 1_700_000_000_007


def test_tables_and_keys(broker: BrokerProcess) -> None:
    """PP-12: every row is in the partition of its key."""
    topic = fresh_topic(broker, 4)
    keys = [b"key-%d" % (n % 50) for n in range(COUNT)]
    with producer(broker) as ours:
        ours.send_arrow(topic, pa.table({"value": [b"%d" % n for n in range(COUNT)], "key": keys})).result(20)
    found = read_all(broker, topic, COUNT, 4)
    assert {(message.key(), message.partition()) for message in found} == {
        (key, partition_for_key(key, 4)) for key in set(keys)
    }
    for key in set(keys):
        numbers = [int(message.value()) for message in found if message.key() == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    "settings", [{"acks": "1"}, {"acks": "0"}, {"max_in_flight_requests_per_connection": 1}], ids=str
)
def test_other_guarantees(broker: BrokerProcess, topic: str, settings: dict[str, object]) -> None:
    """PP-15."""
    with producer(broker, **settings) as ours:
        for number in range(COUNT):
            ours.send(topic, b"%d" % number)
    assert [int(message.value()) for message in read_all(broker, topic, COUNT)] == list(range(COUNT))


@pytest.mark.timeout(180)
def test_a_broker_that_is_killed_while_records_are_sent() -> None:
    """PP-27, PP-31: nothing is lost, doubled or reordered; records wait until it is back."""
    with own_live_broker() as broker, producer(broker, linger_ms=0, batch_size=500) as ours:
        topic = fresh_topic(broker)
        futures = [ours.send(topic, b"%d" % number) for number in range(COUNT)]
        futures[COUNT // 2].result(30)
        broker.kill()
        # A client that has lost every broker begins anew from its bootstrap addresses and knows no topic: `send` may wait for one.
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(lambda: [ours.send(topic, b"%d" % number) for number in range(COUNT, 2 * COUNT)])
            broker.start()
            futures += sending.result(90)
        futures += [ours.send(topic, b"%d" % number) for number in range(2 * COUNT, 3 * COUNT)]
        assert [future.result(120).offset for future in futures] == list(range(3 * COUNT))
        assert [int(message.value()) for message in read_all(broker, topic, 3 * COUNT)] == list(range(3 * COUNT))


def test_a_topic_is_made_by_the_first_record(broker: BrokerProcess) -> None:
    with producer(broker) as ours:
        assert ours.send(f"made-by-us-{id(ours)}", b"v").result(20).offset == 0
        with pytest.raises(RecordTooLarge):
            ours.send("never", b"v" * 2_000_000)
