"""The metrics page: `/metrics` in Prometheus text and `/health`, on a port of its own (RP-31, RP-32).

Role: a deliberately small HTTP server, one request per connection. It answers whoever comes, also while others hold connections and
send or read slowly: a request's head has `MAX_HEAD_BYTES` and `HEAD_NS`, an answer has `ANSWER_NS`, and beyond `MAX_HEADS` and
`MAX_ANSWERS` the newest is served and the oldest goes: of the heads who came first, of the answers whose reader took nothing for longest.
The page itself is made in slices, and the thread rests for as long as it worked, so that it never takes more than half of the GIL.
The standard library's http.server is not used: it costs 25 ms of imports and ten megabytes, has a thread per connection and no deadline
over the whole request.
Thread: everything but `port` and the life cycle runs on the thread `barnabas-metrics-http`. Lock: none.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from barnabas.broker.http_head import END, Refused, answer_head, read_head
from barnabas.broker.listeners import join_address
from barnabas.broker.metrics_hosts import KnownHosts
from barnabas.broker.metrics_page import MetricsPage
from barnabas.broker.metrics_settings import HOSTS_KEY, LISTENER_KEY
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.descriptors import leaves_reserve
from barnabas.errors import ConfigError
from barnabas.threads import ServerThread

log = logging.getLogger(__name__)

MAX_HEADS = 192
"""Connections whose request has not come yet, or whose answer has left but who have not closed."""
MAX_ANSWERS = 64
MAX_HEAD_BYTES = 8192
MAX_PAGE_BYTES = 67_108_864
"""All pages that are made or read at a time; beyond it those who read the oldest one go. One page may be larger."""
HEAD_NS = 5_000_000_000
ANSWER_NS = 30_000_000_000
LINGER_NS = 1_000_000_000
LINGER_BYTES = 262_144
"""What is read and dropped after an answer: closing a socket with unread bytes would take the answer away from its reader."""
POLL_SECONDS = 0.5
SLICE_NS = 1_000_000
MAX_REST_SECONDS = 0.005
ACCEPT_BURST = 256
PIECES_PER_TURN = 4
BACKLOG = 4096
"""What is not accepted within a turn waits here; who finds no room tries again after a second. The operating system may allow fewer."""
MAX_PORT = 65535

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def metrics_address(config: Config) -> tuple[str, int] | None:
    """Host and port of the page from the settings; None when it is switched off."""
    text: str = config[LISTENER_KEY] or ""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(LISTENER_KEY, text, "must be host:port, or empty for no metrics page")
    return host.strip("[]"), int(port)


def known_hosts(config: Config, advertised: Iterable[str]) -> KnownHosts:
    """The names by which the page may be asked for."""
    address = metrics_address(config)
    return KnownHosts(config[HOSTS_KEY] or (), (*advertised, address[0] if address else ""))


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
    """One request: the head that came so far, then what of the answer has not left yet, then what still comes and is dropped."""

    __slots__ = ("answer", "deadline_ns", "dropped", "head", "interest", "page", "rest", "sock")

    def __init__(self, sock: socket.socket, deadline_ns: int) -> None:
        self.sock = sock
        self.deadline_ns = deadline_ns
        self.interest = 0
        self.head = b""
        self.page: MetricsPage | None = None
        self.answer: Iterator[bytes] | None = None
        self.rest = memoryview(b"")
        self.dropped = -1  # bytes, once the answer has left


class MetricsServer(ServerThread):
    """Serves a few text pages over HTTP/1.1, one request per connection."""

    def __init__(
        self,
        render: Callable[[], Iterator[str]],
        is_healthy: Callable[[], bool],
        address: tuple[str, int],
        clock: Clock | None = None,
        hosts: KnownHosts | None = None,
    ) -> None:
        """`render`: the text of /metrics, a little at a time."""
        super().__init__("barnabas-metrics-http")
        self._clock = clock or SystemClock()
        self._address = address
        self._hosts = hosts or KnownHosts()
        self._render = render
        self._is_healthy = is_healthy
        self._heads: dict[socket.socket, _Connection] = {}  # in order of arrival
        self._answers: dict[socket.socket, _Connection] = {}  # who took something last is the last
        self._pages: list[MetricsPage] = []  # of which somebody waits for the last one, when that is not done
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
            raise ConfigError(LISTENER_KEY, join_address(*self._address), _why(error)) from error
        super().start(timeout)

    def on_start(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wakeup(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def on_stop(self) -> None:
        for connection in self._all():
            self._close_connection(connection)
        for name in ("_listener", "_selector", "_wake_in", "_wake_out"):
            if hasattr(self, name):
                getattr(self, name).close()

    # The loop

    def run_once(self, timeout: float = POLL_SECONDS) -> None:
        """Read, answer and write what is ready, then accept, which may close the oldest; make a slice of a page, close what is overdue,
        and rest."""
        ready = self._selector.select(0 if self._page_under_way() else timeout)
        began = time.perf_counter()
        for key, events in ready:
            if key.fileobj is self._wake_out:
                self._drain_wakeups()
            elif key.fileobj is not self._listener:
                self._serve(key.data, events)
        if any(key.fileobj is self._listener for key, _ in ready):
            self._accept()
        self._make_a_slice()
        self._close_overdue()
        if self.running:
            time.sleep(min(time.perf_counter() - began, MAX_REST_SECONDS))

    def _accept(self) -> None:
        for _ in range(ACCEPT_BURST):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # It stays in the backlog and would be tried again at once, in vain, while nothing is given up for it.
                log.debug("metrics: accept failed: %s", error)
                self._make_room(self._heads or self._answers, 1)
                time.sleep(MAX_REST_SECONDS)
                return
            self._make_room(self._heads, MAX_HEADS)
            if not leaves_reserve(sock.fileno()):
                self._make_room(self._heads or self._answers, 1)
            sock.setblocking(False)
            connection = _Connection(sock, self._clock.monotonic_ns() + HEAD_NS)
            self._heads[sock] = connection
            self._serve(connection, selectors.EVENT_READ)  # at once: others of this burst may take its place
            if sock in self._heads and not connection.interest:
                self._want(connection, selectors.EVENT_READ)

    def _make_room(self, connections: dict[socket.socket, _Connection], places: int) -> None:
        if len(connections) >= places:
            self._close_connection(next(iter(connections.values())))

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(64):
                pass

    def _serve(self, connection: _Connection, events: int) -> None:
        if connection.sock.fileno() < 0:
            return  # closed a moment ago to make room
        try:
            if events & selectors.EVENT_WRITE:
                self._write(connection)
            elif connection.dropped >= 0:
                self._drop(connection)
            else:
                self._read(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._close_connection(connection)

    # One request

    def _read(self, connection: _Connection) -> None:
        chunk = connection.sock.recv(MAX_HEAD_BYTES)
        if not chunk:
            self._close_connection(connection)
            return
        connection.head += chunk
        if END.search(connection.head):
            self._respond(connection)
        elif len(connection.head) > MAX_HEAD_BYTES:
            status = 431 if b"\n" in connection.head else 414
            self._answer(connection, status, f"the request head is larger than {MAX_HEAD_BYTES} bytes\n")

    def _respond(self, connection: _Connection) -> None:
        try:
            head = read_head(connection.head)
        except Refused as refused:
            self._answer(connection, refused.status, f"{refused}\n")
            return
        connection.head = b""
        with_body = head.method == "GET"
        if not self._hosts.allow(head.host, str(connection.sock.getsockname()[0])):
            text = f"the host name {head.host} is not known here; the setting {HOSTS_KEY} of the broker allows it\n"
            self._answer(connection, 421, text, with_body)
        elif head.path == "/metrics" and with_body:
            self._join_page(connection)
        elif head.path == "/metrics":
            self._send(connection, answer_head(200, PROMETHEUS, None), ())
        elif head.path == "/health":
            healthy = self._is_healthy()
            self._answer(connection, 200 if healthy else 503, "ok\n" if healthy else "not serving\n", with_body)
        elif head.path == "/":
            self._answer(connection, 200, "Barnabas: see /metrics and /health\n", with_body)
        else:
            self._answer(connection, 404, "only /, /health and /metrics are here\n", with_body)

    def _answer(self, connection: _Connection, status: int, text: str, with_body: bool = True) -> None:
        body = text.encode()
        self._send(connection, answer_head(status, TEXT, len(body)), (body,) if with_body else ())

    def _send(self, connection: _Connection, head: bytes, body: Iterable[bytes]) -> None:
        self._to_answers(connection)
        connection.answer = chain((head,), body)
        self._want(connection, selectors.EVENT_WRITE)
        self._serve(connection, selectors.EVENT_WRITE)

    def _to_answers(self, connection: _Connection) -> None:
        """Its time begins anew, and it is the last that would have to go."""
        if self._heads.pop(connection.sock, None) is not None:
            self._make_room(self._answers, MAX_ANSWERS)
            connection.deadline_ns = self._clock.monotonic_ns() + ANSWER_NS
        self._answers.pop(connection.sock, None)
        self._answers[connection.sock] = connection

    def _write(self, connection: _Connection) -> None:
        answer = connection.answer
        assert answer is not None
        for _ in range(PIECES_PER_TURN):
            if not connection.rest:
                piece = next(answer, None)
                if piece is None:
                    self._answered(connection)
                    return
                connection.rest = memoryview(piece)
            sent = connection.sock.send(connection.rest)
            connection.rest = connection.rest[sent:]
            self._to_answers(connection)

    def _answered(self, connection: _Connection) -> None:
        """Wait for the peer to close, for a moment."""
        connection.sock.shutdown(socket.SHUT_WR)
        self._answers.pop(connection.sock, None)
        self._leave_page(connection)
        connection.answer = None
        connection.dropped = 0
        connection.deadline_ns = self._clock.monotonic_ns() + LINGER_NS
        self._make_room(self._heads, MAX_HEADS)
        self._heads[connection.sock] = connection
        self._want(connection, selectors.EVENT_READ)

    def _drop(self, connection: _Connection) -> None:
        chunk = connection.sock.recv(MAX_HEAD_BYTES)
        connection.dropped += len(chunk)
        if not chunk or connection.dropped > LINGER_BYTES:
            self._close_connection(connection)

    # Pages

    def _page_under_way(self) -> MetricsPage | None:
        return self._pages[-1] if self._pages and not self._pages[-1].done else None

    def _join_page(self, connection: _Connection) -> None:
        """Wait for the page that is being made, or begin one."""
        self._to_answers(connection)
        page = self._page_under_way()
        if page is None:
            page = MetricsPage(self._render())
            self._pages.append(page)
        connection.page = page
        self._want(connection, 0)

    def _leave_page(self, connection: _Connection) -> None:
        page, connection.page = connection.page, None
        if page is not None and not self._readers(page):
            self._pages.remove(page)

    def _readers(self, page: MetricsPage) -> list[_Connection]:
        return [each for each in self._answers.values() if each.page is page]

    def _make_a_slice(self) -> None:
        page = self._page_under_way()
        if page is None:
            return
        try:
            page.go_on(time.perf_counter_ns, time.perf_counter_ns() + SLICE_NS)
        except Exception:
            log.exception("metrics: the page could not be made")
            for connection in self._readers(page):
                self._leave_page(connection)
                self._answer(connection, 500, "the page could not be made, see the broker's log\n")
        else:
            if page.done:
                for connection in self._readers(page):
                    self._send(connection, answer_head(200, PROMETHEUS, page.size), page.pieces)
            self._give_up_old_pages()

    def _give_up_old_pages(self) -> None:
        while len(self._pages) > 1 and sum(page.size for page in self._pages) > MAX_PAGE_BYTES:
            for connection in self._readers(self._pages[0]):
                self._close_connection(connection)

    # Ends

    def _want(self, connection: _Connection, interest: int) -> None:
        """0: nothing, while its page is being made."""
        before, connection.interest = connection.interest, interest
        if interest == before:
            return
        if not before:
            self._selector.register(connection.sock, interest, connection)
        elif not interest:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, interest, connection)

    def _all(self) -> list[_Connection]:
        return [*self._heads.values(), *self._answers.values()]

    def _close_overdue(self) -> None:
        now = self._clock.monotonic_ns()
        for connection in self._all():
            if connection.deadline_ns <= now:
                self._close_connection(connection)

    def _close_connection(self, connection: _Connection) -> None:
        sock = connection.sock
        known = self._heads.pop(sock, None) or self._answers.pop(sock, None)
        if known is not None:
            self._leave_page(connection)
            if connection.interest:
                self._want(connection, 0)
            sock.close()

    def __repr__(self) -> str:
        return f"<MetricsServer {self._address[0]}:{self._address[1]} connections={len(self._all())}>"
