"""Peers that are slow to take their responses, when these take too much memory together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from barnabas.net.channel import Channel, DisconnectReason
from barnabas.net.send import FileRegion, Send, framed
from barnabas.net.sending import FAIR_BYTES, PATIENCE_NS, UnsentMemory
from tests.net.peers import Network

MakeNetwork = Callable[..., Network]
SIZE = 8_000_000
PATIENCE = PATIENCE_NS / 1e9


@pytest.fixture
def memory() -> UnsentMemory:
    return UnsentMemory(3 * SIZE + 100)


@pytest.fixture
def network(make_network: MakeNetwork, memory: UnsentMemory) -> Network:
    network = make_network()
    network.selector.sending.memory = memory
    return network


def stuck(network: Network, size: int = SIZE) -> Channel:
    """A channel with a response of which its peer takes nothing."""
    channel, _ = network.open()
    send = Send(framed([bytes(size)]))
    assert not network.selector.send(channel, send)
    network.fill_the_socket(send)
    return channel


def gone(network: Network) -> list[Channel]:
    """Whom the next poll closes."""
    network.selector.poll(0)
    assert all(reason is DisconnectReason.SLOW for _, reason in network.selector.disconnected)
    return [channel for channel, _ in network.selector.disconnected]


def gone_at_first_look(network: Network) -> list[Channel]:
    network.clock.advance(1)
    return gone(network)


def test_the_oldest_go_until_the_others_fit(
    network: Network, memory: UnsentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    channels = [stuck(network) for _ in range(3)]
    network.clock.advance(100)
    assert not gone(network), "all fit"
    channels += [stuck(network) for _ in range(2)]
    assert not gone_at_first_look(network)
    with caplog.at_level(logging.WARNING):
        network.clock.advance(PATIENCE)
        assert gone(network) == channels[:2]
    assert "response taken too slowly" in caplog.text
    assert len(caplog.records) == 1
    assert memory.held == 3 * (SIZE + 4)
    network.clock.advance(100)
    assert not gone(network), "the others fit now"


def test_a_young_one_has_time(network: Network) -> None:
    for _ in range(5):
        stuck(network)
    assert not gone_at_first_look(network)
    network.clock.advance(PATIENCE - 0.1)
    assert not gone(network)
    network.clock.advance(0.2)
    assert len(gone(network)) == 2


def test_who_takes_its_response_at_a_fair_rate_keeps_its_connection(network: Network) -> None:
    fair, peer = network.open()
    send = Send(framed([bytes(SIZE)]))
    assert not network.selector.send(fair, send)
    peer.setblocking(False)

    network.fill_the_socket(send)
    others = [stuck(network) for _ in range(4)]
    assert not gone_at_first_look(network)
    before = send.written

    def has_taken_enough() -> bool:
        with suppress(BlockingIOError):
            peer.recv(65_536)
        return send.written - before >= FAIR_BYTES

    network.poll_until(has_taken_enough)
    network.clock.advance(PATIENCE)
    assert gone(network) == others[:2]
    assert fair.ready


def test_selectors_share_the_memory_and_what_is_sent_or_closed_counts_no_more(
    make_network: MakeNetwork, memory: UnsentMemory
) -> None:
    networks = [make_network() for _ in range(2)]
    for network in networks:
        network.selector.sending.memory = memory
    first = [stuck(networks[0]) for _ in range(2)]
    second = [stuck(networks[1]) for _ in range(2)]
    for network in networks:
        assert not gone_at_first_look(network)
        network.clock.advance(PATIENCE)
    assert gone(networks[1]) == second[:1]
    assert not gone(networks[0])
    networks[0].selector.close(first[0])
    assert memory.held == 2 * (SIZE + 4)
    peer = networks[0].peers[1]
    networks[0].poll_until(lambda: peer.recv(1 << 20) and networks[0].selector.completed_sends)
    assert memory.held == SIZE + 4


def test_files_take_no_memory(network: Network, memory: UnsentMemory, tmp_path: object) -> None:
    path = f"{tmp_path}/log"
    with open(path, "wb") as file:
        os.truncate(path, SIZE)
    channel, _ = network.open()
    with open(path, "rb") as file:
        assert not network.selector.send(channel, Send(framed([b"head", FileRegion(file, 0, SIZE)])))
        assert memory.held == 0
        network.selector.close(channel)
    assert memory.held == 0
