"""Cutting frames out of a byte stream (RP-22, RP-25, PP-35).

    frame:  size     int32, big-endian, the bytes that follow; 0 <= size <= max_size
            payload  `size` bytes

Role: two readers with one interface, `read` (at most one whole frame per call) and `next_buffered` (a frame from bytes that were read
before, without touching the socket). `ReadAheadReader` serves an unlimited pool: one `recv_into` of a shared scratch may hold several
frames, what is left stays on the channel. `PooledReader` serves a bounded pool: it reads exactly the 4 bytes, then exactly the body, and
claims memory before it reads (memory_pool.py). In both, memory grows with the bytes that arrive, never with the announced size.
Errors: BlockingIOError = nothing there now; EndOfStream, InvalidReceive, OversizedClaim, OSError = close the channel.
Thread: one reader per selector, used by its owner only; no lock.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol, cast

from barnabas.errors import BarnabasError
from barnabas.net.channel import Channel, Receive
from barnabas.net.memory_pool import MemoryPool, PooledBuffer
from barnabas.net.pace import Pace

__all__ = ["EndOfStream", "FrameReader", "InvalidReceive", "PooledReader", "ReadAheadReader", "make_reader"]

_unpack_size = Struct(">i").unpack_from
_SIZE_BYTES = 4
SCRATCH_BYTES = 64 * 1024
# An unfinished frame below this waits as `leftover` and is copied before the next read; a larger one gets a growing body of its own.
_SMALL_FRAME = SCRATCH_BYTES // 2
_TLS_BEGINS = (b"\x16\x03", b"\x15\x03")  # a handshake, or the alert with which a TLS port refuses plaintext

_POOLED_READ = 256 * 1024
STALLED_NS = 1_000_000_000
PACE_BYTES = 64 * 1024  # who sends less than this in that time has stalled,
PACE_SHARE = 16  # or less than this part of its frame
_HTTP_BEGINS = int.from_bytes(b"HTTP", "big")


class EndOfStream(BarnabasError):
    """The peer closed its side."""


class InvalidReceive(BarnabasError):
    """The 4-byte size cannot be right; nothing was allocated for it."""

    def __init__(self, size: int, limit: int) -> None:
        text = f"frame size {size} is not between 0 and the limit of {limit} bytes"
        self.looks_like_tls = (size & 0xFFFFFFFF).to_bytes(4, "big").startswith(_TLS_BEGINS)
        if self.looks_like_tls:
            text += "; it looks like TLS on a plaintext port"
        elif size == _HTTP_BEGINS:
            text += "; it looks like an answer of HTTP"
        super().__init__(text)
        self.size = size
        self.limit = limit


class FrameReader(Protocol):
    bytes_in: int

    def read(self, channel: Channel) -> Receive | None:
        """Read from the socket; a whole frame, or None when it is not whole yet."""

    def next_buffered(self, channel: Channel) -> Receive | None:
        """A whole frame from bytes that were read before, or None."""

    def has_next(self, channel: Channel) -> bool:
        """Whether `next_buffered` has a frame."""


class ReadAheadReader:
    """Reads as much as is there into one scratch buffer that all channels of a selector share."""

    __slots__ = ("_max_size", "_scratch", "_view", "bytes_in")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self.bytes_in = 0

    def read(self, channel: Channel) -> Receive | None:
        rest = channel.leftover
        if rest:
            return self._read_behind(channel, rest)
        if channel.body is not None:
            return self._read_body(channel, cast(bytearray, channel.body))
        scratch = self._scratch
        count = channel.recv_into(scratch)
        if count > 3:
            self.bytes_in += count
            size = _unpack_size(scratch)[0]
            if size + 4 == count and size <= self._max_size:
                return Receive(channel, self._view[4:count].tobytes())
            return self._cut(channel, size, count)
        self._keep(channel, count, count)
        return None

    def _read_behind(self, channel: Channel, rest: bytes) -> Receive | None:
        """Read behind the bytes of an unfinished small frame."""
        if channel.leftover_position:
            return self.next_buffered(channel)
        start = len(rest)
        self._view[:start] = rest
        count = channel.recv_into(self._view[start:])
        end = start + count
        if not count or end < _SIZE_BYTES:
            self._keep(channel, end, count)
            return None
        self.bytes_in += count
        channel.leftover = b""
        return self._cut(channel, _unpack_size(self._scratch)[0], end)

    def _keep(self, channel: Channel, end: int, count: int) -> None:
        """Not even a whole size yet."""
        if not count:
            raise EndOfStream("end of stream")
        self.bytes_in += count
        channel.leftover = self._view[:end].tobytes()

    def _cut(self, channel: Channel, size: int, end: int) -> Receive | None:
        """The scratch holds `end` bytes that begin with a frame of `size`."""
        if not 0 <= size <= self._max_size:
            raise InvalidReceive(size, self._max_size)
        stop = size + _SIZE_BYTES
        if stop <= end:
            channel.leftover = self._view[stop:end].tobytes()
            return Receive(channel, self._view[_SIZE_BYTES:stop].tobytes())
        if stop < _SMALL_FRAME:
            channel.leftover = self._view[:end].tobytes()
            return None
        body = _begin_body(channel, size, self._view[_SIZE_BYTES:end])
        return self._read_on(channel, body) if end == SCRATCH_BYTES else None

    def _read_on(self, channel: Channel, body: bytearray) -> Receive | None:
        """The scratch came full, so more is there already: reading it now saves a turn of the poller."""
        try:
            return self._read_body(channel, body)
        except BlockingIOError:
            return None  # the frame has begun and its deadline runs

    def _read_body(self, channel: Channel, body: bytearray) -> Receive | None:
        """A large frame: never reads past its end, so nothing is left over."""
        size = channel.body_size
        received = channel.body_received
        if len(body) == size:  # allocated whole
            count = channel.recv_into(memoryview(body)[received:])
        else:
            count = channel.recv_into(self._view, min(size - received, SCRATCH_BYTES))
            body += self._view[:count]
        if not count:
            raise EndOfStream("end of stream")
        self.bytes_in += count
        channel.body_received = received = received + count
        if received < size:
            return None
        channel.body = None
        if size > channel.largest_body:
            channel.largest_body = size
        return Receive(channel, memoryview(body))

    def next_buffered(self, channel: Channel) -> Receive | None:
        data = channel.leftover
        position = channel.leftover_position
        end = len(data)
        if end - position >= _SIZE_BYTES:
            size = _unpack_size(data, position)[0]
            if not 0 <= size <= self._max_size:
                raise InvalidReceive(size, self._max_size)
            start = position + _SIZE_BYTES
            stop = start + size
            if stop <= end:
                if stop == end:
                    channel.leftover = b""
                    stop = 0
                channel.leftover_position = stop
                return Receive(channel, data[start : start + size])
            if size + _SIZE_BYTES >= _SMALL_FRAME:
                _begin_body(channel, size, memoryview(data)[start:])
                position = end
        channel.leftover = data[position:]
        channel.leftover_position = 0
        return None

    def has_next(self, channel: Channel) -> bool:
        start = channel.leftover_position + _SIZE_BYTES
        rest = len(channel.leftover) - start
        return rest >= 0 and 0 <= _unpack_size(channel.leftover, channel.leftover_position)[0] <= rest


def _begin_body(channel: Channel, size: int, begin: memoryview) -> bytearray:
    """A large frame of which `begin` came. Its memory grows with the bytes, unless the peer has once sent a frame as large: then one
    allocation is twice as fast, and the connection still holds no more than it has received."""
    channel.body_size = size
    channel.body_received = len(begin)
    if size <= channel.largest_body:
        body = bytearray(size)
        body[: len(begin)] = begin
    else:
        body = bytearray(begin)
    channel.body = body
    return body


class PooledReader:
    """Reads the size, then the body, as far as the pool lets it. Without memory channels wait in `muted_for_memory`, in the order in which
    they began to. While others wait, a channel whose frame is claimed whole must be quick to send the rest."""

    __slots__ = ("_finishing", "_max_size", "_pace", "_pool", "_scratch", "_view", "bytes_in", "waiters")

    def __init__(self, max_size: int, pool: MemoryPool) -> None:
        self._max_size = max_size
        self._pool = pool
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._finishing: dict[Channel, None] = {}  # their frames are claimed whole and not small
        self._pace = Pace(STALLED_NS)
        self.bytes_in = 0
        self.waiters: dict[Channel, None] = {}  # in the order in which they found no memory

    def read(self, channel: Channel) -> Receive | None:
        buffer = channel.buffer
        if buffer is not None:
            return self._read_body(channel, buffer)
        if not self._read_size(channel):
            return None
        if not channel.body_size:
            return Receive(channel, b"")
        buffer = channel.buffer = self._pool.open(channel.body_size)
        channel.body_received = 0
        channel.body = buffer.data
        try:
            return self._read_body(channel, buffer)
        except BlockingIOError:
            return None  # the size was read: the frame has begun and its deadline runs

    def resume(self, channel: Channel) -> bool:
        """The first waiter asks again; False when there is still no memory."""
        buffer = channel.buffer
        if buffer is not None and not self._claim(channel, buffer):
            return False
        channel.muted_for_memory = False
        del self.waiters[channel]
        return True

    def stalled(self, now_ns: int) -> Channel | None:
        """A channel that could finish its frame and hardly sends anything, although others wait for memory."""
        if not self._pool.is_short():
            self._pace.clear()
            return None
        for channel in self._finishing:
            if self._pace.is_slow(
                channel, channel.body_received, max(PACE_BYTES, channel.body_size // PACE_SHARE), now_ns
            ):
                return channel
        return None

    def forget(self, channel: Channel) -> None:
        """The channel leaves the selector. If it waits for memory, it will get none."""
        if channel in self.waiters:
            del self.waiters[channel]
            if channel.buffer is not None:
                channel.buffer.release()
        self._no_longer_finishing(channel)

    def next_buffered(self, channel: Channel) -> Receive | None:
        """Exact reads leave nothing over."""
        return None

    def has_next(self, channel: Channel) -> bool:
        return False

    def _read_size(self, channel: Channel) -> bool:
        start = len(channel.leftover)
        self._view[:start] = channel.leftover
        count = self._receive(channel, self._view[start:_SIZE_BYTES])
        if start + count < _SIZE_BYTES:
            channel.leftover = self._view[: start + count].tobytes()
            return False
        channel.leftover = b""
        size = _unpack_size(self._scratch)[0]
        if not 0 <= size <= self._max_size:
            raise InvalidReceive(size, self._max_size)
        channel.body_size = size
        return True

    def _claim(self, channel: Channel, buffer: PooledBuffer) -> bool:
        """Whether more of the frame may be read."""
        if not self._pool.claim(buffer):
            return False
        if buffer.claim.whole:
            self._finishing[channel] = None
        if buffer.room == buffer.size > SCRATCH_BYTES and len(buffer.data) < buffer.size:
            buffer.make_whole()
        channel.body = buffer.data
        return True

    def _read_body(self, channel: Channel, buffer: PooledBuffer) -> Receive | None:
        received = channel.body_received
        if received == buffer.room and not self._claim(channel, buffer):
            channel.muted_for_memory = True
            self.waiters[channel] = None
            return None
        data = buffer.data
        stop = min(buffer.room, received + _POOLED_READ)
        if isinstance(data, bytearray) and len(data) < buffer.size:  # its memory grows as it comes
            part = self._view[: min(stop - received, SCRATCH_BYTES)]
            count = self._receive(channel, part)
            data += part[:count]
        else:
            count = self._receive(channel, memoryview(data)[received:stop])
        channel.body_received = received = received + count
        if received < buffer.size:
            return None
        channel.body = channel.buffer = None
        self._no_longer_finishing(channel)
        return Receive(channel, memoryview(data)[:received], buffer)

    def _no_longer_finishing(self, channel: Channel) -> None:
        if channel in self._finishing:
            del self._finishing[channel]
            self._pace.forget(channel)

    def _receive(self, channel: Channel, into: memoryview) -> int:
        count = channel.recv_into(into)
        if not count:
            raise EndOfStream("end of stream")
        self.bytes_in += count
        return count


def make_reader(pool: MemoryPool, max_size: int) -> ReadAheadReader | PooledReader:
    """The reader that fits the pool."""
    return ReadAheadReader(max_size) if pool.unlimited else PooledReader(max_size, pool)
