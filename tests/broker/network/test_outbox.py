"""Responses of pipelined requests leave in pairs, and none stays behind (RP-13, RP-19; ADR 11)."""

from __future__ import annotations

import select
import socket

import pytest

from barnabas.broker.network.stand_in import StandIn
from barnabas.net.transport import PlaintextTransport
from tests import wire
from tests.broker.network.toy_broker import DrivenProcessor, driven, metadata

if not hasattr(socket, "MSG_MORE"):
    pytest.skip("this system has no MSG_MORE: every response leaves at once", allow_module_level=True)


class Watched(PlaintextTransport):
    """The real socket, and a note of what it is told: "more", "last" or "push"."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.told: list[str] = []
        self.send = self._send

    def _send(self, data: bytes, flags: int = 0) -> int:
        self.told.append("more" if flags & socket.MSG_MORE else "last")
        return self._socket.send(data, flags)

    def push(self) -> None:
        self.told.append("push")
        super().push()


def watched_client(one: DrivenProcessor) -> tuple[socket.socket, list[str]]:
    one.plane.inline = True
    client = one.connect()
    [channel] = one.channels
    channel.transport = watched = Watched(channel.socket)
    return client, watched.told


def turn_until_run(one: DrivenProcessor, requests: int) -> None:
    one.until(lambda: one.processor.inline_runs == requests, f"the run of {requests} requests")
    one.turn()


def correlation_of(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, ["last"]),
        (2, ["more", "last"]),
        (3, ["more", "last", "last"]),
        (5, ["more", "last", "more", "last", "last"]),
    ],
)
def test_two_by_two_in_their_order(count: int, told: list[str]) -> None:
    with driven() as one:
        client, seen = watched_client(one)
        client.sendall(b"".join(wire.api_versions(number) for number in range(count)))
        turn_until_run(one, count)
        assert [correlation_of(wire.read_frame(client)) for _ in range(count)] == list(range(count))
        assert seen == told


def test_half_a_request_is_not_waited_for() -> None:
    with driven() as one:
        client, seen = watched_client(one)
        second = wire.api_versions(2)
        client.sendall(wire.api_versions(1) + second[:-1])
        turn_until_run(one, 1)
        assert correlation_of(wire.read_frame(client)) == 1
        client.sendall(second[-1:])
        turn_until_run(one, 2)
        assert correlation_of(wire.read_frame(client)) == 2
        assert seen == ["last", "last"]


def test_a_request_that_takes_its_time_does_not_keep_the_response_before_it() -> None:
    with driven() as one:
        client, seen = watched_client(one)
        client.sendall(wire.api_versions(1) + metadata(2))  # the second goes to a handler
        request = one.receive()
        assert correlation_of(wire.read_frame(client)) == 1
        assert seen == ["more", "push"]
        request.release_buffer()


def test_a_request_without_a_response_does_not_keep_the_one_before_it() -> None:
    with driven() as one:
        client, seen = watched_client(one)
        client.sendall(wire.api_versions(1) + wire.produce("t", b"", acks=0))
        turn_until_run(one, 2)
        assert correlation_of(wire.read_frame(client)) == 1
        assert seen == ["more", "push"]


def test_a_broken_successor_closes_the_connection_and_nothing_else() -> None:
    with driven() as one:
        client, seen = watched_client(one)
        client.sendall(wire.api_versions(1) + wire.request(999, 0))
        one.until(lambda: not one.channels)
        one.turn()
        assert seen == ["more"]
        neighbour = one.connect()
        neighbour.sendall(wire.api_versions(7))
        turn_until_run(one, 2)
        assert correlation_of(wire.read_frame(neighbour)) == 7


def test_the_disk_is_not_waited_for_either() -> None:
    """A processor that brings to disk what others have sent lets go of what it holds first."""

    class Disk:
        wanted = False

        def join(self) -> None: ...

        def leave(self) -> None: ...

        def commit(self) -> None:
            seen.append("disk")
            self.wanted = False

    with driven() as one:
        client, seen = watched_client(one)
        disk = Disk()
        one.processor._stand_in = StandIn("toy", disk, one.clock)
        client.sendall(wire.api_versions(1) + wire.api_versions(2))
        assert select.select([one.channels[0].socket], [], [], 5)[0]
        disk.wanted = True
        turn_until_run(one, 2)
        assert [correlation_of(wire.read_frame(client)) for _ in range(2)] == [1, 2]
        assert seen == ["more", "push", "disk", "last"]
        one.processor._stand_in = None
