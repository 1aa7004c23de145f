"""A peer that hangs up is noticed also while its channel is not read (RP-17, RP-20, RP-21)."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import pytest

from barnabas.net.channel import DisconnectReason
from barnabas.net.memory_pool import SimpleMemoryPool
from tests.net.peers import Network, frame, reset

MakeNetwork = Callable[..., Network]
pytestmark = pytest.mark.skipif(not hasattr(select, "EPOLLRDHUP"), reason="only epoll tells of a hang-up alone")


@pytest.mark.parametrize("with_bytes", [False, True])
@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_the_owner_hears_once_that_a_muted_peer_hung_up(
    make_network: MakeNetwork, end: Callable[[socket.socket], None], with_bytes: bool
) -> None:
    network = make_network()
    channel, peer = network.open()
    network.selector.begin_request(channel)
    if with_bytes:  # then reading stopped being watched for before the hang-up
        peer.sendall(frame(b"pipelined"))
        network.poll_until(lambda: not channel.interest & 1)
    end(peer)
    network.poll_until(lambda: network.selector.hung_up == [channel])
    network.selector.poll(0.01)
    assert not network.selector.hung_up
    assert network.selector._poller.poll(0, 10) == []  # and the poller is not kept busy by it
    network.selector.end_request(channel)
    if with_bytes and end is not reset:
        assert network.payload() == b"pipelined"
    assert network.disconnection()[0] is channel


def test_a_connection_that_breaks_while_it_waits_for_memory_is_closed_at_once(make_network: MakeNetwork) -> None:
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    holder = pool.try_allocate(100)
    channel, peer = network.open()
    peer.sendall(frame(b"abc" * 10))
    network.poll_until(lambda: channel.muted_for_memory)
    reset(peer)
    assert network.disconnection() == (channel, DisconnectReason.IO_ERROR)
    assert holder is not None


def test_a_peer_that_finished_sending_gets_memory_and_its_answer(make_network: MakeNetwork) -> None:
    """RP-21: its request is whole in the socket."""
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    holder = pool.try_allocate(100)
    assert holder is not None
    channel, peer = network.open()
    peer.sendall(frame(b"abc" * 10))
    network.poll_until(lambda: channel.muted_for_memory)
    peer.shutdown(socket.SHUT_WR)
    network.poll_until(lambda: channel.hung_up)
    holder.release()
    assert network.payload() == b"abc" * 10
    assert network.disconnection() == (channel, DisconnectReason.REMOTE_CLOSE)
