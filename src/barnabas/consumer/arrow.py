"""Fetched batches as one `pyarrow.RecordBatch`, without a Python object per record.

Role: the columns are filled by the record kernel in Arrow's own layout and handed over as they are.
Columns: topic dictionary<string>, partition int32, offset int64, timestamp timestamp[ms, UTC], timestamp_type int8, key binary,
value binary, headers list<struct<key string, value binary>>.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from array import array
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from barnabas.consumer.delivery import PartitionBatch
from barnabas.errors import BarnabasError
from barnabas.records.kernel.fetched import Columns, measure, read_headers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["empty_batch", "schema", "to_arrow"]


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise BarnabasError("poll_arrow needs pyarrow: install barnabas[arrow]") from None
    return pa


@cache
def schema() -> pa.Schema:
    """The columns, the same for every batch."""
    pa = _pyarrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("timestamp_type", pa.int8(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
        ]
    )


def empty_batch() -> pa.RecordBatch:
    return _pyarrow().RecordBatch.from_pylist([], schema=schema())


def to_arrow(parts: list[PartitionBatch]) -> pa.RecordBatch:
    """The records of these batches, one behind the other."""
    pa = _pyarrow()
    sizes = [measure(part.batch.spans, part.batch.skip) for part in parts]
    columns = Columns(*map(sum, zip(*sizes, strict=True)))
    for part in parts:
        columns.add(part.batch.data, part.batch.spans, part.batch.skip, part.batch.header)
    rows = columns.rows
    layout = schema()
    arrays = [
        _topics(pa, parts, sizes),
        _runs(pa, pa.int32(), "i", [(part.partition[1], size[0]) for part, size in zip(parts, sizes, strict=True)]),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(layout.field("timestamp").type, rows, [None, pa.py_buffer(columns.timestamps)]),
        _runs(
            pa,
            pa.int8(),
            "b",
            [(int(part.batch.header.log_append_time), size[0]) for part, size in zip(parts, sizes, strict=True)],
        ),
        _binary(pa, rows, (columns.key_valid, columns.key_ends, columns.keys), columns.key_nulls),
        _binary(pa, rows, (columns.value_valid, columns.value_ends, columns.values), columns.value_nulls),
        _headers(pa, layout.field("headers").type, parts, columns),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=layout)


def _runs(pa: Any, kind: Any, code: str, runs: list[tuple[int, int]]) -> Any:
    """A column of which each value repeats."""
    values: array[int] = array(code)
    for value, count in runs:
        values += array(code, (value,)) * count
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _topics(pa: Any, parts: list[PartitionBatch], sizes: list[tuple[int, int, int]]) -> Any:
    names = {name: number for number, name in enumerate(dict.fromkeys(part.partition[0] for part in parts))}
    runs = [(names[part.partition[0]], size[0]) for part, size in zip(parts, sizes, strict=True)]
    return pa.DictionaryArray.from_arrays(_runs(pa, pa.int32(), "i", runs), _names(tuple(names)))


@lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> Any:
    pa = _pyarrow()
    return pa.array(names, pa.string())


def _binary(pa: Any, rows: int, buffers: tuple[bytearray, array[int], bytearray], nulls: int) -> Any:
    valid, ends, data = buffers
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(ends), pa.py_buffer(data)], nulls)


def _headers(pa: Any, kind: Any, parts: list[PartitionBatch], columns: Columns) -> Any:
    if not columns.rows_with_headers:
        ends = pa.py_buffer(bytes(4 * (columns.rows + 1)))
        return pa.Array.from_buffers(kind, columns.rows, [None, ends], 0, children=[pa.array([], kind.value_type)])
    rows = [
        [{"key": name, "value": value} for name, value in headers]
        for part in parts
        for headers in read_headers(part.batch.data, part.batch.spans, part.batch.skip)
    ]
    return pa.array(rows, kind)
