"""Streaming reads with `format("barnabas")`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
        assert query.awaitTermination(150)

    run()
    topic.write([b"c"], partition=1)
    run()

    rows = sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect()))
    assert rows == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ({"maxOffsetsPerTrigger": "4"}, [4, 4, 2]),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "5"}, [7, 3]),
        ({"minOffsetsPerTrigger": "3", "maxTriggerDelay": "1m"}, [10]),
        ({"maxBytesPerTrigger": "1000000"}, [10]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_spark_passes_the_limits_on(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path, limit: dict[str, str], sizes: list[int]
) -> None:
    topic = make_topic(broker, topic_name)
    topic.write([b"%d" % number for number in range(10)])
    stream = spark.readStream.format("barnabas").options(**topic.options, startingOffsets="earliest", **limit).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in found] == sizes
    assert json.loads(found[-1]["sources"][0]["latestOffset"]) == {topic.name: {"0": 10}}
