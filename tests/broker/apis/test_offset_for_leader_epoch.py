"""OffsetForLeaderEpoch (key 23): where epochs end (KIP-320)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis import offset_for_leader_epoch
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.data_broker import DataBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        opened.create("t")
        opened.fill("t", b"a", b"b", b"c")
        yield opened


def question(topic: str = "t", epoch: int = 0, current: int = -1, partition: int = 0) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])


def only(answer: Any) -> Any:
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_newest_epoch_ends_at_the_log_end(broker: DataBroker, version: int) -> None:
    found = only(broker.ask(question(), version))
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 3)


def test_an_epoch_that_is_not_there_yet_has_no_end(broker: DataBroker) -> None:
    found = only(broker.ask(question(epoch=7), 4))
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, -1, -1)


def test_the_epoch_of_the_client_is_checked(broker: DataBroker) -> None:
    assert only(broker.ask(question(current=0), 4)).error_code == ErrorCode.NONE
    assert only(broker.ask(question(current=1), 4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(("topic", "partition"), [("nowhere", 0), ("t", 5)])
def test_what_does_not_exist_is_error_3(broker: DataBroker, topic: str, partition: int) -> None:
    found = only(broker.ask(question(topic, partition=partition), 4))
    assert (found.error_code, found.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_the_error_answer_names_every_partition() -> None:
    answer = offset_for_leader_epoch.error_response(question(), 4, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert only(answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
