"""The parts of a request's time point at what was slow: the raw material of every diagnosis, seen from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.request_metrics import CompletedRequest
from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.waiting import wait_until

HELD_MS = 400
HELD_NS = HELD_MS * 1_000_000
"""Long beside what a busy machine adds to the other parts of a request's time."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Two handlers, so that two slow requests hold up the next, and no short cut, because thread counts are set."""
    with EmbeddedBroker(topics={"t": 1}, config={"num.io.threads": 1, "num.network.threads": 1}) as broker:
        yield broker


class SlowApi:
    """Holds every call of one API until it is let go."""

    def __init__(self, broker: EmbeddedBroker, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Event()
        row = broker.server.services.apis[key]
        row.load()
        self._handle = row.handle
        monkeypatch.setattr(row, "handle", self.handle)

    def handle(self, request: Any, services: Any) -> Any:
        self.entered.release()
        assert self.let_go.wait(30)
        return self._handle(request, services)


def finished(broker: EmbeddedBroker, name: str) -> CompletedRequest:
    """The last finished request of an API; it is recorded a moment after the client has its answer."""

    def matching() -> list[CompletedRequest]:
        return [done for done in broker.server.request_metrics.recent() if done.name == name]

    wait_until(matching, what=f"a finished {name}")
    return matching()[-1]


def share(done: CompletedRequest, part: str) -> float:
    return done.parts[part] / done.parts["total"]


def test_a_busy_handler_shows_as_local_time_there_and_as_queue_time_behind_it(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-33: queue time high while the handlers are busy says `num.io.threads`; local time high says handler or disk."""
    slow = SlowApi(broker, wire.LIST_OFFSETS, monkeypatch)
    list_offsets = wire.request(wire.LIST_OFFSETS, 1, b"\xff\xff\xff\xff\x00\x00\x00\x00")
    channel = broker.server.socket_server.data_plane.request_channel
    with wire.connect(broker.port) as first, wire.connect(broker.port) as other, wire.connect(broker.port) as second:
        for client in (first, other):
            client.sendall(list_offsets)
            assert slow.entered.acquire(timeout=30)
        second.sendall(wire.api_versions())
        wait_until(lambda: channel.depth() == 1, what="a request in the queue")
        began = time.monotonic_ns()
        wait_until(lambda: time.monotonic_ns() - began >= HELD_NS, what="the time that must be seen again below")
        slow.let_go.set()
        assert wire.read_frame(first)
        assert wire.read_frame(second)
    busy, waiting = finished(broker, "ListOffsets"), finished(broker, "ApiVersions")
    assert busy.parts["local"] >= HELD_NS
    assert share(busy, "local") > 0.5
    assert waiting.parts["queue"] >= HELD_NS
    assert share(waiting, "queue") > 0.5


def test_a_long_poll_shows_as_remote_time(broker: EmbeddedBroker) -> None:
    """RP-33, RP-38: waiting for data is remote time, and neither the handler's nor a throttle."""
    with wire.connect(broker.port) as sock:
        wire.ask(sock, wire.fetch("t", 0, wait_ms=HELD_MS))
    done = finished(broker, "FetchConsumer")
    assert done.parts["remote"] >= HELD_NS * 0.9
    assert share(done, "remote") > 0.5
    assert done.parts["throttle"] == 0


def test_the_total_is_the_sum_of_the_parts_for_every_request(broker: EmbeddedBroker) -> None:
    """RP-31."""
    with wire.connect(broker.port) as sock:
        for number in range(20):
            wire.ask(sock, wire.produce("t", wire.batch([b"x" * number * 100])))
            wire.ask(sock, wire.fetch("t", number))
    finished(broker, "FetchConsumer")
    recent = broker.server.request_metrics.recent(100)
    assert len(recent) >= 39
    for done in recent:
        parts = dict(done.parts)
        assert parts.pop("total") == sum(parts.values())
        assert min(parts.values()) >= 0
