"""Rows 37 and 43: records go away under readers and over kills; work that hogs the processor does not keep others waiting."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.records.batch import iterate_batches
from bench.brokers import BrokerProcess
from tests import wire
from tests.broker.log.compacted import records_of
from tests.clients.test_compacted_topics import alter, cleanings
from tests.faults.compacting import OFFSET_OUT_OF_RANGE, Probe, Rereader, earliest, fetch
from tests.faults.conftest import Report, Start
from tests.live_broker import live_broker
from tests.waiting import wait_until

SECONDS = 30.0
KEYS = 40
P99_MS = 500.0
SHRINKING = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.bytes": "150000",
    "file.delete.delay.ms": "50",
    "delete.retention.ms": "100",
}
BUSY = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.retention.check.interval.ms": "100",
}


class Writer:
    """Writes keyed records without end; knows the offset and value of the last acknowledged record of each key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "batch.size": 10_000}
        self._producer = Producer({**settings, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self.last: dict[bytes, tuple[int, bytes]] = {}
        self.acked = 0
        self.errors: list[str] = []
        self._thread.start()

    def _run(self) -> None:
        pace = threading.Event()
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                number += 1
                value = b"%d" % number + b"v" * 80
                self._producer.produce(self._topic, value, b"k%d" % (number % KEYS), 0, on_delivery=self._note)
            self._producer.poll(0)
            pace.wait(0.01)

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        key, offset, value = message.key(), message.offset(), message.value()  # type: ignore[attr-defined]
        self.last[key] = max(self.last.get(key, (-1, b"")), (offset, value))
        self.acked += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert self._producer.flush(SECONDS) == 0

    def await_acked(self, count: int) -> None:
        wanted = self.acked + count
        wait_until(lambda: self.acked >= wanted, SECONDS, "more acknowledged records")


@contextmanager
def under_load(broker: BrokerProcess, topic: str) -> Iterator[tuple[Writer, list[Rereader]]]:
    writer = Writer(broker.bootstrap, topic)
    readers = [Rereader(broker.place.port, topic) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        yield writer, readers
    finally:
        writer.stop()
        for reader in readers:
            reader.stop()


def start_of(broker: BrokerProcess, topic: str) -> int:
    with wire.connect(broker.place.port) as sock:
        return earliest(sock, topic)


def delete_some(admin: AdminClient, broker: BrokerProcess, topic: str, count: int) -> int:
    """DeleteRecords a little behind the start, as far as retention has not been there before; the start that was answered."""
    partition = TopicPartition(topic, 0, start_of(broker, topic) + count)
    try:
        return int(admin.delete_records([partition])[partition].result(SECONDS).low_watermark)
    except KafkaException:
        return 0


@pytest.mark.timeout(2000)
def test_row_37_records_go_while_they_are_read_and_the_broker_is_killed(full: bool, report: Report) -> None:
    kills = 100 if full else 5
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    topic = "shrinking"
    start = done = 0
    with live_broker(BUSY) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config=SHRINKING)])[topic].result(SECONDS)
        with under_load(broker, topic) as (writer, readers):
            for _ in range(kills):
                writer.await_acked(dice.randint(300, 1500))
                start = max(start, delete_some(admin, broker, topic, dice.randint(0, 200)), start_of(broker, topic))
                if not done:  # otherwise the kills come whenever they come
                    wait_until(lambda: cleanings(broker), SECONDS, "a compaction")
                done += int(cleanings(broker))
                broker.kill()
                broker.start()
                assert start_of(broker, topic) >= start, f"seed {seed}: the start went back"
                assert not [wrong for reader in readers for wrong in reader.wrong], f"seed {seed}"
            writer.await_acked(500)
        check_last_values(broker, topic, writer)
        wrong = [each for reader in readers for each in reader.wrong]
        assert not wrong, f"seed {seed}: {wrong[:5]}"
        assert not writer.errors
        assert all(reader.rounds for reader in readers)
        assert start_of(broker, topic) > 0
    assert done, "nothing was compacted"
    read, missed = sum(reader.records for reader in readers), sum(reader.out_of_range for reader in readers)
    report(
        37,
        f"{kills} kills, {done} compactions, start moved to {start} and never back; {read} records read, "
        f"0 errors but {missed} times OFFSET_OUT_OF_RANGE",
    )


def check_last_values(broker: BrokerProcess, topic: str, writer: Writer) -> None:
    """Of every key whose last record is not below the start, the log's last word is what the writer was told last."""
    newest: dict[bytes | None, tuple[int, bytes | None]] = {}
    with wire.connect(broker.place.port) as sock:
        while not read_once(sock, topic, newest):
            newest.clear()  # retention was faster: once more from the new start
        start = earliest(sock, topic)
    for key, (last, value) in writer.last.items():
        if last >= start:
            assert newest[key] == (last, value)


def read_once(sock: socket.socket, topic: str, newest: dict[bytes | None, tuple[int, bytes | None]]) -> bool:
    """Note the last record of each key from the start to the end; False when the start moved beyond where the reader was."""
    offset = earliest(sock, topic)
    while True:
        error, end, data = fetch(sock, topic, offset)
        if error == OFFSET_OUT_OF_RANGE:
            return False
        assert error == 0
        for header, batch in iterate_batches(data):
            for record in records_of(header, bytes(batch)):
                newest[record.key] = (record.offset, record.value)
            offset = max(offset, header.next_offset)
        if offset >= end or not data:
            return True


# Row 43.


def fill(broker_port: int, topic: str, size: int, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker_port}",
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 900_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = b"value" * 20
    for number in range(size // 110):
        producer.produce(topic, value, b"key-%d" % (number % 50_000), 0)
        if number % 5000 == 0:
            producer.poll(0)
        if number % 200_000 == 199_999:
            assert producer.flush(120) == 0
    assert producer.flush(120) == 0


@pytest.mark.serial
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_row_43_a_compaction_that_computes(codec: str, full: bool, report: Report, start_broker: Start) -> None:
    size = 1 << 30 if full else 1 << 23
    world = start_broker({"log.cleaner.backoff.ms": 20, "log.segment.bytes": 64 << 20 if full else 2 << 20})
    topic = "large"
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{world.port}"})
    config = {"min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(SECONDS)
    fill(world.port, topic, size, codec)
    probe = Probe(world.port)
    probe.start()
    alter(admin, topic, cleanup_policy="compact", max_compaction_lag_ms="1")  # all of it, the active segment too
    wait_until(lambda: world.total("barnabas_log_cleanings_total") >= 1, 2400 if full else 50, "the compaction")
    p99 = probe.stop()
    assert p99 <= P99_MS
    report(43, f"compaction of {size >> 20} MiB, {codec}: ApiVersions p99 {p99:.1f} ms (at most 500)")


@pytest.mark.serial
@pytest.mark.timeout(3000)
def test_row_43_metadata_of_very_many_topics(full: bool, report: Report, start_broker: Start) -> None:
    topics = 100_000 if full else 1500
    world = start_broker()
    names = [f"topic-{number}" for number in range(topics)]
    for first in range(0, topics, 500):
        create_many(world.port, names[first : first + 500])
    probe = Probe(world.port)
    probe.start()
    with wire.connect(world.port, timeout=120) as sock:
        for _ in range(10):
            answer = wire.ask(sock, wire.request(wire.METADATA, 1, struct.pack(">i", -1)))
            assert len(answer) > topics * 10
    p99 = probe.stop()
    assert p99 <= P99_MS
    report(43, f"Metadata of {topics} topics, ten times: ApiVersions p99 {p99:.1f} ms (at most 500)")


def create_many(port: int, names: list[str]) -> None:
    body = struct.pack(">i", len(names))
    body += b"".join(wire.string(name) + struct.pack(">ihii", 1, 1, 0, 0) for name in names)
    with wire.connect(port, timeout=120) as sock:
        assert wire.ask(sock, wire.request(wire.CREATE_TOPICS, 2, body + struct.pack(">ib", 60_000, 0)))
