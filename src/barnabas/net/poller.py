"""Readiness of many sockets: epoll where it exists, `selectors` elsewhere (RP-23).

Role: four methods with epoll's signatures (`register, modify, unregister, poll`) plus `close`; and the wake-up descriptor that other
threads may signal. Thread: pollers belong to the selector's owner; `Waker.wake` is for any thread, guarded by its lock.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from typing import Final, Protocol

__all__ = ["BROKEN", "HANG_UP", "READ", "WRITE", "Poller", "PortablePoller", "Waker", "default_poller"]

READ = 1  # EPOLLIN
WRITE = 4  # EPOLLOUT
HANG_UP: Final = getattr(select, "EPOLLRDHUP", 0)  # the peer sends no more; elsewhere only reading tells
BROKEN = 0x18  # EPOLLERR | EPOLLHUP, reported without being asked for


class Poller(Protocol):
    def register(self, fd: int, events: int, /) -> None: ...
    def modify(self, fd: int, events: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class PortablePoller:
    """epoll's interface over `selectors` (kqueue, poll); also usable on Linux. It cannot watch for a hang-up alone."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector if selector is not None else selectors.DefaultSelector()

    def register(self, fd: int, events: int, /) -> None:
        wanted = _to_selectors(events)
        if wanted:
            self._selector.register(fd, wanted)

    def modify(self, fd: int, events: int, /) -> None:
        self.unregister(fd)
        self.register(fd, events)

    def unregister(self, fd: int, /) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """`maxevents` is a hint; this poller returns all."""
        return [(key.fd, _from_selectors(events)) for key, events in self._selector.select(timeout)]

    def close(self) -> None:
        self._selector.close()


def _to_selectors(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _from_selectors(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


def default_poller() -> Poller:
    if hasattr(select, "epoll"):
        return select.epoll()
    return PortablePoller()


class Waker:
    """A descriptor that becomes readable by `wake`; many calls before one `drain` cost one system call.

    `drain` empties the descriptor first and lowers the flag after that. A `wake` in between is swallowed, which is right: the polling
    thread is awake, and it looks at its queues after `drain` and before it blocks again; the caller filled a queue before `wake`.
    The other order could leave the flag up over an empty descriptor, and every later wake-up would be lost.
    """

    __slots__ = ("_lock", "_raised", "_receive", "_send", "fd")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raised = False
        self._receive: socket.socket | None = None
        self._send: socket.socket | None = None
        if hasattr(os, "eventfd"):
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._receive, self._send = socket.socketpair()
            self._receive.setblocking(False)
            self._send.setblocking(False)
            self.fd = self._receive.fileno()

    def wake(self) -> None:
        """Any thread. Does nothing after `close`."""
        with self._lock:
            if self._raised or self.fd < 0:
                return
            self._raised = True
            self._signal()

    def _signal(self) -> None:
        if self._send is not None:
            self._send.send(b"\0")
        else:
            os.eventfd_write(self.fd, 1)

    def drain(self) -> None:
        """The polling thread, when `fd` was readable."""
        try:
            if self._receive is not None:
                self._receive.recv(64)
            else:
                os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        with self._lock:
            self._raised = False

    def close(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
            if self._receive is not None and self._send is not None:
                self._receive.close()
                self._send.close()
            elif fd >= 0:
                os.close(fd)
