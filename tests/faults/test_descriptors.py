"""Row 12 of faults.md: descriptors run short, because there are few of them and many partitions, or many clients."""

from __future__ import annotations

import contextlib
import glob
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import OURS, BrokerProcess, Kind, Place
from tests import wire
from tests.faults.conftest import Report
from tests.waiting import wait_until

LIMIT = 256
CLIENTS = 50
ROUNDS = 3
SPARE = 20


def _few_descriptors(place: Place, settings: Mapping[str, str]) -> list[str]:
    return ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *OURS.command(place, settings)]


def _low_soft_limit(place: Place, settings: Mapping[str, str]) -> list[str]:
    return ["sh", "-c", f'ulimit -Sn {LIMIT}; exec "$@"', "sh", *OURS.command(place, settings)]


@pytest.fixture
def poor_broker() -> Iterator[BrokerProcess]:
    """With fewer descriptors than partitions; segments roll, expire and are compacted all the time."""
    settings = {
        "log.segment.bytes": "1024",
        "log.index.interval.bytes": "0",
        "log.retention.check.interval.ms": "500",
        "log.cleaner.backoff.ms": "100",
        "log.flush.interval.ms": "200",
    }
    with BrokerProcess(Kind("Barnabas", _few_descriptors, {}), settings) as broker:
        yield broker


def _create(broker: BrokerProcess, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    created = admin.create_topics([NewTopic(topic, partitions, 1, config=config)], operation_timeout=120)
    created[topic].result(120)


def _produce(broker: BrokerProcess, topic: str, partitions: int, rounds: range, seed: int) -> None:
    """One record of each round to each partition, in random order; no delivery may fail, not even once (retries are off)."""
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0, "linger.ms": 5})
    rng = random.Random(seed)
    for number in rounds:
        order = list(range(partitions))
        rng.shuffle(order)
        for partition in order:
            producer.produce(
                topic, value=_value(partition, number), key=b"k", partition=partition, on_delivery=delivered
            )
        assert producer.flush(120) == 0
    assert not failed, f"{len(failed)} failed, such as {failed[:3]}"


def _value(partition: int, number: int) -> bytes:
    return b"%d/%d/" % (partition, number) + b"v" * 300


def _read_all(broker: BrokerProcess, topic: str, partitions: int, rounds: int) -> None:
    """Every record of every partition is there, once and in order."""
    errors: list[object] = []
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, "error_cb": errors.append}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    deadline = time.monotonic() + 120
    left = partitions * rounds
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if message.error():
                raise KafkaException(message.error())
            found[message.partition()].append(message.value())  # type: ignore[index, arg-type]  # both are set, there was no error
            left -= 1
    consumer.close()
    assert not errors
    assert found == {p: [_value(p, number) for number in range(rounds)] for p in range(partitions)}


@contextlib.contextmanager
def _clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(wire.connect(port)) for _ in range(count)]
        for client in clients:
            wire.ask(client, wire.api_versions())
        yield clients


def _bytes_of(broker: BrokerProcess, topic: str) -> int:
    size = 0
    for path in glob.glob(f"{broker.place.directory}/**/{topic}-*/*.log", recursive=True):
        with contextlib.suppress(FileNotFoundError):  # removed a moment ago
            size += os.stat(path).st_size
    return size


def _log(broker: BrokerProcess) -> str:
    return broker.log_file.read_text(errors="replace")


@pytest.mark.serial
@pytest.mark.timeout(400)
def test_more_partitions_than_descriptors_are_written_and_read_without_an_error(
    poor_broker: BrokerProcess, report: Report, full: bool
) -> None:
    partitions = 1000 if full else 400
    _create(poor_broker, "many", partitions)
    _produce(poor_broker, "many", partitions, range(ROUNDS), seed=1)
    with _clients(poor_broker.place.port, CLIENTS) as clients:
        _produce(poor_broker, "many", partitions, range(ROUNDS, 2 * ROUNDS), seed=2)
        _read_all(poor_broker, "many", partitions, 2 * ROUNDS)
        for client in clients:
            wire.ask(client, wire.api_versions())
        used = psutil.Process(poor_broker.process.pid).num_fds()
    poor_broker.kill()
    poor_broker.start()
    _read_all(poor_broker, "many", partitions, 2 * ROUNDS)
    assert "Too many open files" not in _log(poor_broker)
    assert poor_broker.stop() == 0
    report(
        12,
        f"{partitions} partitions, {CLIENTS} clients, {used} of {LIMIT} descriptors, every record read before and after a kill",
    )


@pytest.mark.serial
@pytest.mark.timeout(400)
def test_compaction_and_retention_run_with_few_descriptors(poor_broker: BrokerProcess, full: bool) -> None:
    partitions = 300 if full else 150
    compacting = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}
    _create(poor_broker, "compacted", partitions, **compacting)
    _create(poor_broker, "expiring", partitions, **{"retention.bytes": "1024", "file.delete.delay.ms": "0"})
    for topic in ("compacted", "expiring"):
        _produce(poor_broker, topic, partitions, range(8), seed=3)

    # All records have one key: two of the active segment stay, and one of all before it.
    written = 8 * len(_value(0, 0)) * partitions
    wait_until(lambda: _bytes_of(poor_broker, "expiring") < written * 6 / 8, seconds=120)
    wait_until(lambda: _bytes_of(poor_broker, "compacted") < written * 6 / 8, seconds=120)
    assert "Too many open files" not in _log(poor_broker)
    assert poor_broker.stop() == 0


@pytest.mark.serial
@pytest.mark.timeout(200)
def test_clients_cannot_take_the_descriptors_that_files_need(poor_broker: BrokerProcess, report: Report) -> None:
    port = poor_broker.place.port
    process = psutil.Process(poor_broker.process.pid)
    with _clients(port, 5) as clients:
        wire.ask(clients[0], wire.create_topic("t"))
        limit = process.num_fds() + SPARE
        process.rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(wire.connect(port)) for _ in range(2 * SPARE)]
            for sock in waiting:
                sock.sendall(wire.api_versions())
            wait_until(lambda: "cannot accept" in _log(poor_broker), seconds=20)
            before, began = sum(process.cpu_times()[:2]), time.monotonic()
            for number in range(100):  # each is more than a third of a segment
                answer = wire.ask(clients[number % 5], wire.produce("t", wire.batch([b"v" * 400])))
                assert wire.produce_result(answer, "t")[0] == 0
            wait_until(lambda: time.monotonic() - began > 4, seconds=10)
            busy = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
            assert busy < 0.5
            left = limit - process.num_fds()
            assert left > 0
            assert _log(poor_broker).count("cannot accept") == 1
            freed = time.monotonic()
        with wire.connect(port) as newcomer:
            wire.ask(newcomer, wire.api_versions())
        recovered = time.monotonic() - freed
        assert recovered < 5  # one second on a machine with nothing else to do
    report(
        12,
        f"{left} descriptors left to files, busy {busy:.1%} with 100 rolls, {recovered:.2f} s until a newcomer is served",
    )


def test_a_broker_takes_all_descriptors_that_it_may_have() -> None:
    with BrokerProcess(Kind("Barnabas", _low_soft_limit, {})) as broker:
        soft, hard = psutil.Process(broker.process.pid).rlimit(psutil.RLIMIT_NOFILE)
    assert soft == hard > LIMIT
