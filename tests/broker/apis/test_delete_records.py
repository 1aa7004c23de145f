"""DeleteRecords (key 21): the log start moves forward, never back (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis import delete_records
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.data_broker import DataBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        opened.create("t")
        opened.fill("t", b"a", b"b", b"c", b"d")
        yield opened


def delete(offset: int, topic: str = "t", partition: int = 0) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)


def outcome(answer: Any) -> tuple[int, int]:
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_start_moves_and_is_answered(broker: DataBroker, version: int) -> None:
    assert outcome(broker.ask(delete(2), version)) == (ErrorCode.NONE, 2)
    assert broker.log("t").log_start_offset == 2


def test_minus_one_is_the_high_watermark(broker: DataBroker) -> None:
    assert outcome(broker.ask(delete(-1), 2)) == (ErrorCode.NONE, 4)


def test_the_log_start_never_goes_back(broker: DataBroker) -> None:
    broker.ask(delete(3), 2)
    assert outcome(broker.ask(delete(1), 2)) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("offset", [-2, 5])
def test_an_offset_outside_the_log_is_refused(broker: DataBroker, offset: int) -> None:
    assert outcome(broker.ask(delete(offset), 2)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert broker.log("t").log_start_offset == 0


def test_compacted_and_internal_topics_keep_their_records(broker: DataBroker) -> None:
    broker.create("compacted", cleanup_policy="compact")
    broker.create("__consumer_offsets", internal=True)
    assert outcome(broker.ask(delete(-1, "compacted"), 2)) == (ErrorCode.POLICY_VIOLATION, -1)
    assert outcome(broker.ask(delete(-1, "__consumer_offsets"), 2)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_what_does_not_exist_is_error_3(broker: DataBroker) -> None:
    assert outcome(broker.ask(delete(0, "nowhere"), 2)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert outcome(broker.ask(delete(0, "t", 9), 2)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_the_error_answer_names_every_partition() -> None:
    answer = delete_records.error_response(delete(0), 2, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert outcome(answer) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
