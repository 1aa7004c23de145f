"""Keeps metadata fresh: chooses a node, sends the request, takes the answer, starts again from the bootstrap servers (PP-23, PP-24).

Role: the network client's inner part that knows the Metadata API. Thread: the I/O thread; no lock of its own.
"""

from __future__ import annotations

import logging
from typing import Protocol

from barnabas.client.cluster import Node
from barnabas.client.metadata import Metadata, MetadataUpdateRequest
from barnabas.client.requests import ClientRequest
from barnabas.client.topic_problems import PATIENCE_MS, REPEAT_MS, TopicProblems
from barnabas.config import Config
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.metadata import MetadataResponse

__all__ = ["Connections", "MetadataUpdater"]

log = logging.getLogger(__name__)

NEVER_MS = 1 << 62
METADATA = int(ApiKey.METADATA)


class Connections(Protocol):
    """What the updater needs of the network client."""

    def least_loaded_node(self, now_ms: int) -> Node | None: ...
    def can_send_request(self, node_id: int, now_ms: int) -> bool: ...
    def can_connect(self, node_id: int, now_ms: int) -> bool: ...
    def is_any_connecting(self) -> bool: ...
    def has_ready_connection(self, now_ms: int) -> bool: ...
    def initiate_connect(self, node: Node, now_ms: int) -> None: ...
    def send_internal(self, request: ClientRequest, now_ms: int) -> None: ...
    def disconnect_all(self, now_ms: int, reason: str) -> None: ...


class MetadataUpdater:
    """See the file header. At most one metadata request is in flight."""

    def __init__(self, metadata: Metadata, connections: Connections, config: Config) -> None:
        self.metadata = metadata
        self._connections = connections
        self._request_timeout_ms: int = config["request.timeout.ms"]
        self._wait_ms: int = max(config["reconnect.backoff.ms"], 1)
        self._rebootstraps: bool = config["metadata.recovery.strategy"] == "rebootstrap"
        self._rebootstrap_after_ms: int = config["metadata.recovery.rebootstrap.trigger.ms"]
        self._in_flight: MetadataUpdateRequest | None = None
        self._failing_since_ms = NEVER_MS
        self._told_ms = -NEVER_MS
        self._problems = TopicProblems()

    def is_update_due(self, now_ms: int) -> bool:
        """Then no other request is sent, so that metadata comes first."""
        return self._in_flight is None and self.metadata.time_to_next_update(now_ms) == 0

    def maybe_update(self, now_ms: int) -> int:
        """Send a metadata request if one is due and possible; milliseconds until this should be called again."""
        left = self.metadata.time_to_next_update(now_ms)
        if self._in_flight is not None:
            return max(left, self._request_timeout_ms)
        if left:
            return left
        return self._update(now_ms)

    def _update(self, now_ms: int) -> int:
        self._failing_since_ms = min(self._failing_since_ms, now_ms)
        if self._rebootstraps and now_ms - self._failing_since_ms > self._rebootstrap_after_ms:
            self._rebootstrap(now_ms, "no metadata for a long time")
        connections = self._connections
        if not connections.has_ready_connection(now_ms):
            self._tell_that_nobody_answers(now_ms)
        node = connections.least_loaded_node(now_ms)
        if node is None and self._rebootstraps and not connections.has_ready_connection(now_ms):
            self.metadata.rebootstrap()
            node = connections.least_loaded_node(now_ms)
        if node is None:
            return self._wait_ms
        if connections.can_send_request(node.id, now_ms):
            self._send(node, now_ms)
            return self._request_timeout_ms
        if connections.is_any_connecting():
            return self._wait_ms
        if connections.can_connect(node.id, now_ms):
            connections.initiate_connect(node, now_ms)
            return self._wait_ms
        return NEVER_MS  # a network event will tell

    def _tell_that_nobody_answers(self, now_ms: int) -> None:
        """A broker that starts again is away for a moment; what lasts is said now and then."""
        if now_ms - self._failing_since_ms >= PATIENCE_MS and now_ms - self._told_ms >= REPEAT_MS:
            self._told_ms = now_ms
            log.warning("No broker can be reached%s; going on trying", self.metadata.failures.words())

    def _send(self, node: Node, now_ms: int) -> None:
        asked = self._in_flight = self.metadata.next_request(now_ms)
        log.debug("Sending a metadata request to node %s", node.id)
        self._connections.send_internal(ClientRequest(node.id, METADATA, asked.body, now_ms), now_ms)

    def _rebootstrap(self, now_ms: int, reason: str) -> None:
        self._connections.disconnect_all(now_ms, reason)
        self._failing_since_ms = now_ms
        self.metadata.rebootstrap()

    def handle_response(self, response: MetadataResponse, now_ms: int) -> None:
        """The answer to the request in flight."""
        asked, self._in_flight = self._in_flight, None
        if asked is None:
            return
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._rebootstraps:
            self._rebootstrap(now_ms, "the broker asks the client to start again")
        elif response.error_code or not response.brokers:  # a broker that is still starting knows nobody
            self.metadata.failed_update(now_ms)
        else:
            self._problems.note(response.topics, now_ms)
            self._failing_since_ms = NEVER_MS
            self.metadata.update(asked, response, now_ms)

    def handle_failure(self, now_ms: int, error: KafkaError | None = None) -> None:
        """The request in flight has no answer; `error`: and never will have one."""
        self._in_flight = None
        if error is not None:
            self.metadata.fatal_error(error)
        self.metadata.failed_update(now_ms)

    def handle_disconnect(self, now_ms: int, error: KafkaError | None = None) -> None:
        """A node went away, perhaps because it is not what we think it is: ask (PP-21)."""
        if self.is_update_due(now_ms):
            self.handle_failure(now_ms)  # so that the back-off holds
        if error is not None:
            self.metadata.fatal_error(error)
        self.metadata.request_update()

    def __repr__(self) -> str:
        return f"<MetadataUpdater in_flight={self._in_flight is not None} {self.metadata!r}>"
