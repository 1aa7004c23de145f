"""Selector on the client's side: connect, handshake, authentication (PP-33 .. PP-37, RP-22, RP-42)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import pytest

from barnabas.net import selector as selector_module
from barnabas.net.authenticator import AuthenticationFailed
from barnabas.net.channel import Channel, ChannelState, DisconnectReason
from barnabas.net.connecting import Preparing
from barnabas.net.deadlines import Deadlines
from barnabas.net.selector import ChannelExists
from barnabas.net.send import Send, framed
from barnabas.net.transport import PlaintextTransport, Transport
from tests.net.peers import Network, frame, read_frame

SECOND = 1_000_000_000
MakeNetwork = Callable[..., Network]


def connected(network: Network, name: str = "node") -> tuple[Channel, socket.socket]:
    channel = network.selector.connect(name, network.address)
    peer = network.accept()
    network.poll_until(lambda: channel in network.selector.connected)
    return channel, peer


def closed_port() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
    return address


def immediate_connect(address: tuple[str, int], *_: int) -> tuple[socket.socket, bool]:
    """What the OS may do: the connect is over before it returns."""
    sock = socket.create_connection(address)
    sock.setblocking(False)
    return sock, True


# ------------------------------------------------------------------------------------------------ connect


def test_a_connection_is_made_without_blocking_and_carries_frames(network: Network) -> None:
    """PP-33."""
    channel = network.selector.connect("node", network.address, 65536, 65536, attachment="mine")
    assert channel.state is ChannelState.NOT_CONNECTED
    assert network.selector.connections_created == 0
    peer = network.accept()
    network.poll_until(lambda: network.selector.connected == [channel])
    assert (channel.ready, channel.attachment, network.selector.connections_created) == (True, "mine", 1)
    assert channel.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert network.answer(channel, b"request")
    assert read_frame(peer) == b"request"
    peer.sendall(frame(b"response"))
    assert network.payload() == b"response"


def test_a_send_before_the_connection_stands_waits_for_it(network: Network) -> None:
    """PP-33."""
    channel = network.selector.connect("node", network.address)
    send = Send(framed([b"early"]))
    assert not network.selector.send(channel, send)
    peer = network.accept()
    network.poll_until(lambda: network.selector.completed_sends == [send])
    assert read_frame(peer) == b"early"


def test_a_refused_connection_is_reported(network: Network) -> None:
    """PP-33: not connected, with the error."""
    try:
        channel = network.selector.connect("node", closed_port())
    except ConnectionRefusedError:
        return  # known at once on this system
    assert network.disconnection() == (channel, DisconnectReason.CONNECT_FAILED)
    assert isinstance(channel.error, ConnectionRefusedError)
    assert not network.selector.connected
    assert network.selector.connections_closed == 0


def test_an_error_known_at_once_is_raised_and_leaves_nothing(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """PP-33: no route."""
    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: errno.EHOSTUNREACH)
    with pytest.raises(OSError, match=r"192\.0\.2\.1:9092"):
        network.selector.connect("node", ("192.0.2.1", 9092))
    assert not network.selector.channels


def test_ipv6_addresses_are_understood(network: Network) -> None:
    """PP-33."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        channel = network.selector.connect("node", listener.getsockname()[:2])
        network.poll_until(lambda: network.selector.connected == [channel])


def test_an_immediate_connect_is_handled_in_the_next_poll_without_waiting(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PP-33: no event will announce it."""
    monkeypatch.setattr(selector_module, "start_connect", immediate_connect)
    channel = network.selector.connect("node", network.address)
    peer = network.accept()
    send = Send(framed([b"early"]))
    assert not network.selector.send(channel, send)
    network.selector.poll(1000)
    assert network.selector.connected == [channel]
    assert network.selector.completed_sends == [send]
    assert read_frame(peer) == b"early"
    network.selector.poll(0)
    assert not network.selector.connected


def test_an_immediate_connect_that_is_closed_at_once_is_forgotten(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PP-33: cleaned up."""
    monkeypatch.setattr(selector_module, "start_connect", immediate_connect)
    channel = network.selector.connect("node", network.address)
    network.accept()
    network.selector.close(channel)
    network.selector.poll(0)
    assert not network.selector.connected
    assert not network.selector.channels


def test_an_existing_id_is_refused(network: Network) -> None:
    """PP-33."""
    connected(network)
    with pytest.raises(ChannelExists):
        network.selector.connect("node", network.address)


def test_connected_and_disconnected_in_one_poll_is_a_disconnection_only(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PP-36: `connected` never holds a closed channel."""

    def explode(*_: object) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(Preparing, "_become_ready", explode)
    channel = network.selector.connect("node", network.address)
    network.accept()
    assert network.disconnection() == (channel, DisconnectReason.INTERNAL_ERROR)
    assert not network.selector.connected


def test_a_server_that_closes_is_reported_after_its_last_response(network: Network) -> None:
    """PP-37: a client never mutes; responses that were read ahead still arrive."""
    channel, peer = connected(network)
    peer.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
    peer.close()
    assert [network.payload() for _ in range(3)] == [b"1", b"2", b"3"]
    assert network.disconnection() == (channel, DisconnectReason.REMOTE_CLOSE)


def test_the_first_frame_deadline_is_for_accepted_connections_only(make_network: MakeNetwork) -> None:
    """RP-42: a server speaks when it is spoken to."""
    network = make_network(deadlines=Deadlines())
    channel, _ = connected(network)
    network.clock.advance(1000)
    network.selector.poll(0)
    assert channel.ready


# ------------------------------------------------------------------------------------------------ handshake, authentication


class Password:
    """An authenticator that reads one byte and wants it to be `!`."""

    wants_write = False
    principal = "User:ANONYMOUS"

    def __init__(self) -> None:
        self.complete = False
        self.failed = 0
        self.closed = 0

    def authenticate(self, transport: Transport) -> None:
        data = bytearray(1)
        transport.recv_into(data)
        if data != b"!":
            raise AuthenticationFailed("wrong password")
        self.complete = True
        self.principal = "User:alice"

    def fail(self, transport: Transport) -> None:
        self.failed += 1
        transport.send(b"no")

    def close(self) -> None:
        self.closed += 1


def test_frames_flow_only_after_authentication(network: Network) -> None:
    """PP-37, RP-24: the principal is known when the channel is ready."""
    authenticator = Password()
    channel, peer = network.open(authenticator=authenticator)
    assert channel.state is ChannelState.AUTHENTICATE
    send = Send([b"early"])
    assert not network.selector.send(channel, send)
    network.selector.poll(0.01)
    assert not network.selector.completed_sends
    peer.sendall(b"!" + frame(b"x"))
    assert network.payload() == b"x"
    assert channel.principal == "User:alice"
    network.poll_until(lambda: send.done)
    network.selector.close(channel)
    assert authenticator.closed == 1


@pytest.mark.parametrize("delay_seconds", [0, 1])
def test_a_failed_authentication_is_closed_after_the_delay(delay_seconds: int, make_network: MakeNetwork) -> None:
    """RP-22: `connection.failed.authentication.delay.ms`; the peer's answer waits as well."""
    network = make_network(deadlines=Deadlines(0, 0, 0, 0, delay_seconds * SECOND))
    authenticator = Password()
    channel, peer = network.open(authenticator=authenticator)
    peer.sendall(b"?" + b"more to read")
    if delay_seconds:
        network.poll_until(lambda: channel.error)
        network.clock.advance(0.9)
        network.selector.poll(0)
        assert not channel.closed
        network.clock.advance(0.1)
    assert network.disconnection() == (channel, DisconnectReason.AUTHENTICATION_FAILED)
    assert (authenticator.failed, peer.recv(2)) == (1, b"no")
    assert isinstance(channel.error, AuthenticationFailed)


def test_an_authentication_that_does_not_end_is_closed(make_network: MakeNetwork) -> None:
    """RP-42; then the first frame has its own time."""
    network = make_network(deadlines=Deadlines(first_frame_ns=10 * SECOND, authentication_ns=10 * SECOND))
    slow, _ = network.open(authenticator=Password())
    quick, peer = network.open(authenticator=Password())
    network.clock.advance(9)
    peer.sendall(b"!")
    network.poll_until(lambda: quick.ready)
    network.clock.advance(1)
    network.selector.poll(0)
    assert network.selector.disconnected == [(slow, DisconnectReason.AUTHENTICATION_TIMEOUT)]
    network.clock.advance(9)
    network.selector.poll(0)
    assert network.selector.disconnected == [(quick, DisconnectReason.FIRST_FRAME_TIMEOUT)]


class Buffering(PlaintextTransport):
    """As TLS does: a handshake, and bytes that the OS no longer reports."""

    def __init__(self, sock: socket.socket, wants_write: bool = False) -> None:
        super().__init__(sock)
        self.ready = False
        self.buffers = True
        self.wants_write = wants_write
        self.held = b""
        self.plain_recv_into = sock.recv_into
        self.recv_into = self.recv_held

    def handshake(self) -> None:
        if self.wants_write:
            self.wants_write = False
            raise BlockingIOError
        data = bytearray(65536)
        count = self.plain_recv_into(data)
        self.held = bytes(data[1:count])
        self.ready = True

    def has_buffered(self) -> bool:
        return bool(self.held)

    def recv_held(self, buffer: bytearray | memoryview, count: int = 0) -> int:
        if not self.held:
            return self.plain_recv_into(buffer, count)
        taken = self.held[: min(count or len(buffer), 6)]
        memoryview(buffer)[: len(taken)] = taken
        self.held = self.held[len(taken) :]
        return len(taken)


@pytest.mark.parametrize("wants_write", [False, True])
def test_bytes_held_by_the_transport_are_served_although_the_socket_is_silent(
    network: Network, wants_write: bool
) -> None:
    """PP-36, RP-23: keys with buffered data; also after a mute; one frame per poll."""
    server, peer = network.sockets()
    transport = Buffering(server, wants_write)
    channel = network.selector.register("tls", server, transport)
    peer.sendall(b"h" + frame(b"11") + frame(b"22") + frame(b"33") + b"\0")
    assert network.payload() == b"11"
    network.selector.begin_request(channel)
    network.selector.poll(0)
    assert not network.selector.completed_receives
    network.selector.end_request(channel)
    network.selector.poll(1000)
    assert [receive.payload for receive in network.selector.completed_receives] == [b"22"]
    network.selector.poll(1000)
    assert [receive.payload for receive in network.selector.completed_receives] == [b"33"]
    network.selector.poll(0)
    network.selector.poll(0)
    assert network.selector.statistics()["buffered"] == 0
    peer.close()
    assert network.disconnection() == (channel, DisconnectReason.REMOTE_CLOSE)


def test_a_silent_transport_has_begun_no_frame(make_network: MakeNetwork) -> None:
    """RP-42: looking for buffered bytes starts no deadline when there are none."""
    network = make_network(deadlines=Deadlines(frame_ns=30 * SECOND))
    server, peer = network.sockets()
    channel = network.selector.register("tls", server, Buffering(server))
    peer.sendall(b"h" + frame(b"11"))
    assert network.payload() == b"11"
    network.selector.poll(0)
    network.clock.advance(100)
    network.selector.poll(0)
    assert channel.ready
