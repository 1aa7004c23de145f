"""A broker in a process of its own, as a user starts it, for the tests with whole clients and with Kafka's own tools.

`BARNABAS_TEST_AGAINST=kafka` runs the same tests against Apache Kafka: what a test demands of us must hold there too. A JVM is slow to
start, so that all tests of a worker that want the same settings share one Kafka, which ends with the session.
Runs in the test's thread. At the end the broker must stop in order, with exit code 0 and without an error in its log.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.brokers import KAFKA, OURS, BrokerProcess, Kind, kafka_command_with
from bench.peers.tools import QUICK
from bench.workloads import create_topic

AGAINST_KAFKA = os.environ.get("BARNABAS_TEST_AGAINST") == "kafka"
KAFKA_EXIT_CODE = 128 + 15


TEST_JVM = ("-Xmx768M", "-Xms256M", *QUICK)
TEST_KAFKA = Kind("Kafka", kafka_command_with(TEST_JVM), KAFKA.durable, start_seconds=150)  # on a busy machine

KEEPS = {"log.retention.ms": "-1"}
"""Tests write records with times long ago, and every five minutes a broker deletes what is older than a week."""

SMALL_SEGMENTS = {"barnabas.topic.min.segment.bytes": "1024"}
"""Tests want many segments of few records."""

_shared: dict[frozenset[tuple[str, str]], BrokerProcess] = {}
_shared_ends = ExitStack()


def kind_under_test() -> Kind:
    return TEST_KAFKA if AGAINST_KAFKA else OURS


@contextmanager
def live_broker(settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A broker with these settings; Kafka's process lives on for the next test that wants the same."""
    if not AGAINST_KAFKA:
        with own_live_broker(settings) as broker:
            yield broker
        return
    key = frozenset((settings or {}).items())
    if key not in _shared:
        _shared[key] = _shared_ends.enter_context(own_live_broker(settings))
    yield _shared[key]


def stop_shared_brokers() -> None:
    """At the end of a session."""
    _shared.clear()
    _shared_ends.close()


@contextmanager
def own_live_broker(settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    own = {} if AGAINST_KAFKA else SMALL_SEGMENTS
    with BrokerProcess(kind_under_test(), {**KEEPS, **own, **(settings or {})}) as broker:
        try:
            yield broker
        except BaseException as error:
            error.add_note(f"the end of the broker's log:\n{broker.log_tail(40)}")
            raise
        code = broker.stop()
        assert code == (KAFKA_EXIT_CODE if AGAINST_KAFKA else 0), f"exit code {code}:\n{broker.log_tail(40)}"
        # Kafka itself logs an error whenever a topic grows, so its log is not looked at.
        if not AGAINST_KAFKA and (errors := error_lines(broker)):
            raise AssertionError(
                f"the broker's log has errors: {errors}\n{broker.log_file.read_text(errors='replace')}"
            )


def error_lines(broker: BrokerProcess) -> list[str]:
    """What no well-behaved client may cause: errors and tracebacks in the broker's log."""
    lines = broker.log_file.read_text(errors="replace").splitlines()
    return [line for line in lines if " ERROR " in line or " CRITICAL " in line or line.startswith("Traceback")]


def fresh_topic(broker: BrokerProcess, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    return create_topic(broker.bootstrap, f"topic-{uuid.uuid4().hex[:12]}", partitions, config)


def set_topic_config(broker: BrokerProcess, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)
