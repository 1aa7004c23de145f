"""Compressed records: every codec's framing, with limits. What comes out is within the limit, and compressed again it is the same.

Input: a byte for the codec, a byte for the limit, the compressed records.
"""

from __future__ import annotations

from barnabas.broker.log.expansion import Expansion, ExpansionUsedUp
from barnabas.records.batch import CorruptBatch
from barnabas.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, ExpandsTooFar, compress, decompress
from tests.fuzz.target import Reader, must, outcome
from tests.records import batches

MAX_LENGTH = 5000

LIMITS = (0, 1, 100, 4096, 70_000, 1 << 20)


def run(data: bytes) -> None:
    reader = Reader(data)
    codec, limit, records = reader.byte() % 8, LIMITS[reader.byte() % len(LIMITS)], reader.rest()
    found = outcome((CorruptBatch,), decompress, codec, records, limit)
    if codec != NONE:
        room = Expansion(limit)
        used = outcome((CorruptBatch, ExpansionUsedUp), room.decompress, codec, records, 1 << 20)
        must(0 <= room.done <= limit, f"{used.error or len(used.value)} took {room.done} of {limit} bytes")
        if found.value and used.value is not None:
            must(used.value == found.value, "in the memory of the request it is something else")
    if found.value is None:
        return
    must(codec == NONE or len(found.value) <= limit, f"{len(found.value)} bytes came out, {limit} are allowed")
    again = compress(codec, found.value)
    must(decompress(codec, again, len(found.value)) == found.value, "compressed again it is something else")
    if found.value and codec != NONE:
        error = outcome((ExpandsTooFar,), decompress, codec, again, len(found.value) - 1).error
        must(error, "one byte more than the limit came out")


def seeds() -> dict[str, bytes]:
    found = {}
    contents = {
        "text": b"orders and more orders " * 20,
        "empty": b"",
        "zeros": bytes(3000),
        "long": bytes(range(256)) * 280,
    }
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        for number, (name, plain) in enumerate(contents.items()):
            found[f"{codec}-{name}"] = bytes([codec, 5 - number % 2]) + compress(codec, plain)
        found[f"{codec}-java"] = bytes([codec, 5]) + batches.compress(codec, contents["text"])
    found["raw-snappy"] = bytes([SNAPPY, 4]) + bytes.fromhex("0a2468656c6c6f68656c6c6f")
    found["two-gzip-members"] = bytes([GZIP, 4]) + 2 * compress(GZIP, b"half")
    found["two-zstd-frames"] = bytes([ZSTD, 4]) + 2 * compress(ZSTD, b"half")
    found["two-lz4-frames"] = bytes([LZ4, 4]) + 2 * compress(LZ4, b"half")
    return found
