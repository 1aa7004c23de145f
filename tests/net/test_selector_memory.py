"""Selector with little memory, and with many channels (RP-23, RP-25)."""

from __future__ import annotations

import gc
import logging
import random
import resource
import socket
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from barnabas.net.channel import Channel, DisconnectReason, Receive
from barnabas.net.channel_table import ChannelTable
from barnabas.net.deadlines import Deadlines
from barnabas.net.frame import PooledReader
from barnabas.net.memory_pool import LEAD, FixedSizeMemoryPool, LeakTrackingMemoryPool, SimpleMemoryPool
from barnabas.net.poller import READ
from barnabas.net.selector import Selector
from tests.net.peers import Network, frame

MakeNetwork = Callable[..., Network]


def test_a_channel_without_memory_is_muted_and_resumes(make_network: MakeNetwork) -> None:
    """PP-35, RP-25: and a release by another thread ends the wait of poll."""
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    _, first_peer = network.open()
    second, second_peer = network.open()
    first_peer.sendall(frame(bytes(100)))
    held = network.receive()
    second_peer.sendall(frame(b"abc" * 10))
    network.poll_until(lambda: second.muted_for_memory)
    network.poll_until(lambda: not second.interest & READ)
    network.selector.poll(0)
    assert not network.selector.completed_receives
    assert network.selector.statistics()["waiting_for_memory"] == 1
    threading.Timer(0.05, held.release).start()
    network.selector.poll(1000)  # ended by the release, not by the time
    assert network.payload() == b"abc" * 10
    assert pool.used() == 0


def test_waiting_channels_get_memory_one_after_the_other(make_network: MakeNetwork) -> None:
    """RP-25."""
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    holder = pool.try_allocate(100)
    assert holder is not None
    opened = [network.open() for _ in range(6)]
    random.shuffle(opened)
    for number, (channel, peer) in enumerate(opened):
        peer.sendall(frame(b"x" * 100))
        network.poll_until(lambda one=channel: one.muted_for_memory)
        assert network.selector.statistics()["waiting_for_memory"] == number + 1
    holder.release()
    served = set()
    for _ in opened:
        receive = network.receive()
        served.add(receive.channel)
        network.selector.poll(0)
        assert not network.selector.completed_receives
        receive.release()
    assert served == {channel for channel, _ in opened}


def test_the_deadline_of_a_frame_rests_while_there_is_no_memory(make_network: MakeNetwork) -> None:
    """RP-42: it is not the peer's fault; nor is the channel idle."""
    pool = SimpleMemoryPool(100)
    deadlines = Deadlines(1_000_000_000, 1_000_000_000, 0, 0)
    network = make_network(memory_pool=pool, deadlines=deadlines, idle_seconds=1)
    holder = pool.try_allocate(100)
    assert holder is not None
    channel, peer = network.open()
    peer.sendall(frame(b"abc" * 10)[:5])
    network.poll_until(lambda: channel.muted_for_memory)
    network.clock.advance(100)
    network.selector.poll(0)
    assert channel.ready
    holder.release()
    network.selector.poll(0)
    network.clock.advance(0.9)
    network.selector.poll(0)
    assert channel.ready
    network.clock.advance(0.1)
    network.selector.poll(0)
    assert [entry[0] for entry in network.selector.disconnected] == [channel]
    assert pool.used() == 0


def test_a_muted_channel_that_gets_memory_is_still_not_read(make_network: MakeNetwork) -> None:
    """RP-25, RP-20: both reasons must be gone."""
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    holder = pool.try_allocate(100)
    assert holder is not None
    channel, peer = network.open()
    peer.sendall(frame(b"abc" * 10))
    network.poll_until(lambda: channel.muted_for_memory)
    network.selector.mute(channel)
    holder.release()
    network.selector.poll(0)
    network.selector.poll(0.01)
    assert not network.selector.completed_receives
    network.selector.unmute(channel)
    assert network.payload() == b"abc" * 10


def test_a_channel_that_closes_while_it_waits_or_reads_gives_all_back(make_network: MakeNetwork) -> None:
    """RP-25: on every path."""
    pool = SimpleMemoryPool(100)
    network = make_network(memory_pool=pool)
    reading, reading_peer = network.open()
    waiting, waiting_peer = network.open()
    graceful, graceful_peer = network.open()
    holder = pool.try_allocate(60)
    assert holder is not None
    reading_peer.sendall(frame(bytes(100))[:4])
    network.poll_until(lambda: pool.used() == 60 + 16)  # one byte of 100 may be read
    for channel, peer in ((waiting, waiting_peer), (graceful, graceful_peer)):
        peer.sendall(frame(b"abc" * 10))
        network.poll_until(lambda one=channel: one.muted_for_memory)
    network.selector.close(waiting)
    network.selector.close(graceful, graceful=True)
    assert network.disconnection()[0] is graceful
    assert network.selector.statistics()["waiting_for_memory"] == 0
    network.selector.close(reading)
    assert pool.used() == 60
    holder.release()
    assert (pool.used(), pool.available()) == (0, 100)


def test_a_request_larger_than_any_buffer_closes_the_connection(
    make_network: MakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-25: the fixed-size pool refuses it; others are served from the same buffers."""
    pool = FixedSizeMemoryPool(200, 100)
    network = make_network(memory_pool=pool)
    large, large_peer = network.open("large")
    _, peer = network.open()
    with caplog.at_level(logging.WARNING):
        large_peer.sendall(frame(bytes(101)))
        assert network.disconnection() == (large, DisconnectReason.INVALID_RECEIVE)
    assert "large: a buffer of 101 bytes was asked for, this memory pool serves at most 100" in caplog.text
    for text in (b"one", b"x" * 100, b"three"):
        peer.sendall(frame(text))
        assert network.payload() == text


def test_a_receive_that_is_dropped_without_release_is_found(
    make_network: MakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-25: leak-tracking, through the selector."""
    pool = LeakTrackingMemoryPool(1000)
    network = make_network(memory_pool=pool)
    _, peer = network.open()
    peer.sendall(frame(b"lost"))
    network.receive()
    network.selector.poll(0)
    gc.collect()
    with caplog.at_level(logging.ERROR):
        assert pool.used() == 0
    assert pool.leaks == 1


def test_every_request_is_served_with_memory_for_one(make_network: MakeNetwork) -> None:
    """PP-36, RP-25, row 28 of the fault matrix: nobody starves, whoever releases."""
    pool = SimpleMemoryPool(1)
    network = make_network(memory_pool=pool)
    opened = [network.open() for _ in range(20)]
    for _, peer in opened:
        peer.sendall(frame(b"x" * 100) * 5)
    counts = {channel: 0 for channel, _ in opened}
    while sum(counts.values()) < 100:
        receive = network.receive()
        counts[receive.channel] += 1
        assert pool.used() == 100
        receive.release()
    assert set(counts.values()) == {5}


def test_what_is_only_announced_takes_little_memory_from_others(make_network: MakeNetwork) -> None:
    """RP-25: three peers announce more than the whole pool and send four bytes of it."""
    pool = SimpleMemoryPool(1_000_000)
    network = make_network(memory_pool=pool, max_receive_size=100_000_000)
    for _, peer in [network.open() for _ in range(3)]:
        peer.sendall(frame(bytes(50_000_000))[:8])
    small = 1_000_000 // 64
    network.poll_until(lambda: pool.used() == 3 * small)
    _, peer = network.open()
    for _ in range(5):
        for size in (1000, 100_000):  # a small one, and one that must ask
            peer.sendall(frame(b"x" * size))
            assert network.payload() == b"x" * size
    assert pool.used() == 3 * small


def test_announcers_that_fill_the_pool_stop_nobody(make_network: MakeNetwork) -> None:
    """RP-25: they can hold a sixteenth of it; one frame at a time is read beyond the limit."""
    pool = SimpleMemoryPool(6400)
    network = make_network(memory_pool=pool)
    for _, peer in [network.open() for _ in range(64)]:
        peer.sendall(frame(bytes(5000))[:5])
    network.poll_until(lambda: pool.used() == 6400)
    opened = [network.open() for _ in range(5)]
    for number, (_, peer) in enumerate(opened):
        peer.sendall(frame(bytes([number]) * 5000))
    got = set()
    for _ in opened:
        receive = network.receive()
        network.selector.poll(0)
        assert not network.selector.completed_receives  # the next waits until this one is handled
        assert pool.used() <= 6400 + 5000
        got.add(bytes(receive.payload[:1]))
        receive.release()
    assert got == {bytes([number]) for number in range(5)}


def test_who_stalls_while_others_wait_loses_its_connection(
    make_network: MakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    pool = SimpleMemoryPool(1000)
    network = make_network(memory_pool=pool)
    staller, peer = network.open("staller")
    peer.sendall(frame(bytes(900))[:504])
    network.poll_until(lambda: pool.used() == 900)
    network.clock.advance(100)
    network.selector.poll(0)
    assert staller.ready, "nobody waits"
    waiting, third = network.open()
    third.sendall(frame(b"served" * 50))
    network.poll_until(lambda: waiting.muted_for_memory)
    network.clock.advance(0.1)
    network.selector.poll(0)
    network.clock.advance(0.9)
    peer.sendall(b"drop")  # a byte now and then does not help
    network.poll_until(lambda: staller.body_received == 504)
    assert staller.ready
    network.clock.advance(0.2)
    network.poll_until(lambda: network.selector.disconnected)
    assert network.selector.disconnected == [(staller, DisconnectReason.STALLED)]
    assert "staller: stalled in the middle of a request while others waited for memory" in caplog.text
    assert network.payload() == b"served" * 50


def test_who_makes_progress_while_others_wait_goes_on(make_network: MakeNetwork) -> None:
    """64 KiB in every second are enough for a small frame, a sixteenth of it for a large one."""
    pool = SimpleMemoryPool(320_000)
    network = make_network(memory_pool=pool)
    slow, peer = network.open()
    data = frame(bytes(300_000))
    peer.sendall(data[:20_000])
    network.poll_until(lambda: slow.body_received == 20_000 - 4)
    waiting, other = network.open()
    other.sendall(frame(b"served" * 5000))
    network.poll_until(lambda: waiting.muted_for_memory)
    network.clock.advance(0.1)
    network.selector.poll(0)
    for sent in range(20_000, len(data), 70_000):
        peer.sendall(data[sent : sent + 70_000])
        network.poll_until(lambda end=sent + 70_000: slow.body is None or slow.body_received >= min(end, len(data)) - 4)
        assert slow.ready
        network.clock.advance(1.1)
    receive = network.selector.completed_receives[0]
    assert (receive.channel, len(receive.payload)) == (slow, 300_000)
    receive.release()
    assert network.payload() == b"served" * 5000


def test_small_requests_never_wait_for_memory(make_network: MakeNetwork) -> None:
    """RP-25: also while large ones that never end hold all of it. They are counted all the same."""
    pool = SimpleMemoryPool(640_000)
    network = make_network(memory_pool=pool)
    attackers = [network.open() for _ in range(3)]
    for _, peer in attackers:
        peer.sendall(frame(bytes(700_000))[:600_000])
    network.poll_until(lambda: pool.available() <= 0)
    large, large_peer = network.open()
    large_peer.sendall(frame(bytes(10_001)))
    network.poll_until(lambda: large.muted_for_memory)
    before = pool.used()
    channel, peer = network.open()
    for _ in range(3):
        peer.sendall(frame(b"x" * 10_000))
        receive = network.receive()
        assert (receive.channel, pool.used()) == (channel, before + 10_000)
        receive.release()
    peer.sendall(frame(b"y" * 10_000)[:-1])
    network.poll_until(lambda: channel.body_received == 9_999)
    assert pool.used() == before + 10_000
    peer.sendall(b"y")
    assert network.payload() == b"y" * 10_000


class Arrivals:
    """A peer of which some bytes have arrived; stands in for the socket's `recv_into`."""

    def __init__(self, data: bytes) -> None:
        self.unsent = bytearray(data)
        self.arrived = bytearray()

    def send(self, count: int) -> None:
        self.arrived += self.unsent[:count]
        del self.unsent[:count]

    def recv_into(self, buffer: memoryview, nbytes: int = 0) -> int:
        count = min(len(buffer), len(self.arrived))
        if not count:
            raise BlockingIOError
        buffer[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count


class SharedPool:
    """Forty channels of two readers with one pool, a third of which stall after a few bytes."""

    limit = 100_000

    def __init__(self, generator: random.Random, sock: socket.socket) -> None:
        self.generator = generator
        self.pool = SimpleMemoryPool(self.limit)
        self.readers = [PooledReader(self.limit, self.pool) for _ in range(2)]
        self.peers: dict[Channel, Arrivals] = {}
        self.held: list[Receive] = []
        self.stalled: list[Channel] = []
        for number in range(40):
            channel = Channel(f"c{number}", sock)
            size = generator.choice([1, 50, 2000, 20_000, 60_000, self.limit])
            peer = self.peers[channel] = Arrivals(frame(bytes([number]) * size))
            channel.recv_into = peer.recv_into
            channel.attachment = generator.choice(self.readers)
            if size > 2000 and generator.random() < 0.33:
                self.stalled.append(channel)
                peer.send(generator.randrange(4 + self.limit // 64 // 16))

    def read(self, channel: Channel) -> None:
        if channel.muted_for_memory or any(receive.channel is channel for receive in self.held):
            return
        reader = channel.attachment
        assert isinstance(reader, PooledReader)
        with suppress(BlockingIOError):
            receive = reader.read(channel)
            if receive is not None:
                self.held.append(receive)

    def step(self) -> None:
        """Something arrives somewhere, and now and then a request is done."""
        for reader in self.readers:
            while reader.waiters and reader.resume(first := next(iter(reader.waiters))):
                self.read(first)
        channel = self.generator.choice(list(self.peers))
        if channel not in self.stalled:
            self.peers[channel].send(self.generator.choice([1, 100, 5000, self.limit]))
        self.read(channel)
        buffer = channel.buffer
        if channel in self.stalled and buffer is not None and buffer.claim.whole and self.generator.random() < 0.1:
            self.close(channel)  # as the selector does after a while
        if self.held and self.generator.random() < 0.3:
            receive = self.held.pop(self.generator.randrange(len(self.held)))
            assert receive.channel.id == f"c{receive.payload[0]}"
            receive.release()
            del self.peers[receive.channel]

    def close(self, channel: Channel) -> None:
        self.stalled.remove(channel)
        del self.peers[channel]
        for reader in self.readers:
            reader.forget(channel)
        if channel.buffer is not None:
            channel.buffer.release()

    def bytes_held(self) -> int:
        """By all but small frames."""
        unfinished = [one.body_received for one in self.peers if one.buffer is not None and one.body_size >= 2000]
        finished = [len(one.payload) for one in self.held if len(one.payload) >= 2000]
        return sum(unfinished) + sum(finished)


@pytest.mark.parametrize("seed", range(30))
def test_what_frames_hold_is_bounded_and_every_frame_is_read(seed: int) -> None:
    """RP-25, row 28: whatever arrives in whichever order."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shared = SharedPool(random.Random(seed), ours)
        steps = 0
        while len(shared.peers) > len(shared.stalled):
            shared.step()
            assert shared.bytes_held() <= shared.limit * (1 + 1 / LEAD)
            steps += 1
            assert steps < 100_000, "a frame waits for ever"
        for channel in shared.stalled.copy():
            shared.close(channel)
        assert shared.pool.used() == 0


def test_ready_channels_are_shuffled_when_memory_is_low(
    make_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-23: so that the same channel is not first every time."""
    shuffles: list[int] = []
    monkeypatch.setattr(random, "shuffle", lambda events: shuffles.append(len(events)))
    pool = SimpleMemoryPool(1000)
    network = make_network(memory_pool=pool)
    _, peer = network.open()
    peer.sendall(frame(b"x"))
    network.payload()
    assert not shuffles
    holder = pool.try_allocate(901)
    assert holder is not None
    peer.sendall(frame(b"x"))
    network.payload()
    assert shuffles
    holder.release()


def test_an_idle_channel_costs_little_memory_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 idle connections: at most 6 KiB of Python memory each, and a poll does not look at them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2000, (soft - 200) // 2)
    pairs = [socket.socketpair() for _ in range(count)]
    tracemalloc.start()
    selector = Selector(idle_ns=10**12, deadlines=Deadlines())
    before = tracemalloc.get_traced_memory()[0]
    for number, (ours, _) in enumerate(pairs):
        selector.register(f"127.0.0.1:9092-127.0.0.1:40000-{number}", ours)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    looks: list[int] = []
    look = ChannelTable.expired
    monkeypatch.setattr(ChannelTable, "expired", lambda *arguments: looks.append(1) or look(*arguments))
    selector.poll(0)
    selector.close_all()
    for _, theirs in pairs:
        theirs.close()
    assert used / count < 6 * 1024
    assert len(looks) == 1
