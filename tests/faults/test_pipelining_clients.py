"""Clients that pipeline more than the broker answers (issue 18, C0, ADR 14). The cause, step by step and without chance, is in
tests/net/test_read_on.py and tests/broker/network/test_stuck_responses.py."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.broker.memory_directory import MemoryDirectory
from bench.brokers import OURS, BrokerProcess
from tests.faults.conftest import Report
from tests.live_broker import error_lines

SMALL_BUFFERS = {"socket.receive.buffer.bytes": "102400", "socket.send.buffer.bytes": "102400"}
LONGEST = 10.0  # a flush that stands still does so for a minute


def one_record_each(broker: BrokerProcess, topics: int, partitions: int) -> float:
    """Seconds that librdkafka takes to write one record to each partition of topics that were just created."""
    names = [f"t{number}-{uuid.uuid4().hex[:8]}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 240_000})
    created = admin.create_topics([NewTopic(name, partitions, 1) for name in names], request_timeout=240)
    for future in created.values():
        future.result(240)
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    start = time.monotonic()
    for name in names:
        for partition in range(partitions):
            producer.produce(name, b"v", partition=partition, on_delivery=delivered)
    left = producer.flush(200)
    took = time.monotonic() - start
    assert (left, errors) == (0, [])
    return took


@pytest.mark.serial
@pytest.mark.timeout(3000)
def test_librdkafka_writes_to_many_new_partitions_at_once(report: Report, full: bool) -> None:
    """Row 45: thousands of small Produce requests and a hundred Metadata requests on one connection. Its flush stood still for a minute
    in about every second run, when nothing was read while a Metadata answer was half sent."""
    rounds, topics, partitions = (20, 100, 100) if full else (2, 40, 100)
    times = []
    for number in range(rounds):
        settings = SMALL_BUFFERS if number % 2 else {}
        with MemoryDirectory() as memory, BrokerProcess(OURS, settings, memory.path) as broker:
            times.append(one_record_each(broker, topics, partitions))
            assert not error_lines(broker)
    assert max(times) <= (LONGEST if full else 3 * LONGEST), f"seconds: {[round(one, 1) for one in times]}"
    report(45, f"{topics} × {partitions} partitions, {rounds} brokers: {min(times):.1f} to {max(times):.1f} s")
