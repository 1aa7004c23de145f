"""Clients that send on while a response waits for them (issue 18, C0, ADR 14), in a broker as a user runs it."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.waiting import wait_until

SMALL_BUFFERS = {"socket.receive.buffer.bytes": 102_400, "socket.send.buffer.bytes": 102_400}
"""What every broker had by default, and what an operator may still set."""
ANSWER = 6_000_000
BEHIND = 3000


@contextmanager
def filled(settings: dict[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker with a partition from which a Fetch takes several megabytes."""
    with EmbeddedBroker(topics={"t": 1}, config=settings) as broker:
        with wire.connect(broker.port) as sock:
            for _ in range(8):
                answer = wire.ask(sock, wire.produce("t", wire.batch([b"v" * 900_000])))
                assert wire.produce_result(answer, "t")[0] == 0
        yield broker


@pytest.fixture(params=["default buffers", "small buffers"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with filled(SMALL_BUFFERS if request.param == "small buffers" else {}) as broker:
        yield broker


def connect(broker: EmbeddedBroker) -> socket.socket:
    """A client whose own buffers are small, so that what it sends must find room in the broker."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.settimeout(20)
    sock.connect(("127.0.0.1", broker.port))
    return sock


def light(correlation: int) -> bytes:
    return wire.request(wire.API_VERSIONS, 0, correlation=correlation, client="c" * 250)


def pipeline(count: int = BEHIND) -> bytes:
    """A Fetch with a large answer, and many light requests behind it: 800 kB."""
    behind = b"".join(light(number) for number in range(count))
    return wire.fetch("t", 0, max_bytes=ANSWER) + behind


def correlation_ids(data: bytes) -> list[int]:
    found = []
    at = 0
    while at < len(data):
        size, correlation = struct.unpack_from(">ii", data, at)
        found.append(correlation)
        at += 4 + size
    return found


def read_all(sock: socket.socket) -> list[int]:
    """The correlation ids of all answers, one by one."""
    return [struct.unpack_from(">i", wire.read_frame(sock))[0] for _ in range(1 + BEHIND)]


def test_a_client_that_sends_everything_before_it_reads_is_served(broker: EmbeddedBroker) -> None:
    """Nothing of its large answer is taken meanwhile. RP-19: in order, and one request at a time."""
    with connect(broker) as sock:
        sock.sendall(pipeline())
        assert read_all(sock) == [1, *range(BEHIND)]


def test_clients_that_pipeline_and_read_slowly_are_served(broker: EmbeddedBroker) -> None:
    """Ten of them, each reading small pieces while it sends."""
    count = 2000
    data = pipeline(count)
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        unsent: dict[socket.socket, memoryview] = {}
        answers: dict[socket.socket, bytearray] = {}
        for _ in range(10):
            sock = opened.enter_context(connect(broker))
            sock.setblocking(False)
            unsent[sock], answers[sock] = memoryview(data), bytearray()
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        open_ones = set(unsent)
        while open_ones:
            ready = selector.select(20)
            assert ready, f"{len(open_ones)} connections stand still"
            for key, event in ready:
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if event & selectors.EVENT_WRITE:
                    unsent[sock] = unsent[sock][sock.send(unsent[sock][:1500]) :]
                    if not unsent[sock]:
                        selector.modify(sock, selectors.EVENT_READ)
                        sock.shutdown(socket.SHUT_WR)
                if event & selectors.EVENT_READ:
                    piece = sock.recv(50_000)
                    answers[sock] += piece
                    if not piece:
                        selector.unregister(sock)
                        open_ones.remove(sock)
        for answer in answers.values():
            assert correlation_ids(answer) == [1, *range(count)]


def test_a_stuck_response_is_a_metric_and_after_a_while_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, object] = {**SMALL_BUFFERS, "barnabas.response.stuck.ms": 300}
    with filled(settings) as broker, connect(broker) as sock:
        assert samples(broker, "unsent_response_bytes") == samples(broker, "oldest_unsent_response_ms") == 0
        sock.sendall(wire.fetch("t", 0, max_bytes=ANSWER))
        wait_until(lambda: samples(broker, "unsent_response_bytes") > 1_000_000)
        wait_until(lambda: samples(broker, "oldest_unsent_response_ms") > 300)
        host, port = sock.getsockname()
        wait_until(lambda: "has not taken its response for 300 ms" in caplog.text)
        [line] = [line for line in caplog.messages if "has not taken its response" in line]
        assert f"-{host}:{port}-" in line
        assert line.endswith("bytes are unsent")
        wire.read_frame(sock)
        wait_until(
            lambda: samples(broker, "unsent_response_bytes") == samples(broker, "oldest_unsent_response_ms") == 0
        )


def samples(broker: EmbeddedBroker, ending: str) -> float:
    """The sum of the samples of a metric, as a scrape sees them."""
    assert broker._server is not None
    lines = broker._server.registry.render().splitlines()
    found = [line for line in lines if line.split("{")[0].endswith(ending)]
    assert found, f"no metric ends with {ending}"
    return sum(float(line.rpartition(" ")[2]) for line in found)
