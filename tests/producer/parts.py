"""A producer's parts on a manual clock: real accumulator, keeper and sender, a network client that a test plays."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.producer.accumulator import AccumulatorSettings, RecordAccumulator
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.buffer_pool import BufferPool
from barnabas.producer.sender import Sender, SenderSettings
from barnabas.producer.topic_queues import PendingRecord
from barnabas.producer.transaction_manager import NoSequences, TransactionManager
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.batch import BatchHeader, parse_header
from barnabas.records.kernel.send_path import RecordFuture

NODES = (Node(0, "one", 9092), Node(1, "two", 9092))
PRODUCE, INIT_PRODUCER_ID = 0, 22
TOPIC_ID = uuid.UUID(int=7)


def cluster(partitions: dict[str, Iterable[int]] | None = None, epoch: int = 0) -> Cluster:
    """By topic, the leader of each partition (-1: none)."""
    topics = {}
    for topic, leaders in (partitions or {"t": (0,)}).items():
        infos = [PartitionInfo(topic, number, leader, epoch) for number, leader in enumerate(leaders)]
        topics[topic] = TopicInfo(topic, TOPIC_ID, infos)
    return Cluster({node.id: node for node in NODES}, topics)


def record(value: bytes | None = b"v", partition: int | None = 0, **changes: object) -> PendingRecord:
    given = {"key": None, "headers": None, "timestamp": 1000, "on_delivery": None, **changes}
    return PendingRecord(value, partition=partition, **given)


class StandInMetadata:
    """What the sender asks of metadata."""

    def __init__(self, known: Cluster) -> None:
        self.known = known
        self.updates_asked = 0
        self.topics: set[str] = set()
        self.new_leaders: dict[tuple[str, int], tuple[int, int]] = {}

    def fetch(self) -> Cluster:
        return self.known

    def add_topic(self, topic: str, _now_ms: int) -> bool:
        self.topics.add(topic)
        return False

    def request_update(self, topic: str | None = None) -> int:
        self.updates_asked += 1
        return 0

    def update_leaders(self, leaders: dict[tuple[str, int], tuple[int, int]], nodes: object) -> set[tuple[str, int]]:
        self.new_leaders.update(leaders)
        return set(leaders)


class StandInClient:
    """A network client whose answers the test gives: `requests` are those in flight."""

    def __init__(self, metadata: StandInMetadata, clock: ManualClock) -> None:
        self.metadata = metadata
        self.clock = clock
        self.requests: list[ClientRequest] = []
        self.unready: set[int] = set()
        self.max_in_flight = 5
        self.poll_timeouts: list[float] = []
        self.delay_ms = 1 << 62
        self.wakeups = 0
        self.closed = False
        self.on_poll: Callable[[], None] | None = None

    def ready(self, node: Node, _now_ms: int) -> bool:
        return node.id not in self.unready and self.in_flight_count(node) < self.max_in_flight

    def poll_delay_ms(self, _node: Node, _now_ms: int) -> int:
        return self.delay_ms

    def least_loaded_node(self, _now_ms: int) -> Node | None:
        return next((node for node in NODES if node.id not in self.unready), None)

    def send(self, request: ClientRequest, _now_ms: int) -> None:
        self.requests.append(request)

    def poll(self, timeout_ms: float, _now_ms: int) -> list[ClientResponse]:
        self.poll_timeouts.append(timeout_ms)
        if self.on_poll is not None:
            self.on_poll()
        return []

    def wakeup(self) -> None:
        self.wakeups += 1

    def close(self) -> None:
        self.closed = True

    def in_flight_count(self, node: Node | None = None) -> int:
        return sum(1 for request in self.requests if node is None or request.node_id == node.id)

    def end(self, request: ClientRequest, body: object = None, disconnected: bool = False, **marks: object) -> None:
        """The request comes to its end."""
        self.requests.remove(request)
        now_ms = self.clock.monotonic_ns() // 1_000_000
        response = ClientResponse(request, body, now_ms, now_ms, 11, disconnected)
        for name, value in marks.items():
            setattr(response, name, value)
        assert request.callback is not None
        request.callback(response)


class Parts:
    """See the file header."""

    def __init__(
        self,
        accumulated: dict[str, object] | None = None,
        sending: dict[str, object] | None = None,
        idempotent: bool = False,
        known: Cluster | None = None,
        memory: int = 1 << 20,
    ) -> None:
        self.clock = ManualClock()
        self.metadata = StandInMetadata(known or cluster())
        self.client = StandInClient(self.metadata, self.clock)
        self.keeper: Any = TransactionManager() if idempotent else NoSequences()
        settings = AccumulatorSettings(**{"batch_size": 1024, "linger_ms": 0, **(accumulated or {})})
        self.pool = BufferPool(memory, settings.batch_size, self.clock)
        self.accumulator = RecordAccumulator(settings, self.pool, self.keeper, ExponentialBackoff(100, 100))
        self.sender = Sender(SenderSettings(**(sending or {})), self.client, self.accumulator, self.keeper, self.clock)

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def append(
        self, value: bytes = b"v", partition: int | None = 0, topic: str = "t", **changes: object
    ) -> RecordFuture:
        return self.accumulator.append(topic, record(value, partition, **changes), self.metadata.known, self.now_ms, 0)[
            0
        ]

    def close_batch(self, partition: int = 0, topic: str = "t") -> None:
        """The next record of the partition begins a batch of its own."""
        lane = self.accumulator.lanes[topic]
        with lane:
            lane.close_open(partition)

    def append_batches(self, count: int, partition: int = 0) -> list[RecordFuture]:
        futures = []
        for number in range(count):
            futures.append(self.append(b"%d" % number, partition))
            self.close_batch(partition)
        return futures

    def give_id(self, producer_id: int = 7, epoch: int = 0) -> None:
        """Run until the sender asks for a producer id, and answer."""
        self.sender.run_once()
        request = self.pending(INIT_PRODUCER_ID)[0]
        self.client.end(request, InitProducerIdResponse(0, 0, producer_id, epoch))

    def pending(self, api_key: int = PRODUCE) -> list[Any]:
        return [request for request in self.client.requests if request.api_key == api_key]

    def ready_nodes(self) -> set[int]:
        return set(self.accumulator.ready(self.metadata.known, self.now_ms).nodes)

    def drain(self, max_size: int = 1 << 20) -> dict[int, list[ProducerBatch]]:
        known = self.metadata.known
        ready = self.accumulator.ready(known, self.now_ms)
        return self.accumulator.drain(known, ready, list(ready.nodes), max_size, self.now_ms)

    def answer(self, request: Any, error: ErrorCode = ErrorCode.NONE, base_offset: int = 0, **fields: object) -> None:
        """Every partition of the request gets the same answer."""
        leader = fields.pop("leader", LeaderIdAndEpoch(-1, -1))
        topics = [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    PartitionProduceResponse(data.index, int(error), base_offset, current_leader=leader, **fields)
                    for data in topic.partition_data
                ],
            )
            for topic in request.body.topic_data
        ]
        self.client.end(request, ProduceResponse(topics, 0, []))

    def send_and_answer(self, error: ErrorCode = ErrorCode.NONE, base_offset: int = 0, **fields: object) -> None:
        self.sender.run_once()
        self.answer(self.pending()[0], error, base_offset, **fields)


def header_of(request: Any, number: int = 0) -> BatchHeader:
    """The header of a batch of a Produce request."""
    return parse_header(bytes(request.body.topic_data[0].partition_data[number].records))


def record_errors(*pairs: tuple[int, str | None]) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(index, message) for index, message in pairs]
