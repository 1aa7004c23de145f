"""What is done to a broker, and how it is measured: one function per group of rows, the same for both sides.

Every group starts a broker of its own, warms it up with the work that is then measured (a JVM needs some ten seconds of it, and
both sides get the same), creates its topics through the protocol and checks afterwards that every record is really there.
Runs on the harness's main thread; only one broker runs at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import generators, memory
from bench.brokers import BrokerProcess, Kind
from bench.peers.tools import ProducerRun, producer_performance

MEGABYTE = 1e6
RR_SECONDS = 5.0
RR_WARM_UP_SECONDS = 15.0
SETTLE_SECONDS = 3.0
STARTS_PER_ROUND = 3
IDLE_CONNECTIONS = 10_000
FETCH_PLANS = ((1, 6_000_000_000), (8, 3_000_000_000))
"""Connections and the bytes that each of them reads."""
LARGE_BATCHES = ("batch.size=262144", "linger.ms=10")
MEMORY_OF_A_RUN = 2 * memory.GIB
"""Beside the records: the heap of the client, of Kafka, and what buffers and indexes take."""
THREADS = {"num.network.threads": "3", "num.io.threads": "8"}


class WorkFailed(Exception):
    """A broker lost something in the course of a measurement: the figure would mean nothing."""


@dataclass(slots=True)
class Session:
    """One side in one round of one group. `record` and `step` are the harness's: a figure, and what goes on now.

    `scale` shortens what is measured, never the warm-up: a JVM that is still compiling would make any ratio.
    """

    kind: Kind
    directory: Path
    wanted: frozenset[str]
    scale: float
    record: Callable[[str, float], None]
    step: Callable[[str], None]

    @contextmanager
    def broker(self, settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
        """A fresh broker; its memory at the end of the block counts as memory after the load."""
        os.sync()  # what the other side has left to write must not slow this one down
        self.step("starting")
        with BrokerProcess(self.kind, settings or {}, self.directory) as running:
            yield running
            self.record("memory-load", running.resident_bytes() / MEGABYTE)

    def count(self, full: int) -> int:
        return max(1, int(full * self.scale))

    def seconds(self, full: float) -> float:
        return max(0.5, full * self.scale)


@dataclass(frozen=True, slots=True)
class ProduceShape:
    suffix: str
    records: int
    record_bytes: int
    partitions: int
    properties: tuple[str, ...] = ()


SHAPES = (
    ProduceShape("100", 1_500_000, 100, 6),
    ProduceShape("1000", 1_000_000, 1000, 1),
    ProduceShape("256k", 1_000_000, 1000, 1, LARGE_BATCHES),
)


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """Create it and wait until every partition is served: Kafka names the leader a moment before that one knows of it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(timeout=30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            record_count(bootstrap, name, partitions)
        except KafkaException:
            time.sleep(0.05)
        else:
            return name
    raise WorkFailed(f"topic {name} is not served 30 s after its creation")


def record_count(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records the broker says it holds: the sum over the partitions of last minus first offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30) for index in range(partitions)
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in marks)


def produce_once(session: Session, broker: BrokerProcess, topic: str, shape: ProduceShape, records: int) -> float:
    create_topic(broker.bootstrap, topic, shape.partitions)
    memory.make_ready(MEMORY_OF_A_RUN + records * shape.record_bytes)
    rate = producer_performance(broker.bootstrap, ProducerRun(topic, records, shape.record_bytes, shape.properties))
    held = record_count(broker.bootstrap, topic, shape.partitions)
    if held != records:
        raise WorkFailed(f"{session.kind.name} holds {held} of the {records} records that it acknowledged in {topic}")
    return rate


def produce_rows(session: Session, prefix: str, settings: Mapping[str, str]) -> None:
    with session.broker(settings) as broker:
        for shape in SHAPES:
            name = f"{prefix}-{shape.suffix}"
            if name not in session.wanted and "memory-load" not in session.wanted:
                continue
            session.step(f"{name}: warm-up")
            produce_once(session, broker, f"{name}-warm-up", shape, shape.records // 3)
            session.step(name)
            session.record(name, produce_once(session, broker, name, shape, session.count(shape.records)))


def produce(session: Session) -> None:
    produce_rows(session, "produce", {})


def durable(session: Session) -> None:
    produce_rows(session, "durable", session.kind.durable)


def fetch(session: Session) -> None:
    shape = ProduceShape("fill", 1_000_000, 1000, 1)
    with session.broker() as broker:
        session.step("fetch: filling the topic")
        produce_once(session, broker, "fetched", shape, session.count(shape.records))
        for connections, size in FETCH_PLANS:
            session.step(f"fetch-{connections}: warm-up")
            generators.fetch(broker.place.port, connections, "fetched", size // 2)
        for connections, size in FETCH_PLANS:
            session.step(f"fetch-{connections}")
            rate = generators.fetch(broker.place.port, connections, "fetched", session.count(size))
            session.record(f"fetch-{connections}", rate)


def round_trips(session: Session, prefix: str, settings: Mapping[str, str]) -> None:
    with session.broker(settings) as broker:
        topic = create_topic(broker.bootstrap, prefix, 1)
        session.step(f"{prefix}: warm-up")
        generators.rr(broker.place.port, 16, RR_WARM_UP_SECONDS, topic)
        for connections in (1, 16, 64):
            name = f"{prefix}-{connections}"
            if name in session.wanted:
                session.step(name)
                generators.rr(broker.place.port, connections, session.seconds(1), topic)
                seen = generators.rr(broker.place.port, connections, session.seconds(RR_SECONDS), topic)
                session.record(name, seen.per_second)


def rr(session: Session) -> None:
    round_trips(session, "rr", {})


def threads(session: Session) -> None:
    round_trips(session, "threads", THREADS)


def start(session: Session) -> None:
    """Start-up time and idle memory. The first start of all fills the file cache and is not counted."""
    times = []
    for turn in range(STARTS_PER_ROUND + 1):
        session.step(f"start {turn} of {STARTS_PER_ROUND}")
        with BrokerProcess(session.kind, {}, session.directory) as broker:
            if turn:
                times.append(broker.started_in)
            if turn == STARTS_PER_ROUND:
                time.sleep(SETTLE_SECONDS)
                session.record("memory-idle", broker.resident_bytes() / MEGABYTE)
    session.record("start", median(times))


def idle(session: Session) -> None:
    """The rate beside idle connections lies between two rates without, so that a drift of the machine does not count."""
    with session.broker() as broker:
        topic = create_topic(broker.bootstrap, "idle", 1)
        session.step("idle-10000: warm-up")
        port, seconds = broker.place.port, session.seconds(RR_SECONDS)
        generators.rr(port, 64, RR_WARM_UP_SECONDS, topic)
        session.step("idle-10000")
        before = generators.rr(port, 64, seconds, topic).per_second
        beside = generators.rr(port, 64, seconds, topic, idle=IDLE_CONNECTIONS).per_second
        time.sleep(SETTLE_SECONDS)  # the broker takes note of ten thousand closed connections
        after = generators.rr(port, 64, seconds, topic).per_second
        session.record("idle-10000", beside / ((before + after) / 2))


WORKLOADS: dict[str, Callable[[Session], None]] = {
    "produce": produce,
    "durable": durable,
    "fetch": fetch,
    "rr": rr,
    "threads": threads,
    "start": start,
    "idle": idle,
}
