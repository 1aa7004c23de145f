"""The consumer against a live broker: ours, or Apache Kafka with BARNABAS_TEST_AGAINST=kafka."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.errors import ClientClosed, ClientTimeout, UnknownPartition
from barnabas.consumer import Consumer, Record
from barnabas.errors import BarnabasError, ConfigError, ErrorCode, KafkaError
from tests.consumer.conftest import Write
from tests.waiting import wait_until

Make = Callable[..., Consumer]
DEADLINE_SECONDS = 20.0


def read(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(timeout=0.5)
    return found


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


class TestReading:
    def test_records_come_as_they_were_written(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"one", None, b""], keys=[b"k", None, b""], headers=[("h", b"1"), ("none", None)], timestamps=[5, 6, 7])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        found = read(consumer, 3)
        assert [(r.offset, r.key, r.value, r.timestamp) for r in found] == [
            (0, b"k", b"one", 5),
            (1, None, None, 6),
            (2, b"", b"", 7),
        ]
        assert all((r.topic, r.partition, r.timestamp_type) == (topic, 0, 0) for r in found)
        assert found[0].headers == (("h", b"1"), ("none", None))

    @pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
    def test_every_codec(self, make_consumer: Make, topic: str, write: Write, codec: str) -> None:
        written = [b"value %d " % number * 20 for number in range(500)]
        write(written, **{"compression.type": codec})
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 500)) == written

    def test_several_partitions_in_order_each(self, make_consumer: Make, topic: str, write: Write) -> None:
        for partition in (0, 1):
            write([b"%d" % number for number in range(3000)], partition)
        consumer = make_consumer({"max.partition.fetch.bytes": 5000})
        consumer.assign([(topic, 0), (topic, 1)])
        found = read(consumer, 6000)
        for partition in (0, 1):
            assert [r.offset for r in found if r.partition == partition] == list(range(3000))
        assert consumer.metrics()["records-consumed-total"] == 6000

    def test_poll_returns_at_most_what_is_allowed(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"x"] * 100)
        consumer = make_consumer({"max.poll.records": 7})
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == 0
        sizes = []
        while sum(sizes) < 100:
            sizes.append(len(consumer.poll(timeout=5)))
        assert max(sizes) == 7
        assert consumer.position((topic, 0)) == 100

    def test_polling_without_waiting_gets_there_too(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"x"])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        found: list[Record] = []
        wait_until(lambda: found.extend(consumer.poll()) or found, what="a record")
        assert values(found) == [b"x"]

    def test_a_wait_without_records_ends_in_time(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        consumer.position((topic, 0))
        start = time.monotonic()
        assert consumer.poll(timeout=0.3) == []
        assert 0.25 < time.monotonic() - start < 5

    def test_records_written_later_arrive(self, make_consumer: Make, topic: str, write: Write) -> None:
        consumer = make_consumer({"auto.offset.reset": "latest"})
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == 0
        for number in range(3):
            write([b"%d" % number])
            assert values(read(consumer, 1)) == [b"%d" % number]

    def test_deserializers(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b'{"a": 1}'], keys=[b"7"])
        consumer = make_consumer(
            {"value.deserializer": lambda _, data: json.loads(data), "key.deserializer": lambda _, data: int(data)}
        )
        consumer.assign([(topic, 0)])
        (record,) = read(consumer, 1)
        assert (record.key, record.value, record.offset) == (7, {"a": 1}, 0)


class TestArrow:
    def test_a_batch_has_all_columns(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"one", None], keys=[None, b"k"], headers=[("h", b"1")], timestamps=[1000, 2000])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        batch = consumer.poll_arrow(timeout=10)
        batch.validate(full=True)
        rows = batch.to_pylist()
        assert [row["value"] for row in rows] == [b"one", None]
        assert [row["key"] for row in rows] == [None, b"k"]
        assert [row["offset"] for row in rows] == [0, 1]
        assert [row["timestamp"].timestamp() for row in rows] == [1.0, 2.0]
        assert {(row["topic"], row["partition"], row["timestamp_type"]) for row in rows} == {(topic, 0, 0)}
        assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]

    def test_rows_and_batches_can_be_mixed(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"%d" % number for number in range(1000)], **{"compression.type": "zstd"})
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        found = [int(record.value) for record in consumer.poll(timeout=10, max_records=3)]
        while len(found) < 1000:
            found += [int(value) for value in consumer.poll_arrow(timeout=5).column("value").to_pylist()]
            found += [int(record.value) for record in consumer.poll(max_records=2)]
        assert found == list(range(1000))

    def test_more_is_fetched_at_once_for_columns_unless_a_size_was_chosen(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        write([bytes(100_000)] * 25, **{"batch.size": 100_000})
        sizes = []
        for settings in ({}, {"max.partition.fetch.bytes": 1_048_576}):
            consumer = make_consumer(settings)
            consumer.assign([(topic, 0)])
            sizes.append(consumer.poll_arrow(timeout=10).num_rows)
        assert sizes == [25, 10]

    def test_nothing_there_is_an_empty_batch_of_the_same_schema(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        empty = consumer.poll_arrow(timeout=0.05)
        assert empty.num_rows == 0
        write([b"x"])
        assert consumer.poll_arrow(timeout=10).schema == empty.schema


@pytest.mark.parametrize(
    "wrong", ["orders", ["orders"], [("orders",)], [("orders", "0")], [(b"orders", 0)], [5]], ids=repr
)
def test_what_is_no_partition_is_named(make_consumer: Make, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"a partition is \(topic, number\), for example \('orders', 0\), not"):
        make_consumer().assign(wrong)


class TestPositions:
    def test_seek_goes_there_and_drops_what_was_fetched(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"%d" % number for number in range(100)])
        consumer = make_consumer({"max.poll.records": 10})
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 10)) == [b"%d" % number for number in range(10)]
        consumer.seek((topic, 0), 50)
        assert consumer.position((topic, 0)) == 50
        assert values(read(consumer, 10)) == [b"%d" % number for number in range(50, 60)]
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end()
        assert consumer.position((topic, 0)) == 100

    def test_seek_until_asks_for_nothing_behind_the_end(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"a", b"b", b"c"])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 1, until=2)
        assert values(read(consumer, 2)) == [b"b", b"c"]
        write([b"d", b"e"])
        fetches = consumer.metrics()["fetch-total"]
        assert consumer.poll(timeout=0.3) == []
        assert consumer.metrics()["fetch-total"] == fetches
        consumer.seek((topic, 0), 2)
        assert values(read(consumer, 3)) == [b"c", b"d", b"e"]

    def test_seek_to_a_time(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"a", b"b", b"c"], timestamps=[1000, 2000, 3000])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        consumer.seek_to_time(1500)
        assert values(read(consumer, 2)) == [b"b", b"c"]
        consumer.seek_to_time(9999)
        assert consumer.position((topic, 0)) == 3

    def test_offsets_of_partitions(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"a", b"b", b"c"], timestamps=[1000, 2000, 3000])
        consumer = make_consumer()
        places = [(topic, 0), (topic, 1)]
        assert consumer.beginning_offsets(places) == {(topic, 0): 0, (topic, 1): 0}
        assert consumer.end_offsets(places) == {(topic, 0): 3, (topic, 1): 0}
        found = consumer.offsets_for_times({(topic, 0): 1001, (topic, 1): 1})
        assert found == {(topic, 0): (1, 2000), (topic, 1): None}
        assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]

    def test_lag(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"x"] * 10)
        consumer = make_consumer({"max.poll.records": 4})
        consumer.assign([(topic, 0)])
        assert consumer.lag((topic, 0)) is None
        read(consumer, 4)
        assert consumer.lag((topic, 0)) == 6

    def test_an_offset_that_is_gone_follows_the_reset(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"a", b"b"])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 1_000_000)
        assert values(read(consumer, 2)) == [b"a", b"b"]

    def test_without_a_reset_it_is_an_error(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"a"])
        consumer = make_consumer({"auto.offset.reset": "none"})
        consumer.assign([(topic, 0)])
        with pytest.raises(KafkaError, match=r"auto\.offset\.reset is none"):
            consumer.poll(timeout=5)
        consumer.seek((topic, 0), 77)
        with pytest.raises(KafkaError) as caught:
            read(consumer, 1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek((topic, 0), 0)
        assert values(read(consumer, 1)) == [b"a"]

    def test_beginning_some_time_ago(self, make_consumer: Make, topic: str, write: Write) -> None:
        """KIP-1106"""
        now = int(time.time() * 1000)
        write([b"old", b"new"], timestamps=[now - 7_200_000, now])
        consumer = make_consumer({"auto.offset.reset": "by_duration:PT1H"})
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 1)) == [b"new"]


class TestPausing:
    def test_a_paused_partition_is_silent_and_loses_nothing(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        write([b"%d" % number for number in range(50)])
        consumer = make_consumer({"max.poll.records": 10})
        consumer.assign([(topic, 0)])
        found = read(consumer, 10)
        consumer.pause([(topic, 0)])
        assert consumer.paused == [(topic, 0)]
        write([b"other"], 1)
        consumer.assign([(topic, 0), (topic, 1)])
        assert values(read(consumer, 1)) == [b"other"]
        assert consumer.poll(timeout=0.2) == []
        consumer.resume([(topic, 0)])
        found += read(consumer, 40)
        assert [record.offset for record in found] == list(range(50))

    def test_an_assignment_replaces_the_one_before(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"zero"] * 20)
        write([b"one"], 1)
        consumer = make_consumer({"max.poll.records": 1})
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 1)) == [b"zero"]
        consumer.assign([(topic, 1)])
        assert consumer.assignment == [(topic, 1)]
        assert values(read(consumer, 1)) == [b"one"]
        with pytest.raises(BarnabasError, match="not assigned"):
            consumer.seek((topic, 0), 1)


class TestIteration:
    """`for record in consumer`."""

    def test_it_goes_on_where_it_was_left_whatever_comes_between(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        write([b"%d" % number for number in range(1000)])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        offsets = [next(consumer).offset for _ in range(10)]
        assert consumer.position((topic, 0)) == 10
        assert consumer.lag((topic, 0)) == 990
        offsets += [record.offset for record in consumer.poll(max_records=5)]
        for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 500:
                break
        consumer.pause([(topic, 0)])
        assert consumer.poll(timeout=0.2) == [], "not even what was fetched already"
        consumer.resume([(topic, 0)])
        while len(offsets) < 1000:
            offsets += consumer.poll_arrow(timeout=1.0).column("offset").to_pylist()
        assert offsets == list(range(1000))

    def test_a_seek_drops_what_was_read_ahead(self, make_consumer: Make, topic: str, write: Write) -> None:
        write([b"%d" % number for number in range(10)])
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        assert next(consumer).offset == 0
        consumer.seek((topic, 0), 8)
        assert [next(consumer).offset for _ in range(2)] == [8, 9]
        consumer.assign([(topic, 1)])
        assert consumer.poll(timeout=0.1) == []

    def test_it_ends_when_nothing_came_for_the_time_that_was_set(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        write([b"one", b"two"])
        consumer = make_consumer({"consumer.timeout.ms": 3000})
        consumer.assign([(topic, 0)])
        assert values(list(consumer)) == [b"one", b"two"]

    def test_wakeup_and_close_end_it(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        assert list(consumer) == []
        timer.join()
        consumer.close()
        assert list(consumer) == []


class TestUsage:
    def test_ctrl_c_ends_a_wait(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        consumer.position((topic, 0))

        def interrupt() -> None:
            wait_until(lambda: consumer._owner._lock.locked(), what="the poll: outside it, Ctrl-C would end pytest")
            threading.Event().wait(0.2)
            os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may be deaf to it
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(timeout=30)
        finally:
            signal.signal(signal.SIGINT, before)
        thread.join()
        assert consumer.poll() == []

    def test_wakeup_ends_a_wait(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        start = time.monotonic()
        assert consumer.poll(timeout=30) == []
        assert time.monotonic() - start < 10
        timer.join()

    def test_a_second_thread_is_refused(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        thread = threading.Thread(target=consumer.poll, args=(10.0,))
        thread.start()
        try:
            wait_until(lambda: consumer._owner._lock.locked(), what="the first thread inside")
            with pytest.raises(BarnabasError, match="another thread"):
                consumer.poll()
        finally:
            consumer.wakeup()
            thread.join()

    def test_a_closed_consumer_says_so(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.close()
        consumer.close()
        with pytest.raises(ClientClosed):
            consumer.poll()

    def test_nobody_there_is_named(self) -> None:
        with Consumer({"bootstrap.servers": "127.0.0.1:1"}) as consumer:
            with pytest.raises(ClientTimeout, match=r"127\.0\.0\.1:1 \("):
                consumer.end_offsets([("t", 0)], timeout=1)
            consumer.assign([("t", 0)])
            assert consumer.poll(timeout=0.1) == []

    def test_a_topic_that_is_not_there(self, make_consumer: Make) -> None:
        consumer = make_consumer({"allow.auto.create.topics": False})
        with pytest.raises(ClientTimeout, match="waited 500 ms for metadata of no-such-topic"):
            consumer.end_offsets([("no-such-topic", 0)], timeout=0.5)
        with pytest.raises(KafkaError) as caught:
            consumer.partitions_for("not a legal name!", timeout=10)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_nothing_assigned_is_an_error_and_no_silence(self, make_consumer: Make) -> None:
        consumer = make_consumer()
        for read_something in (consumer.poll, consumer.poll_arrow, lambda: next(consumer)):
            with pytest.raises(BarnabasError, match=r"nothing is assigned to this consumer: call assign"):
                read_something()

    @pytest.mark.parametrize("start", ["reset", "seek"])
    def test_a_partition_that_the_topic_does_not_have_is_an_error_and_others_are_read(
        self, make_consumer: Make, topic: str, write: Write, start: str
    ) -> None:
        write([b"one", b"two"])
        consumer = make_consumer()
        consumer.assign([(topic, 0), (topic, 9)])
        if start == "seek":
            consumer.seek((topic, 9), 5)
        found: list[bytes] = []
        errors: list[str] = []

        def both_came() -> bool:
            try:
                found.extend(values(consumer.poll(timeout=0.1)))
            except UnknownPartition as error:
                errors.append(error.message)
            return len(found) == 2 and len(errors) >= 2

        wait_until(both_came, DEADLINE_SECONDS, "the records and the error")
        assert found == [b"one", b"two"]
        assert set(errors) == {f"there is no partition 9 of {topic}, which has 2 partitions, numbers 0 to 1"}
        with pytest.raises(UnknownPartition):
            consumer.end_offsets([(topic, 9)], timeout=600)

    def test_an_error_of_one_topic_costs_no_record_of_another(
        self, make_consumer: Make, topic: str, write: Write
    ) -> None:
        write([b"%d" % number for number in range(300)])
        consumer = make_consumer({"max.poll.records": 10})
        consumer.assign([(topic, 0), ("not a legal name!", 0)])
        found: list[bytes] = []
        errors: list[KafkaError] = []

        def all_came() -> bool:
            try:
                found.extend(values(consumer.poll(timeout=0.1)))
            except KafkaError as error:
                errors.append(error)
            return len(found) >= 300 and bool(errors)

        wait_until(all_came, DEADLINE_SECONDS, "every record and the error")
        assert found == [b"%d" % number for number in range(300)]
        assert {error.code for error in errors} == {ErrorCode.INVALID_TOPIC_EXCEPTION}

    def test_a_topic_that_may_still_come_is_waited_for_and_spoken_of(
        self, make_consumer: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = make_consumer({"allow.auto.create.topics": False})
        consumer.assign([("not-yet", 0)])
        wait_until(
            lambda: consumer.poll(timeout=0.1) == [] and "not-yet (UNKNOWN_TOPIC_OR_PARTITION)" in caplog.text,
            DEADLINE_SECONDS,
            "a line in the log",
        )

    def test_settings_of_groups_are_said_to_do_nothing(
        self, make_consumer: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_consumer({"group.id": "g", "enable.auto.commit": "false"})
        assert "enable.auto.commit, group.id: ignored, because there are no consumer groups yet" in caplog.text
        assert "not known" not in caplog.text

    def test_times_and_offsets_are_whole_numbers(self, make_consumer: Make, topic: str) -> None:
        consumer = make_consumer()
        consumer.assign([(topic, 0)])
        seconds: Any = 1.7e9
        with pytest.raises(TypeError, match=r"whole milliseconds since 1970, not 1700000000\.0; use time\.time_ns"):
            consumer.seek_to_time(seconds)
        with pytest.raises(TypeError, match="whole milliseconds"):
            consumer.offsets_for_times({(topic, 0): seconds})
        with pytest.raises(TypeError, match="whole number"):
            consumer.seek((topic, 0), 1.5)

    @pytest.mark.parametrize(
        "given",
        [
            {"auto.offset.reset": "yesterday"},
            {"auto.offset.reset": "by_duration:P"},
            {"fetch.max.wait.ms": 60_000},
            {"isolation.level": "read_everything"},
            {"value.deserializer": "json"},
            {"max.poll.records": 0},
        ],
    )
    def test_settings_that_cannot_work(self, given: dict[str, object]) -> None:
        with pytest.raises(ConfigError):
            Consumer({"bootstrap.servers": "127.0.0.1:1", **given})
