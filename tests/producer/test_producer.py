"""The producer as a user has it, against the broker in this process or Apache Kafka (tests/both_brokers.py)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.client.errors import ClientTimeout, UnknownPartition
from barnabas.errors import KafkaError
from barnabas.producer import (
    BufferExhausted,
    ForkedProducer,
    Producer,
    ProducerClosed,
    RecordMetadata,
    RecordTooLarge,
    SerializationError,
)
from barnabas.producer.interceptors import ProducerInterceptor
from barnabas.producer.serializers import json_serializer, string_serializer
from barnabas.records.compression import CODEC_NAMES
from barnabas.records.kernel.send_path import ProducerRecord
from tests.both_brokers import Broker, broker_for_test, own_broker
from tests.waiting import wait_until

TOPIC = "orders"


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    # A producer that asks for a topic while it is closed has a question under way, which must not make the topic anew.
    with broker_for_test(config={"auto.create.topics.enable": False}) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker) -> Iterator[Broker]:
    running.create_topic(TOPIC, 3)
    yield running
    running.delete_topic(TOPIC)


def producer(broker: Broker, **settings: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **given})


def knows_the_topic(ours: Producer) -> bool:
    """Where max.block.ms is short, because the test waits for its end, metadata may take longer than that on a busy machine."""
    try:
        return len(ours.partitions_for(TOPIC)) == 3
    except ClientTimeout:
        return False


class TestSending:
    def test_a_record_with_everything(self, broker: Broker) -> None:
        with producer(broker) as ours:
            future = ours.send(
                TOPIC,
                b"value",
                key=b"key",
                headers=[("a", b"1"), ("b", None)],
                partition=2,
                timestamp=1_600_000_000_000,
            )
            assert future.result(10) == RecordMetadata(TOPIC, 2, 0, 1_600_000_000_000)
        (record,) = broker.records(TOPIC)
        assert (record.key, record.value, record.headers) == (b"key", b"value", (("a", b"1"), ("b", None)))
        assert (record.partition, record.timestamp) == (2, 1_600_000_000_000)

    def test_keys_go_where_java_sends_them(self, broker: Broker) -> None:
        """PP-12."""
        with producer(broker) as ours:
            for _ in range(2):  # the first time the long way, then the short one
                for key in (b"21", b"foobar", b"abc"):
                    ours.send(TOPIC, b"v", key=key)
        found = {record.key: record.partition for record in broker.records(TOPIC)}
        assert found == {
            key: (java & 0x7FFF_FFFF) % 3
            for key, java in ((b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107))
        }

    @pytest.mark.parametrize("codec", CODEC_NAMES)
    def test_many_records_of_each_codec_arrive_once_and_in_order(self, broker: Broker, codec: str) -> None:
        """PP-10, PP-31."""
        with producer(broker, compression_type=codec) as ours:
            for number in range(3000):
                ours.send(TOPIC, b"value %d" % number, partition=0)
                ours.send(TOPIC, b"value %d" % number)
        records = broker.records(TOPIC)
        assert len(records) == 6000
        in_first = [record.value for record in records if record.partition == 0]
        numbers = [int(value.split()[1]) for value in in_first if value is not None]
        assert len(numbers) >= 3000
        assert sorted(record.value or b"" for record in records) == sorted([b"value %d" % n for n in range(3000)] * 2)
        assert {record.compression for record in records} <= {codec, "none"}

    def test_many_threads_use_one_producer(self, broker: Broker) -> None:
        """Each thread's records keep their order within a partition."""
        with producer(broker, batch_size=2000) as ours:

            def work(name: int) -> None:
                for number in range(500):
                    ours.send(TOPIC, b"%d/%d" % (name, number), key=b"%d" % name)

            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        for name in range(4):
            found = [
                r.value for r in broker.records(TOPIC) if r.value is not None and r.value.startswith(b"%d/" % name)
            ]
            assert found == [b"%d/%d" % (name, number) for number in range(500)]

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_acks(self, broker: Broker, acks: str) -> None:
        """PP-15."""
        with producer(broker, acks=acks) as ours:
            offset = ours.send(TOPIC, b"v", partition=0).result(10).offset
        assert offset == (-1 if acks == "0" else 0)
        wait_until(lambda: len(broker.records(TOPIC)) == 1)

    def test_callbacks_and_futures_tell_the_same(self, broker: Broker) -> None:
        """PP-25: callbacks run in order on the I/O thread, which has Kafka's name (PP-1)."""
        told: list[RecordMetadata | None] = []
        names: set[str] = set()

        def on_delivery(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            assert error is None
            told.append(metadata)
            names.add(threading.current_thread().name)

        with producer(broker, client_id="told") as ours:
            futures = [ours.send(TOPIC, b"v", partition=1, on_delivery=on_delivery) for _ in range(500)]
            done: list[object] = []
            futures[-1].add_done_callback(done.append)
            assert ours.flush(10) == 0
            assert done == [futures[-1]]
            futures[0].add_done_callback(done.append)
            assert done[-1] is futures[0]
        assert told == [future.result(0) for future in futures]
        assert names == {"kafka-producer-network-thread | told"}

    def test_send_wakes_the_io_thread_when_a_batch_is_made_or_full(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PP-5: and not for the records between."""
        with producer(broker, linger_ms=60_000, batch_size=1000) as ours:
            ours.partitions_for(TOPIC)
            woken: list[int] = []
            wakeup = ours._sender.wakeup
            monkeypatch.setattr(ours._sender, "wakeup", lambda: (woken.append(1), wakeup()))
            counts = []
            for _ in range(5):
                ours.send(TOPIC, b"x" * 200, partition=0)
                counts.append(len(woken))
            monkeypatch.undo()
        assert counts == [1, 1, 1, 1, 2]  # the fifth finds no room

    def test_serializers(self, broker: Broker) -> None:
        settings = {"key.serializer": string_serializer, "value.serializer": json_serializer}
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as ours:
            ours.send(TOPIC, {"price": 3}, key="coffee").result(10)
            ours.send(TOPIC, None, key="coffee").result(10)
            with pytest.raises(SerializationError, match="cannot serialize set"):
                ours.send(TOPIC, {1, 2})
        assert [(r.key, r.value) for r in broker.records(TOPIC)] == [(b"coffee", b'{"price":3}'), (b"coffee", None)]

    def test_interceptors_see_records_and_outcomes(self, broker: Broker) -> None:
        seen: list[object] = []

        class Stamp(ProducerInterceptor):
            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                return record._replace(value=record.value + b"!")

            def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
                seen.append(metadata.offset if metadata else error)

            def close(self) -> None:
                seen.append("closed")

        class Broken(ProducerInterceptor):
            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                raise ValueError("broken interceptor")

        chain = {"interceptor.classes": [Broken(), Stamp()]}
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **chain}) as ours:
            ours.send(TOPIC, b"v", partition=0).result(10)
            with pytest.raises(RecordTooLarge) as refused:
                ours.send(TOPIC, b"v" * 2_000_000)
        assert [record.value for record in broker.records(TOPIC)] == [b"v!"]
        assert seen == [0, refused.value, "closed"]

    def test_a_partitioner_of_the_user(self, broker: Broker) -> None:
        class Last:
            def partition(self, topic: str, *_: object) -> int:
                return 2 if topic == TOPIC else 99

        broker.create_topic("other")
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner.class": Last()}) as ours:
            assert ours.send(TOPIC, b"v").result(10).partition == 2
            with pytest.raises(ValueError, match="chose partition 99 of other, which has 1"):
                ours.send("other", b"v")

    def test_metrics_have_kafkas_names(self, broker: Broker) -> None:
        with producer(broker) as ours:
            ours.send(TOPIC, b"v").result(10)
            ours.flush(5)
            figures = ours.metrics()
        assert figures["record-send-total"] == 1
        assert figures["record-error-total"] == 0
        assert figures["buffer-available-bytes"] == figures["buffer-total-bytes"]

    def test_partitions_for(self, broker: Broker) -> None:
        with producer(broker) as ours:
            assert [info.partition for info in ours.partitions_for(TOPIC)] == [0, 1, 2]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ((TOPIC, "text"), SerializationError, "value is str, not bytes"),
            ((TOPIC, b"v", 5), SerializationError, "key is int, not bytes"),
            ((b"orders", b"v"), TypeError, "topic"),
            (("", b"v"), TypeError, "the topic must be a text"),
            ((TOPIC, b"v", None, None, -1), ValueError, "the partition must be a number from 0 on"),
            ((TOPIC, b"v", None, None, None, -5), ValueError, "the timestamp must be milliseconds"),
            ((TOPIC, b"v", None, None, None, 1.5), TypeError, "whole milliseconds since 1970, not 1.5"),
            (
                (TOPIC, b"v", None, None, None, 1.7e9),
                TypeError,
                r"not 1700000000.0; use time\.time_ns\(\) // 1_000_000",
            ),
            (
                (TOPIC, b"v", None, None, None, datetime(2026, 1, 1, tzinfo=UTC)),
                TypeError,
                r"use int\(when\.timestamp\(\) \* 1000\)",
            ),
            ((TOPIC, b"v", None, None, None, 1 << 63), ValueError, "the timestamp must be milliseconds"),
            (
                (TOPIC, b"v", None, [("a", "text")]),
                SerializationError,
                r"a header is a name and bytes .*\('a', 'text'\)",
            ),
            ((TOPIC, b"v", None, [("a", 5)]), SerializationError, "a header is a name and bytes"),
            ((TOPIC, b"v", None, [(None, b"x")]), SerializationError, "a header is a name and bytes"),
            ((TOPIC, b"v", None, [5]), SerializationError, "a header is a name and bytes"),
            ((TOPIC, b"v", None, 5), SerializationError, r"headers are a list of \(name, bytes\), not 5"),
            ((TOPIC, b"v" * 1_100_000), RecordTooLarge, r"more than max\.request\.size = 1048576"),
        ],
        ids=lambda value: value if isinstance(value, str) else None,
    )
    def test_wrong_arguments(
        self, broker: Broker, arguments: tuple[object, ...], error: type[Exception], words: str
    ) -> None:
        """PP-7: a record larger than `max.request.size` is refused at `send()`."""
        with producer(broker) as ours, pytest.raises(error, match=words):
            ours.send(*arguments)

    def test_a_partition_that_the_topic_does_not_have_is_refused_at_once(self, broker: Broker) -> None:
        with producer(broker, max_block_ms=600_000) as ours:
            for _ in range(2):
                with pytest.raises(
                    UnknownPartition, match="no partition 99 of orders, which has 3 partitions, numbers 0 to 2"
                ):
                    ours.send(TOPIC, b"v", partition=99)
            with pytest.raises(UnknownPartition, match="no partition 99 of orders"):
                ours.send_arrow(TOPIC, pa.table({"value": [b"v"], "partition": [99]}))

    def test_a_topic_that_is_not_there_is_asked_for_now_and_then(self, broker: Broker) -> None:
        """Not as fast as the broker answers."""
        with producer(broker, max_block_ms=1000) as ours:
            before = ours._metadata.update_version
            with pytest.raises(ClientTimeout, match="nowhere is not known within max"):
                ours.send("nowhere", b"v")
            assert ours._metadata.update_version - before < 20

    def test_a_record_that_the_broker_finds_too_large(self, broker: Broker) -> None:
        broker.create_topic("small", 1, {"max.message.bytes": 1000})
        with producer(broker) as ours:
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                ours.send("small", b"v" * 5000).result(10)
            assert ours.send("small", b"v" * 500).result(10).offset == 0

    def test_batches_that_the_broker_finds_too_large_are_split(self, broker: Broker) -> None:
        """PP-26, PP-31: split by `batch.size`, in order, with the right numbers."""
        name = broker.unique_topic_name("split")
        broker.create_topic(name, 1, {"max.message.bytes": 3000})
        # Without the linger a slow machine sends batches that are small enough.
        with producer(broker, batch_size=2500, compression_type="gzip", linger_ms=500) as ours:
            ours._accumulator.ratios.reset(name, 0.07)
            futures = [ours.send(name, os.urandom(100) + b"%d" % number) for number in range(500)]
            assert [future.result(20).offset for future in futures] == list(range(500))
            assert ours.metrics()["batch-split-total"] >= 1
            wait_until(lambda: ours.metrics()["buffer-available-bytes"] == ours.metrics()["buffer-total-bytes"])

    def test_an_unknown_topic_after_max_block_ms(self, running: Broker) -> None:
        with (
            broker_for_test(config={"auto.create.topics.enable": False}) as strict,
            producer(strict, max_block_ms=2000) as ours,
        ):
            words = (
                r"nowhere is not known within max\.block\.ms = 2000; .*answer UNKNOWN_TOPIC_OR_PARTITION for nowhere"
            )
            with pytest.raises(ClientTimeout, match=words):
                ours.send("nowhere", b"v")
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
                ours.send("no/where", b"v")

    def test_a_broker_that_is_not_there_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        with Producer({"bootstrap.servers": f"127.0.0.1:{port}", "max.block.ms": 1000}) as ours:
            start = time.monotonic()
            expected = rf"{TOPIC} is not known within max\.block\.ms = 1000; tried 127\.0\.0\.1:{port} \("
            with pytest.raises(ClientTimeout, match=expected) as caught:
                ours.send(TOPIC, b"v")
            assert " ms" not in str(
                caught.value
            )  # what was left of the time when it began to wait again is nobody's business
            assert 0.9 < time.monotonic() - start < 5

    def test_a_broker_that_does_not_answer_is_named_and_keeps_nobody(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            start = time.monotonic()
            with (
                Producer({"bootstrap.servers": f"127.0.0.1:{port}", "max.block.ms": 1000}) as ours,
                pytest.raises(ClientTimeout, match=rf"tried 127\.0\.0\.1:{port} \(no answer yet\)"),
            ):
                ours.send(TOPIC, b"v")
            assert time.monotonic() - start < 10  # not until the request for metadata has timed out

    def test_full_memory_raises_after_max_block_ms(self, broker: Broker) -> None:
        """PP-6."""
        settings = {"buffer_memory": 65_536, "batch_size": 16_384, "max_block_ms": 100, "linger_ms": 60_000}
        with producer(broker, **settings) as ours:
            wait_until(lambda: knows_the_topic(ours))
            ours._client.ready = lambda node, now_ms: False  # nothing leaves any more
            for _ in range(4):
                ours.send(TOPIC, b"x" * 12_000, partition=0)
            with pytest.raises(BufferExhausted, match="no 16384 bytes of memory"):
                ours.send(TOPIC, b"x" * 12_000, partition=0)
            ours.close(0)


class TestTheEnd:
    def test_close_sends_what_is_left(self, broker: Broker) -> None:
        """PP-1."""
        ours = producer(broker, linger_ms=60_000)
        future = ours.send(TOPIC, b"v")
        ours.close()
        assert future.result(0).offset == 0
        ours.close()
        with pytest.raises(ProducerClosed):
            ours.send(TOPIC, b"v")
        with pytest.raises(ProducerClosed):
            ours.flush()
        assert not ours._worker.is_alive()

    def test_close_gives_up_after_its_time(self) -> None:
        """PP-1: then fails the rest."""
        with own_broker({TOPIC: 1}) as broker:
            ours = producer(broker, linger_ms=60_000)
            ours.partitions_for(TOPIC)
            futures = [ours.send(TOPIC, b"v") for _ in range(10)]
        ours.close(0.2)
        assert {type(future.exception(0)) for future in futures} == {ProducerClosed}
        assert ours.metrics()["buffer-available-bytes"] == ours.metrics()["buffer-total-bytes"]

    def test_a_callback_may_close_the_producer(self, broker: Broker) -> None:
        ours = producer(broker)
        ours.send(TOPIC, b"v", on_delivery=lambda error, metadata: ours.close()).result(10)
        wait_until(lambda: not ours._worker.is_alive())
        ours.close()

    def test_close_wakes_a_thread_that_waits_for_metadata(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ours = Producer({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
            errors: list[Exception] = []

            def send() -> None:
                try:
                    ours.send(TOPIC, b"v")
                except Exception as error:
                    errors.append(error)

            worker = threading.Thread(target=send)
            worker.start()
            wait_until(lambda: ours._metadata.topics)
            ours.close(0)
            worker.join(10)
        assert isinstance(errors[0], ProducerClosed)
        assert "closed" in str(errors[0])

    def test_a_forgotten_producer_stops_its_thread(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        ours = producer(broker)
        ours.send(TOPIC, b"v").result(10)
        worker = ours._worker
        del ours
        import gc

        gc.collect()
        wait_until(lambda: not worker.is_alive())
        assert "was not closed" in caplog.text


CTRL_C = """
import os, signal, sys, threading
from barnabas.producer import Producer
where, servers = sys.argv[1:]
ours = Producer({"bootstrap.servers": servers, "buffer.memory": 32768, "linger.ms": 60000, "max.block.ms": 60000})
def interrupt():
    threading.Event().wait(0.3)
    os.kill(os.getpid(), signal.SIGINT)
try:
    if where == "metadata":
        threading.Thread(target=interrupt).start()
        ours.send("nowhere", b"v")
    future = ours.send("orders", b"v")
    threading.Thread(target=interrupt).start()
    if where == "future":
        future.result()
    if where == "memory":
        ours._sender._client.ready = lambda node, now: False
        while True:
            ours.send("orders", b"v" * 3000)
    if where == "flush":
        ours._sender._client.ready = lambda node, now: False
        ours.flush()
except KeyboardInterrupt:
    print("interrupted")
    ours.close(0)
"""


class TestProcesses:
    @pytest.mark.parametrize("where", ["metadata", "memory", "future", "flush"])
    def test_ctrl_c_ends_every_blocking_call(self, where: str) -> None:
        config = {"auto.create.topics.enable": False}
        with broker_for_test(topics={TOPIC: 1}, config=config) as broker:
            done = subprocess.run(
                [sys.executable, "-c", CTRL_C, where, broker.bootstrap_servers],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        assert done.stdout == "interrupted\n", done.stderr

    def test_the_compiled_form_refuses_a_time_and_a_partition_that_are_no_whole_numbers(self, broker: Broker) -> None:
        """Cython made the float of `time.time()` a whole number: a millisecond of January 1970, which retention deletes."""
        code = """
import sys, time
from barnabas.producer import Producer
with Producer({"bootstrap.servers": sys.argv[1]}) as ours:
    for wrong in ({"timestamp": time.time()}, {"partition": 1.5}):
        try:
            ours.send("orders", b"v", **wrong)
        except (TypeError, ValueError) as error:
            print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", code, broker.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
            env={**os.environ, "BARNABAS_NATIVE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        first, second = done.stdout.splitlines()
        assert "whole milliseconds since 1970" in first
        assert "a number from 0 on, not 1.5" in second
        assert broker.records(TOPIC) == []

    def test_a_fork_is_refused_with_a_clear_error(self, broker: Broker, tmp_path: Path) -> None:
        with producer(broker) as ours:
            ours.send(TOPIC, b"before", partition=0).result(10)
            report = tmp_path / "report"
            child = os.fork()
            if child == 0:  # pragma: no cover
                try:
                    ours.send(TOPIC, b"in the child")
                except ForkedProducer as error:
                    report.write_text(str(error))
                    ours.close()
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0
            assert "was made before this process was forked" in report.read_text()
            assert ours.send(TOPIC, b"after", partition=0).result(10).offset == 1

    def test_the_compiled_form_does_the_same(self, broker: Broker) -> None:
        """One switch, both forms: the tests' own process has the plain one."""
        code = """
import sys
from barnabas.producer import Producer
with Producer({"bootstrap.servers": sys.argv[1], "batch.size": 5000}) as ours:
    told = []
    for number in range(5000):
        ours.send("orders", b"%d" % number, key=b"same", on_delivery=lambda e, m: told.append(m.offset))
    assert ours.flush(20) == 0
    assert told == list(range(5000)), told[:10]
"""
        done = subprocess.run(
            [sys.executable, "-c", code, broker.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            env={**os.environ, "BARNABAS_NATIVE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        assert [record.value for record in broker.records(TOPIC)] == [b"%d" % number for number in range(5000)]
