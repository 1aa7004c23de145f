"""A broker without sockets: real catalog, real logs, purgatories on a manual clock, and a way to ask its data-plane APIs.

Each question and each answer goes through the codec in the version asked for, so that a field which that version cannot
carry fails the test.
"""

from __future__ import annotations

import os
import struct
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, cast

import google_crc32c

from barnabas.broker import inline_work
from barnabas.broker.apis.table import TABLE
from barnabas.broker.budget import NeedsHandler
from barnabas.broker.catalog import CATALOG_FILE_NAME, Catalog, NewTopic, TopicInfo
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.log.config import LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.network.request_channel import RequestChannel
from barnabas.broker.purgatory import Purgatory, Timer
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.services import BrokerServices, Node
from barnabas.broker.settings import broker_config
from barnabas.broker.topic_metrics import TopicMetrics
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.errors import KafkaError
from barnabas.protocol.codec import decode_request, decode_response, encode
from barnabas.protocol.schema import Message
from tests.waiting import wait_until
from tests.wire import record

UNKNOWN_ID = uuid.UUID(int=12345)


class Asked:
    """A request as a handler sees it; remembers how it was answered."""

    def __init__(self, key: int, version: int, body: Any, clock: ManualClock, client_id: str = "test") -> None:
        self.header = SimpleNamespace(api_key=key, api_version=version, client_id=client_id, correlation_id=1)
        self.connection = SimpleNamespace(
            principal="User:alice",
            connection_id="test-connection",
            client_address="127.0.0.1",
            listener="PLAINTEXT",
            client_software_name="unknown",
            client_software_version="unknown",
            channel=object(),
            waiting=None,
            hung_up=False,
        )
        self.heavy = self.inline = False
        self.buffer = None
        self.progress: Any = None
        self.request_channel = RequestChannel(100)
        self.body = body
        self.size = 1000
        self.dequeue_ns = clock.monotonic_ns()
        self.local_done_ns = 0
        self.throttle_ms = 0
        self.throttle_kind = ""
        self.answers: list[Any] = []
        self.nothing = 0
        self.closed = 0
        self._lock = threading.Lock()

    def is_slow(self) -> bool:
        return self.heavy

    def respond(self, message: Any) -> None:
        with self._lock:
            self.answers.append(through_the_wire(message, self.header.api_key, self.header.api_version))

    def respond_nothing(self) -> None:
        self.nothing += 1

    def close_connection(self) -> None:
        self.closed += 1

    def release_buffer(self) -> None:
        """It has none."""

    def throttle(self, throttle_ms: int, kind: str) -> None:
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttle_kind = throttle_ms, kind

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    def wait_for_answer(self) -> Any:
        wait_until(lambda: self.answers, what="the answer")
        return self.answer


class DataBroker:
    """Open it with `with`; leaving it is a clean shutdown."""

    def __init__(self, directory: Path, **settings: object) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.directory = directory
        self.clock = ManualClock()
        self.config = broker_config({"node.id": 1, "log.dirs": str(directory), **given})
        directory.mkdir(exist_ok=True)
        self.logs = LogManager(LogManagerSettings((str(directory),), node_id=1), self.clock)
        self.timer = Timer(self.clock)

    def __enter__(self) -> DataBroker:
        self.catalog = Catalog.open(self.directory / CATALOG_FILE_NAME, self.clock)
        self.fetch_purgatory = Purgatory("Fetch", self.timer)
        self.produce_purgatory = Purgatory("Produce", self.timer)
        self.topics = Topics(self.config, self.catalog, self.logs, [self.fetch_purgatory, self.produce_purgatory])
        self.logs.startup(self.topics.reconcile())
        self.quotas = ClientQuotas(self.clock)
        self.traffic = TopicMetrics()
        nothing = cast(Any, None)
        self.services = BrokerServices(
            config=self.config,
            clock=self.clock,
            node=Node(1, None, {"PLAINTEXT": ("localhost", 9092)}),
            metrics=nothing,
            apis=TABLE,
            catalog=self.catalog,
            logs=self.logs,
            topics=self.topics,
            topic_metrics=self.traffic,
            dynamic_config=nothing,
            quotas=self.quotas,
            connection_quotas=nothing,
            fetch_sessions=FetchSessionCache(self.clock),
            produce_purgatory=self.produce_purgatory,
            fetch_purgatory=self.fetch_purgatory,
            delete_purgatory=Purgatory("DeleteRecords", self.timer),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.logs.shutdown()
        self.catalog.close()

    def create(self, name: str, partitions: int = 1, *, internal: bool = False, **configs: str) -> uuid.UUID:
        """A new topic; config names with `_` for the dots. Returns its id."""
        given = {key.replace("_", "."): value for key, value in configs.items()}
        (topic,) = self.topics.create([NewTopic(name, partitions, given, internal)])
        assert isinstance(topic, TopicInfo), topic
        return topic.topic_id

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        found = self.logs.get(topic, partition)
        assert found is not None
        return found

    def fill(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """One batch for each value, without any API."""
        for value in values:
            self.log(topic, partition).append(memoryview(batch([value])))

    def send(self, body: Message, version: int, client_id: str = "test") -> Asked:
        """Run the handler; the answer, if any, is in what is returned."""
        asked = self.receive(body, version, client_id)
        self.run(asked)
        return asked

    def receive(self, body: Message, version: int, client_id: str = "test") -> Asked:
        """A request that is not run yet."""
        key = body.schema.api_key
        assert key is not None
        return Asked(key, version, decode_request(key, version, wire_bytes(body, version)), self.clock, client_id)

    def run(self, asked: Asked) -> None:
        row = TABLE[asked.header.api_key]
        assert row.serves(asked.header.api_version)
        try:
            message = row.handle(cast(Any, asked), self.services)
        except KafkaError as error:
            message = row.error_response(asked.body, asked.header.api_version, error)
        if message is not None:
            asked.respond(message)

    def run_as_processor(self, asked: Asked) -> bool:
        """As a processor does; False when it must be left to a handler."""
        asked.inline = True
        inline_work.begin()
        try:
            self.run(asked)
        except NeedsHandler:
            asked.heavy = True
            return False
        finally:
            inline_work.end()
            asked.inline = False
        return True

    def ask(self, body: Message, version: int) -> Any:
        """The decoded answer of a request that is answered at once."""
        return self.send(body, version).answer

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timer.advance()


def batch(
    values: list[bytes],
    timestamp_ms: int = 1_700_000_000_000,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
) -> bytes:
    """A record batch; `producer` is id, epoch and first sequence number."""
    records = b"".join(record(value, delta) for delta, value in enumerate(values))
    times = (timestamp_ms, timestamp_ms)
    tail = struct.pack(">hiqqqhii", attributes, len(values) - 1, *times, *producer, len(values)) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, magic, google_crc32c.value(tail)) + tail


def wire_bytes(message: Message, version: int) -> bytes:
    """The encoded message, with regions of files read in."""
    return b"".join(_content(part) for part in encode(message, version))


def _content(part: Any) -> bytes:
    if isinstance(part, bytes | bytearray | memoryview):
        return bytes(part)
    return os.pread(part.file.fileno(), len(part), part.position)


def through_the_wire(message: Message, key: int, version: int) -> Any:
    return decode_response(key, version, wire_bytes(message, version))
