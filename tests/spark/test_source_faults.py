"""Faults that concern the source, with Spark's calls and without Spark: every offset once, or an error that says what is gone and why."""

from __future__ import annotations

import random
from collections.abc import Iterator

import confluent_kafka
import pytest

from barnabas import Admin
from barnabas.errors import BarnabasError
from barnabas.spark.data_loss import DataLoss
from bench.brokers import BrokerProcess
from tests.live_broker import KEEPS, kind_under_test
from tests.spark.as_spark import Stream, batch_table, batch_tasks, places, values
from tests.spark.topics import SparkTopic, make_topic
from tests.waiting import wait_until

SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": "2000"}
QUICK = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "10"}


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that a test may kill."""
    with BrokerProcess(kind_under_test(), KEEPS, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def hundred(broker: BrokerProcess, topic_name: str) -> SparkTopic:
    """A hundred records of 500 bytes, each in a batch of its own."""
    topic = make_topic(broker, topic_name)
    for number in range(100):
        topic.write([b"%04d" % number + bytes(496)])
    return topic


def offsets(table: object) -> list[int]:
    return [offset for _, offset in places(table)]


# ---------------------------------------------------------------- retention


def test_retention_that_overtook_the_reader_is_an_error_that_says_so(hundred: SparkTopic) -> None:
    hundred.delete_before(40)
    with pytest.raises(DataLoss) as caught:
        batch_table({**hundred.options, "startingOffsets": f'{{"{hundred.name}":{{"0":7}}}}'})
    for words in (f"{hundred.name}-0", "from offset 7", "earliest is now 40", "retention", "failOnDataLoss"):
        assert words in str(caught.value)


def test_without_fail_on_data_loss_the_read_goes_on_at_the_earliest(
    hundred: SparkTopic, caplog: pytest.LogCaptureFixture
) -> None:
    hundred.delete_before(40)
    options = {**hundred.options, "startingOffsets": f'{{"{hundred.name}":{{"0":7}}}}', "failOnDataLoss": "false"}
    assert offsets(batch_table(options)) == list(range(40, 100))
    assert "the earliest is now 40" in caplog.text
    hundred.delete_before(60)
    ends_before = {**options, "endingOffsets": f'{{"{hundred.name}":{{"0":50}}}}'}
    assert offsets(batch_table(ends_before)) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_retention_that_overtakes_a_task_while_it_reads(hundred: SparkTopic, fail: str) -> None:
    reader, (task,), _ = batch_tasks({**hundred.options, **SMALL_FETCHES, "failOnDataLoss": fail})
    batches = reader.read(task)
    seen = next(batches).column("offset").to_pylist()

    def read_on() -> None:
        for batch in batches:
            seen.extend(batch.column("offset").to_pylist())

    hundred.delete_before(80)
    if fail == "true":
        with pytest.raises(DataLoss, match="earliest is now 80"):
            read_on()
    else:
        read_on()
        assert seen[-20:] == list(range(80, 100))
    assert seen == sorted(set(seen))
    assert len(seen) < 100


def test_retention_that_overtakes_a_stream(hundred: SparkTopic) -> None:
    with Stream({**hundred.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}) as stream:
        assert offsets(stream.batch()) == list(range(10))
        hundred.delete_before(50)
        with pytest.raises(DataLoss, match="from offset 10"):
            stream.batch()
    options = {**hundred.options, "failOnDataLoss": "false"}
    with Stream(options, checkpoint=stream.checkpoint) as again:
        assert offsets(again.batch()) == list(range(50, 100))


# ---------------------------------------------------------------- gaps that are no loss


def test_gaps_of_compaction_are_no_loss(own_cleaning_broker: BrokerProcess, topic_name: str) -> None:
    configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    topic = make_topic(own_cleaning_broker, topic_name, configs=configs)
    dice = random.Random(7)
    for _ in range(8):
        for key in range(10):
            topic.write([dice.randbytes(30_000)], key=b"%d" % key)
    wait_until(lambda: len(batch_table(topic.options)) < 60, 60, "a compaction")
    found = offsets(batch_table(topic.options))
    assert found == sorted(set(found))
    assert found[-1] == 79
    with Stream({**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"}) as stream:
        seen: list[int] = []
        while (table := stream.batch()) is not None:
            seen += offsets(table)
    assert set(seen) <= set(found)  # the cleaner may have gone on meanwhile
    assert seen == sorted(set(seen))
    assert stream.checkpoint == f'{{"{topic.name}": {{"0": 80}}}}'


@pytest.fixture
def own_cleaning_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": "2097152"}
    with BrokerProcess(kind_under_test(), settings, tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_markers_of_transactions_are_no_loss_and_read_committed_leaves_out_the_aborted(
    kafka_itself: BrokerProcess, topic_name: str
) -> None:
    topic = make_topic(kafka_itself, topic_name)
    settings = {"bootstrap.servers": kafka_itself.bootstrap, "transactional.id": topic_name}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    for commit, words in ((True, b"kept"), (False, b"dropped"), (True, b"kept too")):
        producer.begin_transaction()
        producer.produce(topic.name, words, partition=0)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    committed = {**topic.options, "kafka.isolation.level": "read_committed"}
    assert values(batch_table(topic.options)) == [b"kept", b"dropped", b"kept too"]
    # The coordinator answers before its markers are written: the end that a read_committed reader sees moves a little later.
    wait_until(lambda: values(batch_table(committed)) == [b"kept", b"kept too"], 30, "the end of the transactions")
    producer.begin_transaction()
    producer.produce(topic.name, b"open", partition=0)
    assert producer.flush(30) == 0
    with Stream({**committed, "startingOffsets": "earliest"}) as stream:
        assert values(stream.batch()) == [b"kept", b"kept too"]
        assert stream.batch() is None  # an open transaction is behind the end
        producer.commit_transaction(30)
        found: list[object] = []
        wait_until(lambda: (batch := stream.batch()) is not None and not found.append(batch), 30, "the end to move")
        assert values(found[0]) == [b"open"]


# ---------------------------------------------------------------- topics that go and come


def recreate(topic: SparkTopic) -> None:
    with Admin({"bootstrap.servers": topic.bootstrap}) as admin:
        admin.delete_topics([topic.name])
        wait_until(lambda: topic.name not in admin.list_topics(), 30, "the end of the topic")
        admin.create_topics([topic.name])


@pytest.mark.parametrize("longer", [False, True])
def test_a_topic_that_is_deleted_and_made_anew_is_loss_and_then_read_from_its_beginning(
    broker: BrokerProcess, topic_name: str, longer: bool
) -> None:
    """Also when the new one has more records than were read of the old one, so that no offset tells."""
    topic = make_topic(broker, topic_name)
    topic.write([b"old"] * 3)
    fails = {**topic.options, **QUICK, "startingOffsets": "earliest"}
    with Stream(fails) as strict, Stream({**fails, "failOnDataLoss": "false"}) as lax:
        assert len(strict.batch()) == len(lax.batch()) == 3
        recreate(topic)
        count = 5 if longer else 2
        topic.write([b"new"] * count)
        with pytest.raises(DataLoss, match="deleted and created anew"):
            strict.batch()
        assert values(lax.batch()) == [b"new"] * count
        topic.write([b"newer"])
        assert values(lax.batch()) == [b"newer"]


def test_a_query_that_comes_back_to_a_topic_made_anew_says_where_it_was(broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    topic.write([b"old"] * 3)
    with Stream({**topic.options, **QUICK, "startingOffsets": "earliest"}) as stream:
        stream.batch()
    recreate(topic)
    topic.write([b"new"])
    told = pytest.raises(DataLoss, match=r"at offset 3, but the partition ends at 1.*deleted and created anew")
    with Stream({**topic.options, **QUICK}, stream.checkpoint) as again, told:
        again.batch()


def test_a_topic_made_anew_between_planning_and_reading_is_noticed(broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(broker, topic_name)
    topic.write([b"old"] * 3)
    reader, (task,), _ = batch_tasks(topic.options)
    recreate(topic)
    topic.write([b"new"] * 9)
    with pytest.raises(DataLoss, match="since the read was planned"):
        list(reader.read(task))


def test_a_topic_of_a_pattern_that_is_deleted_is_loss(broker: BrokerProcess, topic_name: str) -> None:
    for suffix in ("-1", "-2"):
        make_topic(broker, topic_name + suffix).write([b"a"])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"{topic_name}-.*", **QUICK}
    with Stream(options) as strict, Stream({**options, "failOnDataLoss": "false"}) as lax:
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            admin.delete_topics([topic_name + "-1"])
            wait_until(lambda: topic_name + "-1" not in admin.list_topics(), 30, "the end of the topic")
        with pytest.raises(DataLoss, match=f"{topic_name}-1-0"):
            strict.batch()
        assert places(lax.batch()) == []
        assert lax.checkpoint == f'{{"{topic_name}-2": {{"0": 1}}}}'


# ---------------------------------------------------------------- brokers that go


def test_a_broker_that_is_killed_and_comes_back_during_a_read(own_broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(own_broker, topic_name)
    for number in range(60):
        topic.write([b"%04d" % number + bytes(496)])
    with Admin({"bootstrap.servers": own_broker.bootstrap}) as admin:
        assert admin.list_topics() == [topic_name]
    reader, (task,), _ = batch_tasks({**topic.options, **SMALL_FETCHES})
    batches = reader.read(task)
    seen = next(batches).column("offset").to_pylist()
    own_broker.kill()
    own_broker.spawn()
    for batch in batches:
        seen += batch.column("offset").to_pylist()
    assert seen == list(range(60))


def test_a_broker_that_stays_away_fails_the_task_in_time(own_broker: BrokerProcess, topic_name: str) -> None:
    topic = make_topic(own_broker, topic_name)
    for number in range(20):
        topic.write([b"%04d" % number + bytes(496)])
    reader, (task,), _ = batch_tasks({**topic.options, **SMALL_FETCHES, "kafkaConsumer.pollTimeoutMs": "2000"})
    batches = reader.read(task)
    next(batches)
    own_broker.kill()
    with pytest.raises(BarnabasError, match=r"kafkaConsumer\.pollTimeoutMs = 2000"):
        list(batches)


def test_a_read_that_is_left_in_the_middle_closes_its_connection(hundred: SparkTopic) -> None:
    reader, (task,), _ = batch_tasks({**hundred.options, **SMALL_FETCHES})
    batches = reader.read(task)
    next(batches)
    batches.close()  # an open socket would be a ResourceWarning, which fails the test
