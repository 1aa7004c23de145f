"""The acceptor of one listener: accepts, counts, configures and hands sockets to its processors (RP-4 … RP-8).

Role:    owns the listening socket and the sockets that wait for a delayed close; a socket that was handed over belongs to
         the processor.
Thread:  `run_once` and what it calls on the acceptor's own thread; `open`, `port` and the processor list from any.
Lock:    `_lock` guards the list of processors and the round-robin index.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import select
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.listeners import Listener
from barnabas.broker.network.connection_quotas import (
    AcceptorStopped,
    ConnectionQuotas,
    ConnectionThrottled,
    TooManyConnections,
)
from barnabas.broker.network.time_share import TimeShare
from barnabas.clock import Clock, SystemClock
from barnabas.descriptors import leaves_reserve, room_for_connections
from barnabas.errors import ConfigError
from barnabas.log_limit import MINUTE_NS, LogLimit
from barnabas.threads import FatalHandler, ServerThread

if TYPE_CHECKING:
    from barnabas.broker.network.processor import Processor

log = logging.getLogger(__name__)

SELECT_MS = 500
ACCEPTS_PER_TURN = 64
BACK_OFF_MS = 50
NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketOptions(NamedTuple):
    """What is set on sockets; -1 leaves a buffer to the operating system (RP-5)."""

    send_buffer: int = 102_400
    receive_buffer: int = -1
    backlog: int = 4096


class BindFailed(ConfigError):
    """The listening socket cannot be opened: the port is taken, the address is not ours, or we are not allowed to."""


class Acceptor(ServerThread):
    """See the file header."""

    def __init__(
        self,
        listener: Listener,
        quotas: ConnectionQuotas,
        options: SocketOptions = SocketOptions(),  # noqa: B008 - immutable
        clock: Clock | None = None,
        plane: str = "data-plane",
        on_fatal: FatalHandler | None = None,
    ) -> None:
        name = f"{plane}-kafka-socket-acceptor-{listener.name}-{listener.security_protocol}-{listener.port}"
        super().__init__(name, on_fatal)
        self.listener = listener
        self._quotas = quotas
        self._options = options
        self._clock = clock or SystemClock()
        self._warnings = LogLimit(log, self._clock.monotonic_ns)
        self._shortages = LogLimit(log, self._clock.monotonic_ns, MINUTE_NS)  # one lasts for as long as clients stay
        self.blocked = TimeShare(self._clock)
        self._lock = threading.Lock()
        self._processors: list[Processor] = []
        self._next = 0
        self._socket: socket.socket | None = None
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._throttled: list[tuple[int, int, socket.socket]] = []
        self._order = itertools.count()
        self._out_of_descriptors = False
        self.port = listener.port

    # ---- life cycle ----------------------------------------------------------------------------------------------

    def open(self) -> int:
        """Bind the listening socket; raises `BindFailed`. Returns the port, which the system chose if 0 was asked for. It
        listens (a client can connect) only from `start` on, so that an open port means a broker that serves."""
        if self._socket is None:
            self._socket = self._bind()
            self.port = self._socket.getsockname()[1]
        return self.port

    def _bind(self) -> socket.socket:
        listener = self.listener
        host = listener.host or None
        try:
            found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise BindFailed(
                "listeners", listener.text, f"the host cannot be resolved: {error.strerror or error}"
            ) from error
        # With no host, prefer the IPv6 wildcard: it takes IPv4 connections too.
        found.sort(key=lambda info: host is None and info[0] != socket.AF_INET6)
        failure: OSError | None = None
        for family, kind, protocol, _, address in found:
            try:
                return self._bound(socket.socket(family, kind, protocol), address)
            except OSError as error:
                failure = error
        raise BindFailed("listeners", listener.text, _why(failure)) from failure

    def _bound(self, sock: socket.socket, address: object) -> socket.socket:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.family == socket.AF_INET6 and not self.listener.host:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if self._options.receive_buffer != -1:  # accepted sockets inherit it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer)
            sock.bind(address)  # type: ignore[arg-type]  # what getaddrinfo gave for this family
        except BaseException:
            sock.close()
            raise
        return sock

    def on_start(self) -> None:
        self.open()
        assert self._socket is not None
        try:
            self._socket.listen(self._options.backlog)
        except OSError as error:  # Linux reports a port that two sockets were bound to only here
            raise BindFailed("listeners", self.listener.text, _why(error)) from error
        self._poll = select.poll()
        self._poll.register(self._wake_out, select.POLLIN)
        self._poll.register(self._socket, select.POLLIN)
        log.info("%s listens on %s:%d", self.listener.name, self.listener.host or "*", self.port)

    def wakeup(self) -> None:
        self._quotas.wake_waiting()
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def on_stop(self) -> None:
        self.close()

    def close(self) -> None:
        """Close everything the acceptor owns; for one that was opened but never started, its owner calls this."""
        if self._socket is not None:
            self._socket.close()
        while self._throttled:
            heapq.heappop(self._throttled)[2].close()
        self._wake_in.close()
        self._wake_out.close()

    # ---- the loop ------------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        self._accept_new_connections(self._select())
        self._close_throttled()

    def _select(self) -> bool:
        """Wait; True when a connection waits to be accepted. While descriptors are short the listening socket is not asked:
        it would be readable all the time, and the loop would spin (fault row 12)."""
        assert self._socket is not None
        timeout_ms = float(SELECT_MS)
        if self._out_of_descriptors:
            self._out_of_descriptors = False
            self._wait_for_wakeup(BACK_OFF_MS)
            timeout_ms = 0.0
        elif self._throttled:
            timeout_ms = min(timeout_ms, max(1.0, (self._throttled[0][0] - self._clock.monotonic_ns()) / 1e6))
        ready = False
        for fd, _ in self._poll.poll(timeout_ms):
            if fd == self._wake_out.fileno():
                self._drain_wakeups()
            else:
                ready = True
        return ready

    def _wait_for_wakeup(self, milliseconds: int) -> None:
        poll = select.poll()
        poll.register(self._wake_out, select.POLLIN)
        if poll.poll(milliseconds):
            self._drain_wakeups()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(64):
                pass

    def _accept_new_connections(self, ready: bool) -> None:
        """As many as wait, up to a limit. The last descriptors of the process are left to files: what a connection must not have
        waits in the backlog."""
        assert self._socket is not None
        if ready and not room_for_connections(self._wake_out.fileno()):
            self._note_shortage("too few descriptors are left")
            return
        for _ in range(ACCEPTS_PER_TURN if ready else 0):
            if not self.running or self._out_of_descriptors:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            if not leaves_reserve(sock.fileno()):
                self._note_shortage("it took the last descriptor that a connection may have")
            self._admit(sock, plain_address(address[0]))

    def _accept_failed(self, error: OSError) -> None:
        """One connection that cannot be accepted never ends the loop (RP-7)."""
        if error.errno in NO_RESOURCES:
            self._note_shortage(str(error))
        else:
            self._warnings.warning("accept", "%s: error while accepting a connection: %s", self.listener.name, error)

    def _note_shortage(self, reason: str) -> None:
        text = "%s cannot accept: %s; trying again every %d ms. Raise the limit (ulimit -n), or set max.connections"
        self._shortages.error("", text, self.listener.name, reason, BACK_OFF_MS)
        self._out_of_descriptors = True

    def _admit(self, sock: socket.socket, address: str) -> None:
        """Count and configure a new socket and hand it to a processor; on every way out it has exactly one owner."""
        listener = self.listener.name
        try:
            self.blocked.add(self._quotas.acquire(listener, address, lambda: self.running))
        except TooManyConnections as error:
            log.info(
                "Rejected connection from %s, address already has the configured maximum of %d connections.",
                address,
                error.limit,
            )
            sock.close()
            return
        except ConnectionThrottled as error:
            log.debug("closing a connection from %s after %d ms", address, error.throttle_ms)
            due_ns = self._clock.monotonic_ns() + error.throttle_ms * 1_000_000
            heapq.heappush(self._throttled, (due_ns, next(self._order), sock))
            return
        except AcceptorStopped:
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        try:
            self._configure(sock)
            if self._assign(sock, address):
                return
            self._warnings.warning("assign", "no processor takes the connection from %s, closing it", address)
        except Exception as error:
            text = "error while configuring a connection from %s, closing it"
            self._warnings.error("configure", text, address, exc_info=error)
        sock.close()
        self._quotas.release(listener, address)

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._options.send_buffer != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer)

    def _assign(self, sock: socket.socket, address: str) -> bool:
        """Round-robin; a processor whose queue is full is passed over, and only the last one is waited for (RP-6)."""
        tries = len(self.processors)
        while tries > 0 and self.running:
            tries -= 1
            processor = self._next_processor()
            if processor is None:
                return False
            if processor.accept(sock, address):
                return True
            if tries == 0 and self._assign_waiting(processor, sock, address):
                return True
        return False

    def _assign_waiting(self, processor: Processor, sock: socket.socket, address: str) -> bool:
        start_ns = self._clock.monotonic_ns()
        accepted = processor.accept_waiting(sock, address, lambda: self.running)
        self.blocked.add(self._clock.monotonic_ns() - start_ns)
        if accepted or not self.running:
            return accepted
        return self._assign(sock, address)  # that processor was removed while we waited

    def _close_throttled(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._throttled and self._throttled[0][0] <= now_ns:
            heapq.heappop(self._throttled)[2].close()

    # ---- processors (RP-8) ---------------------------------------------------------------------------------------

    @property
    def processors(self) -> list[Processor]:
        with self._lock:
            return list(self._processors)

    def add_processor(self, processor: Processor) -> None:
        with self._lock:
            self._processors.append(processor)

    def take_processors(self, count: int) -> list[Processor]:
        """Remove the last `count` processors, so that they get no further connection; the caller shuts them down."""
        with self._lock:
            taken = self._processors[len(self._processors) - count :] if count else []
            del self._processors[len(self._processors) - len(taken) :]
            return taken

    def _next_processor(self) -> Processor | None:
        with self._lock:
            if not self._processors:
                return None
            self._next = (self._next + 1) % len(self._processors)
            return self._processors[self._next]

    @property
    def throttled_sockets(self) -> int:
        return len(self._throttled)

    def __repr__(self) -> str:
        return f"<Acceptor {self.listener.text} port={self.port} processors={len(self._processors)} throttled={len(self._throttled)}>"


def plain_address(address: str) -> str:
    """An IPv4 address that came through an IPv6 socket is the same address, for limits by address."""
    return address[7:] if address.startswith("::ffff:") and "." in address else address


def _why(error: OSError | None) -> str:
    if error is None:
        return "the host has no address"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another process"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the host is not an address of this machine"
    if error.errno == errno.EACCES:
        return "not allowed to open this port"
    return f"cannot be opened: {error.strerror or error}"
