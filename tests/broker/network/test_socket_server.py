"""The whole request path over real sockets and threads: the behaviours of Kafka's SocketServerTest that concern plaintext."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from barnabas.broker.listeners import parse_listeners
from barnabas.broker.network.acceptor import BindFailed
from barnabas.broker.network.request import Request
from barnabas.broker.network.socket_server import CONTROL_QUEUE, SocketServer
from barnabas.errors import BarnabasError
from barnabas.protocol.messages.metadata import MetadataResponse
from tests import wire
from tests.broker.network.toy_broker import (
    client_of,
    metadata,
    never,
    port_of,
    produce_response,
    serving,
    toy_apis,
    toy_config,
)
from tests.waiting import wait_until


class Gate:
    """A Metadata handler that waits until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = 0
        self._lock = threading.Lock()

    def handle(self, request: Request, services: Any) -> MetadataResponse:
        with self._lock:
            self.entered += 1
        self.open.wait(20)
        return MetadataResponse()


def correlations(sock: socket.socket, count: int) -> list[int]:
    return [int.from_bytes(wire.read_frame(sock)[:4], "big") for _ in range(count)]


@pytest.mark.parametrize("inline", ["true", "false"])
@pytest.mark.parametrize("threads", [(1, 1), (3, 8)], ids=["1+1", "3+8"])
def test_requests_of_one_connection_are_answered_in_order(inline: str, threads: tuple[int, int]) -> None:
    """RP-19: pipelined requests of all kinds."""
    settings = {"num.network.threads": threads[0], "num.io.threads": threads[1], "barnabas.request.inline": inline}
    with serving(**settings) as server, client_of(server) as client:
        frames = [(metadata, wire.api_versions)[number % 2](number) for number in range(60)]
        client.sendall(b"".join(frames))
        assert correlations(client, 60) == list(range(60))


def test_many_connections_are_served_at_once() -> None:
    with serving(num_network_threads=3, num_io_threads=4) as server:
        failures: list[BaseException] = []

        def talk() -> None:
            try:
                with client_of(server) as client:
                    for number in range(30):
                        client.sendall(wire.produce("t", wire.batch([b"x"]), correlation=number))
                        assert correlations(client, 1) == [number]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=talk) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == []
        wait_until(lambda: server.request_metrics.snapshot()["Produce"].count == 480)
        wait_until(lambda: server.quotas.total == 0)
        assert server.connection_count() == 0


def test_the_session_knows_address_listener_and_principal() -> None:
    seen: list[Any] = []

    def look(request: Request, services: Any) -> MetadataResponse:
        seen.append(request.connection)
        return MetadataResponse()

    with serving(toy_apis(metadata=look)) as server, client_of(server) as client:
        wire.ask(client, metadata())
        [context] = seen
        assert (context.client_address, context.listener) == ("127.0.0.1", "PLAINTEXT")
        assert (context.principal, context.security_protocol) == ("User:ANONYMOUS", "PLAINTEXT")


# ---- start and stop --------------------------------------------------------------------------------------------------


def test_a_port_is_open_only_after_start() -> None:
    config = toy_config()
    server = SocketServer(config, parse_listeners(config), toy_apis(), never)
    [(host, port)] = server.bind().values()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, port), timeout=5)
        server.start(None)
        with client_of(server) as client:
            assert wire.ask(client, wire.api_versions())
    finally:
        server.shutdown(10)


def test_shutdown_without_start_closes_the_sockets_and_start_after_it_is_refused() -> None:
    config = toy_config()
    server = SocketServer(config, parse_listeners(config), toy_apis(), never)
    server.bind()
    assert server.shutdown()
    assert server.shutdown()
    with pytest.raises(BarnabasError, match="started or stopped before"):
        server.start(None)


def test_a_taken_port_fails_the_start_with_a_clear_error_and_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = toy_config(
            listeners=f"A://127.0.0.1:0,B://127.0.0.1:{port}",
            **{"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
        )
        server = SocketServer(config, parse_listeners(config), toy_apis(), never)
        with pytest.raises(BindFailed, match=f"listeners = 'B://127.0.0.1:{port}': the port is in use"):
            server.start(None)


def test_a_thread_that_fails_to_start_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-1: reported to the caller, never silent, and nothing is left running."""
    config = toy_config()
    server = SocketServer(config, parse_listeners(config), toy_apis(), never)

    def fail() -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(server.acceptors["PLAINTEXT"], "on_start", fail)
    with pytest.raises(BarnabasError, match="injected"):
        server.start(None)
    assert server.processors == [] or not any(processor.is_alive() for processor in server.processors)


def test_shutdown_answers_what_was_received_and_closes_the_sockets() -> None:
    """RP-3: a request in a handler is answered before its connection closes."""
    gate = Gate()
    with serving(toy_apis(metadata=gate.handle)) as server, client_of(server) as client, client_of(server) as idle:
        client.sendall(metadata(5))
        wait_until(lambda: gate.entered == 1)
        stopping = threading.Thread(target=server.shutdown)
        stopping.start()
        wait_until(lambda: not server.acceptors["PLAINTEXT"].is_alive())
        gate.open.set()
        assert correlations(client, 1) == [5]
        assert wire.is_closed(client)
        assert wire.is_closed(idle)
        stopping.join(10)
        assert server.quotas.total == 0
        with pytest.raises(ConnectionRefusedError):
            wire.connect(port_of(server))


def test_shutdown_drains_the_queue_too() -> None:
    """RP-3: nothing that was queued is lost."""
    gate = Gate()
    with serving(toy_apis(metadata=gate.handle), num_io_threads=1) as server:
        clients = [wire.connect(port_of(server)) for _ in range(10)]
        for number, client in enumerate(clients):
            client.sendall(metadata(number))
        wait_until(lambda: server.data_plane.request_channel.depth() == 8)
        stopping = threading.Thread(target=server.shutdown)
        stopping.start()
        gate.open.set()
        assert [correlations(client, 1)[0] for client in clients] == list(range(10))
        stopping.join(20)
        for client in clients:
            client.close()


def test_shutdown_works_while_an_acceptor_waits_for_a_slot() -> None:
    with serving(max_connections=1) as server, client_of(server) as first:
        assert wire.ask(first, wire.api_versions())
        with client_of(server):
            assert server.shutdown(10)
        assert server.quotas.total == 0


def test_shutdown_works_while_a_handler_does_not_end() -> None:
    gate = Gate()
    with serving(toy_apis(metadata=gate.handle)) as server, client_of(server) as client:
        client.sendall(metadata())
        wait_until(lambda: gate.entered == 1)
        assert server.shutdown(0.2) is False
        assert wire.is_closed(client)
        gate.open.set()


def test_shutdown_does_not_wait_for_a_handler_that_changes_thread_counts() -> None:
    """RP-3, RP-35: the change comes too late and is dropped; neither waits for the other."""
    gate = Gate()

    def resize(request: Request, services: Any) -> MetadataResponse:
        answer = gate.handle(request, services)
        server.resize_handlers(3)
        return answer

    with serving(toy_apis(metadata=resize), num_io_threads=1) as server, client_of(server) as client:
        client.sendall(metadata())
        wait_until(lambda: gate.entered == 1)
        ended: list[bool] = []
        stopping = threading.Thread(target=lambda: ended.append(server.shutdown(10)))
        stopping.start()
        wait_until(lambda: server.data_plane.request_channel.depth() == 1, what="the handler's ShutdownRequest")
        gate.open.set()
        assert wire.read_frame(client)
        stopping.join(20)
        assert ended == [True]


# ---- quotas over sockets ---------------------------------------------------------------------------------------------


def test_too_many_connections_of_one_address_are_rejected_until_one_goes() -> None:
    """RP-9."""
    with serving(max_connections_per_ip=2) as server:
        with client_of(server) as first, client_of(server) as second:
            assert wire.ask(first, wire.api_versions())
            assert wire.ask(second, wire.api_versions())
            with client_of(server) as third:
                assert wire.is_closed(third)
            first.close()
            wait_until(lambda: server.quotas.count("127.0.0.1") == 1)
            with client_of(server) as fourth:
                assert wire.ask(fourth, wire.api_versions())
        wait_until(lambda: server.quotas.total == 0)


def test_above_max_connections_the_next_one_waits_for_a_slot() -> None:
    """RP-9: the acceptor waits, which is metered."""
    with serving(max_connections=1) as server:
        with client_of(server) as first, client_of(server) as second:
            assert wire.ask(first, wire.api_versions())
            second.sendall(wire.api_versions(2))
            second.settimeout(0.6)  # far more than is asked for below: the acceptor may come late to its wait
            with pytest.raises(TimeoutError):
                second.recv(1)
            first.close()
            second.settimeout(30)
            assert correlations(second, 1) == [2]
        assert server.acceptors["PLAINTEXT"].blocked.total_ns > 50_000_000


def test_limits_change_at_run_time_and_excess_connections_are_closed() -> None:
    """RP-9, RP-18."""
    config = toy_config()
    with serving(config=config) as server:
        clients = [wire.connect(port_of(server)) for _ in range(4)]
        for client in clients:
            assert wire.ask(client, wire.api_versions())
        config.set_dynamic({"max.connections": "2"})
        wait_until(lambda: server.quotas.total == 2)
        for client in clients:
            client.close()


def test_counters_return_to_zero_after_every_kind_of_end() -> None:
    """RP-11, fault row 17 in small: peer close, reset, half a frame, bad size, garbage."""
    with serving() as server:
        for number in range(40):
            client = wire.connect(port_of(server))
            ends = (b"", b"\0\0\0", struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), wire.frame(b"garbage"))
            client.sendall(ends[number % 5])
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        wait_until(lambda: server.quotas.total == 0 and server.connection_count() == 0)
        with client_of(server) as client:
            assert wire.ask(client, wire.api_versions())


# ---- back-pressure ---------------------------------------------------------------------------------------------------


def test_with_every_handler_blocked_nothing_is_dropped() -> None:
    """RP-27, fault row 29: depth reaches the limit, connections are still accepted, all are answered in the end."""
    gate = Gate()
    settings = {"queued.max.requests": 5, "num.io.threads": 2}
    with serving(toy_apis(metadata=gate.handle), **settings) as server:
        clients = [wire.connect(port_of(server)) for _ in range(20)]
        for number, client in enumerate(clients):
            client.sendall(metadata(number))
        channel = server.data_plane.request_channel
        wait_until(lambda: gate.entered == 2 and channel.depth() == 5)
        late = wire.connect(port_of(server))
        wait_until(lambda: server.quotas.total == 21)
        assert channel.depth() == 5
        gate.open.set()
        for number, client in enumerate(clients):
            assert correlations(client, 1) == [number]
            client.close()
        assert wire.ask(late, wire.api_versions())
        late.close()


def test_a_blocked_handler_delays_nobody_while_another_is_idle() -> None:
    gate = Gate()
    apis = toy_apis(metadata=gate.handle)
    with serving(apis, num_io_threads=3) as server, client_of(server) as blocked, client_of(server) as client:
        blocked.sendall(metadata())
        wait_until(lambda: gate.entered == 1)
        for number in range(20):
            client.sendall(wire.api_versions(number))
            assert correlations(client, 1) == [number]
        queue = server.request_metrics.snapshot()["ApiVersions"].histogram("queue")
        assert queue.quantile(0.5) < 100_000_000
        gate.open.set()
        assert wire.read_frame(blocked)


def test_with_memory_for_one_request_all_are_served_in_turn() -> None:
    """RP-25, fault row 28 in small: the buffer goes back also when the API fails."""

    def sometimes_failing(request: Request, services: Any) -> Any:
        if request.header.correlation_id % 3 == 0:
            raise RuntimeError("injected")
        return produce_response(request.body)

    settings = {"queued.max.request.bytes": 600}
    with serving(toy_apis(produce=sometimes_failing), **settings) as server:
        clients = [wire.connect(port_of(server)) for _ in range(12)]
        for number, client in enumerate(clients):
            client.sendall(wire.produce("t", wire.batch([b"x" * 400]), correlation=number))
        for number, client in enumerate(clients):
            assert correlations(client, 1) == [number]
            client.close()
        wait_until(lambda: server.memory_pool.used() == 0)


# ---- resizing --------------------------------------------------------------------------------------------------------


def test_network_threads_are_added_and_removed_at_run_time() -> None:
    """RP-8: ids are never used again, connections of a removed processor close, the others go on."""
    config = toy_config(num_network_threads=2)
    with serving(config=config) as server:
        clients = [wire.connect(port_of(server)) for _ in range(4)]
        for client in clients:
            assert wire.ask(client, wire.api_versions())
        assert [processor.connection_count() for processor in server.processors] == [2, 2]
        config.set_dynamic({"num.network.threads": "4"})
        assert [processor.id for processor in server.processors] == [0, 1, 2, 3]
        config.set_dynamic({"num.network.threads": "1"})
        assert [processor.id for processor in server.processors] == [0]
        assert list(server.data_plane.request_channel.processors) == [0]
        assert server.quotas.total == 2
        alive = [client for client in clients if not dead(client)]
        assert len(alive) == 2
        for client in alive:
            assert wire.ask(client, wire.api_versions())
        config.set_dynamic({"num.network.threads": "2"})
        assert [processor.id for processor in server.processors] == [0, 4]
        for client in clients:
            client.close()
        # What a removed processor had counted stays.
        wait_until(lambda: server.request_metrics.snapshot()["ApiVersions"].count == 6)


def dead(client: socket.socket) -> bool:
    client.settimeout(0.2)
    closed = wire.is_closed(client)
    client.settimeout(30)
    return closed


def test_a_response_for_a_removed_processor_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """RP-8."""
    gate = Gate()
    with serving(toy_apis(metadata=gate.handle), num_network_threads=2) as server:
        clients = [wire.connect(port_of(server)) for _ in range(2)]
        for client in clients:
            client.sendall(metadata())
        wait_until(lambda: gate.entered == 2)
        server.resize_processors(1)
        gate.open.set()
        wait_until(lambda: "its processor was removed" in caplog.text)
        assert sum(wire.read_frame(client) != b"" for client in clients) == 1
        for client in clients:
            client.close()


# ---- control plane ---------------------------------------------------------------------------------------------------

TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
    "control.plane.listener.name": "CONTROL",
}


def test_control_requests_are_not_queued_behind_data() -> None:
    """RP-36: its own acceptor, exactly one processor, a queue of 20. Handlers: two, one more than Kafka's."""
    gate = Gate()

    def only_data_waits(request: Request, services: Any) -> MetadataResponse:
        if request.connection.listener == "CONTROL":
            return MetadataResponse()
        return gate.handle(request, services)

    settings = {**TWO_LISTENERS, "num.network.threads": 2, "num.io.threads": 3}
    with serving(toy_apis(metadata=only_data_waits), **settings) as server:
        assert server.control_plane is not None
        assert server.control_plane.request_channel.limit == CONTROL_QUEUE
        assert len(server.acceptors["CONTROL"].processors) == 1
        assert server.pools["control-plane"].size == 2
        data = [wire.connect(port_of(server)) for _ in range(4)]
        for client in data:
            client.sendall(metadata())
        wait_until(lambda: gate.entered == 3)
        with client_of(server, "CONTROL") as control:
            assert wire.ask(control, metadata())
        names = {thread.name for thread in threading.enumerate()}
        assert "control-plane-kafka-request-handler-0" in names
        assert "control-plane-kafka-socket-acceptor-CONTROL-PLAINTEXT-0" in names
        control_processor = server.acceptors["CONTROL"].processors[0]
        assert (
            control_processor.name
            == f"control-plane-kafka-network-thread-1-ListenerName(CONTROL)-PLAINTEXT-{control_processor.id}"
        )
        server.resize_processors(3)
        assert len(server.acceptors["CONTROL"].processors) == 1
        gate.open.set()
        for client in data:
            assert wire.read_frame(client)
            client.close()


def test_processor_ids_are_unique_over_listeners() -> None:
    with serving(**TWO_LISTENERS, num_network_threads=2) as server:
        ids = [processor.id for processor in server.processors]
        assert len(set(ids)) == len(ids) == 3


# ---- throttling ------------------------------------------------------------------------------------------------------


def test_a_throttled_client_gets_its_answer_at_once_and_is_read_again_after_the_delay() -> None:
    """RP-39, KIP-219."""

    def throttled(request: Request, services: Any) -> MetadataResponse:
        if request.header.correlation_id == 1:
            request.throttle(150, "Produce")
        return MetadataResponse()

    with serving(toy_apis(metadata=throttled)) as server, client_of(server) as client:
        client.sendall(metadata(1) + metadata(2))
        assert correlations(client, 2) == [1, 2]
        wait_until(lambda: len(server.request_metrics.recent()) == 2)  # recorded just after the bytes have left
        first, second = server.request_metrics.recent()
        assert second.start_ns - first.start_ns >= 140_000_000
        assert first.parts["throttle"] == 150_000_000
        assert first.parts["total"] == sum(ns for part, ns in first.parts.items() if part != "total")


# ---- injected errors in threads (fault row 44) -----------------------------------------------------------------------


def test_threads_survive_an_unexpected_error_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Acceptor, processor and handler."""
    with serving() as server:
        for thread in (*server.acceptors.values(), *server.processors, *server.pools["data-plane"].handlers):
            _fail_once(monkeypatch, thread)
        wait_until(lambda: caplog.text.count("an unexpected error in one turn") == 4)
        with client_of(server) as client:
            assert wire.ask(client, metadata())


def _fail_once(monkeypatch: pytest.MonkeyPatch, thread: Any) -> None:
    original = thread.run_once

    def fail() -> None:
        monkeypatch.setattr(thread, "run_once", original)
        raise RuntimeError("injected")

    monkeypatch.setattr(thread, "run_once", fail)


@pytest.mark.parametrize("which", ["acceptor", "processor", "handler"])
def test_a_thread_that_meets_a_fatal_error_tells_the_broker(which: str) -> None:
    """The composition root ends the process with a non-zero code."""
    told: list[str] = []
    config = toy_config()
    server = SocketServer(
        config,
        parse_listeners(config),
        toy_apis(),
        never,
        on_fatal=lambda name, error: told.append(f"{name}: {error!r}"),
    )
    try:
        server.start(None)
        thread: Any = {
            "acceptor": server.acceptors["PLAINTEXT"],
            "processor": server.processors[0],
            "handler": server.pools["data-plane"].handlers[0],
        }[which]

        def die() -> None:
            raise SystemExit(3)

        thread.run_once = die
        wait_until(lambda: told)
        assert thread.name in told[0]
        assert "SystemExit(3)" in told[0]
        assert server.quotas.total == 0
    finally:
        server.shutdown(5)


def test_figures_can_be_read_after_the_end() -> None:
    """Metrics readable after stop."""
    with serving() as server:
        with client_of(server) as client:
            assert wire.ask(client, wire.api_versions())
        assert 0 <= server.network_idle_share() <= 1
        assert 0 <= server.pools["data-plane"].idle_share() <= 1
        assert "PLAINTEXT" in repr(server)
    assert server.request_metrics.snapshot()["ApiVersions"].count == 1
    assert server.network_idle_share() <= 1


@pytest.mark.serial
def test_a_thousand_clients_that_connect_in_a_row_are_all_accepted() -> None:
    """Issue 18, M5: took 15 s when the backlog was 50, a second for each client that found no room."""
    with serving() as server, ExitStack() as clients:
        start = time.monotonic()
        for _ in range(1000):
            clients.enter_context(client_of(server))
        wait_until(lambda: server.connection_count() == 1000)
        assert time.monotonic() - start < 10
        assert server.quotas.total == 1000


def test_large_requests_that_never_end_make_nobody_wait() -> None:
    """Issue 18, M1: three connections announce more than the memory and send four bytes of it, three others send most of it."""
    limit, announced = 8_000_000, struct.pack(">i", 7_900_000)
    with serving(queued_max_request_bytes=limit) as server, ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(client_of(server)).sendall(announced + bytes(4))
        left = {opened.enter_context(client_of(server)): 7_000_000 for _ in range(3)}
        for client in left:
            client.sendall(announced)
            client.setblocking(False)

        def memory_is_used_up() -> bool:
            for client, unsent in left.items():
                with suppress(BlockingIOError):
                    left[client] = unsent - client.send(bytes(min(unsent, 65_536)))
            return server.memory_pool.available() <= 0

        wait_until(memory_is_used_up)
        with client_of(server) as other:
            for number in range(100):
                assert wire.ask(other, metadata(number))[:4] == struct.pack(">i", number)
