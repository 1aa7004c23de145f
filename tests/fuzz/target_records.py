"""Record batches as inputs: made right again after a mutation, and samples of all kinds."""

from __future__ import annotations

import struct

from barnabas.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, PREFIX_SIZE, crc32c
from tests.records.batches import NOW_MS, Batch, batch, end_marker, record, sequenced, transactional, varint

CHECKSUM, LENGTH, BOTH = 1, 2, 3


def repaired(data: bytes, what: int) -> bytes:
    """One batch with its length and its checksum as they should be: what no mutation finds by luck."""
    if len(data) < HEADER_SIZE:
        return data
    if what & LENGTH:
        data = data[:8] + struct.pack(">i", len(data) - LENGTH_OVERHEAD) + data[12:]
    if what & CHECKSUM:
        data = data[:17] + struct.pack(">I", crc32c(data[PREFIX_SIZE:])) + data[PREFIX_SIZE:]
    return data


def repaired_all(data: bytes) -> bytes:
    """Batches one behind the other, each with the right checksum; bytes that are none stay."""
    done, at = [], 0
    while len(data) - at >= HEADER_SIZE:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
        if not HEADER_SIZE <= size <= len(data) - at:
            break
        done.append(repaired(data[at : at + size], CHECKSUM))
        at += size
    return b"".join(done) + data[at:]


def with_headers(pairs: list[tuple[bytes, bytes | None]]) -> bytes:
    """A record with headers, as its bytes."""
    body = b"\x00" + varint(0) + varint(0) + varint(3) + b"key" + varint(5) + b"value" + varint(len(pairs))
    for name, value in pairs:
        body += varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)
    return varint(len(body)) + body


def _of_records(records: bytes, count: int) -> bytes:
    head = bytes(Batch([b"x"] * count).build())[:HEADER_SIZE]
    return repaired(head + records, BOTH)


def sample_batches() -> dict[str, bytes]:
    found = {
        "one": bytes(batch()),
        "ten": bytes(batch(10)),
        "keys": bytes(Batch([b"a", None, b""], [b"k", None, b""]).build()),
        "times": bytes(Batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS - 5000]).build()),
        "no-time": bytes(Batch([b"a"], timestamps=[-1]).build()),
        "append-time": bytes(Batch([b"a"], attributes=8).build()),
        "sequenced": bytes(sequenced(7, 1, 5, 3)),
        "transactional": bytes(transactional(7, 0, 2)),
        "commit": bytes(end_marker(7, True)),
        "abort": bytes(end_marker(7, False)),
        "headers": _of_records(with_headers([(b"name", b"value"), (b"none", None), (b"\xff", b"")]), 1),
        "short-key": _of_records(
            varint(7) + b"\0" + varint(0) + varint(0) + varint(-2) + varint(1) + b"v" + varint(0) + b"", 1
        ),
        "empty": repaired(bytes(Batch([]).build()), BOTH),
        "large-delta": _of_records(record(0, b"a") + record(1, b"b", 2**40), 2),
    }
    for codec in range(1, 5):
        found[f"codec-{codec}"] = bytes(Batch([b"same"] * 30, codec=codec).build())
    return found


def lengths_of(records: bytes, count: int) -> list[int]:
    """All lengths in `count` plain records: of records, keys, values, names and values of headers, and the numbers of headers. Read by
    itself, so that nothing of the product is trusted; ValueError where the records do not end as they say."""
    found: list[int] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = records[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def cell() -> None:
        nonlocal at
        found.append(number())
        at += max(0, found[-1])

    for _ in range(count):
        found.append(number())
        end = at + found[-1]
        at += 1  # attributes
        number()  # the delta of the time
        number()  # and of the offset
        cell(), cell()
        headers = number()
        found.append(headers)
        for _ in range(2 * headers):
            cell()
        if at != end:
            raise ValueError(f"a record ends at {at}, it should at {end}")
    if at != len(records):
        raise ValueError(f"{len(records) - at} bytes are left over")
    return found
