"""Real loopback connections for the tests of the network layer."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest

from barnabas.clock import ManualClock
from barnabas.net.channel import Channel, Receive
from barnabas.net.deadlines import NO_DEADLINES, Deadlines
from barnabas.net.memory_pool import MemoryPool
from barnabas.net.poller import Poller
from barnabas.net.selector import Selector
from barnabas.net.send import Send, framed

DEADLINE_SECONDS = 30.0


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def reset(peer: socket.socket) -> None:
    """Close with RST instead of FIN."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def read_frame(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(peer, 4))
    return read_exactly(peer, size)


def read_exactly(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            raise EOFError(f"the connection ended after {len(data)} of {count} bytes")
        data += chunk
    return bytes(data)


class Network:
    """A selector, its listening socket and the peers of its channels; closes all of them."""

    def __init__(
        self,
        memory_pool: MemoryPool | None = None,
        max_receive_size: int = 1_000_000,
        idle_seconds: float = 0,
        deadlines: Deadlines = NO_DEADLINES,
        poller: Poller | None = None,
    ) -> None:
        self.clock = ManualClock()
        idle_ns = round(idle_seconds * 1e9)
        self.selector = Selector(memory_pool, max_receive_size, idle_ns, deadlines, self.clock, poller)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.peers: list[socket.socket] = []
        self._names = 0

    def open(self, name: str | None = None, **arguments: object) -> tuple[Channel, socket.socket]:
        """A registered channel and the blocking socket at its other end."""
        server, peer = self.sockets()
        self._names += 1
        channel = self.selector.register(name or f"c{self._names}", server, **arguments)  # type: ignore[arg-type]
        return channel, peer

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        peer = socket.create_connection(self.address, timeout=DEADLINE_SECONDS)
        self.peers.append(peer)
        server, _ = self.listener.accept()
        return server, peer

    def accept(self) -> socket.socket:
        self.listener.settimeout(DEADLINE_SECONDS)
        peer, _ = self.listener.accept()
        peer.settimeout(DEADLINE_SECONDS)
        self.peers.append(peer)
        return peer

    def poll_until(self, condition: Callable[[], object], what: str = "the condition") -> None:
        """Poll until `condition` holds for the results of a poll."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.selector.poll(0.05)
            if condition():
                return
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {DEADLINE_SECONDS} s: {self.selector.statistics()}")

    def fill_the_socket(self, send: Send) -> None:
        """Poll until a send that the peer does not read gets no further: the kernel may take more for a while, as its acknowledgements
        come in."""
        written: list[int] = []
        self.poll_until(lambda: written.append(send.written) or written[-4:] == [send.written] * 4, "a full socket")

    def receive(self) -> Receive:
        """The one receive of the next poll that has any."""
        self.poll_until(lambda: self.selector.completed_receives, "a receive")
        (receive,) = self.selector.completed_receives
        return receive

    def payload(self) -> bytes:
        """The bytes of the next receive, its memory given back."""
        receive = self.receive()
        data = bytes(receive.payload)
        receive.release()
        return data

    def disconnection(self) -> tuple[Channel, object]:
        self.poll_until(lambda: self.selector.disconnected, "a disconnection")
        (entry,) = self.selector.disconnected
        return entry

    def answer(self, channel: Channel, payload: bytes) -> bool:
        return self.selector.send(channel, Send(framed([payload])))

    def close(self) -> None:
        self.selector.close_all()
        self.listener.close()
        for peer in self.peers:
            peer.close()
