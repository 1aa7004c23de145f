"""The workload: idempotent producers and consumers with assigned partitions, real clients (librdkafka), every answer in a history.

`Workload` runs in the background while a test does harm to the broker; `check` stops it, reads everything once more and asks the
checker. A value is sent once and never again by us: what the client does to get it through (retries on new connections) is its own
business and is what idempotence is there for.

Role: the standard load of the fault tests. Thread: one per writer and reader, all ended by the end of the block. Lock:
`Progress._changed`, for the counts that the test waits for.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.history.anomalies import Report
from tests.history.checker import check_file
from tests.history.reading import Source, client_config
from tests.history.record import History, Outcome, now_us
from tests.history.values import Value, encode_value

CODECS = ("none", "lz4", "zstd", "gzip")
"""The first writer compresses with the first, and so on."""
# These say that nothing was written; after any other error nobody knows.
CERTAIN_FAILURES = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.TOPIC_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """How much, and how. The defaults are the standard load as far as the broker has what it needs (no groups, no transactions yet)."""

    writers: int = 4
    readers: int = 2
    partitions: int = 3
    topic_config: Mapping[str, str] = field(default_factory=dict)
    sends_per_second: int = 300
    """Of one writer; less while the broker does not answer."""
    unanswered: int = 500
    """So many sends of a writer may wait for their answer; then it waits too."""
    writer_config: Mapping[str, object] = field(default_factory=dict)
    reader_config: Mapping[str, object] = field(default_factory=dict)
    key: Callable[[int], str] | None = None
    """The key of a writer's n-th record, for compacted topics; its writer's name is put before it."""
    shrinks: bool = False
    """Retention or DeleteRecords are at work (see `Source`)."""
    finish_seconds: float = 60.0
    """By then everything that was sent must be answered, and later the final read must be done."""


class Progress:
    """Counts that several threads change and the test waits for. Lock: `_changed`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._acked: dict[str, int] = {}

    def acked(self, writer: str) -> None:
        with self._changed:
            self._acked[writer] = self._acked.get(writer, 0) + 1
            self._changed.notify_all()

    def total(self) -> int:
        with self._changed:
            return sum(self._acked.values())

    def of(self, writer: str) -> int:
        with self._changed:
            return self._acked.get(writer, 0)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, seconds)


class _Client(threading.Thread):
    """The thread of one client; what went wrong in it is kept for the test."""

    def __init__(self, name: str, load: Workload) -> None:
        super().__init__(name=f"history-{name}", daemon=True)
        self.client = name
        self.error: BaseException | None = None
        self._load = load

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError


class _Writer(_Client):
    """One producer. Its callbacks run in its own thread, inside `poll` and `flush`."""

    def __init__(self, name: str, load: Workload, codec: str) -> None:
        super().__init__(name, load)
        self._codec = codec
        self._waiting = 0
        self._partitions = itertools.cycle(range(load.plan.partitions))

    def work(self) -> None:
        plan = self._load.plan
        more = {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "compression.type": self._codec}
        producer = Producer(client_config(self._load.bootstrap, {**more, **plan.writer_config}))
        pause = 1 / plan.sends_per_second
        for seq in itertools.count():
            if self._load.stopping.is_set():
                break
            while self._waiting >= plan.unanswered and not self._load.stopping.is_set():
                producer.poll(0.05)
            self._send(producer, seq)
            producer.poll(pause)
        deadline = time.monotonic() + plan.finish_seconds
        while len(producer) and time.monotonic() < deadline and not self._load.abandoned.is_set():
            producer.flush(0.2)
        # What is still not answered is answered now, with an error that says that nobody knows.
        producer.purge()
        producer.flush(1)

    def _send(self, producer: Producer, seq: int) -> None:
        value, data = encode_value(self.client, seq)
        partition = next(self._partitions)
        key = f"{self.client}-{self._load.plan.key(seq)}" if self._load.plan.key else None
        start = now_us()
        self._waiting += 1

        def answered(error: KafkaError | None, message: Message) -> None:
            self._waiting -= 1
            self._answered(start, value, key, error, message)

        producer.produce(self._load.topic, data, key=key, partition=partition, on_delivery=answered)

    def _answered(self, start: int, value: Value, key: str | None, error: KafkaError | None, message: Message) -> None:
        outcome: Outcome = "ok" if error is None else "fail" if error.code() in CERTAIN_FAILURES else "info"
        offset = message.offset()
        known = offset if error is None and offset is not None and offset >= 0 else None
        partition = f"{message.topic()}-{message.partition()}"
        self._load.history.sent(self.client, outcome, start, (partition, known, value), key)
        if error is None:
            self._load.progress.acked(self.client)


class _Reader(_Client):
    """One consumer of all partitions, from the beginning, as long as the workload runs."""

    def work(self) -> None:
        with self._load.source.consumer(self.client, self._load.plan.reader_config) as consumer:
            while not self._load.stopping.is_set():
                consumer.poll()


class Workload:
    """The load on one fresh topic. Use it as a context manager, then `check`; see the package's docstring."""

    def __init__(self, bootstrap: str, path: Path, plan: WorkloadPlan | None = None) -> None:
        self.bootstrap = bootstrap
        self.plan = plan or WorkloadPlan()
        self.topic = f"history-{uuid.uuid4().hex[:8]}"
        self.history = History(path)
        self.source = Source(bootstrap, self.topic, self.plan.partitions, self.history, self.plan.shrinks)
        self.progress = Progress()
        self.stopping = threading.Event()
        self.abandoned = threading.Event()
        """The test has failed: no need to wait for answers."""
        codecs = itertools.cycle(CODECS)
        self._writers = [_Writer(f"w{number}", self, next(codecs)) for number in range(self.plan.writers)]
        self._clients = [*self._writers, *(_Reader(f"r{number}", self) for number in range(self.plan.readers))]

    def __enter__(self) -> Self:
        admin = AdminClient(client_config(self.bootstrap, {}))
        wanted = NewTopic(self.topic, num_partitions=self.plan.partitions, config=dict(self.plan.topic_config))
        admin.create_topics([wanted])[self.topic].result(10)
        for client in self._clients:
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandoned.set()
            self.history.close()
        self.stop()

    def stop(self) -> None:
        """Stop sending, wait for the answers to what was sent, and end all threads."""
        self.stopping.set()
        for client in self._clients:
            client.join(self.plan.finish_seconds + 10)
            assert not client.is_alive(), f"{client.name} did not end"

    @property
    def ended(self) -> bool:
        return not any(client.is_alive() for client in self._clients)

    # While it runs

    def acked(self) -> int:
        return self.progress.total()

    def await_acked(self, more: int, seconds: float = 30.0) -> None:
        """Wait until so many further sends were acknowledged."""
        wanted = self.acked() + more
        arrived = self.progress.wait(lambda: self.acked() >= wanted, seconds)
        self._raise_what_clients_raised()
        assert arrived, f"only {self.acked()} of {wanted} sends were acknowledged in {seconds} s"

    def await_resumed(self, seconds: float = 5.0) -> float:
        """Wait until every writer got an acknowledgement from now on; the time that the slowest took."""
        began = time.monotonic()
        marks = {writer.client: self.progress.of(writer.client) for writer in self._writers}
        back = self.progress.wait(
            lambda: all(self.progress.of(writer.client) > marks[writer.client] for writer in self._writers), seconds
        )
        self._raise_what_clients_raised()
        assert back, f"not every writer was served again within {seconds} s"
        return time.monotonic() - began

    def _raise_what_clients_raised(self) -> None:
        for client in self._clients:
            if client.error is not None:
                raise client.error

    def fault(self, text: str) -> None:
        """Note in the history what is done to the broker now."""
        self.history.fault(text)

    # The end

    def check(self) -> Report:
        """Read everything from the beginning with a fresh consumer, close the history and check it. The broker must be up."""
        self.stop()
        self._raise_what_clients_raised()
        try:
            self.source.read_everything(self.plan.finish_seconds, self.plan.reader_config)
        finally:
            self.history.close()
        return check_file(self.history.path)

    def __repr__(self) -> str:
        return f"<Workload {self.topic} at {self.bootstrap}: {self.acked()} acked>"
