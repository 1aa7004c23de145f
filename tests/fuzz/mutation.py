"""Mutations: of messages, by their fields, and of frames, by their bytes.

Thread: any; a `random.Random` decides everything. Lock: none.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_request, decode_response, encode
from barnabas.protocol.header import parse_request_header
from barnabas.protocol.schema import ZERO_UUID, FieldSpec, Message, Primitive

BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
TEXTS = ("", "a", "\0", "é", "__consumer_offsets", "..", "../x", "a" * 249, "a" * 250, "x" * 32767, "\n{}\t", "²")
MOST_SLOTS = 2000
MOST_COPIES = 200


class Slot(NamedTuple):
    """A field of a message that can be set."""

    owner: Message
    spec: FieldSpec


def slots_of(message: Message, version: int) -> list[Slot]:
    """All fields of a message and of the structs in it that the version has."""
    found: list[Slot] = []
    pending = [message]
    while pending and len(found) < MOST_SLOTS:
        owner = pending.pop()
        for spec in owner.schema.fields:
            if version not in spec.versions:
                continue
            found.append(Slot(owner, spec))
            value = getattr(owner, spec.name)
            if isinstance(value, Message):
                pending.append(value)
            elif isinstance(value, list) and not isinstance(spec.kind, Primitive):
                pending += value[:50]
    return found


def mutate_message(rng: random.Random, message: Message, version: int, texts: Sequence[str] = TEXTS) -> None:
    """Set one to three fields to extreme, but legal values."""
    slots = slots_of(message, version)
    for slot in rng.sample(slots, min(len(slots), rng.randint(1, 3))):
        value = _other_value(rng, slot, version, texts)
        try:
            setattr(slot.owner, slot.spec.name, value)
        except AttributeError:
            continue  # a default that messages share


def _other_value(rng: random.Random, slot: Slot, version: int, texts: Sequence[str]) -> Any:
    spec = slot.spec
    old = getattr(slot.owner, spec.name)
    if version in spec.nullable and rng.random() < 0.2:
        return None
    if spec.is_array:
        return _other_list(rng, old or [], spec, texts)
    return _other_scalar(rng, old, spec, texts)


def _other_list(rng: random.Random, old: list[Any], spec: FieldSpec, texts: Sequence[str]) -> list[Any]:
    choice = rng.randrange(5)
    if choice == 0 or not old:
        return [_other_scalar(rng, None, spec, texts)] if isinstance(spec.kind, Primitive) else []
    if choice == 1:
        return [*old, rng.choice(old)]
    if choice == 2:
        return [rng.choice(old)] * rng.choice((2, 10, MOST_COPIES))
    if choice == 3:
        return old[::-1]
    return old[: rng.randrange(len(old))]


def _other_scalar(rng: random.Random, old: Any, spec: FieldSpec, texts: Sequence[str]) -> Any:
    if not isinstance(spec.kind, Primitive):
        return old
    name = spec.kind.name
    if name in BITS:
        return _integer(rng, BITS[name])
    makers: dict[str, Callable[[], Any]] = {
        "BOOL": lambda: not old,
        "UINT16": lambda: rng.choice((0, 1, 9092, 0xFFFF)),
        "FLOAT64": lambda: rng.choice((0.0, -1.0, 1e308, 5e-324, float("inf"), float("nan"), 1024.0)),
        "STRING": lambda: rng.choice(texts),
        "UUID": lambda: rng.choice((ZERO_UUID, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1), old or ZERO_UUID)),
        "BYTES": lambda: mutate_bytes(rng, bytes(old or b"data")),
        "RECORDS": lambda: mutate_bytes(rng, bytes(old or b"records")),
    }
    return makers[name]()


def _integer(rng: random.Random, bits: int) -> int:
    half = 1 << (bits - 1)
    return rng.choice((-half, -2, -1, 0, 1, 2, half - 2, half - 1, rng.randrange(-half, half)))


def mutated_request(rng: random.Random, payload: bytes, texts: Sequence[str] = TEXTS) -> bytes | None:
    """A request with some fields changed; None when the payload is no request that can be read."""
    try:
        header = parse_request_header(payload)
        message = decode_request(header.api_key, header.api_version, payload, header.body_offset)
        mutate_message(rng, message, header.api_version, texts)
        return payload[: header.body_offset] + b"".join(map(bytes, encode(message, header.api_version)))
    except BarnabasError:
        return None


def mutated_response(rng: random.Random, data: bytes) -> bytes | None:
    """As `mutated_request`, of an API key, a version and the body of a response."""
    try:
        key, version = struct.unpack_from(">hh", data)
        message = decode_response(key, version, data, 4)
        mutate_message(rng, message, version)
        return data[:4] + b"".join(map(bytes, encode(message, version)))
    except (BarnabasError, struct.error):
        return None


# -------------------------------------------------------------------- bytes

LENGTHS = (-1, 0, 1, 2, 2**31 - 1, -(2**31), 0x7FFF, 1 << 20)


def _flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_length(rng: random.Random, data: bytearray) -> None:
    """Four bytes somewhere, as if a length stood there."""
    at = rng.randrange(len(data))
    data[at : at + 4] = struct.pack(">i", rng.choice((*LENGTHS, rng.randrange(-(2**31), 2**31))))


def _set_short_length(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at : at + 2] = struct.pack(">h", rng.choice((-1, 0, 1, 2**15 - 1, -(2**15))))


def _set_byte(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _repeat(rng: random.Random, data: bytearray) -> None:
    """A section once more."""
    start = rng.randrange(len(data))
    section = data[start : start + rng.choice((1, 2, 4, 8, 40))]
    data[start:start] = section * rng.choice((1, 1, 3, 50))


def _remove(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 2, 4, 8))]


def _append_tags(rng: random.Random, data: bytearray) -> None:
    """Tagged fields at the end, where flexible versions have them."""
    if data[-1] == 0:
        del data[-1]
    count = rng.choice((1, 2, 100))
    size = rng.choice((0, 1, 3))
    data += bytes([count]) + b"".join(bytes([number & 0x7F, size]) + bytes(size) for number in range(count))


def _noise(rng: random.Random, data: bytearray) -> None:
    data += rng.randbytes(rng.choice((1, 4, 100)))


BYTE_MUTATIONS = (
    _flip_bits,
    _flip_bits,
    _set_length,
    _set_length,
    _set_short_length,
    _set_byte,
    _truncate,
    _repeat,
    _remove,
    _append_tags,
    _noise,
)


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three mutations that know nothing of the format."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if changed:
            rng.choice(BYTE_MUTATIONS)(rng, changed)
    return bytes(changed)


def swap_version(rng: random.Random, payload: bytes) -> bytes:
    """The same body, said to be of another version, or of another API."""
    key, version = struct.unpack_from(">hh", payload)
    if rng.random() < 0.3:
        key = rng.choice((*APIS, 4, 52, -1, 999))
    else:
        version = rng.choice((version - 1, version + 1, 0, 99, -1, rng.randrange(-2, 20)))
    return struct.pack(">hh", key, max(-(2**15), min(2**15 - 1, version))) + payload[4:]
