"""Selector: sending, receiving, muting, bad frames, isolation of channels (RP-19, RP-22, RP-23, RP-24)."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import tempfile
import threading
from collections.abc import Callable

import pytest

from barnabas.net.channel import Channel, ChannelState, DisconnectReason
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.net.mute import MuteEvent, MuteState
from barnabas.net.poller import READ, PortablePoller
from barnabas.net.selector import ChannelExists, Selector, SendInProgress
from barnabas.net.send import FileRegion, Send, framed
from tests.net.peers import Network, frame, read_frame, reset
from tests.waiting import wait_until


@pytest.fixture(params=["epoll", "poll", "select", "bounded memory"])
def any_network(request: pytest.FixtureRequest, make_network: Callable[..., Network]) -> Network:
    """Every poller and both readers."""
    arguments: dict[str, Callable[[], dict[str, object]]] = {
        "epoll": dict,
        "poll": lambda: {"poller": PortablePoller(selectors.PollSelector())},
        "select": lambda: {"poller": PortablePoller(selectors.SelectSelector())},
        "bounded memory": lambda: {"memory_pool": SimpleMemoryPool(10_000_000)},
    }
    return make_network(**arguments[request.param]())


def stuck_send(network: Network, channel: Channel, size: int = 20_000_000) -> Send:
    """A send that the peer does not read."""
    send = Send([bytes(size)])
    assert not network.selector.send(channel, send)
    return send


def test_requests_are_answered_on_many_connections(any_network: Network) -> None:
    """RP-23: normal operation."""
    opened = [any_network.open() for _ in range(10)]
    for round_number in range(5):
        for channel, peer in opened:
            peer.sendall(frame(f"{channel.id}-{round_number}".encode()))
        waiting = {channel for channel, _ in opened}
        while waiting:
            any_network.poll_until(lambda: any_network.selector.completed_receives)
            for receive in any_network.selector.completed_receives:
                assert bytes(receive.payload) == f"{receive.channel.id}-{round_number}".encode()
                waiting.remove(receive.channel)
                assert any_network.answer(receive.channel, bytes(receive.payload))
                receive.release()
        assert [read_frame(peer) for _, peer in opened] == [f"{c.id}-{round_number}".encode() for c, _ in opened]


def test_large_frames_go_both_ways(any_network: Network) -> None:
    """RP-23: many large ones in sequence, sends in progress are finished by poll."""
    channel, peer = any_network.open()
    data = os.urandom(900_000)
    echoed: list[bytes] = []

    def talk() -> None:
        for _ in range(5):
            peer.sendall(frame(data))
            echoed.append(read_frame(peer))

    thread = threading.Thread(target=talk)
    thread.start()
    for _ in range(5):
        payload = any_network.payload()
        assert payload == data
        send = Send(framed([payload]))
        if not any_network.selector.send(channel, send):
            any_network.poll_until(lambda expected=send: expected in any_network.selector.completed_sends)
            assert send.channel is channel
    thread.join(10)
    assert echoed == [data] * 5
    assert any_network.selector.bytes_in == any_network.selector.bytes_out == 5 * (len(data) + 4)


def test_an_empty_frame_is_delivered(any_network: Network) -> None:
    """RP-22: size 0 is a frame; what it means is the owner's business."""
    _, peer = any_network.open()
    peer.sendall(frame(b""))
    assert any_network.payload() == b""


def test_frames_split_anywhere_are_joined(any_network: Network) -> None:
    """RP-23: partial receives."""
    _, peer = any_network.open()
    data = frame(b"hello")
    for byte in data[:-1]:
        peer.sendall(bytes([byte]))
        any_network.selector.poll(0.01)
        assert not any_network.selector.completed_receives
    peer.sendall(data[-1:])
    assert any_network.payload() == b"hello"


def test_pipelined_frames_come_one_per_poll_and_in_order(any_network: Network) -> None:
    """PP-37, RP-19: at most one receive per channel and poll, also when many were read ahead."""
    _, peer = any_network.open()
    peer.sendall(b"".join(frame(str(number).encode()) for number in range(50)))
    assert [any_network.payload() for _ in range(50)] == [str(number).encode() for number in range(50)]


def test_a_channel_with_read_ahead_and_new_bytes_delivers_one_receive(network: Network) -> None:
    """RP-19: buffered and readable in one poll is still one receive."""
    _, peer = network.open()
    peer.sendall(frame(b"a") + frame(b"b"))
    assert network.payload() == b"a"
    peer.sendall(frame(b"c"))
    assert network.payload() == b"b"
    assert network.payload() == b"c"


def test_a_muted_channel_is_not_read_and_resumes(any_network: Network) -> None:
    """RP-19, RP-20."""
    selector = any_network.selector
    channel, peer = any_network.open()
    other, other_peer = any_network.open()
    selector.mute(channel)
    selector.mute(channel)
    assert channel.muted
    peer.sendall(frame(b"muted"))
    other_peer.sendall(frame(b"other"))
    assert any_network.receive().channel is other
    selector.poll(0.01)
    selector.poll(0.01)
    assert not selector.completed_receives
    assert selector.unmute(channel)
    assert selector.unmute(channel)
    assert any_network.payload() == b"muted"


def test_a_request_mutes_and_its_response_unmutes(any_network: Network) -> None:
    """RP-19, RP-20: throttling outlives the response."""
    selector = any_network.selector
    channel, peer = any_network.open()
    peer.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
    assert any_network.payload() == b"1"
    selector.begin_request(channel)
    channel.handle_mute_event(MuteEvent.THROTTLE_STARTED)
    selector.poll(0.01)
    assert not selector.end_request(channel)
    assert channel.mute_state is MuteState.MUTED_AND_THROTTLED
    assert not selector.unmute(channel)
    selector.poll(0.01)
    assert not selector.completed_receives
    channel.handle_mute_event(MuteEvent.THROTTLE_ENDED)
    assert selector.unmute(channel)
    assert any_network.payload() == b"2"
    selector.mute(channel)
    selector.begin_request(channel)
    assert selector.end_request(channel)
    assert any_network.payload() == b"3"


def test_unmuting_serves_read_ahead_without_the_socket(network: Network) -> None:
    """PP-36, RP-19: no poll latency for a frame that is here already, and no wait although the socket is silent."""
    channel, peer = network.open()
    peer.sendall(frame(b"1") + frame(b"2"))
    network.payload()
    network.selector.mute(channel)
    network.selector.poll(0)
    network.selector.unmute(channel)
    network.selector.poll(1000)
    assert [receive.payload for receive in network.selector.completed_receives] == [b"2"]


def test_buffered_channels_are_served_in_turn(network: Network) -> None:
    """RP-19: one that pipelines much does not hold the others up."""
    opened = [network.open() for _ in range(3)]
    for _, peer in opened:
        peer.sendall(frame(b"x") * 5)
    counts = {channel: 0 for channel, _ in opened}
    while sum(counts.values()) < 15:
        network.poll_until(lambda: network.selector.completed_receives)
        for receive in network.selector.completed_receives:
            counts[receive.channel] += 1
        assert max(counts.values()) - min(counts.values()) <= 1 or min(counts.values()) == 0


def test_left_over_bytes_without_a_whole_frame_do_not_spin(network: Network) -> None:
    """RP-23: poll waits again after it looked at them once."""
    _, peer = network.open()
    peer.sendall(frame(b"1") + b"\0\0")
    network.payload()
    network.selector.poll(0)
    assert network.selector.statistics()["buffered"] == 0
    before = network.selector.polls
    threading.Timer(0.05, network.selector.wakeup).start()
    network.selector.poll(10)
    assert network.selector.polls == before + 1
    assert not network.selector.completed_receives


def test_results_are_cleared_by_the_next_poll(network: Network) -> None:
    """PP-36."""
    channel, peer = network.open()
    peer.sendall(frame(b"1"))
    network.receive()
    network.selector.close(channel, report=True)
    network.selector.poll(0)
    assert len(network.selector.disconnected) == 1
    network.selector.poll(0)
    selector = network.selector
    assert not any((selector.completed_receives, selector.disconnected, selector.connected, selector.failed_sends))


def test_only_one_send_at_a_time(network: Network) -> None:
    """RP-24."""
    channel, _ = network.open()
    stuck_send(network, channel)
    with pytest.raises(SendInProgress, match=channel.id):
        network.answer(channel, b"second")


def test_a_send_on_a_closed_channel_is_a_failed_send(network: Network) -> None:
    """PP-34: recorded, not raised, and no second disconnection."""
    channel, _ = network.open()
    network.selector.close(channel)
    send = Send([b"x"])
    assert not network.selector.send(channel, send)
    network.selector.poll(1000)
    assert network.selector.failed_sends == [send]
    assert not network.selector.disconnected


def test_a_peer_that_is_gone_fails_the_send_and_is_reported_once(any_network: Network) -> None:
    """RP-23: EPIPE and ECONNRESET never leave `send`."""
    channel, peer = any_network.open()
    any_network.selector.mute(channel)
    reset(peer)
    send = Send([bytes(1_000_000)])

    def fails() -> bool:
        return not any_network.selector.send(channel, send) and channel.closed

    wait_until(fails, what="the send to fail")
    assert any_network.disconnection() == (channel, DisconnectReason.FAILED_SEND)
    assert any_network.selector.failed_sends == [send]
    any_network.selector.poll(0)
    assert not any_network.selector.disconnected


def test_a_peer_that_resets_during_a_send_fails_it(any_network: Network) -> None:
    """RP-23: the same for a send in progress, even on a muted channel."""
    channel, peer = any_network.open()
    any_network.selector.mute(channel)
    send = stuck_send(any_network, channel)
    reset(peer)
    assert any_network.disconnection() == (channel, DisconnectReason.FAILED_SEND)
    assert any_network.selector.failed_sends == [send]


def test_a_muted_channel_whose_peer_reset_does_not_spin(any_network: Network) -> None:
    """RP-23: epoll reports errors even without interest, so the channel leaves it."""
    channel, peer = any_network.open()
    any_network.selector.mute(channel)
    reset(peer)
    any_network.poll_until(lambda: not channel.interest & READ)
    assert any_network.selector._poller.poll(0, 10) == []
    any_network.selector.poll(0.01)
    assert not any_network.selector.disconnected
    any_network.selector.unmute(channel)
    assert any_network.disconnection()[0] is channel


def test_a_file_region_reaches_the_peer(any_network: Network) -> None:
    """RP-26."""
    channel, peer = any_network.open()
    data = os.urandom(2_000_000)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_frame(peer)))
    reader.start()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        send = Send(framed([b"head", FileRegion(file, 0, len(data))]))
        if not any_network.selector.send(channel, send):
            any_network.poll_until(lambda: any_network.selector.completed_sends)
        reader.join(10)
    assert got == [b"head" + data]


@pytest.mark.parametrize("size", [-1, 1_000_001])
def test_a_bad_size_closes_that_connection_with_a_clear_line(
    any_network: Network, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-22: connection, size and limit are in the log; others go on."""
    bad, bad_peer = any_network.open("bad-one")
    _, good_peer = any_network.open()
    with caplog.at_level(logging.WARNING):
        bad_peer.sendall(struct.pack(">i", size))
        assert any_network.disconnection() == (bad, DisconnectReason.INVALID_RECEIVE)
    assert f"bad-one: frame size {size} is not between 0 and the limit of 1000000 bytes" in caplog.text
    assert bad_peer.recv(10) == b""
    good_peer.sendall(frame(b"good"))
    assert any_network.payload() == b"good"


def test_many_bad_sizes_make_one_line_a_second(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    """RP-22: every connection is closed and reported all the same."""

    def break_some(count: int) -> None:
        for _ in range(count):
            bad, peer = network.open()
            peer.sendall(struct.pack(">i", -1))
            assert network.disconnection() == (bad, DisconnectReason.INVALID_RECEIVE)

    with caplog.at_level(logging.WARNING):
        break_some(20)
        network.clock.advance(1)
        break_some(1)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[2] for line in lines] == ["", "19 more like it were left out before)"]


def test_an_exception_in_one_channel_does_not_disturb_another(
    any_network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """PP-37: an unexpected error closes that channel only."""
    bad, bad_peer = any_network.open("bad-one")
    _, good_peer = any_network.open()

    def explode(*_: object) -> int:
        raise RuntimeError("injected")

    bad.recv_into = explode
    with caplog.at_level(logging.WARNING):
        bad_peer.sendall(frame(b"x"))
        assert any_network.disconnection() == (bad, DisconnectReason.INTERNAL_ERROR)
    assert "Unexpected error from bad-one" in caplog.text
    assert isinstance(bad.error, RuntimeError)
    good_peer.sendall(frame(b"good"))
    assert any_network.payload() == b"good"


def test_an_id_can_be_used_once(network: Network) -> None:
    """RP-12: the second socket is closed, the first channel stays."""
    channel, peer = network.open("same")
    with pytest.raises(ChannelExists, match="same"):
        network.open("same")
    assert network.peers[-1].recv(1) == b""
    peer.sendall(frame(b"still"))
    assert network.receive().channel is channel


def test_a_socket_that_cannot_be_registered_is_closed(network: Network) -> None:
    """RP-12: no descriptor and no entry is left."""
    server, _ = network.sockets()
    server.close()
    with pytest.raises((OSError, ValueError)):
        network.selector.register("dead", server)
    assert network.selector.channel("dead") is None
    assert not network.selector.channels


def test_wakeup_ends_a_wait_from_another_thread(any_network: Network) -> None:
    """RP-23."""
    threading.Timer(0.02, any_network.selector.wakeup).start()
    any_network.selector.poll(30)
    any_network.selector.wakeup()
    any_network.selector.wakeup()
    any_network.selector.poll(30)


def test_poll_refuses_a_negative_timeout(network: Network) -> None:
    """RP-23."""
    with pytest.raises(ValueError, match="negative"):
        network.selector.poll(-1)


def test_counters_and_texts_tell_the_state(network: Network) -> None:
    """RP-32: what idle-percent and connection metrics are made of."""
    channel, peer = network.open()
    peer.sendall(frame(b"12345"))
    network.receive()
    network.answer(channel, b"123")
    statistics = network.selector.statistics()
    assert (statistics["channels"], statistics["bytes_in"], statistics["bytes_out"]) == (1, 9, 7)
    assert statistics["connections_created"] == 1
    network.selector.close(channel)
    assert network.selector.connections_closed == 1
    assert "channels=0" in repr(network.selector)
    assert channel.id in repr(channel)
    assert "closed" in repr(channel)
    assert channel.state is ChannelState.CLOSED


def test_close_all_leaves_no_descriptor() -> None:
    """RP-1: whoever owns a selector can end it."""
    before = len(os.listdir("/proc/self/fd"))
    selector = Selector(SimpleMemoryPool(100))
    pairs = [socket.socketpair() for _ in range(20)]
    for number, (ours, _) in enumerate(pairs):
        selector.register(str(number), ours)
    selector.close(selector.channels["0"], graceful=True)
    selector.close_all()
    selector.wakeup()
    for _, theirs in pairs:
        theirs.close()
    assert len(os.listdir("/proc/self/fd")) == before
