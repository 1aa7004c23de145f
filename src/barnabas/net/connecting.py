"""From a socket to a ready channel: the non-blocking connect (PP-33), handshake and authentication (PP-37).

Role: the steps that a channel takes before frames flow, its interest and deadlines meanwhile. Errors pass to the selector, which closes
the channel. Thread: the selector's owner; no lock.
"""

from __future__ import annotations

import errno
import os
import socket

from barnabas.net.channel import AUTHENTICATE, NOT_CONNECTED, READY, Channel, DisconnectReason
from barnabas.net.channel_table import ChannelTable
from barnabas.net.deadlines import Timers
from barnabas.net.poller import HANG_UP, READ, WRITE

__all__ = ["Preparing", "start_connect"]

_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


def start_connect(address: tuple[str, int], send_buffer: int, receive_buffer: int) -> tuple[socket.socket, bool]:
    """A non-blocking socket on its way to a numeric `address`, and whether it is connected already. Buffers: -1 = the OS's choice."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if send_buffer >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if receive_buffer >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        code = sock.connect_ex(address)
        if code and code not in _IN_PROGRESS:
            raise OSError(code, f"{os.strerror(code)}: {address[0]}:{address[1]}")
    except BaseException:
        sock.close()
        raise
    return sock, not code


class Preparing:
    """The channels of one selector that are not ready yet. `connected` gets each that we began to connect, once it is."""

    __slots__ = ("_connected", "_table", "_timers")

    def __init__(self, table: ChannelTable, timers: Timers, connected: list[Channel]) -> None:
        self._table = table
        self._timers = timers
        self._connected = connected

    def begin(self, channel: Channel, now_ns: int) -> None:
        """A connection that we accepted."""
        channel.state = AUTHENTICATE
        if _is_prepared(channel):
            self._become_ready(channel)
            self._timers.start_reading(channel, self._timers.first_frame, now_ns)
        else:
            self._timers.start_reading(channel, self._timers.authentication, now_ns)

    def step(self, channel: Channel, now_ns: int) -> bool:
        """Something happened on a channel that is not ready; True when it is now. OSError: the connect or the handshake failed;
        AuthenticationFailed passes."""
        if channel.state is NOT_CONNECTED:
            self._finish_connect(channel)
            if _is_prepared(channel):
                self._become_ready(channel)
                return True
            self._timers.start_reading(channel, self._timers.authentication, now_ns)
        if _advance(channel):
            self._timers.start_reading(channel, self._timers.first_frame, now_ns)
            self._become_ready(channel)
            return True
        writes = channel.transport.wants_write or channel.authenticator.wants_write
        self._table.set_interest(channel, READ | HANG_UP | (WRITE if writes else 0))
        return False

    def refuse(self, channel: Channel, error: Exception, now_ns: int) -> bool:
        """RP-22: the answer to a failed authentication comes late, so that guessing is slow. False: it shall come now."""
        channel.error = error
        channel.close_reason = DisconnectReason.AUTHENTICATION_FAILED
        self._timers.stop_reading(channel)
        self._table.set_interest(channel, 0)
        return self._timers.delayed_close.start(channel, now_ns)

    def _finish_connect(self, channel: Channel) -> None:
        code = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        channel.state = AUTHENTICATE
        self._connected.append(channel)

    def _become_ready(self, channel: Channel) -> None:
        channel.state = READY
        channel.principal = channel.authenticator.principal
        self._table.set_interest(channel, READ | HANG_UP | (0 if channel.current_send is None else WRITE))


def _is_prepared(channel: Channel) -> bool:
    """Handshake and authentication are done."""
    return channel.transport.ready and channel.authenticator.complete


def _advance(channel: Channel) -> bool:
    """One non-blocking step of handshake and authentication; True when both are done."""
    transport = channel.transport
    try:
        if not transport.ready:
            transport.handshake()
        if transport.ready and not channel.authenticator.complete:
            channel.authenticator.authenticate(transport)
    except BlockingIOError:
        return False
    return _is_prepared(channel)
