"""Compression of record batches: Kafka's codecs, decompressed with a limit.

Role: bytes of a batch's records in, plain records out; hostile input never costs more than about `limit` bytes of memory.
Thread: any; pure functions. Lock: none.

Snappy comes in two forms: the xerial framing that Java clients write (a 16-byte head, then blocks with a 4-byte length) and one
raw block, as some other clients write. Lz4 and zstd are their frame formats, gzip is RFC 1952.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam

from barnabas.records.batch import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16
_LENGTH = struct.Struct(">i")
_FIRST_GUESS = 64 * 1024
_FRAMED: dict[int, Any] = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The plain records of a batch; CorruptBatch when they cannot be read or are larger than `limit`."""
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            return _decompress_snappy(data, limit)
        if codec in _FRAMED:
            return _decompress_frames(_FRAMED[codec], data, limit)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{CODEC_NAMES[codec]}: {error}") from error
    raise CorruptBatch(f"codec {codec} is unknown")


def _decompress_frames(module: Any, data: bytes, limit: int) -> bytes:
    """Into a buffer of a guessed size that grows up to the limit: the codecs never write beyond the buffer they are given."""
    guess = min(limit, max(_FIRST_GUESS, 4 * len(data)))
    while True:
        target = bytearray(guess)
        try:
            written: int = module.decompress_into(data, target)
            return bytes(memoryview(target)[:written])
        except cramjam.DecompressionError:
            if guess >= limit:
                raise
            guess = min(limit, guess * 4)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(data, limit)
    plain = bytearray()
    position = _XERIAL_HEAD
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise CorruptBatch("snappy: the length of a block is cut off")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch(f"snappy: a block claims {length} bytes, {len(data) - position} are left")
        plain += _decompress_snappy_block(data[position : position + length], limit - len(plain))
        position += length
    return bytes(plain)


def _decompress_snappy_block(block: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise CorruptBatch("snappy: the records are larger than allowed when decompressed")
    return bytes(cramjam.snappy.decompress_raw(block))
