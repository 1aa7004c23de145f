"""Spark's side of Barnabas: `format("barnabas")` reads topics into data frames and writes data frames to topics, without a jar.

    events = spark.readStream.format("barnabas") \\
        .option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

Spark registers the format by itself when the package is installed where the driver runs (`pyspark_barnabas`); where it does not,
`register(spark)` does. The executors need the package too. Nothing here uses py4j, so Spark Connect works the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.datasource import BarnabasDataSource

__all__ = ["BarnabasDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Let this session know `format("barnabas")`, where Spark has not found it by itself.

    register(spark)
    """
    from barnabas.spark.datasource import BarnabasDataSource

    spark.dataSource.register(BarnabasDataSource)


def __getattr__(name: str) -> object:
    """The data source is loaded when it is used: `barnabas doctor spark` must work where PySpark is missing."""
    if name != "BarnabasDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.spark.datasource import BarnabasDataSource

    return BarnabasDataSource
