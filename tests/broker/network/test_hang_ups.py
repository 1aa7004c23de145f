"""Clients that hang up while their request waits (issue 18, H1): connection, descriptor and delayed fetch come back."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.net.peers import reset
from tests.waiting import wait_until

FOREVER_MS = 2**31 - 1
SOON = 10.0  # they come back within a few milliseconds; a busy machine may take longer


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as one:
        yield one


def waiting_fetch() -> bytes:
    return wire.fetch("t", 0, max_bytes=50 << 20, wait_ms=FOREVER_MS, min_bytes=50 << 20)


def purgatory_size(broker: EmbeddedBroker) -> int:
    assert broker._server is not None
    return broker._server.services.fetch_purgatory.size


def connections(broker: EmbeddedBroker) -> int:
    assert broker._server is not None
    return broker._server.socket_server.connection_count()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def finish(sock: socket.socket) -> None:
    sock.close()


def finish_in_two_steps(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)
    sock.close()


@pytest.mark.parametrize(
    "behind",
    [b"", wire.api_versions() * 3, waiting_fetch() * 3, waiting_fetch()[:20]],
    ids=["nothing", "light requests", "more that wait", "half a request"],
)
@pytest.mark.parametrize("end", [finish, finish_in_two_steps, reset])
def test_hundreds_of_waiting_connections_that_end_leave_nothing(
    broker: EmbeddedBroker, end: Callable[[socket.socket], None], behind: bytes
) -> None:
    """Also with requests behind the one that waits, which are read only after it."""
    count = 500 if not behind and end is not finish_in_two_steps else 50
    before = descriptors()
    clients = [wire.connect(broker.port) for _ in range(count)]
    for client in clients:
        client.sendall(waiting_fetch() + behind)
    wait_until(lambda: purgatory_size(broker) == count)
    assert connections(broker) == count
    for client in clients:
        end(client)
    wait_until(lambda: connections(broker) == purgatory_size(broker) == 0, SOON)
    wait_until(lambda: descriptors() == before, SOON)


def test_appends_do_not_meet_the_fetches_of_clients_that_are_gone(broker: EmbeddedBroker) -> None:
    """What made every append slower: it asked all of them."""
    clients = [wire.connect(broker.port) for _ in range(100)]
    for client in clients:
        client.sendall(waiting_fetch())
    wait_until(lambda: purgatory_size(broker) == 100)
    for client in clients:
        reset(client)
    wait_until(lambda: purgatory_size(broker) == 0, SOON)
    with wire.connect(broker.port) as sock:
        answer = wire.ask(sock, wire.produce("t", wire.batch([b"v"])))
        assert wire.produce_result(answer, "t") == (0, 0)


def test_a_client_that_only_finished_sending_gets_its_answers(broker: EmbeddedBroker) -> None:
    """RP-21: as `nc` does. A fetch that waits is answered at once with what there is, because nobody can tell whether its client is still
    there; then what came behind it."""
    with wire.connect(broker.port) as sock:
        sock.sendall(waiting_fetch() + wire.api_versions(7))
        wait_until(lambda: purgatory_size(broker) == 1)
        sock.shutdown(socket.SHUT_WR)
        assert wire.read_frame(sock)[:4] == (1).to_bytes(4, "big")
        assert wire.read_frame(sock)[:4] == (7).to_bytes(4, "big")
        assert sock.recv(1) == b""


def test_a_client_that_finished_sending_before_its_request_was_read_gets_its_answer(broker: EmbeddedBroker) -> None:
    with wire.connect(broker.port) as sock:
        sock.sendall(wire.api_versions(1) + waiting_fetch() + wire.api_versions(3))
        sock.shutdown(socket.SHUT_WR)
        assert [wire.read_frame(sock)[3] for _ in range(3)] == [1, 1, 3]
        assert sock.recv(1) == b""
    assert purgatory_size(broker) == 0


def test_a_heavy_fetch_is_not_read_again_for_a_client_that_finished_sending(broker: EmbeddedBroker) -> None:
    """The thread that sees the hang-up serves other connections too: it ends the wait without an answer."""
    with wire.connect(broker.port) as sock:
        sock.sendall(many_partitions(3000))
        wait_until(lambda: purgatory_size(broker) == 1)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    wait_until(lambda: connections(broker) == 0, SOON)
    assert purgatory_size(broker) == 0


def many_partitions(count: int) -> bytes:
    """Fetch v4 that names the same partition many times, and waits."""
    body = struct.pack(">iiiib", -1, FOREVER_MS, 50 << 20, 50 << 20, 0) + struct.pack(">i", 1) + wire.string("t")
    body += struct.pack(">i", count) + struct.pack(">iqi", 0, 0, 1 << 20) * count
    return wire.request(wire.FETCH, 4, body)


@pytest.mark.parametrize("end", [finish, finish_in_two_steps, reset])
def test_throttled_connections_that_end_leave_nothing(
    broker: EmbeddedBroker, end: Callable[[socket.socket], None]
) -> None:
    """Neither the connection nor what the end of the delay would need, and a delay may last for hours."""
    assert broker._server is not None
    with wire.connect(broker.port) as sock:
        assert wire.ask(sock, wire.produce("t", wire.batch([b"v"])))  # the log has its files open
    wait_until(lambda: connections(broker) == 0, SOON)
    broker._server.services.quotas.update((("client-id", "wire"),), "producer_byte_rate", 1.0)
    timer = broker._server._timer
    before, tasks = descriptors(), len(timer)
    clients = [wire.connect(broker.port) for _ in range(50)]
    for client in clients:
        answer = wire.ask(client, wire.produce("t", wire.batch([bytes(10_000)])))
        assert int.from_bytes(answer[-4:], "big") > 3_600_000
    for client in clients:
        end(client)
    wait_until(lambda: connections(broker) == 0, SOON)
    wait_until(lambda: descriptors() == before, SOON)
    wait_until(lambda: len(timer) <= tasks, SOON)


def test_a_throttled_client_that_finished_sending_gets_its_answers(broker: EmbeddedBroker) -> None:
    assert broker._server is not None
    broker._server.services.quotas.update((("client-id", "wire"),), "producer_byte_rate", 1.0)
    with wire.connect(broker.port) as sock:
        sock.sendall(wire.produce("t", wire.batch([bytes(10_000)])) + wire.api_versions(7) + wire.api_versions(8))
        assert wire.read_frame(sock)
        sock.shutdown(socket.SHUT_WR)
        assert [wire.read_frame(sock)[3] for _ in range(2)] == [7, 8]
        assert sock.recv(1) == b""
    wait_until(lambda: connections(broker) == 0, SOON)
