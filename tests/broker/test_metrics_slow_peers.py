"""Issue 18, row M2: hundreds of connections that are slow in every way, and a probe that needs `/health` within a second."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from barnabas.broker import metrics_http
from barnabas.broker.metrics_http import MAX_ANSWERS, MAX_HEADS, MetricsServer
from barnabas.clock import ManualClock
from tests.waiting import wait_until

SLOW = 500
PAGE_BYTES = 7_000_000
GET = b"GET /metrics HTTP/1.1\r\n"


class Scrapes:
    """A page as large as that of 20 000 topics; counts how often it is made."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = threading.Event()
        self.gate.set()
        self.piece = "m 1\n" * 1000

    def render(self) -> Iterator[str]:
        self.begun += 1
        for _ in range(PAGE_BYTES // len(self.piece)):
            while not self.gate.is_set():
                yield ""
            yield self.piece


@pytest.fixture
def scrapes() -> Scrapes:
    return Scrapes()


@contextmanager
def serving(scrapes: Scrapes, clock: ManualClock | None = None) -> Iterator[MetricsServer]:
    server = MetricsServer(scrapes.render, lambda: True, ("127.0.0.1", 0), clock)
    server.start()
    try:
        yield server
    finally:
        server.shutdown()


@pytest.fixture
def server(scrapes: Scrapes) -> Iterator[MetricsServer]:
    with serving(scrapes) as server:
        yield server


def connect(server: MetricsServer) -> socket.socket:
    sock = socket.socket()
    sock.settimeout(30)
    sock.connect(("127.0.0.1", server.port))
    return sock


def get(server: MetricsServer, path: str, seconds: float = 30) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def send(sock: socket.socket, data: bytes) -> None:
    """What can be sent at once; the server may have closed long ago."""
    try:
        sock.setblocking(False)
        sock.send(data)
    except OSError:
        pass


KINDS: dict[str, Callable[[socket.socket, int], None]] = {
    "sends nothing": lambda sock, turn: None,
    "sends a byte now and then": lambda sock, turn: send(sock, GET[turn % len(GET) :][:1]),
    "never reads its answer": lambda sock, turn: send(sock, GET + b"\r\n") if not turn else None,
    "sends headers without end": lambda sock, turn: send(sock, (GET if not turn else b"") + b"A: b\r\n" * 1000),
    "sends one request after the other": lambda sock, turn: send(sock, (GET + b"\r\n") * 50),
}


@contextmanager
def attackers(server: MetricsServer, kinds: list[str], reconnect: bool) -> Iterator[None]:
    """Hold `SLOW` connections of these kinds, each active a few times a second; with `reconnect` who is closed comes again."""
    ended = threading.Event()
    begun = threading.Event()

    def attack() -> None:
        held = [(connect(server), KINDS[kind]) for kind, _ in zip(itertools.cycle(kinds), range(SLOW), strict=False)]
        for turn in itertools.count():
            for index, (sock, act) in enumerate(held):
                act(sock, turn)
                if reconnect and index % 5 == turn % 5:
                    sock.close()
                    held[index] = (connect(server), act)
            begun.set()
            if ended.wait(0.1):
                break
        for sock, _ in held:
            sock.close()

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        ended.set()
        thread.join(60)


@pytest.mark.serial
@pytest.mark.parametrize("reconnect", [False, True], ids=["held", "held and made anew"])
@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), list(KINDS)], ids=[*KINDS, "all kinds"])
def test_health_is_answered_within_a_second(server: MetricsServer, kinds: list[str], reconnect: bool) -> None:
    """At d6c2b90 sixteen of them were enough to make it unreachable."""
    with attackers(server, kinds, reconnect):
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert get(server, "/health") == (200, b"ok\n")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.0
        assert len(server._heads) <= MAX_HEADS
        assert len(server._answers) <= MAX_ANSWERS


def test_who_connects_together_with_many_others_is_answered(scrapes: Scrapes) -> None:
    """More than may hold a place connect while the thread is busy: the first of them, a prober, and one who comes after them all."""
    entered, gate = threading.Event(), threading.Event()

    def is_healthy() -> bool:
        entered.set()
        return gate.wait(30)

    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    server = MetricsServer(scrapes.render, is_healthy, ("127.0.0.1", 0))
    server.start()
    with ExitStack() as stack:
        stack.callback(server.shutdown)
        probers = [stack.enter_context(connect(server))]
        probers[0].sendall(health)
        assert entered.wait(30)
        probers.append(stack.enter_context(connect(server)))
        probers[1].sendall(health)
        for _ in range(600):
            stack.enter_context(connect(server))
        probers.append(stack.enter_context(connect(server)))
        probers[2].sendall(health)
        gate.set()
        for prober in probers:
            assert prober.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_page_arrives_whole_beside_those_who_do_not_read(server: MetricsServer) -> None:
    with attackers(server, ["never reads its answer"], reconnect=False):
        status, text = get(server, "/metrics")
    assert status == 200
    assert text == b"m 1\n" * (len(text) // 4)


def test_those_who_ask_while_a_page_is_made_share_it(server: MetricsServer, scrapes: Scrapes) -> None:
    scrapes.gate.clear()
    answers: list[tuple[int, bytes]] = []
    readers = [threading.Thread(target=lambda: answers.append(get(server, "/metrics"))) for _ in range(10)]
    for reader in readers:
        reader.start()
    wait_until(lambda: len(server._answers) == len(readers))
    assert get(server, "/health")[0] == 200  # and nobody else waits for the page
    scrapes.gate.set()
    for reader in readers:
        reader.join(30)
    assert [status for status, _ in answers] == [200] * len(readers)
    assert len({text for _, text in answers}) == 1
    assert scrapes.begun == 1


@pytest.mark.serial
def test_while_a_page_is_made_the_thread_rests_as_long_as_it_works(server: MetricsServer, scrapes: Scrapes) -> None:
    """Row M6: others need the GIL meanwhile. This page never ends; at d6c2b90 it took all of a core, in one turn."""
    scrapes.gate.clear()
    with connect(server) as sock:
        sock.sendall(GET + b"\r\n")
        wait_until(lambda: scrapes.begun)
        assert server.ident is not None
        clock = time.pthread_getcpuclockid(server.ident)
        began, used = time.monotonic(), time.clock_gettime(clock)
        wait_until(lambda: time.monotonic() - began > 1)
        share = (time.clock_gettime(clock) - used) / (time.monotonic() - began)
        assert share < 0.65
        scrapes.gate.set()
        assert sock.recv(1024).startswith(b"HTTP/1.1 200")


def test_a_page_is_given_up_when_nobody_waits_for_it(scrapes: Scrapes) -> None:
    scrapes.gate.clear()
    clock = ManualClock()
    with serving(scrapes, clock) as server, connect(server) as sock:
        sock.sendall(GET + b"\r\n")
        wait_until(lambda: server._pages)
        clock.advance(metrics_http.ANSWER_NS / 1e9)
        assert sock.recv(1) == b""
        assert not server._pages


def test_pages_that_are_not_read_have_a_bound(
    server: MetricsServer, scrapes: Scrapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these begins a page of its own and takes a little of it."""
    monkeypatch.setattr(metrics_http, "MAX_PAGE_BYTES", 3 * PAGE_BYTES)
    socks = []
    try:
        for number in range(8):
            socks.append(connect(server))
            socks[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            socks[-1].sendall(GET + b"\r\n")
            assert socks[-1].recv(1024).startswith(b"HTTP/1.1 200")
            assert scrapes.begun == number + 1
        assert sum(page.size for page in server._pages) <= 3 * PAGE_BYTES
        assert 1 <= len(server._answers) <= 3
    finally:
        for sock in socks:
            sock.close()
