"""Frame readers against arbitrary chunking, and bad sizes (RP-22, RP-25)."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net import frame as frame_module
from barnabas.net.channel import Channel, Receive
from barnabas.net.frame import EndOfStream, InvalidReceive, PooledReader, ReadAheadReader
from barnabas.net.memory_pool import FixedSizeMemoryPool, MemoryPool, OversizedClaim, SimpleMemoryPool
from tests.net.peers import frame

Reader = ReadAheadReader | PooledReader


class Chunks:
    """A stand-in for recv_into that hands out one chunk per call, then "would block", then the end."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]
        self.blocked = False
        self.largest_request = 0

    def __call__(self, buffer: bytearray | memoryview, count: int = 0) -> int:
        room = min(count or len(buffer), len(buffer))
        self.largest_request = max(self.largest_request, room)
        if not self.chunks:
            if not self.blocked:
                self.blocked = True
                raise BlockingIOError
            return 0
        chunk = self.chunks[0]
        taken = chunk[:room]
        memoryview(buffer)[: len(taken)] = taken
        rest = chunk[room:]
        self.chunks[:1] = [rest] if rest else []
        return len(taken)


@contextmanager
def channel_with(chunks: list[bytes]) -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel("c", ours)
        channel.recv_into = Chunks(chunks)
        yield channel


def read_all(reader: Reader, channel: Channel) -> list[bytes]:
    """As the selector does: what is buffered first, then the socket, until the end of the stream."""
    got: list[bytes] = []

    def keep(receive: Receive | None) -> bool:
        if receive is None:
            return False
        got.append(bytes(receive.payload))
        receive.release()
        return True

    while True:
        try:
            while keep(reader.next_buffered(channel)):
                pass
            keep(reader.read(channel))
        except BlockingIOError:
            continue
        except EndOfStream:
            return got


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


READERS = st.sampled_from(["read ahead", "simple pool", "fixed pool"])


def make(kind: str, max_size: int = 1_000_000) -> tuple[Reader, MemoryPool | None]:
    if kind == "read ahead":
        return ReadAheadReader(max_size), None
    pool: MemoryPool = SimpleMemoryPool(10_000_000)
    if kind == "fixed pool":
        pool = FixedSizeMemoryPool(max_size * 2, max_size)
    return PooledReader(max_size, pool), pool


@settings(max_examples=150, deadline=None)
@given(READERS, st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(0, 10_000), max_size=30))
def test_frames_are_cut_the_same_however_the_bytes_arrive(kind: str, payloads: list[bytes], cuts: list[int]) -> None:
    """RP-25, PP-35: small frames, arbitrary chunking, all readers."""
    reader, pool = make(kind, 1000)
    data = b"".join(map(frame, payloads))
    with channel_with(split(data, cuts)) as channel:
        assert read_all(reader, channel) == payloads
    assert reader.bytes_in == len(data)
    assert pool is None or pool.used() == 0


@settings(max_examples=40, deadline=None)
@given(
    READERS,
    st.lists(st.sampled_from([0, 1, 4000, 32763, 32764, 32765, 65531, 65532, 65533, 200_000]), max_size=6),
    st.lists(st.integers(0, 600_000), max_size=10),
)
def test_large_frames_are_cut_the_same_however_the_bytes_arrive(kind: str, sizes: list[int], cuts: list[int]) -> None:
    """RP-25: sizes around the scratch buffer, where a frame changes from left-over bytes to a body of its own."""
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    reader, _ = make(kind, 200_000)
    with channel_with(split(b"".join(map(frame, payloads)), cuts)) as channel:
        assert read_all(reader, channel) == payloads


@pytest.mark.parametrize("kind", ["read ahead", "simple pool", "fixed pool"])
def test_one_byte_at_a_time_is_enough(kind: str) -> None:
    """RP-25."""
    reader, _ = make(kind)
    data = frame(b"hello") + frame(b"") + frame(b"world")
    with channel_with([bytes([byte]) for byte in data]) as channel:
        assert read_all(reader, channel) == [b"hello", b"", b"world"]


@pytest.mark.parametrize("kind", ["read ahead", "simple pool", "fixed pool"])
@pytest.mark.parametrize("size", [-1, -(2**31), 1_000_001, 2**31 - 1])
def test_an_impossible_size_is_refused_before_anything_is_allocated(kind: str, size: int) -> None:
    """RP-22: the message names the size and the limit."""
    reader, pool = make(kind)
    with channel_with([struct.pack(">i", size)]) as channel:
        with pytest.raises(InvalidReceive, match=rf"frame size {size} .* 1000000 bytes$"):
            read_all(reader, channel)
        assert channel.body is None
    assert pool is None or pool.used() == 0


def test_a_frame_over_the_limit_is_refused_even_if_it_is_whole() -> None:
    """RP-22."""
    with channel_with([frame(bytes(101))]) as channel, pytest.raises(InvalidReceive, match="frame size 101 "):
        ReadAheadReader(100).read(channel)


def test_read_serves_what_was_read_ahead_before_the_socket() -> None:
    """RP-19: the order of the bytes, whatever the caller does."""
    reader = ReadAheadReader(100)
    with channel_with([frame(b"1") + frame(b"2") + frame(b"3"), frame(b"4")]) as channel:
        assert reader.read(channel) is not None
        assert reader.next_buffered(channel) is not None
        receive = reader.read(channel)
        assert receive is not None
        assert receive.payload == b"3"


def test_a_bad_size_behind_a_good_frame_is_found_when_it_is_its_turn() -> None:
    """RP-19, RP-22: the good frame is served first."""
    reader = ReadAheadReader(100)
    with channel_with([frame(b"good") + b"\xff\xff\xff\xff"]) as channel:
        receive = reader.read(channel)
        assert receive is not None
        assert receive.payload == b"good"
        with pytest.raises(InvalidReceive, match="frame size -1 "):
            reader.next_buffered(channel)


def test_tls_on_a_plaintext_port_is_named() -> None:
    """PP-39, RP-22: a TLS hello parses as a frame of 352 MB."""
    reader = ReadAheadReader(104_857_600)
    with channel_with([b"\x16\x03\x01\x02\x00\x01"]) as channel, pytest.raises(InvalidReceive, match="looks like TLS"):
        reader.read(channel)


def test_a_large_claim_allocates_only_what_arrives() -> None:
    """RP-25: the claim of an unauthenticated peer is not believed."""
    process = psutil.Process()
    pool = SimpleMemoryPool(200_000_000)
    for reader in (ReadAheadReader(100_000_000), PooledReader(100_000_000, pool)):
        before = process.memory_info().rss
        with channel_with([struct.pack(">i", 99_000_000), b"x" * 1000]) as channel:
            for _ in range(2):
                with suppress(BlockingIOError):
                    assert reader.read(channel) is None
            grown = process.memory_info().rss - before
            assert grown < 10_000_000
            assert pool.used() in (0, 65_536)


def test_a_peer_that_sent_as_much_before_gets_its_memory_at_once() -> None:
    """RP-25: what a connection holds never exceeds what it has sent."""
    reader = ReadAheadReader(10_000_000)
    data = frame(b"x" * 500_000)
    with channel_with([data, data[:50], data[50:], data[:50], data[50:]]) as channel:
        while (receive := reader.read(channel)) is None:
            assert channel.body is not None
            assert len(channel.body) <= channel.body_received
        while channel.recv_into.chunks:  # type: ignore[attr-defined]
            while (receive := reader.read(channel)) is None:
                assert channel.body is None or len(channel.body) == 500_000
            assert bytes(receive.payload) == data[4:]


def test_a_large_frame_that_is_there_takes_one_turn_of_the_poller() -> None:
    """RP-25: behind a full scratch the rest is read at once; when it is not there yet, the frame has begun all the same."""
    reader = ReadAheadReader(10_000_000)
    data = frame(b"x" * 500_000)
    with channel_with([data, data, data[: frame_module.SCRATCH_BYTES]]) as channel:
        while reader.read(channel) is None:
            assert channel.body is not None
        receive = reader.read(channel)
        assert receive is not None
        assert bytes(receive.payload) == data[4:]
        assert reader.read(channel) is None
        assert channel.body_received == frame_module.SCRATCH_BYTES - 4


def test_the_pooled_reader_never_reads_past_a_frame() -> None:
    """PP-35: what is not claimed stays in the socket."""
    pool = SimpleMemoryPool(1000)
    reader = PooledReader(1000, pool)
    with channel_with([frame(b"one") + frame(b"two")]) as channel:
        receive = reader.read(channel)
        assert receive is not None
        assert bytes(receive.payload) == b"one"
        assert channel.recv_into.chunks == [frame(b"two")]  # type: ignore[attr-defined]
        assert (pool.used(), receive.buffer is not None) == (3, True)
        receive.release()
        assert pool.used() == 0


def test_without_memory_the_reader_keeps_the_size_and_the_order_of_waiting() -> None:
    """RP-25: first come, first served; a newcomer does not overtake."""
    pool = SimpleMemoryPool(100)
    holder = pool.try_allocate(100)
    assert holder is not None
    reader = PooledReader(1000, pool)
    with channel_with([frame(b"first" * 20)]) as first, channel_with([frame(b"second" * 20)]) as second:
        assert reader.read(first) is None
        assert first.muted_for_memory
        assert not reader.resume(first)
        holder.release()
        assert reader.read(second) is None  # there is memory, but `first` waits longer
        assert list(reader.waiters) == [first, second]
        assert reader.resume(first)
        while (receive := reader.read(first)) is None:
            assert not first.muted_for_memory
        assert bytes(receive.payload) == b"first" * 20
        receive.release()
        assert reader.resume(second)
        assert not reader.waiters
        assert not second.muted_for_memory


def test_a_claim_that_the_pool_can_never_serve_is_an_error() -> None:
    """RP-25: fixed-size."""
    reader = PooledReader(1000, FixedSizeMemoryPool(200, 100))
    with channel_with([frame(bytes(101))]) as channel, pytest.raises(OversizedClaim):
        reader.read(channel)


def test_read_ahead_takes_all_that_is_there_with_one_call() -> None:
    """The speed rule of the read side: one recv_into per readable event."""
    with channel_with([frame(b"a") + frame(b"b") + frame(b"c")[:3]]) as channel:
        reader = ReadAheadReader(100)
        assert reader.read(channel) is not None
        assert channel.recv_into.chunks == []  # type: ignore[attr-defined]
        assert channel.recv_into.largest_request == frame_module.SCRATCH_BYTES  # type: ignore[attr-defined]
        buffered = reader.next_buffered(channel)
        assert buffered is not None
        assert buffered.payload == b"b"
        assert reader.next_buffered(channel) is None
        assert channel.leftover == frame(b"c")[:3]
