"""`EmbeddedBroker`: its life, its topics, what is in them, and the report of what was asked."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from barnabas.errors import BarnabasError, ConfigError, ErrorCode, KafkaError
from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.waiting import wait_until


def produce(broker: EmbeddedBroker, topic: str, values: list[bytes], partition: int = 0) -> tuple[int, int]:
    with wire.connect(broker.port) as sock:
        return wire.produce_result(wire.ask(sock, wire.produce(topic, wire.batch(values), partition=partition)), topic)


def test_it_serves_on_a_free_port_and_makes_its_topics() -> None:
    with EmbeddedBroker(topics={"a": 3, "b": 1}) as first, EmbeddedBroker() as second:
        assert first.bootstrap_servers == f"127.0.0.1:{first.port}"
        assert first.port != second.port
        assert first.topics() == {"a": 3, "b": 1}
        assert second.topics() == {}


def test_records_are_read_without_a_consumer() -> None:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        produce(broker, "t", [b"one", b"two"], partition=1)
        produce(broker, "t", [b"three"], partition=1)
        produce(broker, "t", [b"zero"], partition=0)
        records = broker.records("t")
        assert [(r.partition, r.offset, r.value) for r in records] == [
            (0, 0, b"zero"),
            (1, 0, b"one"),
            (1, 1, b"two"),
            (1, 2, b"three"),
        ]
        assert {(r.topic, r.key, r.headers, r.compression) for r in records} == {("t", None, (), "none")}
        assert [r.value for r in broker.records("t", partition=0)] == [b"zero"]


def test_records_of_nothing_are_an_error_that_names_it() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        assert broker.records("t") == []
        with pytest.raises(KafkaError, match="no topic missing"):
            broker.records("missing")
        with pytest.raises(KafkaError, match="no partition 7"):
            broker.records("t", partition=7)


def test_topics_come_and_go_at_once() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2, {"max.message.bytes": 1000, "preallocate": False})
        assert broker.topics() == {"t": 2}
        with pytest.raises(KafkaError) as refused:
            broker.create_topic("t")
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert produce(broker, "t", [b"x" * 2000])[0] == ErrorCode.MESSAGE_TOO_LARGE
        broker.delete_topic("t")
        broker.delete_topic("t")
        assert broker.topics() == {}


def test_names_of_topics_are_legal_and_never_repeat() -> None:
    broker = EmbeddedBroker()
    names = {broker.unique_topic_name(hint) for hint in ("test_x[a/b c]", "test_x[a/b c]", "", "ü", "x" * 400)}
    assert len(names) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) for name in names)


def test_settings_reach_the_broker_and_bad_ones_are_named() -> None:
    with EmbeddedBroker(config={"message.max.bytes": 500}, topics={"t": 1}) as broker:
        assert produce(broker, "t", [b"x" * 2000])[0] == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ConfigError, match=r"num\.io\.threads"):
        EmbeddedBroker(config={"num.io.threads": 0}).start()


def test_data_in_a_directory_outlives_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        produce(broker, "t", [b"kept"])
        port = broker.port
        broker.restart()
        assert broker.port == port
        assert [r.value for r in broker.records("t")] == [b"kept"]
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        assert [r.value for r in broker.records("t")] == [b"kept"]


def test_data_in_memory_is_removed_also_after_a_failed_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.memory_directory.TMPFS", tmp_path)
    with EmbeddedBroker(), pytest.raises(KafkaError):
        EmbeddedBroker(topics={"not a legal name": 1}).start()
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(BarnabasError, match="not running"):
        _ = broker.bootstrap_servers
    assert broker.request_report() == "the broker is not running"
    with pytest.raises(BarnabasError, match="data_dir"), broker:
        broker.restart()
    broker.stop()
    with broker, pytest.raises(BarnabasError, match="runs already"):
        broker.start()


def test_the_report_names_the_last_requests_and_their_times() -> None:
    """RP-31: the parts of a request's time, for a person."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        produce(broker, "t", [b"x"])
        wait_until(lambda: "Produce" in broker.request_report())  # recorded a moment after the client has its answer
        report = broker.request_report()
    assert re.search(r"Produce v7  wire 127\.0\.0\.1:\d+-127\.0\.0\.1:\d+-\d+  .*total \d+\.\d{3}", report), report


def test_an_exception_out_of_the_block_carries_the_report() -> None:
    def fail_inside() -> None:
        with EmbeddedBroker(topics={"t": 1}) as broker:
            produce(broker, "t", [b"x"])
            wait_until(lambda: "Produce" in broker.request_report())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as failed:
        fail_inside()
    assert "Produce v7" in failed.value.__notes__[0]


@pytest.mark.serial
def test_it_is_ready_in_well_under_a_second() -> None:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        with EmbeddedBroker(topics={"t": 3}):
            seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.3, seconds
