"""A request path with toy APIs: real sockets and threads, no log and no catalog behind it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.broker.listeners import Listener, parse_listeners
from barnabas.broker.network.connection_quotas import ConnectionQuotas
from barnabas.broker.network.plane import Plane
from barnabas.broker.network.processor import Processor
from barnabas.broker.network.request import ConnectionContext, Request
from barnabas.broker.network.request_channel import RequestChannel
from barnabas.broker.network.socket_server import SocketServer
from barnabas.broker.purgatory.timing_wheel import Timer, TimerThread
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.settings import broker_config
from barnabas.clock import Clock, ManualClock, SystemClock
from barnabas.config import Config
from barnabas.errors import KafkaError
from barnabas.protocol.header import RequestHeader, parse_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests import wire

Handle = Callable[[Request, Any], Any]

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")


class ToyRow:
    """What the request path needs of a row of the API table."""

    weigh: Any = None
    admin = False

    def __init__(self, key: int, handle: Handle, versions: tuple[int, int], inline: bool = False) -> None:
        self.key = key
        self.handle = handle
        self.min_version, self.max_version = versions
        self.inline = inline

    def error_response(self, body: Any, version: int, error: KafkaError) -> Any:
        if self.key == wire.PRODUCE:
            return produce_response(body, error.code)
        if self.key == wire.METADATA:
            return MetadataResponse(error_code=error.code)
        return ApiVersionsResponse(error_code=error.code)


def produce_response(body: Any, code: int = 0) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=partition.index, error_code=code, base_offset=7)
                    for partition in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )


def answer_api_versions(request: Request, services: Any) -> ApiVersionsResponse:
    if request.body is not None and request.header.api_version >= 3:
        request.connection.client_software_name = request.body.client_software_name
        request.connection.client_software_version = request.body.client_software_version
    return ApiVersionsResponse(error_code=0 if request.body is not None else 35)


def answer_produce(request: Request, services: Any) -> Any:
    if request.body.acks == 0:
        request.respond_nothing()
        return None
    return produce_response(request.body)


def toy_apis(**changed: Handle) -> dict[int, Any]:
    """ApiVersions, Metadata and Produce; `metadata=handle` replaces a handler."""
    handles: dict[str, Handle] = {
        "api_versions": answer_api_versions,
        "metadata": lambda request, services: MetadataResponse(cluster_id="toy"),
        "produce": answer_produce,
        **changed,
    }
    return {
        wire.API_VERSIONS: ToyRow(wire.API_VERSIONS, handles["api_versions"], (0, 4), inline=True),
        wire.METADATA: ToyRow(wire.METADATA, handles["metadata"], (0, 13)),
        wire.PRODUCE: ToyRow(wire.PRODUCE, handles["produce"], (3, 13), inline=True),
    }


def metadata(correlation: int = 1) -> bytes:
    """Metadata v1 of no topic."""
    return wire.request(wire.METADATA, 1, b"\0\0\0\0", correlation)


def toy_config(**settings: object) -> Config:
    given: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.network.threads": 1,
        "num.io.threads": 2,
    }
    given.update({name.replace("_", "."): value for name, value in settings.items()})
    return broker_config(given)


@contextmanager
def serving(
    apis: dict[int, Any] | None = None, config: Config | None = None, **settings: object
) -> Iterator[SocketServer]:
    """A started socket server. Settings are written with underscores for dots."""
    config = config or toy_config(**settings)
    timer = TimerThread(Timer(SystemClock()), 1)
    timer.start()
    server = SocketServer(config, parse_listeners(config), apis or toy_apis(), timer.timer.schedule)
    try:
        server.bind()
        server.start(None)
        yield server
    finally:
        server.shutdown(10)
        timer.shutdown(10)


def never(delay_ms: int, callback: Callable[[], None]) -> None:
    """The schedule of a server that throttles nobody."""
    raise AssertionError(f"{callback} was to run after {delay_ms} ms")


def port_of(server: SocketServer, listener: str = "PLAINTEXT") -> int:
    return server.ports[listener]


@contextmanager
def client_of(server: SocketServer, listener: str = "PLAINTEXT", timeout: float = 30.0) -> Iterator[socket.socket]:
    with wire.connect(port_of(server, listener), timeout) as sock:
        yield sock


class DrivenProcessor:
    """A processor without a thread: the test calls `run_once` or its phases, on a clock that it moves."""

    def __init__(self, apis: dict[int, Any] | None = None, clock: Clock | None = None, **settings: object) -> None:
        self.config = toy_config(**settings)
        self.clock = clock or ManualClock()
        self.quotas = ConnectionQuotas(self.config, self.clock)
        self.quotas.add_listener("PLAINTEXT")
        self.scheduled: list[tuple[int, Callable[[], None]]] = []
        self.channel = RequestChannel(
            self.config["queued.max.requests"],
            clock=self.clock,
            schedule=lambda delay, callback: self.scheduled.append((delay, callback)),
        )
        self.metrics = RequestMetrics()
        self.plane = Plane(self.channel, self.quotas, self.metrics, apis or toy_apis(), clock=self.clock)
        self.processor = Processor(0, LISTENER, self.plane)
        self.channel.add_processor(self.processor)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A client whose connection the processor has registered."""
        client = socket.create_connection(self._listening.getsockname(), timeout=30)
        accepted, address = self._listening.accept()
        self._clients.append(client)
        self.quotas.acquire("PLAINTEXT", address[0])
        assert self.processor.accept(accepted, address[0])
        self.processor.configure_new_connections()
        return client

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.processor.wakeup()  # so that the poll does not wait
            self.processor.run_once()

    def receive(self) -> Request:
        """Turn until a request is queued, and take it."""
        self.until(self.channel.depth, "the arrival of a request")
        request = self.channel.take(0)
        assert isinstance(request, Request)
        request.dequeue_ns = self.clock.monotonic_ns()
        return request

    def until(self, condition: Callable[[], object], what: str = "the condition") -> None:
        """Turn until the condition is true. Bytes need a moment through the kernel, so this has a real deadline."""
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            self.turn()

    @property
    def channels(self) -> list[Any]:
        return list(self.processor.selector.channels.values())

    def close(self) -> None:
        self.processor.on_stop()
        self._listening.close()
        for client in self._clients:
            client.close()


@contextmanager
def driven(
    apis: dict[int, Any] | None = None, clock: Clock | None = None, **settings: object
) -> Iterator[DrivenProcessor]:
    one = DrivenProcessor(apis, clock, **settings)
    try:
        yield one
    finally:
        one.close()


class CollectingSink:
    """A processor that only keeps its responses."""

    def __init__(self, sink_id: int = 0) -> None:
        self.id = sink_id
        self.responses: list[Any] = []
        self.woken = 0

    def enqueue_response(self, response: Any) -> None:
        self.responses.append(response)

    def post_response(self, response: Any) -> bool:
        self.responses.append(response)
        return True

    def wake(self) -> None:
        self.woken += 1

    def response_queue_size(self) -> int:
        return len(self.responses)


def toy_plane(channel: RequestChannel, clock: Clock | None = None, **values: Any) -> Plane:
    """A plane without listeners, for handlers."""
    quotas = ConnectionQuotas(toy_config())
    return Plane(channel, quotas, RequestMetrics(), toy_apis(), clock=clock or SystemClock(), **values)


def header_of(data: bytes) -> RequestHeader:
    return parse_request_header(data[4:])


def toy_request(channel: RequestChannel, data: bytes | None = None, row: Any = None, body: Any = None) -> Request:
    """A request as a processor makes it, with processor id 0."""
    context = ConnectionContext("127.0.0.1:9092-127.0.0.1:5000-0", "127.0.0.1", "PLAINTEXT")
    header = header_of(data or metadata())
    request = Request(context, header, body, row or toy_apis()[header.api_key], channel, channel.now_ns())
    request.processor_id = 0
    return request


def gone(setup: DrivenProcessor, client: socket.socket) -> bool:
    """The client's connection was closed, and its quota returned."""
    return wire.is_closed(client) and setup.quotas.total == 0


def correlation_of(response: bytes) -> int:
    return int.from_bytes(response[:4], "big")


class Injected(Exception):
    pass


def fail(*arguments: Any, **names: Any) -> Any:
    raise Injected("injected")
