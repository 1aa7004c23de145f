"""The worst legal request of every API: answered, within a bound on its answer and on memory, while others are served.

One network thread, so that whatever runs on it stops the bystander too. What a test demands is a condition, not a latency: a request that
takes long must leave the bystander many answers.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from barnabas.broker.apis.table import ROWS
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import encode_request_frame
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import Message
from bench.brokers import BrokerProcess
from bench.worst_requests import NARROW, WorstRequest, prepare, worst_requests
from tests import wire
from tests.live_broker import own_live_broker

pytestmark = pytest.mark.timeout(400)

DEADLINE_SECONDS = 200.0
SECONDS_PER_ANSWER = 2.0
"""While a long request is worked on, a bystander on the same network thread is answered at least so often."""
MEMORY = 200 << 20
WORST = worst_requests()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with own_live_broker({"num.network.threads": "1", "barnabas.request.inline": "true"}) as running:
        prepare(running.place.port)
        yield running


def frame(message: Message, key: ApiKey, version: int) -> bytes:
    assert message.schema.api_key == key
    return b"".join(bytes(part) for part in encode_request_frame(message, version, 1, "test"))  # type: ignore[call-overload]


class Bystander:
    """Asks for two light things in turn, one that a processor answers itself and one for the handlers, and counts the answers."""

    def __init__(self, port: int) -> None:
        body = MetadataRequest(topics=[MetadataRequestTopic(name=NARROW[0])], allow_auto_topic_creation=False)
        self._asks = (wire.api_versions(), frame(body, ApiKey.METADATA, 12))
        self._socket = wire.connect(port, timeout=60)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers = 0
        self.failed = False

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(70)
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            for ask in self._asks:
                try:
                    self.failed = not wire.ask(self._socket, ask)
                except OSError:
                    self.failed = True
                if self.failed:
                    return
            self.answers += 1


class PeakMemory:
    """The most that a broker's process has taken while this was watching."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._read: Callable[[], int] = broker.resident_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = self.peak = self._read()

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, self._read())


def answer_size(sock: socket.socket, payload: bytes) -> int | None:
    """Of the answer, which is not kept; None when the connection was closed instead."""
    try:
        sock.sendall(payload)
        head = wire.read_exactly(sock, 4)
        size: int = struct.unpack(">i", head)[0] if len(head) == 4 else -1
        left = size
        while left > 0:
            piece = len(sock.recv(min(left, 1 << 20)))
            if not piece:
                return None
            left -= piece
    except (ConnectionResetError, BrokenPipeError):
        return None
    return None if size < 0 else size


def test_every_api_has_its_worst_request() -> None:
    assert {row.key for row in ROWS} == {worst.api_key for worst in WORST}
    served = {row.key: row for row in ROWS}
    assert all(served[worst.api_key].serves(worst.version) for worst in WORST)


@pytest.mark.parametrize("worst", WORST, ids=lambda worst: worst.name.replace(" ", "-"))
def test_the_worst_request_is_bounded_and_stops_nobody(broker: BrokerProcess, worst: WorstRequest) -> None:
    payload = worst.payload()
    port = broker.place.port
    with (
        Bystander(port) as bystander,
        PeakMemory(broker) as memory,
        closing(wire.connect(port, DEADLINE_SECONDS)) as sock,
    ):
        before, begun = bystander.answers, time.monotonic()
        size = answer_size(sock, payload)
        took = time.monotonic() - begun
        answered = bystander.answers - before
    assert size is not None, "the connection was closed"
    assert size <= worst.most_answer_bytes, f"an answer of {size} bytes to a request of {len(payload)}"
    grown = memory.peak - memory.before
    assert grown <= 3 * (len(payload) + size) + MEMORY, f"memory grew by {grown >> 20} MiB"
    assert not bystander.failed
    assert answered >= int(took / SECONDS_PER_ANSWER), f"{answered} answers for others in {took:.1f} s"


ABOVE = 1_000_000
"""More elements than a request may name."""


@pytest.mark.parametrize(
    ("body", "key", "version"),
    [
        (lambda: FindCoordinatorRequest(coordinator_keys=["a"] * ABOVE), ApiKey.FIND_COORDINATOR, 6),
        (
            lambda: FetchRequest(
                topics=[
                    FetchTopic(
                        topic="none",
                        partitions=[
                            FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(ABOVE)
                        ],
                    )
                ],
                max_wait_ms=0,
            ),
            ApiKey.FETCH,
            12,
        ),
        (lambda: MetadataRequest(topics=[MetadataRequestTopic(name="a")] * ABOVE), ApiKey.METADATA, 13),
    ],
    ids=["FindCoordinator", "Fetch", "Metadata"],
)
def test_a_request_beyond_the_cap_loses_its_connection_and_stops_nobody(
    broker: BrokerProcess, body: Callable[[], Message], key: ApiKey, version: int
) -> None:
    payload = frame(body(), key, version)
    port = broker.place.port
    with (
        Bystander(port) as bystander,
        PeakMemory(broker) as memory,
        closing(wire.connect(port, DEADLINE_SECONDS)) as sock,
    ):
        assert answer_size(sock, payload) is None, "it was answered"
    assert not bystander.failed
    assert memory.peak - memory.before <= 3 * len(payload) + MEMORY
    assert (
        f"{ABOVE} list elements" in broker.log_file.read_text()
        or "barnabas.request.max.elements" in broker.log_file.read_text()
    )


def test_many_connections_with_heavy_requests_leave_the_handlers_to_light_ones(broker: BrokerProcess) -> None:
    """More of them at a time than there are handlers."""
    (worst,) = (each for each in WORST if each.name == "metadata: unknown topics")
    payload = worst.payload()
    port = broker.place.port

    def ask() -> int | None:
        with closing(wire.connect(port, DEADLINE_SECONDS)) as sock:
            return answer_size(sock, payload)

    with Bystander(port) as bystander, ThreadPoolExecutor(12) as pool:
        begun, before = time.monotonic(), bystander.answers
        sizes = [future.result(DEADLINE_SECONDS) for future in [pool.submit(ask) for _ in range(12)]]
        answered, took = bystander.answers - before, time.monotonic() - begun
    assert all(sizes), sizes
    assert not bystander.failed
    assert answered >= int(took / SECONDS_PER_ANSWER), f"{answered} answers for others in {took:.1f} s"


def test_others_create_topics_while_a_wide_one_is_being_made(broker: BrokerProcess) -> None:
    port = broker.place.port
    with closing(wire.connect(port, DEADLINE_SECONDS)) as slow, closing(wire.connect(port, DEADLINE_SECONDS)) as other:
        slow.sendall(wire.create_topic(f"wide-{uuid.uuid4().hex}", 1_000))
        made = 0
        while not select.select([slow], [], [], 0)[0]:
            assert wire.ask(other, wire.create_topic(f"small-{uuid.uuid4().hex}"))
            made += 1
        assert wire.read_frame(slow)
    assert made >= 3
