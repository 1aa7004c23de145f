"""Sending the rows of Arrow tables."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas.producer import Producer, RecordTooLarge, SerializationError
from barnabas.producer.arrow import _Piece
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.partitioner import partition_for_key
from barnabas.producer.topic_queues import RowSpan
from tests.both_brokers import Broker, broker_for_test
from tests.producer.parts import Parts, cluster

TOPIC = "rows"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with broker_for_test(topics={TOPIC: 3}) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 4000}) as ours:
        yield ours


def test_values_alone_stay_together_and_keep_their_order(broker: Broker, producer: Producer) -> None:
    """PP-12: rows without a key are sticky."""
    table = pa.table({"value": [b"%d" % number for number in range(5000)]})
    ranges = producer.send_arrow(TOPIC, table).result(10)
    records = broker.records(TOPIC)
    assert sum(one.count for one in ranges) == len(records) == 5000
    by_place = {(record.partition, record.offset): record.value for record in records}
    found = [by_place[one.partition, one.first_offset + number] for one in ranges for number in range(one.count)]
    assert found == table["value"].to_pylist()
    assert len({one.partition for one in ranges}) > 1


def test_every_column(broker: Broker, producer: Producer) -> None:
    when = datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "value": pa.array(["a", None, "c", "d"]),
            "key": pa.array([b"k1", b"k2", None, b"k1"]),
            "headers": [[{"key": "h", "value": b"1"}, {"key": "i", "value": None}], [], None, None],
            "timestamp": pa.array([when, None, when, when], pa.timestamp("us", "UTC")),
            "partition": pa.array([None, None, 2, 1], pa.int64()),
        }
    )
    producer.send_arrow(TOPIC, table).result(10)
    found = {(record.value, record.partition, record.key): record for record in broker.records(TOPIC)}
    first = found[b"a", partition_for_key(b"k1", 3), b"k1"]
    assert (first.headers, first.timestamp) == ((("h", b"1"), ("i", None)), 1_704_153_600_000)
    assert (None, partition_for_key(b"k2", 3), b"k2") in found
    assert found[b"c", 2, None].timestamp == 1_704_153_600_000
    assert (b"d", 1, b"k1") in found


def test_a_record_batch_and_a_slice_of_a_table(broker: Broker, producer: Producer) -> None:
    table = pa.table({"value": [b"%d" % number for number in range(100)], "partition": [0] * 100})
    producer.send_arrow(TOPIC, table.slice(10, 5)).result(10)
    producer.send_arrow(TOPIC, table.slice(90).to_batches()[0]).result(10)
    assert [int(record.value or b"") for record in broker.records(TOPIC)] == [*range(10, 15), *range(90, 100)]


def test_rows_and_single_records_mix(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"before", partition=0)
    future = producer.send_arrow(TOPIC, pa.table({"value": [b"row"] * 300, "partition": [0] * 300}))
    after = producer.send(TOPIC, b"after", partition=0)
    assert producer.flush(10) == 0
    assert future.done()
    assert (future.result(0)[0].first_offset, after.result(0).offset) == (1, 301)


def test_keys_can_be_ignored(broker: Broker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "partitioner.ignore.keys": True, "batch.size": 1_000_000}
    with Producer(settings) as ours:
        table = pa.table({"value": [b"v"] * 50, "key": [b"%d" % number for number in range(50)]})
        assert len(ours.send_arrow(TOPIC, table).result(10)) == 1


def test_an_empty_table(producer: Producer) -> None:
    assert producer.send_arrow(TOPIC, pa.table({"value": pa.array([], pa.binary())})).result(0) == []


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"key": [b"k"]}, SerializationError, "value must be there"),
        ({"value": [b"v"], "colour": ["red"]}, SerializationError, "takes the columns"),
        ({"value": [1.5]}, SerializationError, "the column value is double"),
        ({"value": [b"v"], "partition": [-1]}, ValueError, "a partition is a number from 0 on"),
        ({"value": [b"v"], "partition": ["x"]}, SerializationError, "the column partition is string"),
        ({"value": [b"v"], "timestamp": ["x"]}, SerializationError, "the column timestamp is string"),
        (
            {"value": [b"v"], "timestamp": [1.7e9]},
            SerializationError,
            "timestamp is double; it must be .* milliseconds",
        ),
        ({"value": [b"v"], "timestamp": [datetime.time(1)]}, SerializationError, "the column timestamp is time64"),
        ({"value": [b"v"], "timestamp": pa.array([1 << 63], pa.uint64())}, ValueError, "cannot be milliseconds"),
        ({"value": [b"v" * 2_000_000]}, RecordTooLarge, r"more than max\.request\.size"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_sent_is_refused_before_the_first_row(
    broker: Broker, producer: Producer, columns: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        producer.send_arrow(TOPIC, pa.table(columns))
    assert broker.records(TOPIC) == []


def test_a_list_is_not_a_table(producer: Producer) -> None:
    with pytest.raises(SerializationError, match="takes a pyarrow Table or RecordBatch, not list"):
        producer.send_arrow(TOPIC, [b"v"])


def test_a_batch_cannot_be_taken_before_it_has_its_first_rows() -> None:
    """A batch without records is refused by brokers, and its numbers would be lost."""
    parts = Parts({"linger_ms": 0})
    lane = parts.accumulator.lane("t", cluster())
    drained: list[list[ProducerBatch]] = []
    thief = threading.Thread(
        target=lambda: drained.append([one for batches in parts.drain().values() for one in batches])
    )
    piece = _Piece(pa.record_batch({"value": [b"a", b"b"]}))
    with parts.accumulator.open_batch(lane, 0, 100, 0, 0):
        thief.start()
        thief.join(0.2)
        assert thief.is_alive()
        lane.append_rows(0, RowSpan(piece.source, 0, 2, None), 0, False)
    thief.join(10)
    assert [[batch.record_count for batch in batches] for batches in drained] == [[2]]
