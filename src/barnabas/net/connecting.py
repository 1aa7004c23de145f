"""From a socket to a ready channel: the non-blocking connect (PP-33), handshake and authentication (PP-37).

Role: the steps that a channel takes before frames flow, without the selector. Thread: the selector's owner; no lock, no state.
"""

from __future__ import annotations

import errno
import os
import socket

from barnabas.net.channel import Channel, ChannelState

__all__ = ["advance", "check_connected", "is_prepared", "start_connect"]

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


def check_connected(channel: Channel) -> None:
    """The connect of the channel has ended: OSError says that it failed."""
    code = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    channel.state = ChannelState.AUTHENTICATE


def is_prepared(channel: Channel) -> bool:
    """Handshake and authentication are done."""
    return channel.transport.ready and channel.authenticator.complete


def advance(channel: Channel) -> bool:
    """One non-blocking step of handshake and authentication; True when both are done. AuthenticationFailed passes."""
    transport = channel.transport
    try:
        if not transport.ready:
            transport.handshake()
        if transport.ready and not channel.authenticator.complete:
            channel.authenticator.authenticate(transport)
    except BlockingIOError:
        return False
    return is_prepared(channel)
