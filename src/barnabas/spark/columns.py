"""The columns that the source gives and the sink takes: names and types of Spark's own connector.

Role: the source's schema for Spark and for Arrow (Spark wants both to agree exactly), and the columns of the sink with the types that
each may have. Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["HEADERS_DDL", "SINK_COLUMNS", "arrow_schema", "source_schema"]

HEADERS_DDL = "array<struct<key:string,value:binary>>"

_SOURCE_COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "integer"),
    ("offset", "long"),
    ("timestamp", "timestamp"),
    ("timestampType", "integer"),
)

SINK_COLUMNS: dict[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "headers": (HEADERS_DDL,),
    "partition": ("int",),
    "timestamp": ("timestamp", "double"),
}
"""What a data frame that is written may have, and the types (`simpleString`) that each may be; only `value` must be there."""


def source_schema(include_headers: bool) -> StructType:
    """The columns of a data frame that is read."""
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

    schema = StructType()
    for name, kind in _SOURCE_COLUMNS:
        schema = schema.add(name, kind)
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        schema = schema.add("headers", ArrayType(header))
    return schema


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    """The same for Arrow, as Spark would derive it; a test compares the two."""
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)
