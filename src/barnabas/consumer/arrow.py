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

from barnabas.consumer.delivery import PartitionRun
from barnabas.errors import BarnabasError
from barnabas.records.kernel.runs import Cells, RunColumns

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


def to_arrow(parts: list[PartitionRun]) -> pa.RecordBatch:
    """The records of these runs, one behind the other."""
    pa = _pyarrow()
    columns = RunColumns([part.run for part in parts])
    rows = columns.rows
    layout = schema()
    arrays = [
        _topics(pa, parts),
        _runs(pa, [(part.partition[1], part.run.sizes.rows) for part in parts]),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(layout.field("timestamp").type, rows, [None, pa.py_buffer(columns.timestamps)]),
        pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(columns.types)]),
        _binary(pa, pa.binary(), columns.keys),
        _binary(pa, pa.binary(), columns.values),
        _headers(pa, layout.field("headers").type, columns),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=layout)


def _runs(pa: Any, runs: list[tuple[int, int]]) -> Any:
    """A column of numbers each of which repeats."""
    values: array[int] = array("i")
    for value, count in runs:
        values += array("i", (value,)) * count
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _topics(pa: Any, parts: list[PartitionRun]) -> Any:
    names = {name: number for number, name in enumerate(dict.fromkeys(part.partition[0] for part in parts))}
    runs = [(names[part.partition[0]], part.run.sizes.rows) for part in parts]
    return pa.DictionaryArray.from_arrays(_runs(pa, runs), _names(tuple(names)))


@lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> Any:
    pa = _pyarrow()
    return pa.array(names, pa.string())


def _binary(pa: Any, kind: Any, cells: Cells) -> Any:
    validity = pa.py_buffer(cells.valid) if cells.nulls else None
    return pa.Array.from_buffers(
        kind, cells.rows, [validity, pa.py_buffer(cells.ends), pa.py_buffer(cells.data)], cells.nulls
    )


def _headers(pa: Any, kind: Any, columns: RunColumns) -> Any:
    pair = kind.value_type
    children = [_text(pa, columns.names), _binary(pa, pa.binary(), columns.header_values)]
    pairs = pa.StructArray.from_arrays(children, fields=[pair.field(0), pair.field(1)])
    ends = pa.py_buffer(columns.header_ends)
    return pa.Array.from_buffers(kind, columns.rows, [None, ends], 0, children=[pairs])


def _text(pa: Any, cells: Cells) -> Any:
    """The names of headers; nothing on the way has checked that they are UTF-8, and Arrow takes our word for it."""
    column = _binary(pa, pa.string(), cells)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binary(pa, pa.binary(), cells).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return column
