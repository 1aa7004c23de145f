"""Spark looks for modules named `pyspark_*` and registers their `DefaultSource`: after `pip install "barnabas[spark]"`,
`spark.read.format("barnabas")` works without any further step. Everything else is in `barnabas.spark`."""

from barnabas.spark.datasource import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
