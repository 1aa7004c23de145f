"""Transport layer of a channel: how bytes reach the socket (RP-24).

Role: the one place that differs between plaintext and TLS. The signatures of `recv_into`, `send` and `sendmsg` are the socket's own, so
that the plaintext transport can expose the socket's bound methods and costs nothing. "Would block" is BlockingIOError in every
transport; end of stream is `recv_into` returning 0. Thread: the selector's owner; no lock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

__all__ = ["PlaintextTransport", "Transport"]


class Transport(Protocol):
    """Bytes in and out of one non-blocking socket."""

    ready: bool  # handshake finished
    wants_write: bool  # the handshake waits for room in the socket
    buffers: bool  # may hold bytes that the OS no longer reports as readable (TLS)
    recv_into: Callable[..., int]  # (buffer, nbytes=0)
    send: Callable[..., int]  # (data, flags=0)
    sendmsg: Callable[..., int]  # (buffers, ancdata=(), flags=0)

    def handshake(self) -> None:
        """One non-blocking step; sets `ready` when done."""

    def sendfile(self, fd: int, offset: int, count: int) -> int: ...

    def has_buffered(self) -> bool: ...

    def push(self) -> None:
        """Nothing follows what was sent with the announcement of more: let it go."""

    def close(self) -> None: ...


class PlaintextTransport:
    """The socket itself; zero copy by sendfile (RP-26)."""

    __slots__ = ("_socket", "buffers", "ready", "recv_into", "send", "sendmsg", "wants_write")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.ready = True
        self.wants_write = False
        self.buffers = False
        self.recv_into: Callable[..., int] = sock.recv_into
        self.send: Callable[..., int] = sock.send
        self.sendmsg: Callable[..., Any] = sock.sendmsg

    def handshake(self) -> None:
        """Plaintext has none."""

    def sendfile(self, fd: int, offset: int, count: int) -> int:
        return os.sendfile(self._socket.fileno(), fd, offset, count)

    def has_buffered(self) -> bool:
        return False

    def push(self) -> None:
        with suppress(OSError):  # not a TCP socket, which keeps nothing back; or a broken one
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()
