"""Reading a topic into a history, with real consumers (librdkafka): while the workload runs, and everything once more at its end.

Role: the consumers of the workload, and of tests that write in their own way. Thread: a consumer belongs to one thread. Lock: none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.history.record import History, now_us
from tests.history.values import decode_value

POLL_RECORDS = 500
POLL_SECONDS = 0.1


def client_config(bootstrap: str, more: Mapping[str, object]) -> dict[str, object]:
    """A client that looks for its broker at least every half second, as the restarts of the tests take about that long."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        # librdkafka tells of every lost connection; that is what these tests are about.
        "log_level": 2,
        "error_cb": lambda _: None,
        **more,
    }


class AssignedConsumer:
    """A consumer with all partitions of a topic assigned, from the beginning; `poll` writes the history."""

    def __init__(self, name: str, source: Source, more: Mapping[str, object]) -> None:
        self._name = name
        self._source = source
        self._ended: set[int] = set()
        config = {
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
            "enable.partition.eof": True,
            **more,
        }
        self._consumer = Consumer(client_config(source.bootstrap, config))
        source.history.assigned(name, str(config["isolation.level"]))
        self._consumer.assign([TopicPartition(source.topic, number, 0) for number in range(source.partitions)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self) -> None:
        start = now_us()
        records = []
        for message in self._consumer.consume(POLL_RECORDS, POLL_SECONDS):
            error = message.error()
            if error is None:
                where = f"{message.topic()}-{message.partition()}"
                records.append((where, message.offset(), decode_value(message.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
            elif error.fatal():
                raise KafkaException(error)
        if records:
            self._source.history.polled(self._name, start, records)

    def note_starts(self) -> None:
        """What is below the first offset of a partition now has been deleted, as it may be."""
        for number in range(self._source.partitions):
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(self._source.topic, number), timeout=10)
            self._source.history.trimmed(f"{self._source.topic}-{number}", low)

    def at_end(self) -> bool:
        """Whether the end of every partition was reached once."""
        return len(self._ended) == self._source.partitions


@dataclass(frozen=True, slots=True)
class Source:
    """A topic, where it is, and the history that its consumers write."""

    bootstrap: str
    topic: str
    partitions: int
    history: History
    shrinks: bool = False
    """Retention or DeleteRecords are at work: what is below the start of a partition in the end is not missed."""

    def consumer(self, name: str, more: Mapping[str, object] | None = None) -> AssignedConsumer:
        return AssignedConsumer(name, self, more or {})

    def read_everything(self, seconds: float = 60.0, more: Mapping[str, object] | None = None) -> None:
        """The final read: with a fresh consumer from the beginning to the end. Nobody may write any more."""
        deadline = time.monotonic() + seconds
        with self.consumer("final", more) as consumer:
            while not consumer.at_end():
                assert time.monotonic() < deadline, f"the final read of {self.topic} was not done in {seconds} s"
                consumer.poll()
            if self.shrinks:
                consumer.note_starts()
