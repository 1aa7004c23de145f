"""Frames out of a stream that comes in pieces: both readers, all pools. What they cut must be what a loop of four lines cuts.

Input: a byte for the reader, a byte for the largest frame, a byte that seeds the pieces, the stream. The sizes at which the readers change
their ways are made small, so that short streams reach all of them.
"""

from __future__ import annotations

import random
import socket
import struct

from barnabas.net import frame
from barnabas.net.channel import Channel
from barnabas.net.frame import EndOfStream, InvalidReceive, PooledReader, ReadAheadReader
from barnabas.net.memory_pool import FixedSizeMemoryPool, OversizedClaim, SimpleMemoryPool
from tests.fuzz.target import Reader, must

MAX_LENGTH = 2048
SCRATCH, SMALL, POOLED_READ = 256, 128, 512
END, BAD_SIZE = "end of stream", "bad size"

_sockets = socket.socketpair()  # a channel wants one; nothing is sent over it


class Pieces:
    """A stand-in for recv_into: the stream in random pieces, with "would block" between some."""

    def __init__(self, stream: bytes, seed: int) -> None:
        self._rng = random.Random(seed)
        self._stream = stream
        self._at = 0
        self._empty_turns = 0

    def __call__(self, buffer: bytearray | memoryview, count: int = 0) -> int:
        room = min(count or len(buffer), len(buffer))
        if not self._empty_turns and self._rng.random() < 0.2:
            self._empty_turns = 1
            raise BlockingIOError
        self._empty_turns = 0
        wanted = room if self._rng.random() < 0.5 else self._rng.randint(1, max(1, min(room, 40)))
        piece = self._stream[self._at : self._at + min(wanted, room)]
        memoryview(buffer)[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def run(data: bytes) -> None:
    reader = Reader(data)
    kind, limit, seed, stream = reader.byte() % 3, 8 * (reader.byte() + 1), reader.byte(), reader.rest()
    before = frame.SCRATCH_BYTES, frame._SMALL_FRAME, frame._POOLED_READ
    frame.SCRATCH_BYTES, frame._SMALL_FRAME, frame._POOLED_READ = SCRATCH, SMALL, POOLED_READ
    try:
        found = _read_all(kind, limit, Pieces(stream, seed))
    finally:
        frame.SCRATCH_BYTES, frame._SMALL_FRAME, frame._POOLED_READ = before
    must(
        found == _expected(stream, limit),
        f"reader {kind}, limit {limit}: {found} instead of {_expected(stream, limit)}",
    )


def _expected(stream: bytes, limit: int) -> tuple[list[bytes], str]:
    frames, at = [], 0
    while len(stream) - at >= 4:
        (size,) = struct.unpack_from(">i", stream, at)
        if not 0 <= size <= limit:
            return frames, BAD_SIZE
        if len(stream) - at - 4 < size:
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, END


def _read_all(kind: int, limit: int, pieces: Pieces) -> tuple[list[bytes], str]:
    """As the selector does: what is buffered first, then the socket."""
    pool = FixedSizeMemoryPool(limit * 2, limit) if kind == 1 else SimpleMemoryPool(limit * 2)
    reader = PooledReader(limit, pool) if kind else ReadAheadReader(limit)
    channel = Channel("fuzz", _sockets[0])
    channel.recv_into = pieces
    frames: list[bytes] = []
    end = ""
    while not end:
        try:
            must(reader.has_next(channel) == bool(_buffered(reader, channel, frames)), "has_next is wrong")
            receive = reader.read(channel)
            if receive is not None:
                frames.append(bytes(receive.payload))
                receive.release()
        except BlockingIOError:
            pass
        except EndOfStream:
            end = END
        except (InvalidReceive, OversizedClaim):
            end = BAD_SIZE
    if channel.buffer is not None:
        channel.buffer.release()
        channel.buffer = None
    must(not kind or pool.used() == 0, f"{pool.used()} bytes of the pool are lost")
    must(channel.body is None or len(channel.body) <= max(limit, SCRATCH), "a body is larger than any frame")
    return frames, end


def _buffered(reader: ReadAheadReader | PooledReader, channel: Channel, frames: list[bytes]) -> int:
    """Take what is buffered; how many frames that were."""
    count = 0
    while (receive := reader.next_buffered(channel)) is not None:
        frames.append(bytes(receive.payload))
        receive.release()
        count += 1
    return count


def seeds() -> dict[str, bytes]:
    def stream(*sizes: int) -> bytes:
        return b"".join(struct.pack(">i", size) + bytes([65 + number]) * size for number, size in enumerate(sizes))

    streams = {
        "small": stream(0, 1, 20, 3),
        "many": stream(*[5] * 40),
        "large": stream(600, 3, 700),
        "around": stream(123, 124, 125, 251, 252, 253, 256),
        "cut": stream(10, 40)[:-7],
        "negative": stream(4) + struct.pack(">i", -1),
        "too-large": stream(4) + struct.pack(">i", 2**31 - 1) + b"xxxx",
        "tls": bytes.fromhex("1603010200"),
        "web": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    }
    return {
        f"{name}-{kind}": bytes([kind, 100, number]) + data
        for kind in range(3)
        for number, (name, data) in enumerate(streams.items())
    }
