"""ListOffsets (key 2): offsets by name and by time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis import list_offsets
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.data_broker import DataBroker, batch

BASE = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    """Records at 0, 30, 10 and 20 ms after BASE."""
    with DataBroker(tmp_path / "data") as opened:
        opened.create("t")
        for delta in (0, 30, 10, 20):
            opened.log("t").append(memoryview(batch([b"x"], timestamp_ms=BASE + delta)))
        yield opened


def question(timestamp: int, topic: str = "t", partition: int = 0, epoch: int = -1, isolation: int = 0) -> Any:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )


def ask(broker: DataBroker, version: int, timestamp: int, **more: Any) -> tuple[int, int, int]:
    """Error code, offset and timestamp."""
    (partition,) = broker.ask(question(timestamp, **more), version).topics[0].partitions
    return partition.error_code, partition.offset, partition.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_and_earliest_in_every_version(broker: DataBroker, version: int) -> None:
    assert ask(broker, version, -1) == (ErrorCode.NONE, 4, -1)
    assert ask(broker, version, -2) == (ErrorCode.NONE, 0, -1)
    broker.log("t").delete_records_before(2)
    assert ask(broker, version, -2) == (ErrorCode.NONE, 2, -1)


@pytest.mark.parametrize("isolation", [0, 1])
def test_latest_with_each_isolation_level(broker: DataBroker, isolation: int) -> None:
    assert ask(broker, 4, -1, isolation=isolation) == (ErrorCode.NONE, 4, -1)


@pytest.mark.parametrize(
    ("after_base", "found"), [(-1, (0, 0)), (0, (0, 0)), (1, (1, 30)), (30, (1, 30)), (31, (-1, None))]
)
def test_a_time_finds_the_first_record_at_or_after_it(
    broker: DataBroker, after_base: int, found: tuple[int, int | None]
) -> None:
    offset, delta = found
    timestamp = -1 if delta is None else BASE + delta
    assert ask(broker, 5, BASE + after_base) == (ErrorCode.NONE, offset, timestamp)


def test_the_largest_timestamp(broker: DataBroker) -> None:
    """KIP-734."""
    assert ask(broker, 7, -3) == (ErrorCode.NONE, 1, BASE + 30)


def test_tiered_storage_has_nothing(broker: DataBroker) -> None:
    assert ask(broker, 8, -4) == (ErrorCode.NONE, 0, -1)
    assert ask(broker, 9, -5) == (ErrorCode.NONE, -1, -1)
    assert ask(broker, 11, -6) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(("version", "timestamp"), [(6, -3), (7, -4), (8, -5), (10, -6), (11, -7), (1, -100)])
def test_a_timestamp_that_the_version_does_not_know_is_refused(
    broker: DataBroker, version: int, timestamp: int
) -> None:
    assert ask(broker, version, timestamp) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


def test_epochs_are_checked_and_answered(broker: DataBroker) -> None:
    """KIP-320."""
    (partition,) = broker.ask(question(-1, epoch=0), 4).topics[0].partitions
    assert partition.leader_epoch == 0
    assert ask(broker, 4, -1, epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_what_does_not_exist_is_error_3(broker: DataBroker) -> None:
    assert ask(broker, 5, -1, topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, 5, -1, partition=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_named_twice_is_an_invalid_request(broker: DataBroker) -> None:
    twice = question(-1)
    twice.topics.append(twice.topics[0])
    answer = broker.ask(twice, 5)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_error_answer_names_every_partition() -> None:
    answer = list_offsets.error_response(question(-1), 5, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
