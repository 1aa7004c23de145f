"""What a consumer makes of fetched bytes: records one by one, or columns for Arrow, plain and compiled. All ways bring the same, or fail
with an error of Kafka's.

Input: a byte of choices, a byte for the position, the bytes of a fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from barnabas.consumer import arrow, fetched_partition
from barnabas.consumer.assignment import PartitionState
from barnabas.consumer.delivery import PartitionRun
from barnabas.consumer.fetched_partition import Decoding, FetchedPartition
from barnabas.errors import KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from tests.fuzz.target import KernelUsers, Outcome, Reader, must, outcome
from tests.fuzz.target_records import repaired, repaired_all, sample_batches
from tests.records.batches import Batch, batch, end_marker, transactional

MAX_LENGTH = 2048
MOST_STEPS = 10_000
REPAIR, CHECK, COMMITTED, ABORTED, FEW_ROWS = 1, 2, 4, 8, 16

_users = KernelUsers(fetched_partition, arrow)
Row = tuple[Any, ...]


def run(data: bytes) -> None:
    reader = Reader(data)
    choices, position, records = reader.byte(), reader.byte(), reader.rest()
    if choices & REPAIR:
        records = repaired_all(records)
    found = _both_ways(choices, position, records)
    if _users.both:
        with _users.compiled():
            compiled = _both_ways(choices, position, records)
        for way, plain, other in zip(("records", "columns"), found, compiled, strict=True):
            must(plain == other, f"{way}: the plain kernel brings {plain}, the compiled one {other}")
    one, other = found
    must(_rows_agree(one, other), f"the records are {one}, the columns {other}")


def _both_ways(choices: int, position: int, records: bytes) -> tuple[Outcome, Outcome]:
    return _all(_records, choices, position, records), _all(_columns, choices, position, records)


def _all(way: Callable[[FetchedPartition, int], list[Row]], choices: int, position: int, records: bytes) -> Outcome:
    """All rows up to the end or the first error, and that error."""
    aborted = [AbortedTransaction(producer_id=7, first_offset=position)] if choices & ABORTED else []
    decoding = Decoding(bool(choices & CHECK), bool(choices & COMMITTED), 1 << 20)
    state = PartitionState(("fuzz", 0), None)
    rows: list[Row] = []
    made = outcome((KafkaError,), FetchedPartition, state, position, memoryview(records), aborted, decoding)
    error = made.error
    for _ in range(MOST_STEPS if made.value is not None else 0):
        step = outcome((KafkaError,), way, made.value, 2 if choices & FEW_ROWS else 1 << 30)
        error = step.error
        rows += step.value or ()
        if not step.value:
            break
    else:
        must(made.value is None, "the bytes never end")
    return Outcome(rows, error)


def _records(fetched: FetchedPartition, limit: int) -> list[Row]:
    return [
        (row.offset, row.timestamp, row.timestamp_type, row.key, row.value, row.headers)
        for row in fetched.take_records(limit)
    ]


def _columns(fetched: FetchedPartition, limit: int) -> list[Row]:
    run = fetched.take_run(limit)
    if run is None:
        return []
    batch = arrow.to_arrow([PartitionRun(("fuzz", 0), run)])
    batch.validate(full=True)
    must(batch.num_rows, "a run without rows")
    columns = [_plain(batch.column(name)) for name in ("offset", "timestamp", "timestamp_type", "key", "value")]
    headers = [tuple((pair["key"], pair["value"]) for pair in pairs) for pairs in batch.column("headers").to_pylist()]
    return list(zip(*columns, headers, strict=True))


def _plain(column: Any) -> list[Any]:
    """Times as numbers: some are beyond what a datetime can be."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()  # type: ignore[no-any-return]


def _rows_agree(one: Outcome, other: Outcome) -> bool:
    """An error may stop the columns earlier or later by a batch, and its text may differ."""
    if one.error or other.error:
        return bool(one.error) == bool(other.error)
    return bool(one.value == other.value)


def seeds() -> dict[str, bytes]:
    def bundle(*parts: memoryview | bytes) -> bytes:
        offset, done = 0, []
        for part in map(bytes, parts):
            done.append(offset.to_bytes(8, "big") + part[8:])
            offset += int.from_bytes(part[23:27], "big") + 1
        return b"".join(done)

    plain = CHECK | REPAIR
    found = {name: bytes([plain, 0]) + data for name, data in sample_batches().items()}
    several = bundle(batch(3), Batch([b"z"] * 5, codec=2).build(), batch(2), Batch([b"l"] * 4, codec=3).build())
    ended = bundle(transactional(7, 0, 2), batch(2), end_marker(7, False), transactional(7, 2, 2), end_marker(7, True))
    found["several"] = bytes([plain, 0]) + several
    found["several-from-the-middle"] = bytes([plain | FEW_ROWS, 4]) + several
    found["cut"] = bytes([plain, 0]) + several[:-20]
    found["transactions"] = bytes([plain | COMMITTED | ABORTED, 0]) + ended
    found["transactions-not-asked-for"] = bytes([plain, 0]) + ended
    found["compacted"] = bytes([plain, 0]) + repaired(
        several[: len(batch(3))][:23] + bytes([0, 0, 0, 9]) + several[27 : len(batch(3))], 1
    )
    return found
