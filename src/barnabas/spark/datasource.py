"""`format("barnabas")`: what Spark's Python data source API wants, and nothing else.

Role: reads the options for the use at hand and hands them to the reader or writer. Spark pickles it to its planner processes, so
everything that costs is imported when it is needed. Thread: any. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceWriter
from pyspark.sql.types import StructType

from barnabas.errors import ConfigError
from barnabas.spark.columns import source_schema
from barnabas.spark.options import STRATEGIES, Options, Use, parse_options
from barnabas.spark.requirements import require_arrow
from barnabas.spark.settling import settle

if TYPE_CHECKING:
    from barnabas.spark.batch_reader import BatchReader
    from barnabas.spark.stream_reader import StreamReader

__all__ = ["BarnabasDataSource"]


class BarnabasDataSource(DataSource):
    """Topics of Barnabas or Apache Kafka, with the options and columns of Spark's own Kafka connector.

    spark.dataSource.register(BarnabasDataSource)
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()
        require_arrow()  # Spark's own message would be a bare ImportError, later

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """The columns of a read. Spark also asks before a write, whose options are then looked at by the writer."""
        if any(name in self.options for name in STRATEGIES):
            return source_schema(self._options_of_either_read()["includeHeaders"])
        return source_schema(include_headers=False)

    def _options_of_either_read(self) -> Options:
        """A mistake is said when the data frame is made; whether it will be a stream is not known then."""
        try:
            return parse_options(self.options, Use.BATCH_READ)
        except ConfigError as error:
            try:
                return parse_options(self.options, Use.STREAM_READ)
            except ConfigError:
                raise error from None

    def reader(self, schema: StructType) -> BatchReader:
        from barnabas.spark.batch_reader import BatchReader

        return BatchReader(self._read_options(Use.BATCH_READ, schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        from barnabas.spark.stream_reader import StreamReader

        return StreamReader(self._read_options(Use.STREAM_READ, schema))

    def _read_options(self, use: Use, schema: StructType) -> Options:
        options = parse_options(self.options, use)
        fixed = source_schema(options["includeHeaders"])
        if schema.simpleString() != fixed.simpleString():
            raise ConfigError("schema", schema.simpleString(), f"the columns are fixed: {fixed.simpleString()}")
        return options

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.sink import batch_writer

        settle()
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """`overwrite`: the output mode is complete. Each batch has all rows then, and is appended, as in Spark's connector."""
        from barnabas.spark.sink import stream_writer

        settle()
        return stream_writer(self.options, schema)
