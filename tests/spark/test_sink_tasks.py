"""The part of the sink that runs in a task, without Spark: routing, failures, and what they leave behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.producer import Producer
from barnabas.spark.sink import producers
from barnabas.spark.sink.at_least_once import AtLeastOnce
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.commit_protocol import TaskDone, TaskIdentity
from barnabas.spark.sink.errors import WriteFailed
from barnabas.spark.sink.producers import ProducerCache
from barnabas.spark.sink.settings import producer_settings
from barnabas.spark.sink.task_writer import write_task
from barnabas.testing import EmbeddedBroker
from tests.waiting import wait_until

TASK = TaskIdentity(query_id=None, batch_id=7, partition=3, attempt=1)
VALUE = SinkColumns(("value",), "orders")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}, config={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProducerCache]:
    own = ProducerCache()
    monkeypatch.setattr("barnabas.spark.sink.at_least_once.of_this_process", own)
    yield own
    own.close()


def protocol(broker: EmbeddedBroker, **settings: str) -> AtLeastOnce:
    return AtLeastOnce(
        producer_settings(
            {"bootstrap.servers": broker.bootstrap_servers}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
    )


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_are_written_before_the_task_says_so(broker: EmbeddedBroker) -> None:
    topic = broker.unique_topic_name()
    broker.create_topic(topic, 2)
    rows = [batch(value=[f"{part}-{n}" for n in range(500)]) for part in range(4)]
    done = write_task(protocol(broker), SinkColumns(("value",), topic), TASK, iter(rows))
    assert done == TaskDone(partition=3, attempt=1, rows=2000)
    assert {record.value for record in broker.records(topic)} == {
        value.encode() for rows_of in rows for value in rows_of.column(0).to_pylist()
    }


def test_a_task_without_rows_is_done(broker: EmbeddedBroker) -> None:
    assert write_task(protocol(broker), VALUE, TASK, iter([])).rows == 0


def test_rows_go_to_the_topic_that_they_name_and_keep_their_order(broker: EmbeddedBroker) -> None:
    names = [broker.unique_topic_name() for _ in range(3)]
    for name in names:
        broker.create_topic(name)
    rows = batch(value=[str(n) for n in range(900)], topic=[names[n * 7 % 3] for n in range(900)], other=[0] * 900)
    done = write_task(protocol(broker), SinkColumns(("value",), None), TASK, iter([rows, rows.slice(0, 1)]))
    assert done.rows == 901
    for number, name in enumerate(names):
        expected = [str(n).encode() for n in range(900) if n * 7 % 3 == number] + ([b"0"] if number == 0 else [])
        assert [record.value for record in broker.records(name)] == expected


def test_keys_headers_partitions_and_times_arrive(broker: EmbeddedBroker) -> None:
    topic = broker.unique_topic_name()
    broker.create_topic(topic, 2)
    rows = batch(
        value=["v", None],
        key=[b"k", None],
        headers=[[{"key": "h", "value": b"1"}], None],
        partition=[1, 0],
        timestamp=[1_700_000_000.25, 1.0],
    )
    columns = SinkColumns(("value", "key", "headers", "partition", "timestamp"), topic)
    write_task(protocol(broker), columns, TASK, iter([rows]))
    found = {record.partition: record for record in broker.records(topic)}
    assert (found[1].value, found[1].key, found[1].headers) == (b"v", b"k", (("h", b"1"),))
    assert (found[1].timestamp, found[0].timestamp) == (1_700_000_000_250, 1000)
    assert (found[0].value, found[0].key) == (None, None)


def test_a_null_topic_is_refused_before_its_batch_is_sent(broker: EmbeddedBroker) -> None:
    topic = broker.unique_topic_name()
    broker.create_topic(topic)
    rows = batch(value=["a", "b"], topic=[topic, None])
    with pytest.raises(WriteFailed, match=r"task 3 of batch 7 \(attempt 1.*no topic.*option topic"):
        write_task(protocol(broker), SinkColumns(("value",), None), TASK, iter([rows]))
    assert broker.records(topic) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": ["x" * 2_000_000]}, "max.request.size"),
        ({"value": ["x"], "partition": [-4]}, "-4"),
        ({"value": ["x"], "timestamp": [-1.0]}, "before 1970"),
        ({"value": ["x"], "headers": [[{"key": None, "value": b""}]]}, "header whose key is None"),
        ({"value": ["x"], "partition": [9]}, "there is no partition 9 of orders"),
    ],
)
def test_what_cannot_be_sent_names_task_topic_and_cause(
    broker: EmbeddedBroker, columns: dict[str, list[object]], words: str
) -> None:
    with pytest.raises(WriteFailed, match=rf"task 3 of batch 7 .*topic orders.*{words}"):
        # Time enough to know the topic: only of the last one is it waited for, whether it gets more partitions.
        write_task(
            protocol(broker, max_block_ms="2000"), SinkColumns(tuple(columns), "orders"), TASK, iter([batch(**columns)])
        )


def test_what_the_broker_refuses_names_the_partition(broker: EmbeddedBroker) -> None:
    topic = broker.unique_topic_name()
    broker.create_topic(topic, 1, {"cleanup.policy": "compact"})
    with pytest.raises(WriteFailed, match=rf"2 rows for {topic}-0 were not written: KafkaError.*key"):
        write_task(protocol(broker), SinkColumns(("value",), topic), TASK, iter([batch(value=["a", "b"])]))


def test_a_topic_that_is_not_there_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(WriteFailed, match="rows for topic nowhere cannot be sent"):
        write_task(
            protocol(broker, max_block_ms="300"), SinkColumns(("value",), "nowhere"), TASK, iter([batch(value=["a"])])
        )


def test_a_broker_that_is_not_there_is_named_with_this_host() -> None:
    settings = producer_settings({"bootstrap.servers": "127.0.0.1:1", "max.block.ms": "1000"})
    with pytest.raises(WriteFailed) as caught:
        write_task(AtLeastOnce(settings), VALUE, TASK, iter([batch(value=["a"])]))
    text = str(caught.value)
    assert "127.0.0.1:1" in text
    assert os.uname().nodename in text
    assert "barnabas doctor spark" in text


# ---------------------------------------------------------------- what stays behind


def open_sockets() -> int:
    return sum("socket:" in os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())


def test_a_failed_task_leaves_no_thread_socket_or_memory_behind(
    broker: EmbeddedBroker, cache: ProducerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Producer] = []

    class Watched(Producer):
        def __init__(self, settings: dict[str, str]) -> None:
            super().__init__(settings)
            made.append(self)

    monkeypatch.setattr(producers, "Producer", Watched)
    threads, sockets = set(threading.enumerate()), open_sockets()

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(value=["x" * 1000] * 5000)
        raise RuntimeError("upstream broke")

    with pytest.raises(RuntimeError, match="upstream broke"):
        write_task(protocol(broker), VALUE, TASK, rows())
    assert len(cache) == 0
    assert {
        thread for thread in threading.enumerate() if thread.name.startswith(("kafka-producer", "barnabas-idle"))
    } <= threads
    wait_until(lambda: open_sockets() <= sockets, what="the end of the connections, on both sides")
    assert len(made) == 1
    made.clear()
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Watched)]


def test_the_next_task_uses_the_producer_of_the_last(broker: EmbeddedBroker, cache: ProducerCache) -> None:
    ours = protocol(broker)
    write_task(ours, VALUE, TASK, iter([batch(value=["a"])]))
    [(kept, _)] = cache._idle.values()
    write_task(ours, VALUE, TASK, iter([batch(value=["b"])]))
    assert [one for one, _ in cache._idle.values()] == [kept]
    write_task(protocol(broker, linger_ms="0"), VALUE, TASK, iter([batch(value=["c"])]))
    assert len(cache) == 2


class TestProducerCache:
    def test_an_idle_producer_is_closed(self, broker: EmbeddedBroker) -> None:
        cache = ProducerCache(idle_seconds=0.05)
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        producer = cache.take(settings)
        cache.keep(settings, producer)
        wait_until(lambda: "closed" in repr(producer), what="the end of the idle producer")
        assert len(cache) == 0

    def test_few_producers_wait_and_the_oldest_goes(self, broker: EmbeddedBroker) -> None:
        cache = ProducerCache(most_idle=2)
        all_settings = [{"bootstrap.servers": broker.bootstrap_servers, "client.id": str(n)} for n in range(3)]
        made = [cache.take(settings) for settings in all_settings]
        for settings, producer in zip(all_settings, made, strict=True):
            cache.keep(settings, producer)
        assert ["closed" in repr(producer) for producer in made] == [True, False, False]
        cache.close()
        assert all("closed" in repr(producer) for producer in made)

    def test_two_tasks_of_one_process_never_share_one(self, broker: EmbeddedBroker) -> None:
        cache = ProducerCache()
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        first, second = cache.take(settings), cache.take(settings)
        assert first is not second
        cache.keep(settings, first)
        cache.keep(settings, second)
        assert "closed" in repr(first)
        cache.close()

    def test_a_forked_child_begins_with_nothing(self, broker: EmbeddedBroker) -> None:
        cache = producers.of_this_process
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        cache.keep(settings, cache.take(settings))
        try:
            child = os.fork()
            if child == 0:
                os._exit(len(cache))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert len(cache) == 1
        finally:
            cache.close()
