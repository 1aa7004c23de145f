"""Requests and responses of many nodes on one thread (PP-13 .. PP-22).

Role: `ready` connects, `send` hands a request to a ready node, `poll` moves bytes and returns what came to an end. Shared by producer,
consumer and admin client. Between a request and its connection stand the states (connection_states.py), what is in flight
(in_flight.py) and the negotiated versions (api_versions.py); metadata is kept fresh on the way (metadata_updater.py).
Thread: one owner, the I/O thread; only `wakeup` may be called from others. Lock: none.

Order of one poll (PP-20): metadata, selector, completed sends, completed receives, disconnections, connections, time-outs of set-up
and of requests, ApiVersions requests, callbacks. No error of one node leaves `poll`: its connection is closed.
"""

from __future__ import annotations

import logging
import random
from typing import Any

from barnabas.client.addresses import Resolver, resolve_all
from barnabas.client.api_versions import (
    API_VERSIONS,
    NEWEST_API_VERSIONS,
    UNSUPPORTED,
    NodeApiVersions,
    api_versions_request,
    client_must_wait,
    decode_api_versions,
    fallback_version,
)
from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Node
from barnabas.client.connection_states import CHECKING_API_VERSIONS, READY, ConnectionStates, NodeConnection
from barnabas.client.errors import ClientClosed, NodeNotReady, UnsupportedVersion
from barnabas.client.in_flight import InFlightRequest, InFlightRequests
from barnabas.client.metadata import Metadata
from barnabas.client.metadata_updater import METADATA, MetadataUpdater
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.errors import ErrorCode, KafkaError, MalformedRequest
from barnabas.net.channel import READY as CHANNEL_READY
from barnabas.net.channel import Channel, DisconnectReason, Receive
from barnabas.net.frame import InvalidReceive
from barnabas.net.selector import Selector
from barnabas.net.send import Send
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_response, encode_request_frame, frame_request
from barnabas.protocol.header import parse_response_header
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Message

__all__ = ["NetworkClient", "make_selector"]

log = logging.getLogger(__name__)

NEVER_MS = 1 << 62
MAX_CORRELATION_ID = 0x7FFFFFFF
DEFAULT_IN_FLIGHT = 5
_CLOSED_BY_PEER = (DisconnectReason.REMOTE_CLOSE, DisconnectReason.IO_ERROR)
_AUTHENTICATION_REASONS = (DisconnectReason.AUTHENTICATION_FAILED, DisconnectReason.AUTHENTICATION_TIMEOUT)


def make_selector(config: Config, clock: Clock | None = None) -> Selector:
    """A selector with the limits of a client: responses are bounded (PP-39), idle connections are closed."""
    idle_ms: int = config["connections.max.idle.ms"]
    return Selector(
        max_receive_size=config["receive.message.max.bytes"], idle_ns=max(idle_ms, 0) * 1_000_000, clock=clock
    )


class NetworkClient:
    """See the file header."""

    def __init__(
        self,
        selector: Selector,
        metadata: Metadata,
        client_id: str,
        config: Config,
        clock: Clock | None = None,
        resolve: Resolver = resolve_all,
    ) -> None:
        self._selector = selector
        self._client_id = client_id
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._request_timeout_ms: int = config["request.timeout.ms"]
        self._send_buffer: int = config["send.buffer.bytes"]
        self._receive_buffer: int = config["receive.buffer.bytes"]
        self._states = ConnectionStates(
            ExponentialBackoff(config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"]),
            ExponentialBackoff(
                config["socket.connection.setup.timeout.ms"], config["socket.connection.setup.timeout.max.ms"]
            ),
            resolve,
        )
        self._in_flight = InFlightRequests(config.get("max.in.flight.requests.per.connection", DEFAULT_IN_FLIGHT))
        self.metadata = metadata
        self._updater = MetadataUpdater(metadata, self, config)
        self._needs_versions: dict[
            int, int
        ] = {}  # connected nodes, with the version of the ApiVersions request to send
        self._finished: list[ClientResponse] = []  # came to an end outside of `poll`
        self._correlation_id = 0
        self._closed = False

    # ---------------------------------------------------------------- questions

    def ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to `node` now; begins to connect when there is no connection and the back-off allows."""
        if self.is_ready(node, now_ms):
            return True
        if self._states.can_connect(node.id, now_ms):
            self.initiate_connect(node, now_ms)
        return False

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """As `ready`, without connecting. While metadata is due nobody is ready: metadata goes first."""
        return self.can_send_request(node.id, now_ms) and not self._updater.is_update_due(now_ms)

    def can_send_request(self, node_id: int, now_ms: int) -> bool:
        connection = self._states.get(node_id)
        return (
            connection is not None
            and connection.state is READY
            and connection.throttle_until_ms <= now_ms
            and connection.channel is not None
            and connection.channel.state is CHANNEL_READY
            and self._in_flight.can_send_more(node_id)
        )

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        return self._states.can_connect(node_id, now_ms)

    def is_any_connecting(self) -> bool:
        return self._states.is_any_connecting()

    def has_ready_connection(self, now_ms: int) -> bool:
        return any(self._states.is_ready(connection.node.id, now_ms) for connection in self._states)

    def connection_delay(self, node: Node, now_ms: int) -> int:
        """Milliseconds until a connection may be tried or given up; very many when it stands."""
        return self._states.connection_delay_ms(node.id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """Milliseconds until the node may become usable by time alone: the end of throttling, back-off or set-up."""
        return self._states.poll_delay_ms(node.id, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._states.throttle_delay_ms(node.id, now_ms)

    def connection_failed(self, node: Node) -> bool:
        """The node was tried and is disconnected."""
        connection = self._states.get(node.id)
        return connection is not None and connection.is_disconnected

    def connection_error(self, node: Node) -> str:
        """Why the node's last connection ended."""
        connection = self._states.get(node.id)
        return "" if connection is None else connection.error

    def api_versions(self, node: Node) -> NodeApiVersions | None:
        """What the node supports, while it is connected."""
        connection = self._states.get(node.id)
        return None if connection is None else connection.versions

    def in_flight_count(self, node: Node | None = None) -> int:
        return self._in_flight.count(None if node is None else node.id)

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """The ready node with the fewest requests in flight; else one that is being connected to; else the one that was not tried
        for the longest time; None when all are backing off (PP-19)."""
        nodes = self.metadata.fetch().nodes
        if not nodes:
            return None
        fewest = NEVER_MS
        ready: Node | None = None
        preparing: Node | None = None
        idle: Node | None = None
        offset = random.randrange(len(nodes))
        for node in nodes[offset:] + nodes[:offset]:
            if self.can_send_request(node.id, now_ms):
                count = self._in_flight.count(node.id)
                if not count:
                    return node
                if count < fewest:
                    fewest, ready = count, node
            elif self._states.is_preparing(node.id):
                preparing = node
            elif self._states.can_connect(node.id, now_ms) and (
                idle is None or self._states.last_attempt_ms(node.id) < self._states.last_attempt_ms(idle.id)
            ):
                idle = node
        return ready or preparing or idle

    # ---------------------------------------------------------------- connecting

    def initiate_connect(self, node: Node, now_ms: int) -> None:
        """Begin to connect; never raises for what the network does."""
        connection = self._states.connecting(node, now_ms)
        try:
            address = connection.addresses.current()
            self.metadata.failures.tried(node.address)
            log.debug("Connecting to node %s at %s (%s)", node.id, node.address, address)
            connection.channel = self._selector.connect(
                str(node.id), (address, node.port), self._send_buffer, self._receive_buffer, connection
            )
        except OSError as error:
            log.info("Cannot connect to node %s at %s: %s", node.id, node.address, _words_of(error))
            self._disconnected(connection, [], now_ms, _words_of(error))
            self._note_refusal(connection, error)

    def disconnect(self, node: Node, now_ms: int) -> None:
        """Close the connection; what is in flight ends as disconnected in the next poll."""
        connection = self._states.get(node.id)
        if connection is not None and not connection.is_disconnected:
            self._drop(connection, self._finished, now_ms, "disconnect was asked for")

    def disconnect_all(self, now_ms: int, reason: str) -> None:
        for connection in self._states:
            if not connection.is_disconnected:
                self._drop(connection, self._finished, now_ms, reason)

    def close_node(self, node: Node) -> None:
        """Close and forget; what was in flight is reported to nobody."""
        connection = self._states.get(node.id)
        if connection is None:
            return
        if connection.channel is not None:
            self._selector.close(connection.channel)
        if any(entry.internal and entry.request.api_key == METADATA for entry in self._in_flight.clear(node.id)):
            self._updater.handle_failure(self._now_ms())
        self._needs_versions.pop(node.id, None)
        self._states.remove(node.id)

    # ---------------------------------------------------------------- sending

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Send to a node that is ready; `poll` reports the end. A version that the broker lacks ends only this request (PP-18)."""
        if not self.can_send_request(request.node_id, now_ms):
            raise NodeNotReady(f"node {request.node_id} is not ready for {request!r}")
        self._send(request, now_ms, False)

    def send_internal(self, request: ClientRequest, now_ms: int) -> None:
        """A request of the network client's own, which it answers itself."""
        self._send(request, now_ms, True)

    def _send(self, request: ClientRequest, now_ms: int, internal: bool) -> None:
        self._ensure_open()
        connection = self._states.get(request.node_id)
        if connection is None or connection.channel is None:
            raise NodeNotReady(f"node {request.node_id} has no connection for {request!r}")
        versions = connection.versions
        try:
            if versions is not None:
                version = versions.usable(request.api_key, request.min_version, request.max_version)
            else:
                version = min(request.max_version, APIS[request.api_key].max_version)
        except UnsupportedVersion as error:
            self._refuse(request, error, now_ms, internal)
            return
        if request.timeout_ms is None:
            request.timeout_ms = self._request_timeout_ms
        self._correlation_id = request.correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        entry = InFlightRequest(request, Send(self._encode(request, version)), version, now_ms, internal)
        self._in_flight.add(entry)
        entry.send.attachment = entry
        if self._selector.send(connection.channel, entry.send) and not request.expect_response:
            self._in_flight.complete_newest(request.node_id)
            self._finished.append(ClientResponse(request, None, now_ms, now_ms, version))

    def _encode(self, request: ClientRequest, version: int) -> list[Any]:
        """Small framing buffers and the records' own memory, which is not copied (PP-14)."""
        body = request.body if isinstance(request.body, Message) else request.body(version)
        if isinstance(body, Message):
            return encode_request_frame(body, version, request.correlation_id, self._client_id)
        return frame_request(body, request.api_key, version, request.correlation_id, self._client_id)

    def _refuse(self, request: ClientRequest, error: UnsupportedVersion, now_ms: int, internal: bool) -> None:
        log.debug("%r cannot be sent: %s", request, error)
        if internal:
            self._updater.handle_failure(now_ms, error)
            return
        response = ClientResponse(request, None, now_ms, now_ms)
        response.version_mismatch = error
        self._finished.append(response)

    # ---------------------------------------------------------------- polling

    def poll(self, timeout_ms: float, now_ms: int) -> list[ClientResponse]:
        """Do what can be done, waiting at most `timeout_ms` for something to do. Callbacks run here, at the end and in order."""
        self._ensure_open()
        metadata_ms = self._updater.maybe_update(now_ms)
        if self._finished:
            timeout_ms = 0
        elif timeout_ms > 0:
            timeout_ms = min(timeout_ms, metadata_ms, self._next_deadline_ms() + 1 - now_ms)
        selector = self._selector
        selector.poll(timeout_ms / 1000 if timeout_ms > 0 else 0.0)
        now_ms = self._now_ms()
        responses, self._finished = self._finished, []
        if selector.completed_sends:
            self._handle_completed_sends(responses, now_ms)
        for receive in selector.completed_receives:
            self._handle_receive(receive, responses, now_ms)
        if selector.disconnected or selector.failed_sends:
            self._handle_disconnections(responses, now_ms)
        for channel in selector.connected:
            self._handle_connected(channel)
        if now_ms > self._next_deadline_ms():
            self._handle_time_outs(responses, now_ms)
        if self._needs_versions:
            self._ask_for_versions(now_ms)
        for response in responses:
            _complete(response)
        return responses

    def wakeup(self) -> None:
        """Any thread: let the current or the next poll return at once."""
        self._selector.wakeup()

    def close(self) -> None:
        """Close all connections and the selector; what was in flight is reported to nobody."""
        if not self._closed:
            self._closed = True
            self._selector.close_all()
            self.metadata.close()

    def _next_deadline_ms(self) -> int:
        return min(self._in_flight.next_deadline_ms, self._states.next_setup_deadline_ms())

    def _handle_completed_sends(self, responses: list[ClientResponse], now_ms: int) -> None:
        for send in self._selector.completed_sends:
            entry = send.attachment
            if isinstance(entry, InFlightRequest) and not entry.request.expect_response:
                node_id = entry.request.node_id
                if self._in_flight.newest(node_id) is entry:
                    self._in_flight.complete_newest(node_id)
                    responses.append(ClientResponse(entry.request, None, now_ms, entry.sent_ms, entry.api_version))

    def _handle_receive(self, receive: Receive, responses: list[ClientResponse], now_ms: int) -> None:
        connection = _connection_of(receive.channel)
        if connection is None:
            return  # of a connection that was dropped meanwhile
        entry = self._in_flight.oldest(connection.node.id)
        try:
            if entry is None:
                raise MalformedRequest("a response that nobody asked for")
            body = _read_response(entry, receive)
        except MalformedRequest as error:
            log.error("Closing the connection to node %s: %s", connection.node.id, error)
            self._drop(connection, responses, now_ms, str(error))
            return
        self._in_flight.complete_oldest(connection.node.id)
        self._throttle(connection, entry, body, now_ms)
        if not entry.internal:
            responses.append(ClientResponse(entry.request, body, now_ms, entry.sent_ms, entry.api_version))
        elif entry.request.api_key == METADATA:
            self._updater.handle_response(body, now_ms)
        else:
            self._handle_versions(connection, entry, body, responses, now_ms)

    def _throttle(self, connection: NodeConnection, entry: InFlightRequest, body: Any, now_ms: int) -> None:
        """The broker's quota wants us to be silent for a while."""
        milliseconds: int = getattr(body, "throttle_time_ms", 0)
        if milliseconds > 0 and client_must_wait(entry.request.api_key, entry.api_version):
            self._states.throttle(connection, now_ms + milliseconds)
            self._in_flight.extend_deadlines(connection.node.id, milliseconds)

    # ---------------------------------------------------------------- connections come and go

    def _handle_connected(self, channel: Channel) -> None:
        connection = _connection_of(channel)
        if connection is not None:
            self._needs_versions[connection.node.id] = NEWEST_API_VERSIONS

    def _ask_for_versions(self, now_ms: int) -> None:
        for node_id, version in list(self._needs_versions.items()):
            connection = self._states.get(node_id)
            if connection is None or connection.channel is None:
                del self._needs_versions[node_id]
            elif connection.channel.state is CHANNEL_READY and self._in_flight.can_send_more(node_id):
                del self._needs_versions[node_id]
                self._states.checking_api_versions(connection)
                request = ClientRequest(node_id, API_VERSIONS, api_versions_request(), now_ms, max_version=version)
                self.send_internal(request, now_ms)

    def _handle_versions(
        self,
        connection: NodeConnection,
        entry: InFlightRequest,
        body: ApiVersionsResponse,
        responses: list[ClientResponse],
        now_ms: int,
    ) -> None:
        if not body.error_code:
            connection.versions = NodeApiVersions(body)
            self._states.ready(connection)
            self.metadata.failures.answered(connection.node.address)
        elif body.error_code == UNSUPPORTED and entry.api_version > 0:
            self._needs_versions[connection.node.id] = min(fallback_version(body), entry.api_version - 1)
        else:
            reason = f"ApiVersions was refused with error {body.error_code}"
            log.warning("Disconnecting from node %s: %s", connection.node.id, reason)
            self._drop(connection, responses, now_ms, reason)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for channel, reason in self._selector.disconnected:
            connection = _connection_of(channel)
            if connection is not None:
                self._lost(connection, channel, reason, responses, now_ms)
        for send in self._selector.failed_sends:  # on a channel that was closing when the send came (PP-34)
            connection = None if send.channel is None else _connection_of(send.channel)
            if connection is not None:
                self._drop(connection, responses, now_ms, DisconnectReason.FAILED_SEND.value)

    def _lost(
        self,
        connection: NodeConnection,
        channel: Channel,
        reason: DisconnectReason,
        responses: list[ClientResponse],
        now_ms: int,
    ) -> None:
        text = _reason_text(channel, reason)
        if connection.state is CHECKING_API_VERSIONS and reason in _CLOSED_BY_PEER:
            text += "; before it answered anything: is it a port for TLS, or no Kafka at all?"
        level = logging.DEBUG if reason is DisconnectReason.EXPIRED else logging.INFO
        log.log(level, "Node %s at %s disconnected: %s", connection.node.id, connection.node.address, text)
        fatal: KafkaError | None = None
        if reason in _AUTHENTICATION_REASONS:
            fatal = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{connection.node.address}: {text}")
        self._disconnected(connection, responses, now_ms, text, fatal)
        self._note_refusal(connection, channel.error)

    def _note_refusal(self, connection: NodeConnection, error: BaseException | None) -> None:
        if isinstance(error, ConnectionRefusedError) and connection.addresses.are_used_up:
            self.metadata.failures.refused(connection.node.address)

    def _handle_time_outs(self, responses: list[ClientResponse], now_ms: int) -> None:
        for connection in self._states.expired_setups(now_ms):
            reason = f"not connected within {connection.setup_timeout_ms} ms"
            log.info("Disconnecting from node %s: %s", connection.node.id, reason)
            self._drop(connection, responses, now_ms, reason, timed_out=True)
        for node_id in self._in_flight.expired_nodes(now_ms):
            expired = self._states.get(node_id)
            if expired is not None:
                log.info("Disconnecting from node %s: a request was not answered in time", node_id)
                self._drop(expired, responses, now_ms, "a request was not answered in time", timed_out=True)

    def _drop(
        self,
        connection: NodeConnection,
        responses: list[ClientResponse],
        now_ms: int,
        reason: str,
        timed_out: bool = False,
    ) -> None:
        """We end the connection."""
        if connection.channel is not None:
            self._selector.close(connection.channel)
        first = len(responses)
        self._disconnected(connection, responses, now_ms, reason)
        if timed_out:
            for response in responses[first:]:
                response.timed_out = True

    def _disconnected(
        self,
        connection: NodeConnection,
        responses: list[ClientResponse],
        now_ms: int,
        reason: str,
        fatal: KafkaError | None = None,
    ) -> None:
        """The connection is gone: fail what was in flight on it, and ask for metadata (PP-21)."""
        node = connection.node
        self._states.disconnected(connection, now_ms, reason)
        if fatal is not None:
            self._states.authentication_failed(connection, now_ms, reason)
        self._needs_versions.pop(node.id, None)
        self.metadata.failures.add(node.address, reason)
        for entry in self._in_flight.clear(node.id):
            if not entry.internal:
                responses.append(
                    ClientResponse(entry.request, None, now_ms, entry.sent_ms, entry.api_version, disconnected=True)
                )
            elif entry.request.api_key == METADATA:
                self._updater.handle_failure(now_ms)
        self._updater.handle_disconnect(now_ms, fatal)

    def _ensure_open(self) -> None:
        if self._closed:
            raise ClientClosed("the network client is closed")

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def __repr__(self) -> str:
        return f"<NetworkClient {self._client_id!r} {self._states!r} {self._in_flight!r}>"


def _connection_of(channel: Channel) -> NodeConnection | None:
    """The connection whose channel this is now; None for the channel of an earlier connection."""
    connection = channel.attachment
    return connection if isinstance(connection, NodeConnection) and connection.channel is channel else None


def _read_response(entry: InFlightRequest, receive: Receive) -> Any:
    """The message of a response that must answer `entry`; MalformedRequest when it does not."""
    api_key = entry.request.api_key
    api = APIS[api_key]
    correlation_id, offset = parse_response_header(receive.payload, api.response_header_version(entry.api_version))
    if correlation_id != entry.request.correlation_id:
        raise MalformedRequest(
            f"correlation id {correlation_id} came for a {api.name} request with {entry.request.correlation_id}"
        )
    if api_key == API_VERSIONS:
        return decode_api_versions(entry.api_version, receive.payload, offset)
    return decode_response(api_key, entry.api_version, receive.payload, offset)


def _reason_text(channel: Channel, reason: DisconnectReason) -> str:
    if isinstance(channel.error, InvalidReceive) and channel.error.looks_like_tls:
        return "the broker's port speaks TLS, but security.protocol is PLAINTEXT"
    return reason.value if channel.error is None else f"{reason.value}: {_words_of(channel.error)}"


def _words_of(error: BaseException) -> str:
    """ "Connection refused", without the number that Python puts before it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _complete(response: ClientResponse) -> None:
    callback = response.request.callback
    if callback is not None:
        try:
            callback(response)
        except Exception:
            log.exception("Error in the callback of %r", response.request)
