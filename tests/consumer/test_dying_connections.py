"""A consumer whose every connection dies in the middle of an answer reads each record once and in order (faults 25, 26)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from barnabas import Admin, Consumer, NewTopic
from tests.both_brokers import Broker, own_broker
from tests.client.flaky_proxy import FlakyProxy

RECORDS = 20_000
DEADLINE_SECONDS = 25.0
QUICK = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "retry.backoff.max.ms": 20}


@pytest.fixture(scope="module")
def line() -> Iterator[tuple[FlakyProxy, Broker]]:
    """A broker that is reached through a bad line only."""
    proxy = FlakyProxy((1_000, 200_000))
    try:
        with own_broker(config={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker:
            proxy.start(broker.port)
            yield proxy, broker
    finally:
        proxy.close()


@pytest.mark.parametrize("arrow", [False, True])
def test_every_record_once_and_in_order(line: tuple[FlakyProxy, Broker], arrow: bool) -> None:
    """PP-21, PP-24: reconnects, new sessions, half answers."""
    proxy, broker = line
    topic = broker.unique_topic_name("t")
    with Admin({"bootstrap.servers": f"127.0.0.1:{proxy.port}", **QUICK}) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    write(proxy, topic, RECORDS)
    killed = proxy.killed
    settings = {"bootstrap.servers": f"127.0.0.1:{proxy.port}", "auto.offset.reset": "earliest", **QUICK}
    with Consumer({**settings, "max.partition.fetch.bytes": 60_000}) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        found: dict[int, list[int]] = {0: [], 1: []}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while sum(map(len, found.values())) < RECORDS and time.monotonic() < deadline:
            read(consumer, arrow, found)
    half = list(range(RECORDS // 2))
    assert found == {0: half, 1: half}
    assert proxy.killed - killed > 5


def read(consumer: Consumer, arrow: bool, found: dict[int, list[int]]) -> None:
    if arrow:
        batch = consumer.poll_arrow(timeout=0.5)
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True):
            found[partition].append(offset)
    else:
        for record in consumer.poll(timeout=0.5):
            found[record.partition].append(record.offset)


def write(proxy: FlakyProxy, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "linger.ms": 5,
            "batch.size": 16_384,
            "enable.idempotence": True,
        }
    )
    for number in range(count):
        producer.produce(topic, value=b"%060d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_SECONDS) == 0
