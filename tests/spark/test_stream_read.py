"""Streaming reads with `format("barnabas")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.brokers import BrokerProcess
from tests.spark.topics import make_topic


def test_a_query_that_goes_on_from_its_checkpoint_reads_every_record_once(
    spark: Any, either_broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    topic = make_topic(either_broker, topic_name, partitions=2)
    topic.write([b"a", b"b"], partition=0)

    def run() -> None:
        stream = spark.readStream.format("barnabas").options(**topic.options, startingOffsets="earliest").load()
        query = (
            stream.selectExpr("partition", "offset", "cast(value as string) value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run()
    topic.write([b"c"], partition=1)
    run()

    rows = sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect()))
    assert rows == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]
