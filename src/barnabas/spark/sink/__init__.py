"""The sink: data frames to topics, at least once, through our producer and without an object per row.

Role: makes the writers that Spark asks for. Everything that can be known from options and schema is checked here, on the driver.
A delivery guarantee is a commit protocol (`commit_protocol.py`); the writers are the same for all. Thread: the driver's. Lock: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.errors import ConfigError
from barnabas.spark.options import Options, Use, parse_options
from barnabas.spark.sink.at_least_once import AtLeastOnce
from barnabas.spark.sink.columns import sink_columns
from barnabas.spark.sink.commit_protocol import CommitProtocol
from barnabas.spark.sink.settings import producer_settings
from barnabas.spark.sink.writers import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> BatchWriter:
    """The writer of `df.write`; raises for options and columns that cannot be written."""
    if overwrite:
        raise ConfigError("mode", "overwrite", "must be append: a topic cannot be overwritten")
    parsed = parse_options(options, Use.BATCH_WRITE)
    return BatchWriter(_protocol(parsed), sink_columns(schema, parsed["topic"]))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """The writer of `df.writeStream`; raises for options and columns that cannot be written."""
    parsed = parse_options(options, Use.STREAM_WRITE)
    return StreamWriter(_protocol(parsed), sink_columns(schema, parsed["topic"]))


def _protocol(options: Options) -> CommitProtocol:
    settings = producer_settings(options.client)
    if options["deliveryGuarantee"] == "exactly-once":
        raise ConfigError(
            "deliveryGuarantee",
            "exactly-once",
            "is not there yet: it comes with transactions; at-least-once is what there is",
        )
    return AtLeastOnce(settings)
