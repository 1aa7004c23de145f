"""`df.write.format("barnabas")`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.brokers import BrokerProcess
from tests.spark.topics import SparkTopic, make_topic

HEADERS = "array(named_struct('key', 'h', 'value', cast('1' as binary)))"


def written(spark: Any, topic: SparkTopic, *columns: str) -> list[tuple[object, ...]]:
    frame = spark.read.format("barnabas").options(**topic.options, includeHeaders="true").load()
    return sorted(map(tuple, frame.selectExpr(*(columns or ("cast(value as string)",))).collect()), key=repr)


def save(frame: Any, topic: SparkTopic | None, mode: str | None = "append", **options: str) -> None:
    writer = frame.write.format("barnabas")
    if topic is not None:
        writer = writer.option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name)
    (writer if mode is None else writer.mode(mode)).options(**options).save()


def test_what_is_written_is_read_back(spark: Any, either_broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(either_broker, topic_name, partitions=3)
    frame = spark.range(5000).selectExpr("cast(id % 7 as string) key", "cast(id as string) value", f"{HEADERS} headers")
    save(frame, topic)
    found = written(spark, topic, "cast(key as string)", "cast(value as string)", "headers[0].key", "headers[0].value")
    assert found == sorted(((str(n % 7), str(n), "h", b"1") for n in range(5000)), key=repr)
    places = (
        spark.read.format("barnabas").options(**topic.options).load().select("key", "partition").distinct().collect()
    )
    assert len(places) == 7  # a key has one partition


def test_rows_choose_their_topic_partition_and_time(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    topics = [make_topic(broker, f"{topic_name}-{n}", partitions=2) for n in range(2)]
    frame = spark.range(10).selectExpr(
        f"concat('{topic_name}-', id % 2) topic",
        "cast(id as string) value",
        "cast(if(id < 4, 1, 0) as int) partition",
        "timestamp_millis(1700000000000 + id) timestamp",
        "'ignored' other",
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("barnabas").options(**options).mode("append").save()
    for number, topic in enumerate(topics):
        found = written(spark, topic, "cast(cast(value as string) as int)", "partition", "unix_millis(timestamp)")
        assert found == sorted(((n, int(n < 4), 1700000000000 + n) for n in range(number, 10, 2)), key=repr)


def test_the_option_goes_before_the_column(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    save(spark.sql("select 'a' value, 'elsewhere' topic"), topic)
    assert written(spark, topic) == [("a",)]


def test_a_copy_of_a_topic_needs_no_select(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    """Columns that only the source has are left out; times and partitions are kept."""
    source, copy = make_topic(broker, topic_name, partitions=2), make_topic(broker, f"{topic_name}-copy", partitions=2)
    source.write([b"a", None], partition=1, key=b"k", timestamp=1_600_000_000_000)
    save(spark.read.format("barnabas").options(**source.options, includeHeaders="true").load(), copy)
    columns = ("key", "value", "partition", "offset", "timestamp", "headers")
    assert written(spark, copy, *columns) == written(spark, source, *columns)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select 'a' key", "the column value is missing; the data frame has key"),
        ("select 1 value", "the column value is int; it must be binary or string"),
        ("select 'a' value, 1L partition", "the column partition is bigint; it must be int"),
        ("select 'a' value, map('a', 'b') headers", "the column headers is map<string,string>"),
    ],
)
def test_wrong_columns_fail_before_a_task_runs(
    spark: Any, broker: BrokerProcess, topic_name: str, query: str, words: str
) -> None:
    topic = make_topic(broker, topic_name)
    with pytest.raises(Exception, match=words):
        save(spark.sql(query), topic)
    assert written(spark, topic) == []


def test_a_write_without_a_topic_says_so(spark: Any, broker: BrokerProcess) -> None:
    with pytest.raises(Exception, match="no topic: set the option topic, or add a column topic"):
        save(spark.sql("select 'a' value"), None, **{"kafka.bootstrap.servers": broker.bootstrap})


@pytest.mark.parametrize(
    ("mode", "words"),
    [("overwrite", "append: a topic cannot be overwritten"), ("ignore", "(?i)append"), (None, "(?i)append")],
)
def test_only_append_is_a_mode(
    spark: Any, broker: BrokerProcess, topic_name: str, mode: str | None, words: str
) -> None:
    topic = make_topic(broker, topic_name)
    with pytest.raises(Exception, match=words):
        save(spark.sql("select 'a' value"), topic, mode)
    assert written(spark, topic) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deliveryGuarantee": "exactly-once"}, "deliveryGuarantee.*comes with transactions"),
        ({"delivryGuarantee": "at-least-once"}, "delivryGuarantee.*did you mean deliveryGuarantee"),
        ({"kafka.batch.sise": "1"}, r"kafka\.batch\.sise.*did you mean kafka\.batch\.size"),
        ({"kafka.key.serializer": "x"}, r"kafka\.key\.serializer.*not allowed"),
    ],
)
def test_a_bad_option_is_named(
    spark: Any, broker: BrokerProcess, topic_name: str, options: dict[str, str], words: str
) -> None:
    topic = make_topic(broker, topic_name)
    with pytest.raises(Exception, match=re.compile(words, re.DOTALL | re.IGNORECASE)):
        save(spark.sql("select 'a' value"), topic, **options)


def test_a_task_that_fails_names_topic_and_cause(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name, configs={"cleanup.policy": "compact"})
    with pytest.raises(Exception, match=rf"(?s)task 0 \(attempt 0.*{topic_name}-0 were not written.*INVALID_RECORD"):
        save(spark.sql("select 'a' value"), topic)


def test_a_broker_that_executors_cannot_reach_is_named(spark: Any) -> None:
    nowhere = SparkTopic("127.0.0.1:1", "orders")
    with pytest.raises(Exception, match=r"(?s)process \d+ on .*127\.0\.0\.1:1.*refused.*barnabas doctor spark"):
        save(spark.sql("select 'a' value"), nowhere, **{"kafka.max.block.ms": "500"})


def test_settings_of_the_producer_are_passed_on(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    with pytest.raises(Exception, match=r"max\.request\.size = 1000"):
        save(spark.sql("select repeat('x', 2000) value"), topic, **{"kafka.max.request.size": "1000"})
    save(spark.sql("select repeat('x', 2000) value"), topic, **{"kafka.compression.type": "zstd"})
    assert len(written(spark, topic)) == 1
