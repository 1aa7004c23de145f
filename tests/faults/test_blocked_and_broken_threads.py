"""Rows 29 and 44 of faults.md: every handler blocked, and an unexpected error in each thread of the broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.errors import FatalBrokerError
from barnabas.testing import EmbeddedBroker
from barnabas.threads import ServerThread
from tests import wire
from tests.faults.conftest import Report
from tests.waiting import wait_until

DESCRIBE_CLUSTER = 60


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for sock in opened:
        sock.close()


def describe_cluster() -> bytes:
    """DescribeCluster v0, a flexible request that is never run inline."""
    return wire.frame(struct.pack(">hhi", DESCRIBE_CLUSTER, 0, 1) + wire.string("wire") + b"\0" + b"\0" + b"\0")


def test_blocked_handlers_push_back_to_the_sockets_and_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, sockets: list[socket.socket], report: Report, full: bool
) -> None:
    """Row 29, RP-27: the queue fills to its limit, processors wait, the acceptor accepts, and in the end all are answered."""
    # As many beyond the limit as the processors' queues of new connections hold: then the acceptor still accepts.
    limit, connections = (500, 540) if full else (20, 60)
    gate = threading.Event()
    real = TABLE[DESCRIBE_CLUSTER].handle

    def blocked(request: object, broker: object) -> object:
        assert gate.wait(60)
        return real(request, broker)  # type: ignore[arg-type]

    TABLE[DESCRIBE_CLUSTER].load()  # else the first request would, and put the real function back
    monkeypatch.setattr(TABLE[DESCRIBE_CLUSTER], "handle", blocked)
    settings = {"queued.max.requests": limit, "num.io.threads": 2, "num.network.threads": 2}
    with EmbeddedBroker(config=settings) as broker:
        for _ in range(connections):
            sockets.append(wire.connect(broker.port, timeout=30))
            sockets[-1].sendall(describe_cluster())
        depth = broker.server.socket_server.data_plane.request_channel.depth
        wait_until(lambda: depth() == limit, 10, "the request queue being full")
        assert broker.server.registry.value("kafka_network_requestchannel_requestqueuesize") == limit
        late = wire.connect(broker.port)
        sockets.append(late)
        late.sendall(wire.api_versions())
        gate.set()
        assert all(wire.read_frame(sock) for sock in sockets)
    report(29, f"{connections} requests against a queue of {limit}: depth = limit, accepted meanwhile, all answered")


def broker_threads(broker: EmbeddedBroker) -> dict[str, ServerThread]:
    """One thread of every kind that a broker has."""
    server = broker.server
    sockets = server.socket_server
    metrics = server._metrics_server
    timer = server._timer_thread
    assert metrics is not None
    assert timer is not None
    return {
        "acceptor": next(iter(sockets.acceptors.values())),
        "processor": sockets.processors[0],
        "handler": sockets.pools["data-plane"].handlers[0],
        "timer": timer,
        "flusher": server.services.logs.flusher,
        "housekeeper": server.services.logs.housekeeper,
        "metrics": metrics,
    }


def still_serves(port: int, topic: str) -> bool:
    """Whether a new connection can create, write and read."""
    with wire.connect(port) as sock:
        wire.ask(sock, wire.create_topic(topic))
        answer = wire.ask(sock, wire.produce(topic, wire.batch([b"v"]), acks=-1))
        assert wire.produce_result(answer, topic)[0] == 0
        return len(wire.ask(sock, wire.fetch(topic, 0))) > 61


@pytest.mark.parametrize("kind", ["acceptor", "processor", "handler", "timer", "flusher", "housekeeper", "metrics"])
def test_an_unexpected_error_in_any_thread_leaves_it_serving(kind: str, report: Report) -> None:
    """Row 44: the thread goes on, nothing is half-dead, no connection count leaks."""
    settings = {"barnabas.metrics.listener": "127.0.0.1:0", "log.flush.acks.all": "true", "num.io.threads": 1}
    with EmbeddedBroker(config=settings) as broker:
        thread = broker_threads(broker)[kind]
        raised = threading.Event()
        real = thread.run_once

        def fail_once() -> None:
            if not raised.is_set():
                raised.set()
                raise RuntimeError(f"injected into the {kind}")
            real()

        thread.run_once = fail_once  # type: ignore[method-assign]
        thread.wakeup()
        wait_until(raised.is_set, 10, f"the error in the {kind}")
        assert still_serves(broker.port, "after")
        assert thread.is_alive()
        quotas = broker.server.socket_server.quotas
        wait_until(lambda: quotas.total == 0, 5, "every connection being given back")
    report(44, f"{kind}: goes on after an unexpected error, connection counts exact")


@pytest.mark.parametrize("kind", ["acceptor", "processor", "handler", "timer", "flusher"])
def test_a_fatal_error_in_a_thread_ends_the_broker_within_five_seconds(kind: str) -> None:
    """Row 44, RP-34: never half-dead."""
    settings = {"barnabas.metrics.listener": "127.0.0.1:0", "num.io.threads": 1}
    with EmbeddedBroker(config=settings) as broker:
        thread = broker_threads(broker)[kind]

        def die() -> None:
            raise FatalBrokerError(f"injected into the {kind}")

        thread.run_once = die  # type: ignore[method-assign]
        thread.wakeup()
        assert broker.server.wait(5), "it has ended, with an error"
        assert not broker.server.is_healthy()


def test_an_api_that_fails_unexpectedly_is_answered_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 44, RP-34, RP-37: every request gets exactly one response."""

    def broken(request: object, broker: object) -> object:
        raise RuntimeError("injected into the API")

    TABLE[DESCRIBE_CLUSTER].load()  # else the first request would, and put the real function back
    monkeypatch.setattr(TABLE[DESCRIBE_CLUSTER], "handle", broken)
    with EmbeddedBroker() as broker, wire.connect(broker.port) as sock:
        answer = wire.ask(sock, describe_cluster())
        assert struct.unpack_from(">h", answer, 9)[0] == -1
        assert wire.ask(sock, wire.api_versions())
