"""The broker of a test of our clients: ours in this process, or Apache Kafka with `BARNABAS_TEST_AGAINST=kafka`.

`with broker_for_test({"orders": 3}) as broker:` gives an EmbeddedBroker, or one with the same face in front of the worker's shared Kafka;
the topics are fresh in both and gone afterwards. `own_broker` is for tests that stop the broker, or need it for themselves.
Runs in the test's thread.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.batch import iterate_batches
from barnabas.testing import EmbeddedBroker
from barnabas.testing.records import Record, records_of_batch
from bench.brokers import BrokerProcess
from bench.workloads import record_count
from tests.live_broker import AGAINST_KAFKA, live_broker, own_live_broker
from tests.waiting import wait_until

PATIENCE_SECONDS = 30.0

_names = itertools.count(1)


class KafkaBroker:
    """Apache Kafka with the face of an EmbeddedBroker. What it does is done when a call returns, as it is with ours."""

    def __init__(self, process: BrokerProcess) -> None:
        self._data = process.place.directory / "data"
        self._admin = AdminClient({"bootstrap.servers": process.bootstrap})
        self.bootstrap_servers = process.bootstrap
        self.port = process.place.port

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        texts = {key: str(value) for key, value in (config or {}).items()}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=texts)])[name].result(PATIENCE_SECONDS)
        wait_until(lambda: self._is_served(name, partitions), PATIENCE_SECONDS, f"the topic {name}")

    def _is_served(self, name: str, partitions: int) -> bool:
        try:
            return record_count(self.bootstrap_servers, name, partitions) == 0
        except KafkaException:
            return False

    def delete_topic(self, name: str) -> None:
        if name in self.topics():
            self._admin.delete_topics([name])[name].result(PATIENCE_SECONDS)
            wait_until(lambda: name not in self.topics(), PATIENCE_SECONDS, f"the end of the topic {name}")

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=PATIENCE_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def unique_topic_name(self, hint: str = "topic") -> str:
        return f"{hint}-{os.getpid()}-kafka-{next(_names)}"

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What the topic's files hold, as `EmbeddedBroker.records` has it."""
        folders = self._data.glob(f"{topic}-*")
        found = (re.fullmatch(r"-(\d+)", folder.name.removeprefix(topic)) for folder in folders)
        numbers = sorted(int(match[1]) for match in found if match) if partition is None else [partition]
        return [record for number in numbers for record in _records_of(self._data, topic, number)]


def _records_of(data: Path, topic: str, partition: int) -> Iterator[Record]:
    for segment in sorted((data / f"{topic}-{partition}").glob("*.log")):
        for header, batch in iterate_batches(segment.read_bytes()):
            if not header.control:
                yield from records_of_batch(header, batch, topic, partition)


Broker = EmbeddedBroker | KafkaBroker


@contextmanager
def broker_for_test(
    topics: Mapping[str, int] | None = None, config: Mapping[str, object] | None = None
) -> Iterator[Broker]:
    """A broker with these topics, which are empty at the start; against Kafka its process is shared with other tests."""
    if not AGAINST_KAFKA:
        with EmbeddedBroker(topics, config) as broker:
            yield broker
        return
    with live_broker(_texts(config)) as process:
        yield from _with_topics(KafkaBroker(process), topics or {})


@contextmanager
def own_broker(topics: Mapping[str, int] | None = None, config: Mapping[str, object] | None = None) -> Iterator[Broker]:
    """The same, of a test alone: it is gone at the end of the block."""
    if not AGAINST_KAFKA:
        with EmbeddedBroker(topics, config) as broker:
            yield broker
        return
    with own_live_broker(_texts(config)) as process:
        yield from _with_topics(KafkaBroker(process), topics or {})


def _with_topics(broker: KafkaBroker, topics: Mapping[str, int]) -> Iterator[KafkaBroker]:
    for name, partitions in topics.items():
        broker.delete_topic(name)  # an earlier test may have had it made by its first record
        broker.create_topic(name, partitions)
    yield broker
    for name in topics:
        broker.delete_topic(name)


def _texts(config: Mapping[str, object] | None) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()}


ours_only = pytest.mark.skipif(AGAINST_KAFKA, reason="looks into our broker")
