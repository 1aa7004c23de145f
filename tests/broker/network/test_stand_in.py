"""While the disk keeps a processor's thread, its connections are served by the stand-in (RP-12, RP-41; faults row 10)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.listeners import parse_listeners
from barnabas.broker.network.socket_server import SocketServer
from barnabas.broker.settings import broker_config
from tests import wire
from tests.broker.network.toy_broker import client_of, metadata, never, toy_apis
from tests.waiting import wait_until


class Disk:
    """A group commit that is wanted when the test says so, and takes until the test lets it end."""

    def __init__(self) -> None:
        self.wanted = False
        self.members: set[int] = set()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.commits = 0
        self.ended = 0

    def join(self) -> None:
        self.members.add(threading.get_ident())

    def leave(self) -> None:
        self.members.discard(threading.get_ident())

    def commit(self) -> None:
        assert threading.get_ident() in self.members
        self.wanted = False
        self.commits += 1
        self.entered.set()
        assert self.gate.wait(30)
        self.ended += 1

    def stall(self, server: SocketServer) -> None:
        """The processor's next commit does not come back. The one before has: it must not find the gate shut again."""
        wait_until(lambda: self.ended == self.commits, what="the end of the commit before")
        self.entered.clear()
        self.gate.clear()
        self.wanted = True
        server.processors[0].wakeup()
        assert self.entered.wait(30)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def server(disk: Disk) -> Iterator[SocketServer]:
    config = broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "barnabas.request.inline": "true"})
    server = SocketServer(config, parse_listeners(config), toy_apis(), never)
    server.group_commit = disk
    server.start(None)
    try:
        yield server
    finally:
        disk.gate.set()
        assert server.shutdown(10)


def ask(sock: socket.socket) -> bytes:
    sock.sendall(metadata())
    return wire.read_frame(sock)


def test_connections_are_served_while_the_disk_keeps_the_processor(server: SocketServer, disk: Disk) -> None:
    processor = server.processors[0]
    with client_of(server) as old:
        ask(old)
        disk.stall(server)
        assert processor.away_ns
        for _ in range(20):
            ask(old)
        with client_of(server) as new:
            ask(new)
        disk.gate.set()
        wait_until(lambda: not processor.away_ns, what="the end of the stall")
        ask(old)
    assert disk.commits == 1


def test_the_processor_takes_its_turns_back(server: SocketServer, disk: Disk) -> None:
    stand_in = server.data_plane.stand_in
    assert stand_in is not None
    with client_of(server) as client:
        for _ in range(3):
            disk.stall(server)
            ask(client)
            disk.gate.set()
            ask(client)
        wait_until(lambda: disk.commits == 3, what="three commits")
        disk.stall(server)
        ask(client)
    assert disk.commits == 4


def test_an_error_in_a_turn_does_not_end_the_stand_in(
    server: SocketServer, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor = server.processors[0]
    failed = threading.Event()

    def fail_once() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("injected")

    with client_of(server) as client:
        disk.stall(server)
        monkeypatch.setattr(processor, "close_excess_connections", fail_once)
        ask(client)
        assert failed.wait(30)
        ask(client)
    assert "an unexpected error in one turn" in caplog.text


def test_a_stop_during_a_stall_ends_when_the_disk_does(server: SocketServer, disk: Disk) -> None:
    with client_of(server) as client:
        disk.stall(server)
        ask(client)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(server.shutdown(10)))
        stopping.start()
        disk.gate.set()
        stopping.join(10)
        assert stopped == [True]
        assert wire.is_closed(client)
    assert not disk.members
