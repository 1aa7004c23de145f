"""Compacted topics as a client sees them: the last value of each key, and policies that change while the broker runs."""

from __future__ import annotations

import random
import re
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.cimpl import NewTopic

from bench.brokers import BrokerProcess
from tests.live_broker import AGAINST_KAFKA, live_broker
from tests.waiting import wait_until

SECONDS = 30.0
KEYS = 50
ROUNDS = 40
# Kafka 4 allows no smaller segment, and compacts only what is behind the active one: there must be several.
SEGMENT_BYTES, VALUE_BYTES = (1 << 20, 3000) if AGAINST_KAFKA else (16_384, 60)
TOPIC = {
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
    "delete.retention.ms": "100",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with live_broker({"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": "2097152"}) as running:
        yield running


def create(broker: BrokerProcess, name: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    given = TOPIC | {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=given)])[name].result(SECONDS)
    return admin


def write(broker: BrokerProcess, topic: str, codec: str, rounds: int = ROUNDS, first: int = 0) -> dict[bytes, bytes]:
    """Several values for each key; what is the last of each in the end. Each third key ends with a tombstone."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "batch.num.messages": 20})
    last: dict[bytes, bytes] = {}
    dice = random.Random(first)
    for round_ in range(first, first + rounds):
        for number in range(KEYS):
            key, value = b"key-%d" % number, b"%d/%d" % (round_, number) + dice.randbytes(VALUE_BYTES)
            gone = round_ == first + rounds - 1 and number % 3 == 0
            producer.produce(topic, None if gone else value, key, 0)
            last[key] = value
            if gone:
                del last[key]
        assert producer.flush(SECONDS) == 0
    return last


def read(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Every record of the partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    end = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})[TopicPartition(topic, 0)].result(SECONDS)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes | None]] = []
    try:
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end.offset:
            messages = consumer.consume(500, timeout=1.0)
            found += [(each.offset(), each.key(), each.value()) for each in messages if each.error() is None]
            if any(each.error() is not None for each in messages):
                break  # the end of the partition
    finally:
        consumer.close()
    return found


def alter(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(SECONDS)


def cleanings(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
        text = page.read().decode()
    found = re.search(r"^barnabas_log_cleanings_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_client_sees_the_last_value_of_each_key(broker: BrokerProcess, codec: str) -> None:
    topic = f"compacted-{codec}"
    create(broker, topic, cleanup_policy="compact")
    last = write(broker, topic, codec)
    wait_until(lambda: len(read(broker, topic)) < KEYS * ROUNDS / 3, SECONDS, "a compaction")
    records = read(broker, topic)
    assert [offset for offset, _, _ in records] == sorted(offset for offset, _, _ in records)
    assert {key: value for key, value in {key: value for _, key, value in records}.items() if value is not None} == last


def test_the_policy_of_a_topic_changes_at_run_time(broker: BrokerProcess) -> None:
    admin = create(broker, "changing", cleanup_policy="delete")
    write(broker, "changing", "none")
    assert len(read(broker, "changing")) == KEYS * ROUNDS
    alter(admin, "changing", cleanup_policy="compact")
    wait_until(lambda: len(read(broker, "changing")) < KEYS * ROUNDS / 3, SECONDS, "a compaction")
    alter(admin, "changing", cleanup_policy="delete")
    before = settled_count(broker, "changing")
    last = write(broker, "changing", "lz4", 5, first=ROUNDS)
    records = read(broker, "changing")
    assert len(records) == before + 5 * KEYS, "nothing more is compacted"
    assert {key: value for key, value in {key: value for _, key, value in records}.items() if value} == last


def settled_count(broker: BrokerProcess, topic: str) -> int:
    """How many records there are when the compaction that was under way has ended: three reads that find the same."""
    counts: list[int] = []

    def settled() -> bool:
        counts.append(len(read(broker, topic)))
        return counts[-3:] == [counts[-1]] * 3

    wait_until(settled, SECONDS, "the end of the compaction")
    return counts[-1]


@pytest.mark.skipif(AGAINST_KAFKA, reason="a metric of ours")
def test_a_ratio_that_is_lowered_at_run_time_starts_a_compaction(broker: BrokerProcess) -> None:
    admin = create(broker, "lazy", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    write(broker, "lazy", "zstd")
    done = cleanings(broker)
    alter(admin, "lazy", min_cleanable_dirty_ratio="0.1")
    wait_until(lambda: cleanings(broker) > done, SECONDS, "a compaction")
