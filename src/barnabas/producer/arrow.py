"""Sending the rows of Arrow tables: whole columns into batches, without an object per row.

Role: brings the columns into the form that the builder reads (large_binary, int64, int32), decides the partition of every row, and
appends rows by partition as far as each batch has room.
Thread: the one that calls `send_arrow`. Lock: the topic's, for each piece of rows; the builder lets go of the GIL meanwhile.

Columns: `value` (binary or text), and if they are there `key` (the same), `headers` (a list of structs of key and value),
`timestamp` (a timestamp, or milliseconds as a number) and `partition` (a number). Nulls mean: no value, no key, no headers, now,
any partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.cluster import Cluster
from barnabas.clock import Clock
from barnabas.producer.accumulator import RecordAccumulator
from barnabas.producer.errors import RecordTooLarge, SerializationError
from barnabas.producer.topic_queues import RowSpan, TopicQueues
from barnabas.records.kernel.builder import ColumnBuffers, RowSource, encode_headers, group_rows
from barnabas.records.kernel.send_path import BatchResult

__all__ = ["ArrowSender", "ArrowWay", "RecordRange", "TableFuture"]

COLUMNS = ("value", "key", "headers", "timestamp", "partition")
ROWS_PER_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records of one table that were written one after the other. `first_offset` is -1 with acks=0."""

    topic: str
    partition: int
    first_offset: int
    count: int


class TableFuture:
    """The outcome of one `send_arrow`, when it is there."""

    def __init__(self, ranges: list[tuple[BatchResult, int, int]]) -> None:
        self._ranges = ranges  # result of a batch, number of the first record in it, how many

    def done(self) -> bool:
        """Whether the outcome of every row is known."""
        return all(result.settled for result, _, _ in self._parts())

    def result(self, timeout: float | None = None) -> list[RecordRange]:
        """Wait for the outcome of every row: where the rows are, or the first error; TimeoutError after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return [_range(*part) for part in self._parts()]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome of every row: None, or the first error."""
        failure = self.failure(timeout)
        return None if failure is None else failure[1]

    def failure(self, timeout: float | None = None) -> tuple[RecordRange, BaseException] | None:
        """Wait for the outcome of every row: None, or the first rows that failed (without an offset) and their error."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for result, _, _ in self._ranges:
            if not result.wait(None if deadline is None else max(deadline - time.monotonic(), 0)):
                raise TimeoutError(f"not every row has an outcome after {timeout} s")
        for result, first, count in self._parts():
            if (error := result.error_of(first)) is not None:
                return _range(result, first, count), error
        return None

    def _parts(self) -> Iterator[tuple[BatchResult, int, int]]:
        """The ranges, in the batches where the records are now."""
        waiting = list(reversed(self._ranges))
        while waiting:
            result, first, count = waiting.pop()
            if result.parts is None:
                yield result, first, count
                continue
            ends = [start for start, _ in result.parts[1:]] + [first + count]
            pieces = [
                (part, max(first - start, 0), min(end, first + count) - max(start, first))
                for (start, part), end in zip(result.parts, ends, strict=True)
            ]
            waiting.extend(piece for piece in reversed(pieces) if piece[2] > 0)

    def __repr__(self) -> str:
        return f"<TableFuture rows={sum(count for _, _, count in self._ranges)} done={self.done()}>"


def _range(result: BatchResult, first: int, count: int) -> RecordRange:
    offset = result.base_offset + first if result.base_offset >= 0 else -1
    return RecordRange(result.topic, result.partition, offset, count)


@dataclass(frozen=True, slots=True)
class ArrowWay:
    """What of a producer the rows need on their way."""

    accumulator: RecordAccumulator
    await_topic: Callable[[str, int | None], Cluster]
    wakeup: Callable[[], None]
    max_block_ms: int
    max_request_size: int
    keyed: bool
    clock: Clock


class ArrowSender:
    """One call of `send_arrow`."""

    def __init__(self, way: ArrowWay) -> None:
        self._way = way
        self._ranges: list[tuple[BatchResult, int, int]] = []

    def send(self, topic: str, table: Any) -> TableFuture:
        """Refuses before the first row is taken what can never be sent."""
        way = self._way
        pieces = [_Piece(batch) for batch in _checked(table).to_batches(max_chunksize=ROWS_PER_PIECE)]
        largest = max((piece.largest for piece in pieces), default=0)
        if largest > way.max_request_size:
            raise RecordTooLarge(
                f"a row for {topic} has up to {largest} bytes, more than max.request.size = {way.max_request_size}"
            )
        highest = max((piece.highest_partition for piece in pieces), default=-1)
        cluster = way.await_topic(topic, None if highest < 0 else highest)
        lane = way.accumulator.lane(topic, cluster)
        for piece in pieces:
            self._send_piece(lane, cluster, piece)
        way.wakeup()
        return TableFuture(self._ranges)

    def _send_piece(self, lane: TopicQueues, cluster: Cluster, piece: _Piece) -> None:
        keyed = piece.has_keys and self._way.keyed
        if piece.partitions is None and not keyed:
            self._send_rows(lane, cluster, None, RowSpan(piece.source, 0, piece.rows, None), piece.largest)
            return
        count = lane.partition_count
        partitions = piece.source.partitions(0, piece.rows, count) if keyed else bytearray(b"\xff" * (4 * piece.rows))
        piece.put_given_partitions(partitions)
        rows, starts = group_rows(partitions, count + 1)
        for group in range(count + 1):
            span = RowSpan(piece.source, starts[group], starts[group + 1], rows)
            self._send_rows(lane, cluster, group if group < count else None, span, piece.largest)

    def _send_rows(
        self, lane: TopicQueues, cluster: Cluster, partition: int | None, span: RowSpan, largest: int
    ) -> None:
        """Rows for one partition, or for any (None). Each wait for memory may take `max.block.ms`."""
        way = self._way
        while span.start < span.stop:
            with lane:
                way.accumulator.raise_if_closed()
                target = lane.choose_sticky(cluster) if partition is None else partition
                self._append(lane, target, span, partition is None)
            if span.start < span.stop:
                now_ms = way.clock.monotonic_ns() // 1_000_000
                with way.accumulator.open_batch(lane, target, largest, now_ms, way.max_block_ms):
                    self._append(lane, target, span, partition is None)
                way.wakeup()

    def _append(self, lane: TopicQueues, target: int, span: RowSpan, sticky: bool) -> None:
        """As many rows as have room in the open batch, if there is one. Under the topic's lock."""
        written = lane.append_rows(target, span, self._way.clock.wall_ms(), sticky)
        if written is not None:
            self._ranges.append(written)


class _Piece:
    """Some rows of a table, in the form that the builder reads."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in batch.schema.names}
        keys = columns.get("key")
        self.has_keys = keys is not None and keys.null_count < self.rows
        headers = columns.get("headers")
        times = columns.get("timestamp")
        self.source = RowSource(
            _buffers(_as_binary("value", columns["value"])),
            _buffers(_as_binary("key", keys)) if keys is not None and self.has_keys else None,
            None if headers is None else _buffers(_as_headers(headers)),
            None if times is None else _as_times(times),
        )
        self.partitions = _as_partitions(columns.get("partition"))
        self.largest = self.source.size_bound(0, self.rows)

    @property
    def highest_partition(self) -> int:
        if self.partitions is None:
            return -1
        found = pc.min_max(self.partitions).as_py()
        if found["min"] is not None and found["min"] < 0:
            raise ValueError(
                f"the column partition has {found['min']}; a partition is a number from 0 on, or null for any"
            )
        return -1 if found["max"] is None else int(found["max"])

    def put_given_partitions(self, target: bytearray) -> None:
        """Partitions that a row names go before those of its key."""
        if self.partitions is not None:
            others = pa.Array.from_buffers(pa.int32(), self.rows, [None, pa.py_buffer(bytes(target))])
            chosen = pc.coalesce(self.partitions, others)
            start = 4 * chosen.offset
            target[:] = memoryview(chosen.buffers()[1])[start : start + 4 * self.rows]


def _checked(table: Any) -> pa.Table:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise SerializationError(f"send_arrow takes a pyarrow Table or RecordBatch, not {type(table).__name__}")
    unknown = set(table.column_names) - set(COLUMNS)
    if "value" not in table.column_names or unknown:
        raise SerializationError(
            f"send_arrow takes the columns {', '.join(COLUMNS)} (value must be there), not {table.column_names}"
        )
    return table


def _as_binary(name: str, column: Any) -> pa.Array:
    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SerializationError(f"the column {name} is {column.type}; it must be binary or text") from error


def _buffers(array: pa.Array) -> ColumnBuffers:
    valid, offsets, data = array.buffers()
    return ColumnBuffers(offsets, data, valid if array.null_count else None, array.offset)


def _as_times(column: Any) -> tuple[Any, int]:
    """Milliseconds as int64; the time of now where there is none."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise SerializationError(
            f"the column timestamp is {column.type}; it must be a timestamp, or whole milliseconds since 1970"
        )
    now = time.time_ns() // 1_000_000
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    try:
        array = pc.fill_null(column.cast(pa.int64()), now)
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column timestamp cannot be milliseconds since 1970: {error}") from error
    earliest = pc.min(array).as_py()
    if earliest is not None and earliest < 0:
        raise ValueError(f"the column timestamp has {earliest} ms; a time before 1970 cannot be sent")
    return array.buffers()[1], array.offset


def _as_headers(column: Any) -> pa.Array:
    """Each row's headers, encoded."""
    rows = column.to_pylist()
    return pa.array(
        [None if not row else encode_headers([_header(item) for item in row]) for row in rows], pa.large_binary()
    )


def _header(item: Any) -> tuple[str, bytes | None]:
    key, value = (item["key"], item["value"]) if isinstance(item, dict) else item or (None, None)
    if not isinstance(key, str):
        raise SerializationError(f"the column headers has a header whose key is {key!r}; it must be text")
    return key, value.encode() if isinstance(value, str) else value


def _as_partitions(column: Any) -> pa.Array | None:
    if column is None or column.null_count == len(column):
        return None
    try:
        return column.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SerializationError(f"the column partition is {column.type}; it must be a whole number") from error
