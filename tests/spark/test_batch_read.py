"""Batch reads with `format("barnabas")`: what is there is read once, with Spark's columns."""

from __future__ import annotations

from typing import Any

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
