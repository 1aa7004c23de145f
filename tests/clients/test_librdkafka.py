"""What librdkafka (confluent-kafka) asks of a broker beyond a plain round trip: idempotence, acks, seeking, waiting, administration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from bench.brokers import BrokerProcess
from tests.live_broker import fresh_topic
from tests.waiting import wait_until

SECONDS = 30.0


@contextmanager
def reading(broker: BrokerProcess, *partitions: TopicPartition, **settings: object) -> Iterator[Consumer]:
    base = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(base | {name.replace("_", "."): value for name, value in settings.items()})
    consumer.assign(list(partitions))
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), timeout=1.0)
    assert all(message.error() is None for message in found), [message.error() for message in found]
    return found


def send(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> list[KafkaError]:
    """Write to partition 0 and wait; the errors that were reported."""
    base = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5}
    producer = Producer(base | {name.replace("_", "."): value for name, value in settings.items()})
    errors: list[KafkaError] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, message: errors.append(error) if error else None
        )
    assert producer.flush(SECONDS) == 0
    return errors


@pytest.mark.parametrize(
    "settings", [{"acks": "0"}, {"acks": "1"}, {"acks": "all"}, {"enable_idempotence": True}], ids=str
)
def test_records_come_back_once_and_in_order_whatever_the_acks(
    broker: BrokerProcess, topic: str, settings: dict[str, object]
) -> None:
    values = [b"%d" % number for number in range(5000)]
    assert send(broker, topic, values, batch_num_messages=100, **settings) == []
    with reading(broker, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
        assert [message.value() for message in take(consumer, 5000)] == values


def test_a_consumer_that_waits_at_the_end_gets_a_record_at_once(broker: BrokerProcess, topic: str) -> None:
    with reading(broker, TopicPartition(topic, 0, OFFSET_END), fetch_wait_max_ms=20_000) as consumer:
        # A first record shows that the consumer has found the end and waits there.
        wait_until(lambda: not send(broker, topic, [b"hello"]) and consumer.poll(0.5), SECONDS, "the first record")
        began = time.monotonic()
        assert send(broker, topic, [b"prompt"]) == []
        [message] = take(consumer, 1)
        while message.value() == b"hello":  # it was sent more than once when the consumer was slow to find the end
            [message] = take(consumer, 1)
        assert message.value() == b"prompt"
        assert time.monotonic() - began < 10, "the long poll of 20 s was not cut short by the new record"


def test_offsets_are_found_by_time(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 3})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(SECONDS) == 0
    with reading(broker) as consumer:

        def offset_at(stamp: int) -> int:
            [found] = consumer.offsets_for_times([TopicPartition(topic, 0, stamp)], timeout=SECONDS)
            assert found.error is None
            return int(found.offset)

        assert offset_at(1_700_000_000_000) == 0
        assert offset_at(1_700_000_006_500) == 7
        assert offset_at(1_700_000_019_000) == 19
        assert offset_at(1_700_000_019_001) in (OFFSET_END, 20)


def test_reading_can_begin_inside_a_batch(broker: BrokerProcess, topic: str) -> None:
    assert send(broker, topic, [b"%d" % number for number in range(1000)], linger_ms=100, compression_type="zstd") == []
    with reading(broker, TopicPartition(topic, 0, 777)) as consumer:
        first = take(consumer, 1)[0]
        assert (first.offset(), first.value()) == (777, b"777")


def test_an_offset_out_of_range_resets_to_the_earliest(broker: BrokerProcess, topic: str) -> None:
    assert send(broker, topic, [b"a", b"b"]) == []
    with reading(broker, TopicPartition(topic, 0, 1_000_000), auto_offset_reset="earliest") as consumer:
        assert [message.value() for message in take(consumer, 2)] == [b"a", b"b"]


def test_a_large_record_comes_back_and_a_too_large_one_is_refused(broker: BrokerProcess, topic: str) -> None:
    large = bytes(range(256)) * 3500
    assert send(broker, topic, [large]) == []
    [error] = send(broker, topic, [b"x" * 3_000_000], message_max_bytes=4_000_000)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    with reading(broker, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
        assert [message.value() for message in take(consumer, 1)] == [large]


def test_writing_to_an_unknown_topic_creates_it(broker: BrokerProcess) -> None:
    assert send(broker, "made-by-writing", [b"first"], message_timeout_ms=20_000) == []
    with reading(broker, TopicPartition("made-by-writing", 0, OFFSET_BEGINNING)) as consumer:
        assert take(consumer, 1)[0].value() == b"first"


def test_reading_many_partitions_at_once_gives_every_record(broker: BrokerProcess) -> None:
    topic = fresh_topic(broker, partitions=12)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "compression.type": "lz4"})
    for number in range(12_000):
        producer.produce(topic, b"%d" % number, partition=number % 12)
    assert producer.flush(SECONDS) == 0
    with reading(broker, *(TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(12))) as consumer:
        found = take(consumer, 12_000)
    assert sorted(int(message.value() or b"") for message in found) == list(range(12_000))


def test_the_admin_client_creates_describes_changes_and_deletes_topics(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = "made-by-admin-client"
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "3600000"})])[name].result(SECONDS)
    [described] = [f.result(SECONDS) for f in admin.describe_topics(TopicCollection([name])).values()]
    assert [part.id for part in described.partitions] == [0, 1]
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert admin.describe_configs([resource])[resource].result(SECONDS)["retention.ms"].value == "3600000"
    change = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    admin.incremental_alter_configs([changed])[changed].result(SECONDS)
    wait_until(lambda: _retention(admin, resource) == "7200000", what="the new retention")
    admin.create_partitions([NewPartitions(name, 4)])[name].result(SECONDS)
    wait_until(
        lambda: len(admin.list_topics(name, timeout=SECONDS).topics[name].partitions) == 4, what="four partitions"
    )
    admin.delete_topics([name])[name].result(SECONDS)
    wait_until(lambda: name not in admin.list_topics(timeout=SECONDS).topics, what="the end of the topic")


def _retention(admin: AdminClient, resource: ConfigResource) -> str | None:
    value: str | None = admin.describe_configs([resource])[resource].result(SECONDS)["retention.ms"].value
    return value


def test_records_can_be_deleted_up_to_an_offset(broker: BrokerProcess, topic: str) -> None:
    assert send(broker, topic, [b"%d" % number for number in range(100)]) == []
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic, 0, 40)
    [deleted] = [f.result(SECONDS) for f in admin.delete_records([partition]).values()]
    assert deleted.low_watermark == 40
    with reading(broker, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
        assert take(consumer, 1)[0].offset() == 40
    [listed] = [
        f.result(SECONDS)
        for f in admin.list_offsets(
            {TopicPartition(topic, 0): OffsetSpec.earliest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        ).values()
    ]
    assert listed.offset == 40


def test_the_cluster_describes_itself(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cluster = admin.describe_cluster().result(SECONDS)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.place.port)]
    assert cluster.cluster_id
    assert cluster.controller is not None
