"""CreatePartitions: topics that grow, and every topic answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(4)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def grow(name: str, count: int, *replicas: list[int]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] if replicas else None
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def ask(broker: AdminBroker, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False) -> Any:
    return broker.ask(CreatePartitionsRequest(topics=list(topics), validate_only=validate_only), version)


def codes(answer: Any) -> dict[str, int]:
    return {result.name: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_grows_and_is_answered_by_name(broker: AdminBroker, version: int) -> None:
    (before,) = broker.topics.create([NewTopic("orders", 1, {"retention.ms": "5"})])
    assert codes(ask(broker, grow("orders", 3), version=version)) == {"orders": 0}
    after = broker.catalog.snapshot.topics["orders"]
    assert (after.partition_count, after.topic_id) == (3, before.topic_id)  # type: ignore[union-attr]
    assert broker.log_dirs() == {"orders-0", "orders-1", "orders-2"}
    added = broker.logs.get("orders", 2)
    assert added is not None
    assert added.config.retention_ms == 5


def test_each_topic_is_judged_by_itself(broker: AdminBroker) -> None:
    names = ["good", "same", "less", "twice", "manual", "stranger", "few", "huge"]
    broker.topics.create([NewTopic(name, 2) for name in names])
    answer = ask(
        broker,
        grow("good", 4),
        grow("same", 2),
        grow("less", 1),
        grow("unknown", 5),
        grow("twice", 3),
        grow("twice", 4),
        grow("manual", 4, [NODE_ID], [NODE_ID]),
        grow("stranger", 3, [NODE_ID + 1]),
        grow("few", 4, [NODE_ID]),
        grow("huge", 2**31 - 1),
    )
    assert codes(answer) == {
        "good": 0,
        "same": ErrorCode.INVALID_PARTITIONS,
        "less": ErrorCode.INVALID_PARTITIONS,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "twice": ErrorCode.INVALID_REQUEST,
        "manual": 0,
        "stranger": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "few": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "huge": ErrorCode.POLICY_VIOLATION,
    }
    assert all(result.error_message for result in answer.results if result.error_code)
    counts = {name: topic.partition_count for name, topic in broker.catalog.snapshot.topics.items()}
    assert counts == {name: 4 if name in ("good", "manual") else 2 for name in names}


def test_validate_only_changes_nothing(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    assert codes(ask(broker, grow("orders", 3), validate_only=True)) == {"orders": 0}
    assert broker.catalog.snapshot.topics["orders"].partition_count == 1
    assert broker.log_dirs() == {"orders-0"}


def test_a_failing_disk_leaves_the_topic_as_it_was(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    broker.topics.create([NewTopic("orders", 1)])
    monkeypatch.setattr(broker.logs, "create", fail, raising=False)
    assert codes(ask(broker, grow("orders", 3))) == {"orders": ErrorCode.KAFKA_STORAGE_ERROR}
    assert broker.catalog.snapshot.topics["orders"].partition_count == 1


def test_the_cap_is_on_all_topics_of_a_request_together(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", barnabas_request_max_partitions=10) as broker:
        broker.topics.create([NewTopic("a", 1), NewTopic("b", 1), NewTopic("c", 1)])
        topics = [CreatePartitionsTopic(name=name, count=7, assignments=None) for name in "abc"]
        answer = broker.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False), 3)
        codes = {result.name: result.error_code for result in answer.results}
        assert codes == {"a": 0, "b": ErrorCode.POLICY_VIOLATION, "c": ErrorCode.POLICY_VIOLATION}
        assert broker.catalog.snapshot.topics["b"].partition_count == 1


def test_a_name_as_long_as_the_protocol_allows_is_answered(broker: AdminBroker) -> None:
    """The message names it, and must still fit the answer."""
    answer = ask(broker, grow("x" * 32767, 3))
    assert codes(answer) == {"x" * 32767: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "…" in answer.results[0].error_message
