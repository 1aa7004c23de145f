"""`EmbeddedBroker`: the real broker, in the process of a test, on a free port.

Role: `with EmbeddedBroker(topics={"orders": 3}) as broker:` gives a broker that any Kafka client can use, in well under a second;
`broker.records("orders")` looks into the log without a consumer; `broker.request_report()` says what was asked last and where
its time went.
Thread: make, start and stop it from one thread; everything else from any thread. Lock: none of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.broker.catalog import NewTopic
from barnabas.broker.memory_directory import MemoryDirectory
from barnabas.broker.server import BrokerServer
from barnabas.broker.settings import broker_config
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.testing.records import Record, read_records

SHUTDOWN_SECONDS = 30.0
REPORTED_REQUESTS = 30
MAX_NAME = 200

# A test wants no port that can be taken; `config` may set both.
DEFAULTS = {"barnabas.metrics.listener": ""}


class EmbeddedBroker:
    """A broker for tests. Without `data_dir` its data is in memory (tmpfs where the system has it) and gone afterwards.

    with EmbeddedBroker(topics={"orders": 1}) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("orders", b"value").result(10)
        print(broker.records("orders"))

    With `clock` (barnabas.clock) a test chooses the time of day that the broker sees; deadlines need one whose monotonic time goes on.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._topics = dict(topics or {})
        self._config = dict(config or {})
        self._data_dir = data_dir
        self._port = port
        self._clock = clock
        self._names = itertools.count(1)
        self._resources = contextlib.ExitStack()
        self._server: BrokerServer | None = None

    # Life cycle

    def start(self) -> Self:
        """Start the broker and create its topics; raises what a broker on the command line would print."""
        if self._server is not None:
            raise BarnabasError("this broker runs already")
        with contextlib.ExitStack() as resources:
            data_dir = self._data_dir or resources.enter_context(MemoryDirectory()).path
            given = {
                "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
                **DEFAULTS,
                **self._config,
                "log.dirs": str(data_dir),
            }
            server = BrokerServer(broker_config(given), self._clock)
            server.start()
            resources.callback(server.shutdown, SHUTDOWN_SECONDS)
            self._create_missing(server)
            self._server = server
            self._resources = resources.pop_all()
        return self

    def stop(self) -> None:
        """Stop the broker and remove data in memory. Stopping twice does nothing."""
        self._server = None
        self._resources.close()

    def restart(self) -> None:
        """Stop and start again on the same port and data; needs a `data_dir`, because data in memory would be gone."""
        if self._data_dir is None:
            raise BarnabasError("only a broker with a data_dir can be restarted: data in memory does not outlive it")
        self._port = self.port
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._server is not None and isinstance(error, Exception):
            error.add_note(self.request_report())
        self.stop()

    # Where it is

    @property
    def server(self) -> BrokerServer:
        """The server itself, for tests that look inside."""
        if self._server is None:
            raise BarnabasError("the broker is not running: use it inside `with`, or call start()")
        return self._server

    @property
    def bootstrap_servers(self) -> str:
        """What a client calls `bootstrap.servers`."""
        return self.server.bootstrap_servers

    @property
    def port(self) -> int:
        """Of its listener on the loopback interface."""
        return self.server.port()

    # Topics

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic at once, without a client; raises `KafkaError` as an admin client would."""
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()
        }
        _create(self.server, NewTopic(name, partitions, texts))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; one that is gone already is no error."""
        with contextlib.suppress(KafkaError):
            self.server.services.topics.delete([name])

    def topics(self) -> dict[str, int]:
        """The names of all topics and how many partitions each has."""
        return {name: topic.partition_count for name, topic in self.server.services.catalog.snapshot.topics.items()}

    def unique_topic_name(self, hint: str = "topic") -> str:
        """A legal name that no other test has, also not in another process of the same run."""
        clean = re.sub(r"[^A-Za-z0-9._-]+", "-", hint).strip("-.")[:MAX_NAME] or "topic"
        return f"{clean}-{os.getpid()}-{next(self._names)}"

    def _create_missing(self, server: BrokerServer) -> None:
        """A data directory from an earlier run may have the topics already."""
        existing = server.services.catalog.snapshot.topics
        for name, partitions in self._topics.items():
            if name not in existing:
                _create(server, NewTopic(name, partitions))

    # Looking inside

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What the topic holds, partition by partition in order of offsets, read from the log without a consumer."""
        found = self.server.services.catalog.snapshot.topics.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        numbers = range(found.partition_count) if partition is None else (partition,)
        logs = [(number, self.server.services.logs.get(topic, number)) for number in numbers]
        missing = [number for number, log in logs if log is None]
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {missing[0]}")
        return [record for _, log in logs if log is not None for record in read_records(log)]

    def request_report(self, limit: int = REPORTED_REQUESTS) -> str:
        """The last requests, oldest first: which API, who asked, and the parts of the time in milliseconds."""
        if self._server is None:
            return "the broker is not running"
        recent = self._server.request_metrics.recent(limit)
        lines = [f"the last {len(recent)} requests to {self.bootstrap_servers} (times in ms):"]
        for done in recent:
            times = "  ".join(f"{part} {ns / 1e6:.3f}" for part, ns in done.parts.items() if ns)
            who = f"{done.header.client_id or '-'} {done.connection.connection_id}"
            lines.append(f"  {done.name} v{done.header.api_version}  {who}  {times}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        where = self._server.bootstrap_servers if self._server else "not running"
        return f"<EmbeddedBroker {where}>"


def _create(server: BrokerServer, topic: NewTopic) -> None:
    outcome = server.services.topics.create([topic])[0]
    if isinstance(outcome, KafkaError):
        raise outcome
