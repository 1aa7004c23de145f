"""`df.writeStream.format("barnabas")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.brokers import BrokerProcess
from tests.spark.test_sink_batch import written
from tests.spark.topics import SparkTopic, make_topic


def copy(
    spark: Any, source: SparkTopic, target: SparkTopic, directory: Path, frame: Any = None, mode: str = "append"
) -> Any:
    """One run over what is there."""
    stream = spark.readStream.format("barnabas").options(**source.options, startingOffsets="earliest").load()
    writer = (frame or (lambda found: found.select("value")))(stream).writeStream.format("barnabas").outputMode(mode)
    query = (
        writer.option("kafka.bootstrap.servers", target.bootstrap)
        .option("topic", target.name)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(150)
    finally:
        query.stop()
    return query


def test_a_stream_goes_on_from_its_checkpoint(
    spark: Any, either_broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    source, target = make_topic(either_broker, topic_name, 2), make_topic(either_broker, f"{topic_name}-out", 2)
    source.write([b"a", b"b"])
    copy(spark, source, target, tmp_path)
    source.write([b"c"], partition=1)
    query = copy(spark, source, target, tmp_path)
    assert query.lastProgress["sink"]["numOutputRows"] in (1, -1)
    assert written(spark, target) == [("a",), ("b",), ("c",)]


def test_aggregates_are_written_in_complete_mode(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    """Each batch has all groups, and is appended, as Spark's connector does it."""
    source, target = make_topic(broker, topic_name), make_topic(broker, f"{topic_name}-out")

    def counts(found: Any) -> Any:
        return found.groupBy("value").count().selectExpr("value key", "cast(count as string) value")

    for values in ([b"a", b"b", b"a"], [b"b"]):
        source.write(values)
        copy(spark, source, target, tmp_path, counts, "complete")
    found = written(spark, target, "cast(key as string)", "cast(value as string)")
    assert found == [("a", "2"), ("a", "2"), ("b", "1"), ("b", "2")]


def test_wrong_columns_fail_the_query_with_their_names(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    source, target = make_topic(broker, topic_name), make_topic(broker, f"{topic_name}-out")
    source.write([b"a"])
    with pytest.raises(Exception, match="the column value is int; it must be binary or string"):
        copy(spark, source, target, tmp_path, lambda found: found.selectExpr("1 value"))
    assert written(spark, target) == []


def test_a_task_names_its_batch(spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path) -> None:
    source = make_topic(broker, topic_name)
    target = make_topic(broker, f"{topic_name}-out", configs={"cleanup.policy": "compact"})
    source.write([b"a"])
    with pytest.raises(Exception, match=rf"(?s)task 0 of batch 0 \(attempt 0.*{target.name}-0 were not written"):
        copy(spark, source, target, tmp_path)
