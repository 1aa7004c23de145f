"""The metrics page: `/metrics` in Prometheus text and `/health`, on a port of its own (RP-31, RP-32).

Role: a deliberately small HTTP server. One thread serves at most `MAX_CONNECTIONS` scrapes at a time; a request head is at
most `MAX_HEAD_BYTES`, and a connection lives at most `DEADLINE_NS` from accept to the last byte, so that no peer can hold
memory, a descriptor or the thread. The standard library's http.server is not used: it costs 25 ms of imports and ten
megabytes, has a thread per connection and no deadline over the whole request.
Thread: everything but `port` and the life cycle runs on the thread `barnabas-metrics-http`. Lock: none.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
from collections.abc import Callable

from barnabas.broker.listeners import join_address
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.errors import ConfigError
from barnabas.threads import ServerThread

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8192
DEADLINE_NS = 10_000_000_000
POLL_SECONDS = 0.5
BACKLOG = 16
MAX_PORT = 65535

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

SETTING = "barnabas.metrics.listener"

Page = Callable[[], tuple[int, str, str]]
"""What a path answers: status, content type, text."""


def metrics_address(config: Config) -> tuple[str, int] | None:
    """Host and port of the page from the settings; None when it is switched off."""
    text: str = config[SETTING] or ""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(SETTING, text, "must be host:port, or empty for no metrics page")
    return host.strip("[]"), int(port)


def _listen(address: tuple[str, int]) -> socket.socket:
    host, port = address
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, resolved = found[0]
    listener = socket.create_server((str(resolved[0]), port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another process; 0 takes a free one, an empty value switches the page off"
    return f"cannot be listened on: {error.strerror or error}"


class _Connection:
    """One scrape: the head that came so far, then the answer that has not left yet."""

    __slots__ = ("answer", "deadline_ns", "head", "sock")

    def __init__(self, sock: socket.socket, deadline_ns: int) -> None:
        self.sock = sock
        self.deadline_ns = deadline_ns
        self.head = b""
        self.answer = memoryview(b"")


class MetricsServer(ServerThread):
    """Serves a few text pages over HTTP/1.1, one request per connection."""

    def __init__(
        self,
        render: Callable[[], str],
        is_healthy: Callable[[], bool],
        address: tuple[str, int],
        clock: Clock | None = None,
    ) -> None:
        super().__init__("barnabas-metrics-http")
        self._clock = clock or SystemClock()
        self._address = address
        self._pages: dict[str, Page] = {
            "/": lambda: (200, TEXT, "Barnabas: see /metrics and /health\n"),
            "/metrics": lambda: (200, PROMETHEUS, render()),
            "/health": lambda: (200, TEXT, "ok\n") if is_healthy() else (503, TEXT, "not serving\n"),
        }
        self._connections: dict[socket.socket, _Connection] = {}
        self._accepting = False
        self._selector: selectors.BaseSelector
        self._listener: socket.socket
        self._wake_in, self._wake_out = socket.socketpair()

    @property
    def port(self) -> int:
        """The port that is bound, also when 0 was asked for; valid between `start()` and `shutdown()`."""
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """`host:port` for people."""
        return join_address(self._address[0] or "localhost", self.port)

    # Life cycle

    def start(self, timeout: float = 30.0) -> None:
        """Bind on the caller's thread, so that it gets the `ConfigError` for an address that cannot be used; then start."""
        try:
            self._listener = _listen(self._address)
        except OSError as error:
            self.on_stop()
            raise ConfigError(SETTING, join_address(*self._address), _why(error)) from error
        super().start(timeout)

    def on_start(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._accept_while_there_is_room()

    def wakeup(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def on_stop(self) -> None:
        for connection in list(self._connections.values()):
            self._close_connection(connection)
        for name in ("_listener", "_selector", "_wake_in", "_wake_out"):
            if hasattr(self, name):
                getattr(self, name).close()

    # The loop

    def run_once(self, timeout: float = POLL_SECONDS) -> None:
        """Accept, read, answer and write what is ready, then close what is overdue."""
        for key, events in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wake_out:
                self._drain_wakeups()
            else:
                self._serve(key.data, events)
        self._close_overdue()
        self._accept_while_there_is_room()

    def _accept_while_there_is_room(self) -> None:
        """Waiting scrapes stay in the kernel's backlog while all places are taken."""
        room = len(self._connections) < MAX_CONNECTIONS
        if room and not self._accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif not room and self._accepting:
            self._selector.unregister(self._listener)
        self._accepting = room

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            log.debug("metrics: accept failed: %s", error)
            return
        sock.setblocking(False)
        connection = _Connection(sock, self._clock.monotonic_ns() + DEADLINE_NS)
        self._connections[sock] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(64):
                pass

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not connection.answer:
                self._read(connection)
            elif events & selectors.EVENT_WRITE:
                self._write(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._close_connection(connection)

    def _read(self, connection: _Connection) -> None:
        chunk = connection.sock.recv(MAX_HEAD_BYTES)
        if not chunk:
            self._close_connection(connection)
            return
        connection.head += chunk
        if b"\r\n\r\n" in connection.head or b"\n\n" in connection.head:
            self._answer(connection, *self._respond(connection.head))
        elif len(connection.head) > MAX_HEAD_BYTES:
            status = 431 if b"\n" in connection.head else 414
            self._answer(connection, status, TEXT, f"the request head is larger than {MAX_HEAD_BYTES} bytes\n", False)

    def _respond(self, head: bytes) -> tuple[int, str, str, bool]:
        """Status, content type, text, and whether only the head of the answer is wanted."""
        parts = head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return 400, TEXT, "this port speaks HTTP/1.1 only\n", False
        method, path = parts[0], parts[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, TEXT, "only GET and HEAD are served\n", False
        page = self._pages.get(path)
        if page is None:
            return 404, TEXT, f"only {', '.join(sorted(self._pages))} are here\n", False
        try:
            return (*page(), method == "HEAD")
        except Exception:
            log.exception("metrics: %s failed", path)
            return 500, TEXT, "the page could not be made, see the broker's log\n", False

    def _answer(self, connection: _Connection, status: int, content_type: str, text: str, head_only: bool) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        ).encode()
        connection.answer = memoryview(head if head_only else head + body)
        self._selector.modify(connection.sock, selectors.EVENT_WRITE, connection)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        sent = connection.sock.send(connection.answer)
        connection.answer = connection.answer[sent:]
        if not connection.answer:
            self._close_connection(connection)

    def _close_overdue(self) -> None:
        """Connections are kept in order of arrival, and all have the same deadline: the oldest are the overdue ones."""
        now = self._clock.monotonic_ns()
        for connection in list(self._connections.values()):
            if connection.deadline_ns > now:
                break
            self._close_connection(connection)

    def _close_connection(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock, None) is not None:
            self._selector.unregister(connection.sock)
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)
            connection.sock.close()

    def __repr__(self) -> str:
        return f"<MetricsServer {self._address[0]}:{self._address[1]} connections={len(self._connections)}>"
