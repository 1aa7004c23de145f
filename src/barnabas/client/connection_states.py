"""The state of the connection to each node: back-off, set-up time-outs, throttling, addresses (PP-16).

    DISCONNECTED ──► CONNECTING ──► CHECKING_API_VERSIONS ──► READY
         ▲               │                   │                  │
         └───────────────┴───────────────────┴──────────────────┘     AUTHENTICATION_FAILED counts as disconnected

Role: decides when a node may be tried again and how long one try may take; both grow exponentially with jitter while tries fail, and
start anew once the node was ready. Thread: the I/O thread; no lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from barnabas.client.addresses import NodeAddresses, Resolver, resolve_all
from barnabas.client.api_versions import NodeApiVersions
from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Node
from barnabas.net.channel import Channel

__all__ = ["ConnectionState", "ConnectionStates", "NodeConnection"]

NEVER_MS = 1 << 62
LONG_AGO_MS = -NEVER_MS


class ConnectionState(Enum):
    """See the drawing in the file header."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"


# An enum member looked up on its class costs a slow attribute access in CPython 3.11.
DISCONNECTED: Final = ConnectionState.DISCONNECTED
CONNECTING: Final = ConnectionState.CONNECTING
CHECKING_API_VERSIONS: Final = ConnectionState.CHECKING_API_VERSIONS
READY: Final = ConnectionState.READY
AUTHENTICATION_FAILED: Final = ConnectionState.AUTHENTICATION_FAILED


class NodeConnection:
    """One node's connection; `channel` is the one in use, whatever older channels still report."""

    __slots__ = (
        "addresses",
        "channel",
        "error",
        "failed_attempts",
        "failed_setups",
        "last_attempt_ms",
        "node",
        "reconnect_backoff_ms",
        "setup_timeout_ms",
        "state",
        "throttle_until_ms",
        "versions",
    )

    def __init__(self, node: Node, resolve: Resolver) -> None:
        self.node = node
        self.addresses = NodeAddresses(node.host, resolve)
        self.channel: Channel | None = None
        self.versions: NodeApiVersions | None = None
        self.state: ConnectionState = DISCONNECTED
        self.error = ""  # why the last connection ended
        self.last_attempt_ms = LONG_AGO_MS
        self.failed_attempts = 0
        self.failed_setups = 0
        self.reconnect_backoff_ms = 0
        self.setup_timeout_ms = 0
        self.throttle_until_ms = LONG_AGO_MS

    @property
    def is_disconnected(self) -> bool:
        return self.state is DISCONNECTED or self.state is AUTHENTICATION_FAILED

    @property
    def is_connected(self) -> bool:
        return self.state is CHECKING_API_VERSIONS or self.state is READY

    @property
    def setup_deadline_ms(self) -> int:
        return self.last_attempt_ms + self.setup_timeout_ms

    def __repr__(self) -> str:
        return f"<NodeConnection {self.node.id} {self.node.address} {self.state.value} {self.error}>"


class ConnectionStates:
    """See the file header. Unknown nodes count as never tried."""

    def __init__(
        self, reconnect_backoff: ExponentialBackoff, setup_timeout: ExponentialBackoff, resolve: Resolver = resolve_all
    ) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._setup_timeout = setup_timeout
        self._resolve = resolve
        self._nodes: dict[int, NodeConnection] = {}
        self._connecting: dict[int, NodeConnection] = {}

    def get(self, node_id: int) -> NodeConnection | None:
        return self._nodes.get(node_id)

    def __iter__(self) -> Iterator[NodeConnection]:
        return iter(list(self._nodes.values()))

    # ---------------------------------------------------------------- questions

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        connection = self._nodes.get(node_id)
        if connection is None:
            return True
        waited = now_ms - connection.last_attempt_ms
        return connection.is_disconnected and waited >= connection.reconnect_backoff_ms

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        """Disconnected, and not to be tried again yet."""
        connection = self._nodes.get(node_id)
        return connection is not None and connection.is_disconnected and not self.can_connect(node_id, now_ms)

    def is_preparing(self, node_id: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.state in (CONNECTING, CHECKING_API_VERSIONS)

    def is_any_connecting(self) -> bool:
        return bool(self._connecting)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.state is READY and connection.throttle_until_ms <= now_ms

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long to wait before asking again: the rest of the back-off, or of the set-up; for ever once connected."""
        connection = self._nodes.get(node_id)
        if connection is None:
            return 0
        if connection.state is CONNECTING:
            return max(connection.setup_deadline_ms - now_ms, 0)
        if connection.is_disconnected:
            return max(connection.last_attempt_ms + connection.reconnect_backoff_ms - now_ms, 0)
        return NEVER_MS

    def throttle_delay_ms(self, node_id: int, now_ms: int) -> int:
        connection = self._nodes.get(node_id)
        return 0 if connection is None else max(connection.throttle_until_ms - now_ms, 0)

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """When the node may be usable: the end of its throttling, else `connection_delay_ms`."""
        connection = self._nodes.get(node_id)
        if connection is not None and connection.is_connected and connection.throttle_until_ms > now_ms:
            return connection.throttle_until_ms - now_ms
        return self.connection_delay_ms(node_id, now_ms)

    def last_attempt_ms(self, node_id: int) -> int:
        connection = self._nodes.get(node_id)
        return LONG_AGO_MS if connection is None else connection.last_attempt_ms

    def next_setup_deadline_ms(self) -> int:
        if not self._connecting:
            return NEVER_MS
        return min(connection.setup_deadline_ms for connection in self._connecting.values())

    def expired_setups(self, now_ms: int) -> list[NodeConnection]:
        """Connections that are not set up in time."""
        if not self._connecting:
            return []
        return [connection for connection in self._connecting.values() if now_ms > connection.setup_deadline_ms]

    # ---------------------------------------------------------------- events

    def connecting(self, node: Node, now_ms: int) -> NodeConnection:
        """A try begins. A node that moved to another host starts anew; else the address after the one that failed is used."""
        connection = self._nodes.get(node.id)
        if connection is None or connection.node.host != node.host:
            connection = self._nodes[node.id] = NodeConnection(node, self._resolve)
            connection.reconnect_backoff_ms = self._reconnect_backoff.after(0)
            connection.setup_timeout_ms = self._setup_timeout.after(0)
        connection.node = node
        connection.state = CONNECTING
        connection.last_attempt_ms = now_ms
        self._connecting[node.id] = connection
        return connection

    def checking_api_versions(self, connection: NodeConnection) -> None:
        connection.state = CHECKING_API_VERSIONS
        self._set_up(connection)

    def ready(self, connection: NodeConnection) -> None:
        connection.state = READY
        connection.failed_attempts = 0
        connection.reconnect_backoff_ms = self._reconnect_backoff.after(0)
        self._set_up(connection)

    def disconnected(self, connection: NodeConnection, now_ms: int, reason: str) -> None:
        """A try, or a connection that stood, ended."""
        if connection.state is CONNECTING:
            connection.failed_setups += 1
            connection.setup_timeout_ms = self._setup_timeout.after(connection.failed_setups)
            connection.addresses.advance()
        else:
            self._set_up(connection)
            connection.addresses.forget()  # the node may have moved
        self._connecting.pop(connection.node.id, None)
        self._failed(connection, now_ms, reason)
        connection.state = DISCONNECTED

    def authentication_failed(self, connection: NodeConnection, now_ms: int, reason: str) -> None:
        self._connecting.pop(connection.node.id, None)
        self._failed(connection, now_ms, reason)
        connection.state = AUTHENTICATION_FAILED

    def throttle(self, connection: NodeConnection, until_ms: int) -> None:
        """Never shortens a throttling that runs."""
        if until_ms > connection.throttle_until_ms:
            connection.throttle_until_ms = until_ms

    def remove(self, node_id: int) -> None:
        self._nodes.pop(node_id, None)
        self._connecting.pop(node_id, None)

    def _failed(self, connection: NodeConnection, now_ms: int, reason: str) -> None:
        connection.last_attempt_ms = now_ms
        connection.reconnect_backoff_ms = self._reconnect_backoff.after(connection.failed_attempts)
        connection.failed_attempts += 1
        connection.channel = None
        connection.versions = None
        connection.error = reason

    def _set_up(self, connection: NodeConnection) -> None:
        connection.failed_setups = 0
        connection.setup_timeout_ms = self._setup_timeout.after(0)
        self._connecting.pop(connection.node.id, None)

    def __repr__(self) -> str:
        return f"<ConnectionStates { ({node_id: item.state.value for node_id, item in self._nodes.items()}) }>"
