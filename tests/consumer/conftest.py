"""One broker process for all tests of this directory; records are written by somebody else's producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import confluent_kafka
import pytest

from barnabas.consumer import Consumer
from bench.brokers import BrokerProcess
from tests.live_broker import fresh_topic, live_broker

Write = Callable[..., None]


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with live_broker() as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return fresh_topic(broker, 2)


@pytest.fixture
def write(broker: BrokerProcess, topic: str) -> Write:
    """`write(values, partition=0, **settings)` to the test's topic."""

    def write_values(
        values: Sequence[bytes | None],
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        headers: object = None,
        timestamps: Sequence[int] | None = None,
        **settings: object,
    ) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **settings})
        for number, value in enumerate(values):
            key = keys[number] if keys else None
            extra = {"timestamp": timestamps[number]} if timestamps else {}
            producer.produce(topic, value=value, key=key, partition=partition, headers=headers, **extra)
        assert producer.flush(30) == 0

    return write_values


@pytest.fixture
def make_consumer(broker: BrokerProcess) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(settings: Mapping[str, object] | None = None) -> Consumer:
        given = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest", **(settings or {})}
        made.append(Consumer(given))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()
