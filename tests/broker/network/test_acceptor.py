"""The acceptor (RP-4 … RP-8): binds, counts, configures, and never leaks a socket or spins."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.listeners import Listener
from barnabas.broker.network.acceptor import (
    ACCEPTS_PER_TURN,
    BACK_OFF_MS,
    Acceptor,
    BindFailed,
    SocketOptions,
    plain_address,
)
from barnabas.broker.network.connection_quotas import ConnectionQuotas
from barnabas.errors import ConfigError
from tests.broker.network.toy_broker import LISTENER, toy_config
from tests.waiting import wait_until


class TakingProcessor:
    """Takes sockets until it has `room` of them."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.sockets: list[socket.socket] = []
        self.error: Exception | None = None
        self.waits = 0

    def accept(self, sock: socket.socket, address: str) -> bool:
        if self.error is not None:
            raise self.error
        if len(self.sockets) >= self.room:
            return False
        self.sockets.append(sock)
        return True

    def accept_waiting(self, sock: socket.socket, address: str, still_wanted: Callable[[], bool]) -> bool:
        self.waits += 1
        self.room += 1
        return self.accept(sock, address)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


class Setup:
    def __init__(self, options: SocketOptions | None = None, **settings: object) -> None:
        self.quotas = ConnectionQuotas(toy_config(**settings))
        self.quotas.add_listener("PLAINTEXT")
        self.acceptor = Acceptor(LISTENER, self.quotas, options or SocketOptions())
        self.processors = [TakingProcessor(), TakingProcessor()]
        self.clients: list[socket.socket] = []
        for processor in self.processors:
            self.acceptor.add_processor(processor)  # type: ignore[arg-type]
        self.acceptor.open()
        self.acceptor.on_start()

    def connect(self, count: int = 1) -> list[socket.socket]:
        new = [socket.create_connection(("127.0.0.1", self.acceptor.port), timeout=5) for _ in range(count)]
        self.clients += new
        return new

    def accept(self, count: int = 1) -> list[socket.socket]:
        """Connect so many and let the acceptor take them."""
        new = self.connect(count)
        self.acceptor.run_once()
        return new

    @property
    def counts(self) -> list[int]:
        return [len(processor.sockets) for processor in self.processors]


@pytest.fixture
def made() -> Iterator[list[Setup]]:
    setups: list[Setup] = []
    yield setups
    for setup in setups:
        setup.acceptor.close()
        for processor in setup.processors:
            processor.close()
        for client in setup.clients:
            client.close()


@pytest.fixture
def make(made: list[Setup]) -> Callable[..., Setup]:
    def build(**settings: object) -> Setup:
        made.append(Setup(**settings))
        return made[-1]

    return build


Make = Callable[..., Setup]


def closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_go_round_robin_and_are_counted(make: Make) -> None:
    """RP-6."""
    setup = make()
    setup.accept(4)
    assert setup.counts == [2, 2]
    assert setup.quotas.total == 4


def test_accepted_sockets_are_configured(make: Make) -> None:
    """RP-5."""
    setup = make(options=SocketOptions(102_400, 102_400, 50))
    setup.accept()
    [sock] = [sock for processor in setup.processors for sock in processor.sockets]
    assert not sock.getblocking()
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 102_400
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 102_400


def test_buffer_sizes_of_minus_one_are_left_to_the_system() -> None:
    """RP-5."""
    quotas = ConnectionQuotas(toy_config())
    with socket.socket() as untouched:
        default = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    acceptor = Acceptor(LISTENER, quotas, SocketOptions(-1, -1, 50))
    acceptor.open()
    try:
        assert acceptor._socket is not None
        assert acceptor._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == default
    finally:
        acceptor.close()


def test_a_full_processor_is_passed_over(make: Make) -> None:
    """RP-6."""
    setup = make()
    setup.processors[0].room = 0
    setup.accept(3)
    assert setup.counts == [0, 3]
    assert setup.processors[0].waits + setup.processors[1].waits == 0


def test_only_when_all_are_full_the_acceptor_waits_for_the_last_one(make: Make) -> None:
    """RP-6."""
    setup = make()
    for processor in setup.processors:
        processor.room = 0
    setup.accept()
    assert sum(processor.waits for processor in setup.processors) == 1
    assert sum(setup.counts) == 1
    assert setup.acceptor.blocked.total_ns > 0


def test_an_address_with_too_many_connections_is_rejected_with_a_log_line(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-9."""
    caplog.set_level("INFO")
    setup = make(max_connections_per_ip=1)
    _, second = setup.accept(2)
    assert closed(second)
    assert setup.quotas.total == 1
    assert "Rejected connection from 127.0.0.1, address already has the configured maximum of 1" in caplog.text


def test_a_throttled_address_is_closed_only_after_its_time(make: Make) -> None:
    """RP-10."""
    setup = make()
    setup.quotas.set_ip_rate("127.0.0.1", 1)
    setup.accept(10)
    [refused] = setup.accept()
    refused.settimeout(0.01)
    with pytest.raises(TimeoutError):
        refused.recv(1)
    assert setup.acceptor.throttled_sockets == 1
    wait_until(lambda: setup.acceptor.run_once() or not setup.acceptor.throttled_sockets)
    refused.settimeout(5)
    assert closed(refused)
    assert setup.quotas.total == 10


def test_throttled_sockets_are_closed_with_the_acceptor(make: Make) -> None:
    setup = make()
    setup.quotas.set_ip_rate("127.0.0.1", 1)
    setup.accept(10)
    [refused] = setup.accept()
    setup.acceptor.close()
    assert closed(refused)


def test_an_error_while_configuring_closes_the_socket_and_returns_the_quota(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-7, RP-11: and the loop goes on."""
    setup = make()

    def fail(sock: socket.socket) -> None:
        raise OSError("no such option")

    with monkeypatch.context() as patch:
        patch.setattr(setup.acceptor, "_configure", fail)
        [refused] = setup.accept()
    assert closed(refused)
    assert setup.quotas.total == 0
    assert "error while configuring" in caplog.text
    setup.accept()
    assert setup.quotas.total == 1


def test_an_error_of_the_processor_closes_the_socket_and_returns_the_quota(make: Make) -> None:
    setup = make()
    for processor in setup.processors:
        processor.error = RuntimeError("broken")
    [refused] = setup.accept()
    assert closed(refused)
    assert setup.quotas.total == 0


def test_an_error_of_the_quotas_closes_the_socket(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-7: no descriptor leaks."""
    setup = make()

    def fail(*arguments: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(setup.quotas, "acquire", fail)
    with pytest.raises(RuntimeError):
        setup.accept()
    assert closed(setup.clients[0])


def test_without_processors_connections_are_closed(make: Make) -> None:
    setup = make()
    assert len(setup.acceptor.take_processors(2)) == 2
    [refused] = setup.accept()
    assert closed(refused)
    assert setup.quotas.total == 0


class NoMoreDescriptors:
    """A listening socket whose `accept` fails as with no descriptor left."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.calls = 0
        self.failing = True
        self.error = errno.EMFILE

    def accept(self) -> Any:
        self.calls += 1
        if self.failing:
            raise OSError(self.error, "injected")
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_without_descriptors_the_loop_backs_off_and_recovers(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Fault row 12: no spin."""
    setup = make()
    assert setup.acceptor._socket is not None
    broken = NoMoreDescriptors(setup.acceptor._socket)
    setup.acceptor._socket = broken  # type: ignore[assignment]
    setup.accept()
    start = time.monotonic()
    setup.acceptor.run_once()
    setup.acceptor.run_once()
    assert time.monotonic() - start >= 2 * BACK_OFF_MS / 1000 * 0.9
    assert broken.calls == 3
    assert "cannot accept" in caplog.text
    broken.failing = False
    setup.acceptor.run_once()
    assert setup.quotas.total == 1


def test_a_connection_that_is_aborted_before_accept_is_no_reason_to_pause(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-7."""
    setup = make()
    pauses: list[float] = []
    monkeypatch.setattr(setup.acceptor, "_wait_for_wakeup", pauses.append)
    assert setup.acceptor._socket is not None
    broken = NoMoreDescriptors(setup.acceptor._socket)
    broken.error = errno.ECONNABORTED
    setup.acceptor._socket = broken  # type: ignore[assignment]
    setup.accept()
    broken.failing = False
    setup.acceptor.run_once()
    assert pauses == []
    assert setup.quotas.total == 1


def test_port_zero_is_known_after_open_and_nobody_can_connect_before_start() -> None:
    acceptor = Acceptor(LISTENER, ConnectionQuotas(toy_config()))
    port = acceptor.open()
    try:
        assert port > 0
        assert acceptor.open() == port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        acceptor.close()


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("192.0.2.1", "not an address of this machine"),
        ("no.such.host.invalid", "cannot be resolved"),
    ],
)
def test_an_address_that_cannot_be_bound_is_a_clear_error(host: str, text: str) -> None:
    acceptor = Acceptor(Listener("PLAINTEXT", host, 0, "PLAINTEXT"), ConnectionQuotas(toy_config()))
    try:
        with pytest.raises(BindFailed, match=text) as failed:
            acceptor.open()
        assert isinstance(failed.value, ConfigError)
        assert failed.value.key == "listeners"
    finally:
        acceptor.close()


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        acceptor = Acceptor(Listener("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"), ConnectionQuotas(toy_config()))
        try:
            with pytest.raises(BindFailed, match="the port is in use"):
                acceptor.open()
        finally:
            acceptor.close()


def test_an_empty_host_takes_ipv4_connections() -> None:
    quotas = ConnectionQuotas(toy_config())
    quotas.add_listener("PLAINTEXT")
    acceptor = Acceptor(Listener("PLAINTEXT", "", 0, "PLAINTEXT"), quotas)
    processor = TakingProcessor()
    acceptor.add_processor(processor)  # type: ignore[arg-type]
    acceptor.open()
    acceptor.on_start()
    try:
        with socket.create_connection(("127.0.0.1", acceptor.port), timeout=5):
            acceptor.run_once()
            assert quotas.count("127.0.0.1") == 1
    finally:
        processor.close()
        acceptor.close()


def test_mapped_addresses_are_the_same_address() -> None:
    assert plain_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_address("::1") == "::1"


def test_the_thread_has_kafkas_name_and_ends_promptly() -> None:
    """RP-2, RP-4."""
    acceptor = Acceptor(LISTENER, ConnectionQuotas(toy_config()))
    acceptor.start()
    assert acceptor.name == "data-plane-kafka-socket-acceptor-PLAINTEXT-PLAINTEXT-0"
    start = time.monotonic()
    assert acceptor.shutdown(5)
    assert time.monotonic() - start < 2


def test_a_burst_of_connections_waits_in_the_backlog_and_is_accepted_in_turns(make: Make) -> None:
    """Issue 18, M5: with a backlog of 50 the fifty-second client waited for TCP's next attempt, a second later."""
    setup = make(options=SocketOptions(backlog=toy_config()["socket.listen.backlog.size"]))
    for processor in setup.processors:
        processor.room = 1000
    setup.connect(120)  # nothing is accepted meanwhile
    setup.acceptor.run_once()
    assert sum(setup.counts) == ACCEPTS_PER_TURN
    setup.acceptor.run_once()
    assert sum(setup.counts) == 120
