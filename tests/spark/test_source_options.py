"""What each option of the source means, against a live broker; the calls are Spark's, without Spark (as_spark.py)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from barnabas import Admin, KafkaError
from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.columns import arrow_schema, source_schema
from bench.brokers import BrokerProcess
from tests.spark.as_spark import Stream, batch_table, batch_tasks, places, values
from tests.spark.topics import SparkTopic, make_topic

BASE_MS = 1_700_000_000_000


@pytest.fixture
def ten(broker: BrokerProcess, topic_name: str) -> SparkTopic:
    """Two partitions with ten records each, one per second from BASE_MS on."""
    topic = make_topic(broker, topic_name, partitions=2)
    for partition in (0, 1):
        for number in range(10):
            topic.write([b"%d" % number], partition=partition, timestamp=BASE_MS + number * 1000)
    return topic


def spans(table: object) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, offset in places(table):
        found.setdefault(partition, []).append(offset)
    return found


def both(topic: SparkTopic, first: int, second: int) -> str:
    return f'{{"{topic.name}":{{"0":{first},"1":{second}}}}}'


# ---------------------------------------------------------------- where to begin and to end


def test_without_options_a_batch_reads_everything(ten: SparkTopic) -> None:
    assert spans(batch_table(ten.options)) == {0: list(range(10)), 1: list(range(10))}


def test_starting_and_ending_offsets(ten: SparkTopic) -> None:
    found = batch_table({**ten.options, "startingOffsets": both(ten, 3, -2), "endingOffsets": both(ten, -1, 2)})
    assert spans(found) == {0: list(range(3, 10)), 1: [0, 1]}


def test_starting_and_ending_times(ten: SparkTopic) -> None:
    found = batch_table(
        {**ten.options, "startingTimestamp": str(BASE_MS + 2500), "endingTimestamp": str(BASE_MS + 5000)}
    )
    assert spans(found) == {0: [3, 4], 1: [3, 4]}
    found = batch_table(
        {
            **ten.options,
            "startingOffsetsByTimestamp": both(ten, BASE_MS + 8000, BASE_MS),
            "endingOffsetsByTimestamp": both(ten, BASE_MS + 99_000, BASE_MS + 1000),
        }
    )
    assert spans(found) == {0: [8, 9], 1: [0]}


def test_a_time_that_no_record_has_reached(ten: SparkTopic) -> None:
    late = {**ten.options, "startingTimestamp": str(BASE_MS + 60_000)}
    with pytest.raises(BarnabasError, match="has no record at or after"):
        batch_table(late)
    assert spans(batch_table({**late, "startingOffsetsByTimestampStrategy": "latest"})) == {}


def test_so_many_records_back_and_so_long_ago(ten: SparkTopic) -> None:
    assert spans(batch_table({**ten.options, "startingOffsets": "-3"})) == {0: [7, 8, 9], 1: [7, 8, 9]}
    now = time.time_ns() // 1_000_000
    ten.write([b"young"], timestamp=now)
    assert spans(batch_table({**ten.options, "startingOffsets": "-1h"})) == {0: [10]}


def test_offsets_must_name_exactly_the_partitions_that_are_there(ten: SparkTopic) -> None:
    for text, words in ((f'{{"{ten.name}":{{"0":1}}}}', "not named"), ('{"other":{"0":1}}', "not there other-0")):
        with pytest.raises(BarnabasError, match=words):
            batch_table({**ten.options, "startingOffsets": text})


def test_a_read_that_ends_before_it_begins_is_a_mistake(ten: SparkTopic) -> None:
    with pytest.raises(ConfigError, match="ends before that, at 10"):
        batch_table({**ten.options, "startingOffsets": both(ten, 11, 0)})


# ---------------------------------------------------------------- which topics


def test_a_pattern_reads_topics_whose_whole_name_matches(broker: BrokerProcess, topic_name: str) -> None:
    for suffix in ("-a", "-b", "-b-not"):
        make_topic(broker, topic_name + suffix).write([suffix.encode()])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"{topic_name}-[ab]"}
    assert set(values(batch_table(options))) == {b"-a", b"-b"}
    assert places(batch_table({**options, "subscribePattern": f"{topic_name}-none"})) == []


def test_several_topics_and_assigned_partitions(ten: SparkTopic, broker: BrokerProcess) -> None:
    other = make_topic(broker, ten.name + "-2")
    other.write([b"x"])
    both_topics = {**ten.options, "subscribe": f"{ten.name}, {other.name}"}
    assert len(batch_table(both_topics)) == 21
    assigned = {"kafka.bootstrap.servers": broker.bootstrap, "assign": f'{{"{ten.name}":[1]}}'}
    assert spans(batch_table(assigned)) == {1: list(range(10))}
    with pytest.raises(BarnabasError, match=f"{ten.name}-7"):
        batch_table({**assigned, "assign": f'{{"{ten.name}":[7]}}', "fetchOffset.numRetries": "1"})


def test_a_topic_that_is_not_there_is_an_error_that_names_it(broker: BrokerProcess, topic_name: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "fetchOffset.numRetries": "1"}
    with pytest.raises(KafkaError, match=topic_name):
        batch_table(options)


# ---------------------------------------------------------------- columns and tasks


def test_headers_come_when_they_are_asked_for(broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    topic.write([b"a"], headers=[("h", b"1"), ("h", None)])
    topic.write([b"b"])
    assert "headers" not in batch_table(topic.options).column_names
    found = batch_table({**topic.options, "includeHeaders": "true"})["headers"].to_pylist()
    assert found == [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], []]


@pytest.mark.parametrize("headers", [False, True])
def test_arrows_columns_are_those_that_spark_derives(headers: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(source_schema(headers), timezone="UTC").equals(arrow_schema(headers))


def test_tasks_are_split(ten: SparkTopic) -> None:
    _, tasks, _ = batch_tasks({**ten.options, "minPartitions": "5"})
    assert len(tasks) >= 4
    assert spans(batch_table({**ten.options, "minPartitions": "5"})) == {0: list(range(10)), 1: list(range(10))}
    _, tasks, _ = batch_tasks({**ten.options, "maxRecordsPerPartition": "4"})
    assert [task.size for task in tasks] == [3, 3, 4, 3, 3, 4]


def test_filters_narrow_what_is_read(ten: SparkTopic) -> None:
    after = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(BASE_MS // 1000, UTC) + timedelta(seconds=4))
    _, tasks, left = batch_tasks(ten.options, [EqualTo(("partition",), 1), LessThan(("offset",), 6), after])
    assert [(task.partition, task.start, task.end) for task in tasks] == [(1, 4, 6)]
    assert left == [after]


def test_other_columns_cannot_be_asked_for(ten: SparkTopic) -> None:
    from pyspark.sql.types import StructType

    from barnabas.spark.datasource import BarnabasDataSource

    with pytest.raises(ConfigError, match="the columns are fixed"):
        BarnabasDataSource(dict(ten.options)).reader(StructType().add("value", "string"))


def test_settings_of_the_client_reach_the_tasks(ten: SparkTopic) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.min\.bytes"):
        batch_table({**ten.options, "kafka.fetch.min.bytes": "many"})
    assert len(batch_table({**ten.options, "kafka.max.partition.fetch.bytes": "1", "kafka.group.id": "g"})) == 20


# ---------------------------------------------------------------- streams


def test_a_stream_begins_at_the_latest_and_goes_on_from_its_checkpoint(ten: SparkTopic) -> None:
    with Stream(ten.options) as stream:
        assert stream.checkpoint == f'{{"{ten.name}": {{"0": 10, "1": 10}}}}'
        assert stream.batch() is None
        ten.write([b"new"])
        assert places(stream.batch()) == [(0, 10)]
        assert stream.reader.reportLatestOffset() == {ten.name: {"0": 11, "1": 10}}
    ten.write([b"newer"], partition=1)
    with Stream(ten.options, stream.checkpoint) as again:
        assert places(again.batch()) == [(1, 10)]
        assert again.batch() is None


def test_a_limit_of_offsets_and_reading_everything_all_the_same(ten: SparkTopic) -> None:
    options = {**ten.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    with Stream(options) as stream:
        assert spans(stream.batch()) == {0: [0, 1, 2], 1: [0, 1, 2]}
        assert len(stream.batch(everything=True)) == 14


def test_a_limit_of_bytes(broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    for _ in range(20):
        topic.write([bytes(1000)])
    options = {**topic.options, "startingOffsets": "earliest", "maxBytesPerTrigger": "5500"}
    with Stream(options) as stream:
        sizes = []
        while (table := stream.batch()) is not None:
            sizes.append(len(table))
    assert sum(sizes) == 20
    assert max(sizes) <= 6
    assert 4 <= len(sizes) <= 7


def test_a_batch_waits_for_enough_records(ten: SparkTopic) -> None:
    with Stream({**ten.options, "minOffsetsPerTrigger": "3", "maxTriggerDelay": "10m"}) as stream:
        assert stream.batch() is None  # the first trigger never waits; nothing was there
        ten.write([b"a", b"b"])
        assert stream.batch() is None
        ten.write([b"c"], partition=1)
        assert len(stream.batch()) == 3


def test_available_now_ends_where_the_first_look_saw_the_ends(ten: SparkTopic) -> None:
    options = {
        **ten.options,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "8",
        "minOffsetsPerTrigger": "7",
        "maxTriggerDelay": "10m",
    }
    with Stream(options, available_now=True) as stream:
        sizes = [len(stream.batch())]
        ten.write([b"too late"])
        while (table := stream.batch()) is not None:
            sizes.append(len(table))
        assert sum(sizes) == 20


def test_partitions_and_topics_that_appear_while_the_query_runs(broker: BrokerProcess, topic_name: str) -> None:
    first = make_topic(broker, topic_name + "-1")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"{topic_name}-.*"}
    with Stream(options) as stream:
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            admin.create_partitions({first.name: 2})
        first.write([b"in the new partition"], partition=1)
        assert values(stream.batch()) == [b"in the new partition"]
        second = make_topic(broker, topic_name + "-2")
        second.write([b"in the new topic"])
        assert values(stream.batch()) == [b"in the new topic"]
        assert stream.batch() is None
