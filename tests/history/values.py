"""The values of the workload: every one is different, says who sent it, and shows whether a byte of it was damaged.

    <producer>:<seq>:<crc>:<filler>        text up to the third colon, then 100 bytes to 1 KiB in all
                                           crc = crc32 of "<producer>:<seq>:" and the filler, 8 hexadecimal digits

Role: encode and decode. Thread: any. Lock: none.
"""

from __future__ import annotations

import os
import random
import zlib
from typing import NamedTuple

MIN_BYTES = 100
MAX_BYTES = 1024
DAMAGED = "damaged"
# Slices of one random block: as hard to compress as fresh random bytes, and far cheaper.
_NOISE = os.urandom(1 << 20)


class Value(NamedTuple):
    """What the history knows of a value. `seq` counts the producer's sends in the order in which it called send."""

    producer: str
    seq: int
    crc: int

    def __str__(self) -> str:
        return f"{self.producer}:{self.seq}"


def encode_value(producer: str, seq: int, size: int | None = None) -> tuple[Value, bytes]:
    """A fresh value and its bytes; `size` is drawn from the range above unless given."""
    head = f"{producer}:{seq}:".encode()
    wanted = size if size is not None else random.randint(MIN_BYTES, MAX_BYTES)
    length = max(0, wanted - len(head) - 9)
    start = random.randrange(len(_NOISE) - length)
    filler = _NOISE[start : start + length]
    crc = zlib.crc32(filler, zlib.crc32(head))
    return Value(producer, seq, crc), b"%s%08x:%s" % (head, crc, filler)


def decode_value(data: bytes | None) -> Value:
    """The value that these bytes are. Bytes that are no value become one of the producer `damaged`, which nobody has sent."""
    data = data or b""
    producer, seq, crc, filler = [*data.split(b":", 3), b"", b"", b""][:4]
    try:
        value = Value(producer.decode(), int(seq), int(crc, 16))
    except ValueError:
        value = None
    if value is None or zlib.crc32(filler, zlib.crc32(b"%s:%s:" % (producer, seq))) != value.crc:
        return Value(DAMAGED, len(data), zlib.crc32(data))
    return value
