"""Batch reads with `format("barnabas")`: what is there is read once, with Spark's columns."""

from __future__ import annotations

from typing import Any

import pytest

from bench.brokers import BrokerProcess
from tests.spark.topics import make_topic


def test_every_record_is_read_with_the_columns_of_sparks_own_connector(
    spark: Any, either_broker: BrokerProcess, topic_name: str
) -> None:
    topic = make_topic(either_broker, topic_name, partitions=2)
    topic.write([b"a", None, b"c"], partition=0, key=b"k", timestamp=1_700_000_000_123)
    topic.write([b"d"], partition=1)

    frame = spark.read.format("barnabas").options(**topic.options).load()

    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.where("partition = 0").orderBy("offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows] == [
        (b"k", b"a", topic.name, 0, 0, 0),
        (b"k", None, topic.name, 0, 1, 0),
        (b"k", b"c", topic.name, 0, 2, 0),
    ]
    assert frame.selectExpr("unix_millis(timestamp) t").where("t = 1700000000123").count() == 3
    assert frame.count() == 4


def test_filters_reach_the_source_and_a_mistake_is_told_when_the_frame_is_made(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    topic = make_topic(broker, topic_name, partitions=2)
    for number in range(6):
        topic.write([b"%d" % number], partition=number % 2, timestamp=1_700_000_000_000 + number * 1000)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("barnabas").options(**topic.options).load()
        one = frame.where("partition = 1 and offset >= 1 and offset < 9 and topic is not null")
        assert [row.value for row in one.collect()] == [b"3", b"5"]
        assert one.rdd.getNumPartitions() == 1  # without pushdown, a task for each partition
        young = frame.where("timestamp >= timestamp_millis(1700000003500)").orderBy("timestamp")
        assert [row.value for row in young.collect()] == [b"4", b"5"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        spark.read.format("barnabas").options(**topic.options).option("startingOffset", "earliest").load()
