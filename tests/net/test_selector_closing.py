"""How channels end: peer, owner, idleness, deadlines (RP-18, RP-21, RP-22, RP-42)."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Callable

import pytest

from barnabas.net.channel import Channel, DisconnectReason
from barnabas.net.deadlines import NO_DEADLINES, Deadlines
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.net.send import Send
from tests.net.peers import Network, frame, read_exactly, read_frame

SECOND = 1_000_000_000
MakeNetwork = Callable[..., Network]


@pytest.fixture(params=["read ahead", "bounded memory"])
def make_any(request: pytest.FixtureRequest, make_network: MakeNetwork) -> MakeNetwork:
    """Networks with both readers."""

    def make(**arguments: object) -> Network:
        if request.param == "bounded memory":
            arguments["memory_pool"] = SimpleMemoryPool(1_000_000)
        return make_network(**arguments)

    return make


def handled_until_the_end(network: Network, channel: Channel) -> tuple[list[bytes], DisconnectReason]:
    """Handle every receive as acks=0 requests are (muted, then unmuted without a send) until the channel is reported."""
    got: list[bytes] = []
    while True:
        network.poll_until(lambda: network.selector.completed_receives or network.selector.disconnected)
        for receive in network.selector.completed_receives:
            got.append(bytes(receive.payload))
            receive.release()
            network.selector.begin_request(channel)
        if network.selector.disconnected:
            ((gone, reason),) = network.selector.disconnected
            assert gone is channel
            return got, reason
        network.selector.poll(0)
        assert not network.selector.completed_receives, "a muted channel was read"
        network.selector.end_request(channel)


# ------------------------------------------------------------------------------------------------ close by the peer

MATRIX = {
    "nothing": ([], b""),
    "complete": ([b"1", b"2", b"3"], b""),
    "incomplete": ([], b"\0\0\0\5abc"),
    "incomplete size": ([], b"\0\0"),
    "complete and incomplete": ([b"1", b"2"], b"\0\0\0\5abc"),
}


@pytest.mark.parametrize("name", MATRIX)
def test_what_a_closing_peer_sent_completely_is_handled(name: str, make_any: MakeNetwork) -> None:
    """RP-21: remote close with none, complete, incomplete, complete and incomplete receives."""
    network = make_any()
    channel, peer = network.open()
    payloads, rest = MATRIX[name]
    peer.sendall(b"".join(map(frame, payloads)) + rest)
    peer.close()
    assert handled_until_the_end(network, channel) == (payloads, DisconnectReason.REMOTE_CLOSE)
    assert channel.closed
    assert network.selector.memory_pool.used() == 0


def test_after_a_failed_send_the_rest_is_dropped(make_any: MakeNetwork) -> None:
    """RP-21: complete receives are handled only until a send fails."""
    network = make_any()
    channel, peer = network.open()
    peer.sendall(frame(b"1") + frame(b"2"))
    assert network.payload() == b"1"
    network.selector.begin_request(channel)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    send = Send([bytes(30_000_000)])
    if not network.selector.send(channel, send) and not channel.closed:
        network.poll_until(lambda: network.selector.disconnected)
    else:
        network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.FAILED_SEND)]
    assert not network.selector.completed_receives
    assert network.selector.failed_sends == [send]


# ------------------------------------------------------------------------------------------------ close by the owner


def test_a_local_close_is_silent_unless_asked(make_any: MakeNetwork) -> None:
    """RP-23: `disconnected` is for what the owner does not know."""
    network = make_any()
    quiet, quiet_peer = network.open()
    told, _ = network.open()
    network.selector.close(quiet)
    network.selector.close(told, report=True)
    network.selector.close(told, report=True)
    network.selector.poll(1000)
    assert network.selector.disconnected == [(told, DisconnectReason.LOCAL_CLOSE)]
    assert quiet_peer.recv(1) == b""
    network.selector.poll(0)
    assert not network.selector.disconnected


def test_a_local_close_drops_what_was_received(make_any: MakeNetwork) -> None:
    """RP-21: only the graceful close delivers it."""
    network = make_any()
    channel, peer = network.open()
    peer.sendall(frame(b"1") + frame(b"2"))
    assert network.payload() == b"1"
    network.selector.close(channel)
    network.selector.poll(0.01)
    assert not network.selector.completed_receives
    assert not network.selector.channels


@pytest.mark.parametrize("name", MATRIX)
def test_a_graceful_close_delivers_what_is_complete(name: str, make_any: MakeNetwork) -> None:
    """RP-21: from left-over bytes and from the socket."""
    network = make_any()
    channel, peer = network.open()
    payloads, rest = MATRIX[name]
    peer.sendall(b"".join(map(frame, [b"0", *payloads])) + rest)
    assert network.payload() == b"0"
    network.selector.close(channel, graceful=True)
    network.selector.close(channel, graceful=True)
    assert handled_until_the_end(network, channel) == (payloads, DisconnectReason.LOCAL_CLOSE)
    assert network.selector.memory_pool.used() == 0


def test_a_closing_channel_waits_for_the_request_that_is_handled(make_any: MakeNetwork) -> None:
    """RP-21, RP-19: it is muted, so it is neither read nor ended; its id stays taken."""
    network = make_any()
    channel, _ = network.open("c")
    network.selector.begin_request(channel)
    network.selector.close(channel, graceful=True)
    network.selector.poll(0)
    assert channel.closing
    assert network.selector.lowest_priority_channel() is channel
    with pytest.raises(Exception, match="still being closed"):
        network.open("c")
    network.selector.end_request(channel)
    assert network.disconnection() == (channel, DisconnectReason.LOCAL_CLOSE)


def test_a_send_on_a_closing_channel_fails_and_ends_it(make_any: MakeNetwork) -> None:
    """PP-34, RP-21."""
    network = make_any()
    channel, peer = network.open()
    peer.sendall(frame(b"1") + frame(b"2"))
    network.payload()
    network.selector.begin_request(channel)
    network.selector.close(channel, graceful=True)
    send = Send([b"answer"])
    assert not network.selector.send(channel, send)
    network.selector.poll(1000)
    assert network.selector.failed_sends == [send]
    assert network.selector.disconnected == [(channel, DisconnectReason.LOCAL_CLOSE)]
    assert not network.selector.completed_receives


def test_a_closing_channel_can_be_closed_at_once(make_any: MakeNetwork) -> None:
    """RP-18: to make room."""
    network = make_any()
    channel, _ = network.open()
    network.selector.begin_request(channel)
    network.selector.close(channel, graceful=True)
    network.selector.close(channel)
    assert channel.closed
    network.selector.poll(0)
    assert not network.selector.disconnected


def test_channels_closed_while_receives_are_processed_do_no_harm(make_any: MakeNetwork) -> None:
    """RP-23: the owner may close any channel between two polls, also one with a receive at hand."""
    network = make_any()
    opened = [network.open() for _ in range(4)]
    for _, peer in opened:
        peer.sendall(frame(b"1") + frame(b"2"))
    seen: set[Channel] = set()
    while len(seen) < 4:
        network.poll_until(lambda: network.selector.completed_receives)
        for receive in list(network.selector.completed_receives):
            seen.add(receive.channel)
            receive.release()
            network.selector.close(receive.channel)
    network.selector.poll(0.01)
    assert not network.selector.completed_receives


# ------------------------------------------------------------------------------------------------ idle channels


def test_the_channel_idle_longest_is_closed_first(make_any: MakeNetwork) -> None:
    """RP-22: least recently used; any completed I/O makes a channel young."""
    network = make_any(idle_seconds=10)
    first, first_peer = network.open()
    second, second_peer = network.open()
    third, _ = network.open()
    network.clock.advance(6)
    first_peer.sendall(frame(b"x"))
    network.payload()
    network.answer(second, b"y")
    assert read_frame(second_peer) == b"y"
    network.clock.advance(6)
    network.selector.poll(0)
    assert network.selector.disconnected == [(third, DisconnectReason.EXPIRED)]
    network.clock.advance(4)
    network.selector.poll(0)
    assert {channel for channel, _ in network.selector.disconnected} == {first, second}


def test_an_expired_channel_is_closed_although_nothing_is_ready(make_any: MakeNetwork) -> None:
    """PP-36, RP-22: expiry needs no event; several expire in one poll."""
    network = make_any(idle_seconds=10)
    channels = [network.open()[0] for _ in range(5)]
    network.clock.advance(10)
    network.selector.poll(0)
    assert [channel for channel, _ in network.selector.disconnected] == channels


def test_a_channel_whose_request_is_handled_is_not_idle(make_any: MakeNetwork) -> None:
    """RP-22: a documented difference to Kafka; the idle time begins again when the request is done."""
    network = make_any(idle_seconds=10)
    channel, peer = network.open()
    peer.sendall(frame(b"long poll"))
    network.payload()
    network.selector.begin_request(channel)
    for _ in range(5):
        network.clock.advance(11)
        network.selector.poll(0)
        assert not network.selector.disconnected
    assert network.answer(channel, b"done")
    network.selector.end_request(channel)
    network.clock.advance(9)
    network.selector.poll(0)
    assert not network.selector.disconnected
    network.clock.advance(1)
    network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.EXPIRED)]


def test_a_request_whose_response_is_not_read_ends_with_the_idle_time(make_any: MakeNetwork) -> None:
    """RP-22, issue 18: it was muted, and once it was closing nothing ended it any more. The write deadline is not over yet."""
    network = make_any(idle_seconds=4, deadlines=Deadlines(write_ns=60 * SECOND))
    channel, peer = network.open()
    peer.sendall(frame(b"much"))
    network.payload()
    network.selector.begin_request(channel)
    assert not network.answer(channel, bytes(30_000_000))
    network.clock.advance(5)
    network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.EXPIRED)]
    assert channel.closed
    assert not network.selector.closing_channels
    assert len(network.selector.sending) == 0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_expired_channel_still_delivers_its_pending_receives(count: int, make_network: MakeNetwork) -> None:
    """RP-21, RP-22: idle expiry with none, one and several staged receives."""
    network = make_network(idle_seconds=10)
    channel, peer = network.open()
    network.selector.poll(0)
    payloads = [str(number).encode() for number in range(count)]
    channel.leftover = b"".join(map(frame, payloads))
    network.clock.advance(11)
    assert handled_until_the_end(network, channel) == (payloads, DisconnectReason.EXPIRED)
    assert peer.recv(1) == b""


def test_no_idle_limit_means_never(make_any: MakeNetwork) -> None:
    """RP-22."""
    network = make_any(idle_seconds=0)
    channel, _ = network.open()
    network.clock.advance(1e6)
    network.selector.poll(0)
    assert channel.ready


def test_the_lowest_priority_channel_is_closing_else_idle_longest(make_any: MakeNetwork) -> None:
    """RP-18."""
    network = make_any()
    assert network.selector.lowest_priority_channel() is None
    first, peer = network.open()
    second, _ = network.open()
    third, _ = network.open()
    assert network.selector.lowest_priority_channel() is first
    peer.sendall(frame(b"x"))
    network.payload()
    assert network.selector.lowest_priority_channel() is second
    network.selector.begin_request(third)
    network.selector.close(third, graceful=True)
    assert network.selector.lowest_priority_channel() is third


# ------------------------------------------------------------------------------------------------ deadlines


def test_a_first_frame_that_does_not_come_closes_the_connection(
    make_any: MakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-42: a byte every few seconds does not keep it alive."""
    network = make_any(deadlines=Deadlines(first_frame_ns=10 * SECOND))
    channel, peer = network.open("slow")
    silent, _ = network.open()
    quick, quick_peer = network.open()
    quick_peer.sendall(frame(b"x"))
    network.payload()
    for byte in frame(b"slowloris")[:9]:
        peer.sendall(bytes([byte]))
        network.clock.advance(1)
        network.selector.poll(0.01)
        assert not network.selector.disconnected
    with caplog.at_level(logging.INFO):
        network.clock.advance(1)
        network.selector.poll(0)
    assert set(network.selector.disconnected) == {
        (channel, DisconnectReason.FIRST_FRAME_TIMEOUT),
        (silent, DisconnectReason.FIRST_FRAME_TIMEOUT),
    }
    assert "slow: first request not received in time (limit 10000 ms)" in caplog.text
    assert quick.ready


@pytest.mark.parametrize("begin", [b"\0", b"\0\0\0\x64", b"\0\0\0\x64abc"])
def test_a_frame_that_began_must_end_in_time(begin: bytes, make_any: MakeNetwork) -> None:
    """RP-42: counted from its first byte, in total; the next frame has its own time."""
    network = make_any(deadlines=Deadlines(frame_ns=30 * SECOND))
    channel, peer = network.open()
    peer.sendall(frame(b"first"))
    network.payload()
    network.clock.advance(1000)
    network.selector.poll(0)
    peer.sendall(begin)
    network.poll_until(lambda: network.selector.statistics()["bytes_in"] == 9 + len(begin))
    network.clock.advance(29)
    network.selector.poll(0)
    peer.sendall(b"\0")
    network.selector.poll(0.05)
    assert not network.selector.disconnected
    network.clock.advance(1)
    network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.FRAME_TIMEOUT)]
    assert network.selector.memory_pool.used() == 0


def test_a_frame_that_ends_in_time_stops_its_deadline(make_any: MakeNetwork) -> None:
    """RP-42."""
    network = make_any(deadlines=Deadlines(frame_ns=30 * SECOND))
    channel, peer = network.open()
    for _ in range(3):
        peer.sendall(frame(b"hello")[:6])
        network.selector.poll(0.05)
        network.clock.advance(29)
        peer.sendall(frame(b"hello")[6:])
        assert network.payload() == b"hello"
    network.clock.advance(100)
    network.selector.poll(0)
    assert channel.ready


def test_the_time_in_which_we_do_not_read_is_not_counted(make_any: MakeNetwork) -> None:
    """RP-42: an unfinished frame behind a request that is handled, or on a channel that the owner muted."""
    network = make_any(deadlines=Deadlines(frame_ns=30 * SECOND))
    channel, peer = network.open()
    peer.sendall(frame(b"first") + frame(b"second")[:7])
    assert network.payload() == b"first"
    network.selector.begin_request(channel)
    network.selector.poll(0)
    network.clock.advance(1000)
    network.selector.poll(0)
    network.selector.end_request(channel)
    network.selector.poll(0.05)
    network.selector.poll(0)
    network.clock.advance(20)
    network.selector.mute(channel)
    network.selector.poll(0)
    network.clock.advance(1000)
    network.selector.poll(0)
    network.selector.unmute(channel)
    network.selector.poll(0)
    assert not network.selector.disconnected
    network.clock.advance(30)
    network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.FRAME_TIMEOUT)]


def test_a_response_that_is_not_read_closes_the_connection(make_any: MakeNetwork) -> None:
    """RP-42: 60 s without progress; progress starts the time again."""
    network = make_any(deadlines=Deadlines(write_ns=60 * SECOND, first_frame_ns=0))
    channel, peer = network.open()
    network.selector.begin_request(channel)
    send = Send([bytes(30_000_000)])
    assert not network.selector.send(channel, send)
    network.clock.advance(59)
    network.selector.poll(0)
    before = send.written
    read_exactly(peer, before)
    network.poll_until(lambda: send.written > before)
    network.fill_the_socket(send)
    network.clock.advance(59)
    network.selector.poll(0)
    assert not network.selector.disconnected
    network.clock.advance(1)
    network.selector.poll(0)
    assert network.selector.disconnected == [(channel, DisconnectReason.WRITE_TIMEOUT)]
    assert network.selector.failed_sends == [send]


def test_a_finished_send_stops_its_deadline(make_any: MakeNetwork) -> None:
    """RP-42."""
    network = make_any(deadlines=Deadlines(write_ns=60 * SECOND, first_frame_ns=0))
    channel, peer = network.open()
    send = Send([bytes(8_000_000)])
    assert not network.selector.send(channel, send)
    done = False
    peer.setblocking(False)
    while not done:
        with contextlib.suppress(BlockingIOError):
            peer.recv(1_000_000)
        network.selector.poll(0)
        done = network.selector.completed_sends == [send]
    network.clock.advance(1000)
    network.selector.poll(0)
    assert channel.ready


def test_without_deadlines_nothing_is_closed(make_any: MakeNetwork) -> None:
    """RP-42: 0 = off."""
    network = make_any(deadlines=NO_DEADLINES)
    channel, peer = network.open()
    peer.sendall(b"\0\0")
    network.selector.send(channel, Send([bytes(20_000_000)]))
    network.clock.advance(1e6)
    network.selector.poll(0.05)
    network.clock.advance(1e6)
    network.selector.poll(0)
    assert channel.ready
