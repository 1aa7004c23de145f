"""Topics for the tests of Spark: made and filled through our own clients, read back by Spark.

`SparkTopic` is one topic of one broker. Runs in the test's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas import Admin, NewTopic, Producer
from bench.brokers import BrokerProcess

__all__ = ["SparkTopic", "make_topic"]


class SparkTopic:
    """A topic, what a test writes to it, and the options with which Spark reads it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name}

    def write(self, values: Iterable[bytes | None], partition: int = 0, **record: object) -> None:
        """All are acknowledged when this returns."""
        with Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5}) as producer:
            futures = [producer.send(self.name, value=value, partition=partition, **record) for value in values]
            producer.flush()
            for future in futures:
                future.result(timeout=30)

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """As retention does it."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_records({(self.name, partition): offset})


def make_topic(
    broker: BrokerProcess, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> SparkTopic:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, partitions=partitions, configs=dict(configs or {}))])
    return SparkTopic(broker.bootstrap, name)
