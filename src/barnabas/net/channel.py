"""A channel: one connection with its transport, authenticator, mute state, receive state and the send in progress (RP-24).

Role: a record of state; the selector moves the bytes, the frame readers cut them. Thread: only the thread that owns the selector
touches a channel; no lock. `attachment` belongs to the selector's owner.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from enum import Enum
from mmap import mmap
from typing import TYPE_CHECKING, Final

from barnabas.net.authenticator import NO_AUTHENTICATION, Authenticator
from barnabas.net.mute import MUTED, NOT_MUTED, TRANSITIONS, IllegalMuteTransition, MuteEvent, MuteState
from barnabas.net.transport import PlaintextTransport, Transport

if TYPE_CHECKING:
    from barnabas.net.deadlines import DeadlineQueue
    from barnabas.net.memory_pool import PooledBuffer
    from barnabas.net.read_on import HeldBytes
    from barnabas.net.send import Send

__all__ = ["Channel", "ChannelState", "DisconnectReason", "Receive"]

log = logging.getLogger(__name__)


class ChannelState(Enum):
    """Where a connection is in its life."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    CLOSING = "closing"  # off the poller; what was fully received is still delivered (RP-21)
    CLOSED = "closed"


class DisconnectReason(Enum):
    """Why a channel was closed; the value is the text for the log."""

    REMOTE_CLOSE = "closed by the peer"
    LOCAL_CLOSE = "closed locally"
    CONNECT_FAILED = "connect failed"
    IO_ERROR = "input/output error"
    FAILED_SEND = "send failed"
    EXPIRED = "idle for too long"
    INVALID_RECEIVE = "invalid frame"
    FIRST_FRAME_TIMEOUT = "first request not received in time"
    FRAME_TIMEOUT = "request not received in time"
    STALLED = "stalled in the middle of a request while others waited for memory"
    SLOW = "response taken too slowly while unsent responses used up their memory (barnabas.response.unsent.bytes)"
    WRITE_TIMEOUT = "response not read in time"
    AUTHENTICATION_TIMEOUT = "not authenticated in time"
    AUTHENTICATION_FAILED = "authentication failed"
    INTERNAL_ERROR = "unexpected error"


# An enum member looked up on its class costs a slow attribute access in CPython 3.11.
NOT_CONNECTED: Final = ChannelState.NOT_CONNECTED
AUTHENTICATE: Final = ChannelState.AUTHENTICATE
READY: Final = ChannelState.READY
CLOSING: Final = ChannelState.CLOSING
CLOSED: Final = ChannelState.CLOSED


class Receive:
    """One whole frame. `payload` is bytes, or a memoryview for a large or pooled one; `buffer` must be released by the owner."""

    __slots__ = ("buffer", "channel", "payload")

    def __init__(self, channel: Channel, payload: bytes | memoryview, buffer: PooledBuffer | None = None) -> None:
        self.channel = channel
        self.payload = payload
        self.buffer = buffer

    def release(self) -> None:
        if self.buffer is not None:
            self.buffer.release()

    def __repr__(self) -> str:
        return f"<Receive {len(self.payload)} bytes from {self.channel.id}>"


class Channel:
    """See the file header. Compared and hashed by identity."""

    __slots__ = (
        "__weakref__",
        "attachment",
        "authenticator",
        "body",
        "body_received",
        "body_size",
        "broken",
        "buffer",
        "client_software_name",
        "client_software_version",
        "close_reason",
        "current_send",
        "error",
        "fd",
        "held",
        "hung_up",
        "id",
        "interest",
        "largest_body",
        "last_active_ns",
        "leftover",
        "leftover_position",
        "mute_state",
        "muted_for_memory",
        "principal",
        "read_timer",
        "recv_into",
        "socket",
        "state",
        "transport",
    )

    def __init__(
        self,
        channel_id: str,
        sock: socket.socket,
        transport: Transport | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.id = channel_id
        self.socket = sock
        self.fd = sock.fileno()
        self.transport: Transport = transport if transport is not None else PlaintextTransport(sock)
        self.recv_into: Callable[..., int] = self.transport.recv_into  # saves an attribute look-up for every request
        self.authenticator: Authenticator = authenticator if authenticator is not None else NO_AUTHENTICATION
        self.state: ChannelState = NOT_CONNECTED
        self.mute_state: MuteState = NOT_MUTED
        self.muted_for_memory = False
        self.principal = self.authenticator.principal
        self.client_software_name = "unknown"  # KIP-511: what the peer says of itself in ApiVersions
        self.client_software_version = "unknown"
        self.attachment: object = None
        self.last_active_ns = 0
        self.interest = 0  # what the poller watches for now
        self.hung_up = False  # the peer sends no more, though it may still read; noticed while we did not read
        self.broken = False  # it cannot read either; noticed then too
        self.held: HeldBytes | None = None  # read while a send was stuck, see read_on.py
        self.current_send: Send | None = None
        self.read_timer: DeadlineQueue | None = None  # the read-side deadline that runs for this channel
        self.close_reason: DisconnectReason | None = None
        self.error: BaseException | None = None
        # Receive state, see frame.py.
        self.leftover = b""
        self.leftover_position = 0
        self.body: bytearray | mmap | None = None
        self.body_size = 0
        self.body_received = 0
        self.largest_body = 0
        self.buffer: PooledBuffer | None = None

    @property
    def ready(self) -> bool:
        return self.state is READY

    @property
    def closing(self) -> bool:
        return self.state is CLOSING

    @property
    def closed(self) -> bool:
        return self.state is CLOSED

    @property
    def muted(self) -> bool:
        return self.mute_state is not NOT_MUTED

    def mute(self) -> None:
        """Stop reading; a muted channel keeps its state."""
        if self.mute_state is NOT_MUTED:
            self.mute_state = MUTED

    def handle_mute_event(self, event: MuteEvent) -> None:
        """RP-20; IllegalMuteTransition when the event is impossible now."""
        state: MuteState | None = TRANSITIONS.get((self.mute_state, event))
        if state is None:
            raise IllegalMuteTransition(self.mute_state, event)
        self.mute_state = state

    def dispose(self) -> None:
        """Close the socket and give the memory of an unfinished receive back; only the selector calls it."""
        for closer in (self.authenticator.close, self.transport.close):
            try:
                closer()
            except Exception as error:
                log.warning("Could not close a part of %s: %s", self.id, error)
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None
        self.body = None
        self.leftover = b""
        self.leftover_position = 0

    def __repr__(self) -> str:
        return f"<Channel {self.id} {self.state.value} {self.mute_state.name} interest={self.interest} sending={self.current_send!r}>"
