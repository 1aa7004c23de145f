"""Peers that send on while they do not take their responses (RP-19, RP-24, ADR 14)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from barnabas.net.channel import Channel, DisconnectReason
from barnabas.net.deadlines import Deadlines
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.net.poller import READ
from barnabas.net.read_on import ReadOn
from barnabas.net.send import Send, framed
from tests.net.peers import Network, frame, read_frame

MakeNetwork = Callable[..., Network]
LARGE = b"r" * 8_000_000
SECOND = 1_000_000_000


def stuck(network: Network, channel: Channel) -> Send:
    """A response that the peer does not read, on a channel whose request it answers."""
    network.selector.begin_request(channel)
    send = Send(framed([LARGE]))
    assert not network.selector.send(channel, send)
    network.fill_the_socket(send)
    return send


def send_all(network: Network, peer: socket.socket, data: bytes) -> None:
    """As much as the other side reads meanwhile; fails when it stops reading."""
    peer.setblocking(False)
    view = memoryview(data)

    def sent_all() -> bool:
        nonlocal view
        with suppress(BlockingIOError):
            view = view[peer.send(view) :]
        return not view

    network.poll_until(sent_all, "the end of sending")
    peer.setblocking(True)


@pytest.fixture(params=["unlimited", "bounded"])
def network(request: pytest.FixtureRequest, make_network: MakeNetwork) -> Network:
    return make_network(memory_pool=None if request.param == "unlimited" else SimpleMemoryPool(100_000_000))


def test_a_channel_with_a_stuck_send_is_read_on_and_still_serves_one_request_at_a_time(network: Network) -> None:
    """RP-19: small socket buffers hold a fraction of what the peer sends meanwhile."""
    channel, peer = network.open()
    channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)
    stuck(network, channel)
    requests = [b"%06d" % number + bytes(number % 300) for number in range(3000)]
    data = b"".join(map(frame, requests))
    assert len(data) > 400_000
    send_all(network, peer, data)
    assert not network.selector.completed_receives
    network.poll_until(lambda: network.selector.reading.read_on.held == len(data))
    peer.settimeout(10)
    network.poll_until(lambda: peer.recv(1 << 20) and network.selector.completed_sends, "the end of the response")
    got = []
    for _ in requests:
        network.selector.end_request(channel)
        got.append(network.payload())
        network.selector.begin_request(channel)
        network.selector.poll(0)
        assert not network.selector.completed_receives
    assert got == requests
    assert network.selector.reading.read_on.held == 0
    assert channel.recv_into == channel.transport.recv_into


def test_what_comes_behind_held_bytes_follows_them(network: Network) -> None:
    """A frame whose first half was held and whose second half comes later; and a large one."""
    channel, peer = network.open()
    stuck(network, channel)
    large = bytes(range(256)) * 2000
    data = frame(b"one") + frame(large) + frame(b"two")
    send_all(network, peer, data[:300_000])
    network.poll_until(lambda: network.selector.reading.read_on.held == 300_000)
    network.poll_until(lambda: peer.recv(1 << 20) and network.selector.completed_sends)
    network.selector.end_request(channel)
    got = [network.payload()]
    send_all(network, peer, data[300_000:])
    got += [network.payload(), network.payload()]
    assert got == [b"one", large, b"two"]


def test_reading_on_ends_at_the_limit_of_a_channel(make_network: MakeNetwork) -> None:
    network = make_network()
    network.selector.reading.read_on = ReadOn(100_000, 1_000_000)
    channel, peer = network.open()
    stuck(network, channel)
    peer.sendall(bytes(120_000))
    network.poll_until(lambda: network.selector.reading.read_on.held == 100_000)
    network.selector.poll(0.01)
    assert network.selector.reading.read_on.held == 100_000
    network.selector.close(channel)
    assert network.selector.reading.read_on.held == 0


def test_however_many_hold_bytes_there_is_room_for_one_more(make_network: MakeNetwork) -> None:
    """Peers that never take their responses share the memory for reading on; they cannot take all of it."""
    network = make_network()
    read_on = network.selector.reading.read_on = ReadOn(100_000, 160_000)
    before = 0
    for _ in range(12):
        channel, peer = network.open()
        stuck(network, channel)
        peer.setblocking(False)
        peer.send(bytes(60_000))
        network.poll_until(lambda one=channel: one.held is not None and not one.interest & READ)
        assert channel.held is not None
        assert len(channel.held.data) == (160_000 - before) // 4
        before = read_on.held
    assert read_on.held < 160_000


def test_a_peer_that_has_finished_sending_still_gets_its_response(network: Network) -> None:
    """RP-21: half-closed, with further requests behind the stuck response."""
    channel, peer = network.open()
    send = stuck(network, channel)
    peer.sendall(frame(b"next"))
    peer.shutdown(socket.SHUT_WR)
    network.poll_until(lambda: channel.hung_up)
    network.poll_until(lambda: peer.recv(1 << 20) and network.selector.completed_sends == [send])
    network.selector.end_request(channel)
    assert network.payload() == b"next"
    assert network.disconnection() == (channel, DisconnectReason.REMOTE_CLOSE)


def test_a_stuck_send_is_counted_and_named_once(make_network: MakeNetwork, caplog: pytest.LogCaptureFixture) -> None:
    network = make_network(deadlines=Deadlines(0, 0, 60 * SECOND, 0, 0, 10 * SECOND))
    assert network.selector.sending.unsent() == (0, 0)
    channel, peer = network.open("slow")
    send = stuck(network, channel)
    network.clock.advance(9)
    network.selector.poll(0)
    assert network.selector.sending.unsent() == (send.size - send.written, 9 * SECOND)
    assert not caplog.messages
    for _ in range(3):
        network.clock.advance(1)
        network.selector.poll(0)
    unsent = send.size - send.written
    assert caplog.messages == [
        f"Connection slow has not taken its response for 10000 ms: {unsent} of {send.size} bytes are unsent"
    ]
    network.poll_until(lambda: peer.recv(1 << 20) and network.selector.completed_sends == [send])
    assert network.selector.sending.unsent() == (0, 0)


def test_a_stuck_send_ends_with_its_channel(make_network: MakeNetwork) -> None:
    network = make_network(deadlines=Deadlines(0, 0, 60 * SECOND, 0, 0, 10 * SECOND))
    channel, _ = network.open()
    stuck(network, channel)
    network.clock.advance(61)
    assert network.disconnection() == (channel, DisconnectReason.WRITE_TIMEOUT)
    assert (len(network.selector.sending), network.selector.reading.read_on.held) == (0, 0)
    other, peer = network.open()
    peer.sendall(frame(b"alive"))
    assert network.payload() == b"alive"
    assert network.answer(other, b"yes")
    assert read_frame(peer) == b"yes"


def test_a_client_reads_while_its_own_request_is_stuck(network: Network) -> None:
    """The same from the other side: a broker that sends all its answers before it reads the next request gets on."""
    channel = network.selector.connect("broker", network.address, receive_buffer=65_536)
    broker = network.accept()
    network.poll_until(lambda: network.selector.connected == [channel])
    request = Send(framed([LARGE]))
    assert not network.selector.send(channel, request)
    network.fill_the_socket(request)
    answers = [bytes([number]) * 500_000 for number in range(20)]
    got: list[bytes] = []

    def send_and_take() -> bool:
        nonlocal unsent
        with suppress(BlockingIOError):
            unsent = unsent[broker.send(unsent) :]
        for receive in network.selector.completed_receives:
            got.append(bytes(receive.payload))
            receive.release()
        return len(got) == len(answers)

    unsent = memoryview(b"".join(map(frame, answers)))
    broker.setblocking(False)
    network.poll_until(send_and_take, "the answers")
    assert got == answers
    assert not request.done
    broker.setblocking(True)
    network.poll_until(lambda: broker.recv(1 << 20) and network.selector.completed_sends == [request])
