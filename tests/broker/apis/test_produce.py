"""Produce (key 0): acks, versions, errors per partition, durable acks, metrics, quotas."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.log.partition_log import PartitionLog
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.data_broker import UNKNOWN_ID, DataBroker, batch
from tests.records.batches import NOW_MS, Batch
from tests.waiting import wait_until

ONE = batch([b"hello"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        yield opened


def produce(
    *partitions: tuple[str | uuid.UUID, int, bytes | None],
    acks: int = 1,
    transactional_id: str | None = None,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    """A request with one topic entry per partition; topics by name or by id."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, uuid.UUID) else uuid.UUID(int=0),
                partition_data=[
                    PartitionProduceData(index=index, records=None if records is None else memoryview(records))
                ],
            )
            for topic, index, records in partitions
        ],
    )


def outcomes(answer: Any) -> list[tuple[int, int]]:
    """Error code and base offset of each partition."""
    return [(p.error_code, p.base_offset) for topic in answer.responses for p in topic.partition_responses]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_is_appended_and_its_offset_answered_in_every_version(broker: DataBroker, version: int) -> None:
    topic_id = broker.create("t", 2)
    topic: str | uuid.UUID = topic_id if version >= 13 else "t"
    answer = broker.ask(produce((topic, 0, ONE), (topic, 1, ONE)), version)
    assert outcomes(answer) == [(0, 0), (0, 0)]
    answer = broker.ask(produce((topic, 0, batch([b"a", b"b"]))), version)
    (partition,) = answer.responses[0].partition_responses
    assert (partition.base_offset, partition.log_append_time_ms) == (1, -1)
    if version >= 5:
        assert partition.log_start_offset == 0
    assert answer.responses[0].topic_id == (topic_id if version >= 13 else uuid.UUID(int=0))
    assert broker.log("t").log_end_offset == 3


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_nothing_is_written(broker: DataBroker, acks: int) -> None:
    broker.create("t")
    answer = broker.ask(produce(("t", 0, ONE), ("t", 0, ONE), acks=acks), 9)
    assert outcomes(answer) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)] * 2
    assert broker.log("t").log_end_offset == 0


def test_acks_0_gets_no_answer(broker: DataBroker) -> None:
    """RP-40."""
    broker.create("t")
    asked = broker.send(produce(("t", 0, ONE), acks=0), 9)
    assert (asked.nothing, asked.closed, asked.answers) == (1, 0, [])
    assert broker.log("t").log_end_offset == 1


def test_an_error_with_acks_0_closes_the_connection(broker: DataBroker) -> None:
    """RP-40: also when another partition of the request was written."""
    broker.create("t")
    asked = broker.send(produce(("t", 0, ONE), ("nowhere", 0, ONE), acks=0), 9)
    assert (asked.nothing, asked.closed, asked.answers) == (0, 1, [])
    assert broker.log("t").log_end_offset == 1


def test_an_unexpected_error_with_acks_0_closes_the_connection(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-40."""
    broker.create("t")
    monkeypatch.setattr("barnabas.broker.apis.produce.append_all", lambda *_: 1 / 0)
    asked = broker.send(produce(("t", 0, ONE), acks=0), 9)
    assert (asked.nothing, asked.closed, asked.answers) == (0, 1, [])


def test_partitions_fail_one_by_one(broker: DataBroker) -> None:
    """RP-37."""
    broker.create("t", 2)
    broken = bytearray(ONE)
    broken[-1] ^= 1
    answer = broker.ask(
        produce(
            ("t", 0, ONE),
            ("t", 5, ONE),
            ("nowhere", 0, ONE),
            ("t", 1, bytes(broken)),
            ("t", 1, None),
            ("t", 1, b""),
            ("t", 1, ONE + ONE),
            ("t", 1, batch([b"x"], magic=1)),
            ("t", 1, ONE),
        ),
        9,
    )
    assert [code for code, _ in outcomes(answer)] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
    ]
    assert all(
        partition.error_message
        for topic in answer.responses
        for partition in topic.partition_responses
        if partition.error_code
    )
    assert (broker.log("t", 0).log_end_offset, broker.log("t", 1).log_end_offset) == (1, 1)


def test_an_unknown_topic_id_is_error_100(broker: DataBroker) -> None:
    """KIP-516."""
    assert outcomes(broker.ask(produce((UNKNOWN_ID, 0, ONE)), 13)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]


def test_a_failure_of_the_log_that_nobody_expects_fails_only_its_partition(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("t", 2)
    append = PartitionLog.append

    def failing(self: PartitionLog, records: memoryview, *rest: Any) -> Any:
        if self.partition == 0:
            raise RuntimeError("on purpose")
        return append(self, records, *rest)

    monkeypatch.setattr(PartitionLog, "append", failing)
    answer = broker.ask(produce(("t", 0, ONE), ("t", 1, ONE)), 9)
    assert outcomes(answer) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1), (0, 0)]


@pytest.mark.parametrize(("version", "code"), [(3, 6), (4, 56)])
def test_a_storage_error_is_one_that_the_client_knows(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    broker.create("t")

    def failing(*_: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(PartitionLog, "append", failing)
    assert outcomes(broker.ask(produce(("t", 0, ONE)), version)) == [(code, -1)]


def test_zstd_needs_version_7(broker: DataBroker) -> None:
    broker.create("t")
    zstd = bytes(Batch([b"x"], codec=4).build())
    assert outcomes(broker.ask(produce(("t", 0, zstd)), 6)) == [(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)]
    assert outcomes(broker.ask(produce(("t", 0, zstd)), 7)) == [(0, 0)]


def test_refused_records_are_named_one_by_one(broker: DataBroker) -> None:
    """KIP-467: the answer says which records of the batch were the reason, from version 8 on."""
    broker.create("t", cleanup_policy="compact")
    records = bytes(Batch([b"a", b"b", b"c"], keys=[b"k", None, None]).build())
    (partition,) = broker.ask(produce(("t", 0, records)), 8).responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert partition.error_message.startswith("One or more records have been rejected due to 2 record errors in total")
    text = "Compacted topic cannot accept message without key in topic partition t-0"
    named = [(each.batch_index, each.batch_index_error_message) for each in partition.record_errors]
    assert named == [(1, text), (2, text)]
    assert outcomes(broker.ask(produce(("t", 0, records)), 7)) == [(ErrorCode.INVALID_RECORD, -1)]
    assert broker.log("t").log_end_offset == 0


def test_a_timestamp_out_of_range_is_named(broker: DataBroker) -> None:
    broker.create("t", message_timestamp_before_max_ms="1000")
    records = bytes(Batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS - 1001]).build())
    (partition,) = broker.ask(produce(("t", 0, records)), 9).responses[0].partition_responses
    assert partition.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in partition.record_errors] == [1]


def test_clients_cannot_write_to_internal_topics(broker: DataBroker) -> None:
    broker.create("__consumer_offsets", internal=True)
    for client_id in ("test", "__admin_client"):  # a name that anybody can give gives no rights
        asked = broker.send(produce(("__consumer_offsets", 0, ONE)), 9, client_id=client_id)
        assert outcomes(asked.answer) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
    assert broker.log("__consumer_offsets").log_end_offset == 0


def test_transactions_are_refused_and_nothing_is_written(broker: DataBroker) -> None:
    broker.create("t")
    answer = broker.ask(produce(("t", 0, ONE), transactional_id="tx"), 9)
    assert outcomes(answer) == [(ErrorCode.UNSUPPORTED_VERSION, -1)]
    transactional = batch([b"x"], attributes=0x10, producer=(1, 0, 0))
    assert outcomes(broker.ask(produce(("t", 0, transactional)), 9)) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    control = batch([b"x"], attributes=0x20)
    assert outcomes(broker.ask(produce(("t", 0, control)), 9)) == [(ErrorCode.INVALID_RECORD, -1)]
    assert broker.log("t").log_end_offset == 0


def test_a_repeated_batch_of_an_idempotent_producer_is_answered_with_its_first_offset(broker: DataBroker) -> None:
    broker.create("t")
    first, second = batch([b"a"], producer=(9, 0, 0)), batch([b"b"], producer=(9, 0, 1))
    assert outcomes(broker.ask(produce(("t", 0, first)), 9)) == [(0, 0)]
    assert outcomes(broker.ask(produce(("t", 0, second)), 9)) == [(0, 1)]
    assert outcomes(broker.ask(produce(("t", 0, first)), 9)) == [(0, 0)]
    gap = batch([b"c"], producer=(9, 0, 7))
    assert outcomes(broker.ask(produce(("t", 0, gap)), 9)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert broker.log("t").log_end_offset == 2


def test_log_append_time_is_answered(broker: DataBroker) -> None:
    broker.create("t", message_timestamp_type="LogAppendTime")
    answer = broker.ask(produce(("t", 0, ONE)), 9)
    assert answer.responses[0].partition_responses[0].log_append_time_ms == broker.clock.wall_ms()


def test_a_request_without_partitions_is_answered(broker: DataBroker) -> None:
    assert broker.ask(produce(), 9).responses == []


def test_an_append_completes_fetches_that_wait_for_it(broker: DataBroker) -> None:
    """RP-38."""
    broker.create("t")
    waiting = broker.send(
        FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        ),
        4,
    )
    assert waiting.answers == []
    broker.ask(produce(("t", 0, ONE)), 9)
    assert waiting.answer.responses[0].partitions[0].high_watermark == 1
    assert not broker.fetch_purgatory.watchers


def test_acks_all_waits_for_the_disk_when_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-41, RP-38: answered from the flusher, after both partitions are on disk."""
    callbacks: list[Any] = []
    monkeypatch.setattr(PartitionLog, "on_durable", lambda _, offset, callback: callbacks.append((offset, callback)))
    with DataBroker(tmp_path / "data", log_flush_acks_all="true") as broker:
        broker.create("t", 2)
        asked = broker.send(produce(("t", 0, batch([b"a", b"b"])), ("t", 1, ONE), acks=-1), 9)
        assert asked.answers == []
        assert [offset for offset, _ in callbacks] == [2, 1]
        assert broker.produce_purgatory.delayed == 1
        callbacks[1][1](ErrorCode.NONE)
        assert asked.answers == []
        callbacks[0][1](ErrorCode.NONE)
        assert outcomes(asked.answer) == [(0, 0), (0, 0)]
        assert (broker.produce_purgatory.delayed, len(broker.timer)) == (0, 0)


def test_a_flush_that_fails_is_an_error_of_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-41: never acknowledged."""
    callbacks: list[Any] = []
    monkeypatch.setattr(PartitionLog, "on_durable", lambda _, offset, callback: callbacks.append(callback))
    with DataBroker(tmp_path / "data", log_flush_acks_all="true") as broker:
        broker.create("t", 2)
        asked = broker.send(produce(("t", 0, ONE), ("t", 1, ONE), acks=-1), 9)
        callbacks[0](ErrorCode.KAFKA_STORAGE_ERROR)
        callbacks[1](ErrorCode.NONE)
        assert outcomes(asked.answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0)]


def test_a_flush_that_takes_too_long_times_out_and_is_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-41, RP-38."""
    callbacks: list[Any] = []
    monkeypatch.setattr(PartitionLog, "on_durable", lambda _, offset, callback: callbacks.append(callback))
    with DataBroker(tmp_path / "data", log_flush_acks_all="true") as broker:
        broker.create("t", 2)
        asked = broker.send(produce(("t", 0, ONE), ("t", 1, ONE), acks=-1, timeout_ms=300), 9)
        callbacks[0](ErrorCode.NONE)
        broker.advance(0.299)
        assert asked.answers == []
        broker.advance(0.002)
        assert outcomes(asked.answer) == [(0, 0), (ErrorCode.REQUEST_TIMED_OUT, -1)]
        callbacks[1](ErrorCode.NONE)
        assert len(asked.answers) == 1


def test_durable_acks_end_to_end_with_the_real_flusher(tmp_path: Path) -> None:
    """RP-41."""
    with DataBroker(tmp_path / "data", log_flush_acks_all="true") as broker:
        broker.create("t")
        asked = broker.send(produce(("t", 0, ONE), acks=-1), 9)
        assert outcomes(asked.wait_for_answer()) == [(0, 0)]
        assert broker.log("t").durable_offset == 1
        wait_until(lambda: broker.produce_purgatory.delayed == 0)
        failed = broker.send(produce(("nowhere", 0, ONE), acks=-1), 9)
        assert outcomes(failed.answer) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_traffic_is_counted_by_topic(broker: DataBroker) -> None:
    """RP-32."""
    broker.create("t")
    three = batch([b"a", b"b", b"c"])
    broker.ask(produce(("t", 0, three), ("t", 9, three), ("nowhere", 0, three)), 9)
    traffic = broker.traffic.of("t")
    assert (traffic.messages_in, traffic.bytes_in) == (3, len(three))
    assert (traffic.produce_requests, traffic.failed_produce_requests) == (2, 1)
    assert broker.traffic.total("failed_produce_requests") == 2


def test_a_producer_over_its_quota_is_told_and_muted(broker: DataBroker) -> None:
    """RP-39: the batch is written and answered at once; the connection pays afterwards."""
    broker.create("t")
    broker.quotas.update({"user": "alice"}, "producer_byte_rate", 10)
    asked = broker.send(produce(("t", 0, ONE)), 9)
    assert outcomes(asked.answer) == [(0, 0)]
    assert asked.answer.throttle_time_ms == asked.throttle_ms == 90_000
    assert asked.throttle_kind == "Produce"
    silent = broker.send(produce(("t", 0, ONE), acks=0), 9)
    assert (silent.nothing, silent.throttle_ms > 90_000) == (1, True)
