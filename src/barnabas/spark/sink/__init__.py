"""The sink. Role: makes the writers that Spark asks for. Thread: the driver's. Lock: none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType) -> NoReturn:
    """The writer of `df.write`."""
    raise BarnabasError('format("barnabas") does not write yet')


def stream_writer(options: Mapping[str, str], schema: StructType) -> NoReturn:
    """The writer of `df.writeStream`."""
    raise BarnabasError('format("barnabas") does not write yet')
