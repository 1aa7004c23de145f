"""A selector without sockets: tests decide what connects, what is written and what comes back, and read what was asked for.

`MockSelector` stands in for `net.selector.Selector`; `Rig` is a network client on it, with a manual clock. Runs in the test's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.addresses import parse_bootstrap
from barnabas.client.cluster import Node
from barnabas.client.config import MAX_IN_FLIGHT, client_config
from barnabas.client.metadata import Metadata
from barnabas.client.network_client import NetworkClient
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.clock import ManualClock
from barnabas.net.channel import AUTHENTICATE, CLOSED, NOT_CONNECTED, READY, DisconnectReason, Receive
from barnabas.net.send import Send
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import decode_request, encode_response_frame
from barnabas.protocol.header import RequestHeader, parse_request_header
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Message

ALL_VERSIONS = {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}


class MockChannel:
    def __init__(self, name: str, address: tuple[str, int], attachment: object) -> None:
        self.id = name
        self.address = address
        self.attachment = attachment
        self.state = NOT_CONNECTED
        self.error: BaseException | None = None
        self.sent: list[Send] = []  # not answered yet


class MockSelector:
    """`stalled`: connects hang. `handshake`: connected channels never become ready. `partial`: sends are not written at once."""

    def __init__(self) -> None:
        self.completed_receives: list[Receive] = []
        self.completed_sends: list[Send] = []
        self.connected: list[MockChannel] = []
        self.disconnected: list[tuple[MockChannel, DisconnectReason]] = []
        self.failed_sends: list[Send] = []
        self.connects: list[MockChannel] = []
        self.closed: list[MockChannel] = []
        self.timeouts: list[float] = []
        self.refuse: OSError | None = None
        self.stalled = self.handshake = self.partial = False
        self._next: dict[str, list[Any]] = {"receives": [], "sends": [], "disconnected": [], "failed": []}

    def connect(
        self, name: str, address: tuple[str, int], send_buffer: int, receive_buffer: int, attachment: object
    ) -> MockChannel:
        if self.refuse is not None:
            raise self.refuse
        channel = MockChannel(name, address, attachment)
        self.connects.append(channel)
        return channel

    def send(self, channel: MockChannel, send: Send) -> bool:
        send.channel = channel
        channel.sent.append(send)
        if self.partial:
            return False
        send.written = send.size
        return True

    def poll(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        self.completed_receives, self._next["receives"] = self._next["receives"], []
        self.completed_sends, self._next["sends"] = self._next["sends"], []
        self.disconnected, self._next["disconnected"] = self._next["disconnected"], []
        self.failed_sends, self._next["failed"] = self._next["failed"], []
        self.connected = []
        for channel in self.connects:
            if channel.state is NOT_CONNECTED and not self.stalled:
                channel.state = AUTHENTICATE if self.handshake else READY
                self.connected.append(channel)

    def close(self, channel: MockChannel) -> None:
        channel.state = CLOSED
        self.closed.append(channel)

    def close_all(self) -> None:
        for channel in self.connects:
            channel.state = CLOSED

    def wakeup(self) -> None:
        self.timeouts.append(-1)

    # ---------------------------------------------------------------- for tests

    def finish_send(self, channel: MockChannel) -> None:
        """The last send of the channel is written."""
        send = channel.sent[-1]
        send.written = send.size
        self._next["sends"].append(send)

    def fail_send(self, send: Send) -> None:
        self._next["failed"].append(send)

    def lose(self, channel: MockChannel, reason: DisconnectReason = DisconnectReason.REMOTE_CLOSE) -> None:
        channel.state = CLOSED
        self._next["disconnected"].append((channel, reason))

    def receive(self, channel: MockChannel, payload: bytes) -> None:
        self._next["receives"].append(Receive(channel, payload))

    def respond(
        self, channel: MockChannel, body: Message, version: int | None = None, correlation: int | None = None
    ) -> None:
        """Answer the oldest request of the channel; `version` is that of the body."""
        header, _ = read_request(channel.sent.pop(0))
        version = header.api_version if version is None else version
        correlation = header.correlation_id if correlation is None else correlation
        header_version = APIS[header.api_key].response_header_version(header.api_version)
        self.receive(channel, b"".join(encode_response_frame(body, version, correlation, header_version))[4:])


def read_request(send: Send) -> tuple[RequestHeader, Any]:
    """What a broker would read from the send."""
    frame = b"".join(bytes(part) for part in send.parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_request_header(frame[4:])
    return header, decode_request(header.api_key, header.api_version, frame[4:], header.body_offset)


def api_versions(versions: Mapping[int, tuple[int, int]] | None = None, error: int = 0) -> ApiVersionsResponse:
    rows = (ALL_VERSIONS if versions is None else versions).items()
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in rows]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def metadata_response(
    nodes: Sequence[Node], topics: Mapping[str, Sequence[tuple[int, int]]] | None = None, **fields: object
) -> MetadataResponse:
    """`topics`: per topic (leader, leader epoch) of each partition."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port) for node in nodes],
        cluster_id="cluster",
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                    )
                    for index, (leader, epoch) in enumerate(partitions)
                ],
            )
            for name, partitions in (topics or {}).items()
        ],
        **fields,
    )


NODE = Node(1, "one", 9092)
OTHER = Node(2, "two", 9092)
ADDRESSES = {"one": ["10.0.0.1"], "two": ["10.0.0.2"], "three": ["10.0.0.3"], "boot": ["10.0.0.9"]}


class Rig:
    """A network client on a mock selector, with metadata that knows `nodes`."""

    def __init__(self, settings: Mapping[str, object] | None = None, nodes: Sequence[Node] = (NODE, OTHER)) -> None:
        self.clock = ManualClock()
        self.selector = MockSelector()
        given = {"bootstrap.servers": "boot:9092", "request.timeout.ms": 1000, **(settings or {})}
        self.config = client_config("test", given, rows=(MAX_IN_FLIGHT,))
        self.metadata = Metadata(self.config, self.clock)
        self.metadata.bootstrap(parse_bootstrap("boot:9092"))
        self.addresses = {host: list(found) for host, found in ADDRESSES.items()}
        self.lookups: list[str] = []
        self.client = NetworkClient(self.selector, self.metadata, "me", self.config, self.clock, self._resolve)
        if nodes:
            asked = self.metadata.next_request(self.now)
            self.metadata.update(asked, metadata_response(nodes), self.now)

    def _resolve(self, host: str) -> list[str]:
        self.lookups.append(host)
        if host not in self.addresses:
            raise OSError(f"no such name: {host}")
        return self.addresses[host]

    @property
    def now(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    def poll(self, timeout_ms: float = 0) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now)

    def ready(self, node: Node = NODE) -> bool:
        return self.client.ready(node, self.now)

    def channel(self, node: Node = NODE) -> MockChannel:
        """The newest channel to the node."""
        return next(channel for channel in reversed(self.selector.connects) if channel.id == str(node.id))

    def connect(self, node: Node = NODE, versions: Mapping[int, tuple[int, int]] | None = None) -> MockChannel:
        """A ready connection."""
        self.ready(node)
        self.poll()
        channel = self.channel(node)
        self.selector.respond(channel, api_versions(versions))
        self.poll()
        assert self.client.can_send_request(node.id, self.now)
        return channel

    def requests(self, channel: MockChannel) -> list[tuple[int, int]]:
        """(API key, version) of what waits for an answer."""
        return [(header.api_key, header.api_version) for header, _ in map(read_request, channel.sent)]

    def request(self, node: Node = NODE, body: Message | None = None, **fields: object) -> ClientRequest:
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        body = body if body is not None else InitProducerIdRequest()
        return ClientRequest(node.id, body.schema.api_key, body, self.now, **fields)

    def send(self, node: Node = NODE, body: Message | None = None, **fields: object) -> ClientRequest:
        request = self.request(node, body, **fields)
        self.client.send(request, self.now)
        return request


API_VERSIONS = int(ApiKey.API_VERSIONS)
INIT_PRODUCER_ID = int(ApiKey.INIT_PRODUCER_ID)
METADATA = int(ApiKey.METADATA)
