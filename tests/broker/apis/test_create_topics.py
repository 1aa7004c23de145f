"""CreateTopics: each topic by itself, and what one node refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.apis.config_entries import ConfigSource
from barnabas.broker.topic_settings import TOPIC
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(2, 8)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def topic(name: str, partitions: int = 1, replication: int = 1, **configs: str | None) -> CreatableTopic:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication, configs=entries)


def assigned(name: str, *replicas: list[int], indexes: list[int] | None = None) -> CreatableTopic:
    places = indexes if indexes is not None else list(range(len(replicas)))
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in zip(places, replicas, strict=True)
    ]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def codes(answer: Any) -> dict[str, int]:
    return {result.name: result.error_code for result in answer.topics}


def create(broker: AdminBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    return broker.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_with_its_logs_and_its_answer_tells_what_it_got(broker: AdminBroker, version: int) -> None:
    (result,) = create(broker, topic("orders", 3, retention_ms="1000"), version=version).topics
    assert (result.error_code, result.error_message) == (0, None)
    made = broker.catalog.snapshot.topics["orders"]
    assert (made.partition_count, made.configs) == (3, {"retention.ms": "1000"})
    assert broker.log_dirs() == {"orders-0", "orders-1", "orders-2"}
    partition_log = broker.logs.get("orders", 2)
    assert partition_log is not None
    assert partition_log.config.retention_ms == 1000
    assert partition_log.topic_id == made.topic_id
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs}
        assert set(configs) == {row.name for row in TOPIC}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", ConfigSource.TOPIC)
        assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT
    assert result.topic_id == (made.topic_id if version >= 7 else UUID(int=0))


def test_defaults_are_asked_for_with_minus_one(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", num_partitions=4) as broker:
        (result,) = create(broker, topic("orders", -1, -1)).topics
        assert (result.error_code, result.num_partitions) == (0, 4)


def test_good_topics_of_a_mixed_request_are_created_and_bad_ones_are_told_why(broker: AdminBroker) -> None:
    create(broker, topic("there"))
    answer = create(
        broker,
        topic("good"),
        topic("there"),
        topic("bad/name"),
        topic("zero", 0),
        topic("negative", -2),
        topic("replicated", 1, 3),
        topic("unreplicated", 1, 0),
        topic("typo", 1, 1, retention_mz="5"),
        topic("nonsense", 1, 1, retention_ms="soon"),
        topic("nothing", 1, 1, retention_ms=None),
        topic("twice"),
        topic("twice", 2),
        topic("also-good", 2),
    )
    assert codes(answer) == {
        "good": 0,
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "zero": ErrorCode.INVALID_PARTITIONS,
        "negative": ErrorCode.INVALID_PARTITIONS,
        "replicated": ErrorCode.INVALID_REPLICATION_FACTOR,
        "unreplicated": ErrorCode.INVALID_REPLICATION_FACTOR,
        "typo": ErrorCode.INVALID_CONFIG,
        "nonsense": ErrorCode.INVALID_CONFIG,
        "nothing": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
        "also-good": 0,
    }
    assert all(result.error_message for result in answer.topics if result.error_code)
    assert set(broker.catalog.snapshot.topics) == {"there", "good", "also-good"}


def test_names_that_collide_in_metrics_are_refused_also_within_one_request(broker: AdminBroker) -> None:
    create(broker, topic("a.b"))
    assert codes(create(broker, topic("a_b"), topic("c_d"), topic("c.d"))) == {
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c_d": 0,
        "c.d": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_validate_only_checks_everything_and_creates_nothing(broker: AdminBroker, version: int) -> None:
    create(broker, topic("there"))
    wanted = [topic("new", 2), topic("there"), topic("bad", 1, 1, segment_bytes="x")]
    assert codes(create(broker, *wanted, version=version, validate_only=True)) == {
        "new": 0,
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad": ErrorCode.INVALID_CONFIG,
    }
    assert set(broker.catalog.snapshot.topics) == {"there"}
    assert broker.log_dirs() == {"there-0"}


def test_a_manual_assignment_may_name_this_node_only(broker: AdminBroker) -> None:
    answer = create(
        broker,
        assigned("good", [NODE_ID], [NODE_ID]),
        assigned("stranger", [NODE_ID + 1]),
        assigned("two", [NODE_ID, NODE_ID + 1]),
        assigned("none", []),
        assigned("gap", [NODE_ID], [NODE_ID], indexes=[0, 2]),
        assigned("double", [NODE_ID], [NODE_ID], indexes=[0, 0]),
    )
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    expected = {"good": 0, "stranger": refused, "two": refused, "none": refused, "gap": refused, "double": refused}
    assert codes(answer) == expected
    assert broker.catalog.snapshot.topics["good"].partition_count == 2


def test_an_assignment_and_counts_exclude_each_other(broker: AdminBroker) -> None:
    counted, replicated = assigned("counted", [NODE_ID]), assigned("replicated", [NODE_ID])
    counted.num_partitions = 1
    replicated.replication_factor = 1
    assert set(codes(create(broker, counted, replicated)).values()) == {ErrorCode.INVALID_REQUEST}


def test_one_request_cannot_ask_for_millions_of_partitions(broker: AdminBroker) -> None:
    answer = create(broker, topic("huge", 2**31 - 1), topic("large", 10_001))
    assert set(codes(answer).values()) == {ErrorCode.POLICY_VIOLATION}
    assert not broker.catalog.snapshot.topics


def test_the_metadata_topic_of_kafka_cannot_be_created(broker: AdminBroker) -> None:
    assert codes(create(broker, topic("__cluster_metadata"))) == {"__cluster_metadata": ErrorCode.INVALID_REQUEST}


def test_a_config_that_is_given_twice_is_refused(broker: AdminBroker) -> None:
    wanted = topic("orders", 1, 1, retention_ms="1")
    wanted.configs.append(CreatableTopicConfig(name="retention.ms", value="2"))
    assert codes(create(broker, wanted)) == {"orders": ErrorCode.INVALID_REQUEST}


def test_a_failing_disk_is_told_and_leaves_no_topic(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    real = broker.logs.create

    def fail_on_the_second(name: str, partition: int, *more: Any) -> Any:
        if partition == 1:
            raise OSError(28, "No space left on device")
        return real(name, partition, *more)

    monkeypatch.setattr(broker.logs, "create", fail_on_the_second, raising=False)
    assert codes(create(broker, topic("orders", 3))) == {"orders": ErrorCode.KAFKA_STORAGE_ERROR}
    monkeypatch.undo()
    assert not broker.catalog.snapshot.topics
    assert not broker.log_dirs()
    assert codes(create(broker, topic("orders", 3))) == {"orders": 0}


def test_a_topic_beyond_the_cap_does_not_keep_a_smaller_one_from_being_created(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", barnabas_request_max_partitions=10) as broker:
        answer = broker.ask(CreateTopicsRequest(topics=[topic("wide", 11), topic("fits", 10), topic("late", 1)]), 7)
        assert codes(answer) == {"wide": ErrorCode.POLICY_VIOLATION, "fits": 0, "late": ErrorCode.POLICY_VIOLATION}


def test_an_error_text_is_short_and_not_repeated_for_ever(broker: AdminBroker) -> None:
    """A text of more than 32 767 bytes does not fit the field and was answered with UNKNOWN_SERVER_ERROR."""
    assigned = topic("assigned", -1)
    assigned.replication_factor = -1
    assigned.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE_ID] * 20_000)]
    unknown = topic("configured", 1)
    unknown.configs = [CreatableTopicConfig(name="x" * 32_000, value="1")]
    first, second = broker.ask(CreateTopicsRequest(topics=[assigned, unknown]), 7).topics
    assert (first.error_code, second.error_code) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
    )
    assert len(first.error_message) < 1100
    assert len(second.error_message) < 1100
    many = broker.ask(CreateTopicsRequest(topics=[topic(f"{number} ", 1) for number in range(500)]), 7).topics
    assert {result.error_code for result in many} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert sum(result.error_message is not None for result in many) == 100


def test_configs_that_do_not_fit_the_answer_are_left_out(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", barnabas_response_max_bytes=4_000) as broker:
        wanted = CreateTopicsRequest(topics=[topic(f"t{number}", 1) for number in range(8)], validate_only=True)
        results = broker.ask(wanted, 7).topics
        assert {result.error_code for result in results} == {0}
        assert results[0].configs
        assert results[-1].configs is None
