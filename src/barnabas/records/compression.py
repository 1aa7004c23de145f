"""Compression of record batches: Kafka's codecs, written as Java writes them and decompressed with a limit.

Role: records of a batch in, compressed bytes out, and back; hostile input never costs more than about `limit` bytes of memory.
Thread: any; pure functions. Lock: none.

gzip    RFC 1952.
snappy  read in two forms: the xerial framing that Java clients use (a 16-byte head, then blocks with a 4-byte length) and one raw block,
        as some other clients write. Written with the framing, in blocks of 32 KiB.
lz4     frame format. Written with independent blocks of 64 KiB, because Java clients refuse blocks that refer to earlier ones, which is
        what the library writes by itself.
zstd    frame format.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cramjam

from barnabas.records.batch import Buffer, CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16
_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LEAST_BLOCK = 1024
"""Smaller blocks count as if they were as large: each costs time, and no client writes such ones, but for the last."""
_LENGTH = struct.Struct(">i")
_LZ4_HEAD = bytes.fromhex("04224d18604082")
"""Magic; version 1 with independent blocks and no checksums; blocks up to 64 KiB; the checksum of these two bytes."""
_LZ4_BLOCK = 64 * 1024
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_NOT_COMPRESSED = 0x8000_0000
_LZ4_FIXED_FLAGS, _LZ4_FLAGS = 0xE3, 0x60
"""Of the flags, those that Java insists on: version 1, independent blocks, no dictionary."""
_LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_SMALL_BLOCKS = 64
"""So many blocks may be as small as they like."""
_GZIP_START = 64 * 1024
_GZIP_FORMAT = 31
_FIRST_GUESS = 64 * 1024
_NO_ROOM = "failed to write whole buffer"
"""What the library says when the records are larger than the buffer; anything else it says is about the data."""
_FRAMED: dict[int, Any] = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}

DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}
"""Kafka's default levels; snappy has none."""
_GZIP_DEFAULT = 6
"""What -1 means."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The records of a batch, compressed so that every client can read them."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level if level >= 0 else _GZIP_DEFAULT))
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    raise ValueError(f"codec {codec} is unknown")


def _compress_snappy(data: Buffer) -> bytes:
    parts: list[bytes] = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    """Level 9 is the fast compressor, as in Kafka; others are those of the strong one."""
    options: dict[str, Any] = {"store_size": False}
    if level != DEFAULT_LEVELS[LZ4]:
        options |= {"mode": "high_compression", "compression": level}
    parts: list[Buffer] = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, **options))
        if len(block) < len(plain):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(plain) | _LZ4_NOT_COMPRESSED), plain)
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)


class ExpandsTooFar(CorruptBatch):
    """The records of a batch are larger than the limit when they are decompressed; they may be good for somebody with a larger one."""

    def __init__(self, codec: int, limit: int) -> None:
        super().__init__(f"{CODEC_NAMES[codec]}: the records are larger than {limit} bytes when decompressed")


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """The plain records of a batch; CorruptBatch when they cannot be read, ExpandsTooFar when they are larger than `limit`."""
    if codec == NONE:
        return bytes(data)
    room = min(limit, first_guess(codec, data))
    while True:
        target = bytearray(room)
        try:
            return bytes(memoryview(target)[: decompress_into(codec, data, target)])
        except ExpandsTooFar:
            if room >= limit:
                raise
            room = min(limit, room * GROWTH)


GROWTH = 4
"""Who was given too little room gets so many times as much, and begins anew."""


def first_guess(codec: int, data: Buffer) -> int:
    """How much room to begin with; all that is needed where the codec tells."""
    guess = max(_FIRST_GUESS, GROWTH * len(data))
    if codec != SNAPPY or bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        return guess
    try:
        return max(1, cramjam.snappy.decompress_raw_len(data))
    except cramjam.DecompressionError:
        return guess


def decompress_into(codec: int, data: Buffer, target: bytearray | memoryview) -> int:
    """Write the plain records of a compressed batch; their size. CorruptBatch when they cannot be read, ExpandsTooFar when they do not fit:
    the codecs never write beyond what they are given. Others run meanwhile: the library lets go of the GIL."""
    try:
        if codec == SNAPPY:
            return _decompress_snappy(data, memoryview(target))
        if codec in _FRAMED:
            written: int = _FRAMED[codec].decompress_into(data, target)
            return written
    except cramjam.DecompressionError as error:
        if str(error) == _NO_ROOM:
            raise ExpandsTooFar(codec, len(target)) from error
        raise CorruptBatch(f"{CODEC_NAMES[codec]}: {error}") from error
    raise CorruptBatch(f"codec {codec} is unknown")


def _decompress_snappy(data: Buffer, target: memoryview) -> int:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, target, 0)
    view = memoryview(data)
    position, written, room = _XERIAL_HEAD, 0, len(target)
    while position < len(data):
        if room < 0:
            raise ExpandsTooFar(SNAPPY, len(target))
        room -= _LEAST_BLOCK
        if len(data) - position < _LENGTH.size:
            raise CorruptBatch("snappy: the length of a block is cut off")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch(f"snappy: a block claims {length} bytes, {len(data) - position} are left")
        written = _decompress_snappy_block(view[position : position + length], target, written)
        position += length
    return written


def _decompress_snappy_block(block: Buffer, target: memoryview, at: int) -> int:
    """The position behind it in the target."""
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > len(target) - at:
        raise ExpandsTooFar(SNAPPY, len(target))
    written: int = cramjam.snappy.decompress_raw_into(block, target[at : at + size])
    return at + written


def check_frame(codec: int, data: Buffer, size: int) -> None:
    """CorruptBatch unless all `size` plain bytes are in one gzip member or lz4 frame that Java reads, with nothing around it. `data` is
    what `decompress` has read: it reads several in a row, at which librdkafka loses records, fails again and again, or crashes."""
    if codec == GZIP:
        _check_gzip_member(data, size)
    elif codec == LZ4:
        _check_lz4_frame(data, size)


def _check_gzip_member(data: Buffer, size: int) -> None:
    """The last member tells its size; when that is all of it, and the first is not empty, there is only one."""
    try:
        first = zlib.decompressobj(_GZIP_FORMAT).decompress(data[:_GZIP_START], 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip: {error}") from error
    if not first or int.from_bytes(data[-4:], "little") != size & 0xFFFF_FFFF:
        raise CorruptBatch("gzip: the records are not in one member")


def _check_lz4_frame(data: Buffer, size: int) -> None:
    if bytes(data[:4]) != _LZ4_HEAD[:4] or data[4] & _LZ4_FIXED_FLAGS != _LZ4_FLAGS:
        raise CorruptBatch("lz4: the records do not begin with a frame of independent blocks")
    flags = data[4]
    position = len(_LZ4_HEAD) + (8 if flags & _LZ4_SIZE else 0)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    blocks = 0
    while length := int.from_bytes(data[position : position + 4], "little"):
        position += 4 + (length & ~_LZ4_NOT_COMPRESSED) + checksum
        blocks += 1
        if blocks > _LZ4_SMALL_BLOCKS + size // _LEAST_BLOCK:
            raise CorruptBatch(f"lz4: blocks are smaller than {_LEAST_BLOCK} bytes")
    position += 8 if flags & _LZ4_CHECKSUM else 4
    if not blocks or position != len(data):
        raise CorruptBatch("lz4: the records are not in one frame")
