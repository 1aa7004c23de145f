"""Metadata: what a client learns about the cluster, and topics that appear because somebody asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas.broker.apis.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(14)
NO_ID = UUID(int=0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def by_name(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def names(answer: Any) -> set[str]:
    return {topic.name for topic in answer.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_one_broker_is_named_with_the_address_of_the_listener(broker: AdminBroker, version: int) -> None:
    answer = broker.ask(MetadataRequest(topics=[]), version, listener="OTHER")
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (NODE_ID, "10.1.1.1", 19092)
    if version >= 1:
        assert (node.rack, answer.controller_id) == ("rack-a", NODE_ID)
    if version >= 2:
        assert answer.cluster_id == broker.catalog.snapshot.cluster_id
    assert answer.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_described_with_this_node_as_leader_and_only_replica(broker: AdminBroker, version: int) -> None:
    (topic,) = broker.topics.create([NewTopic("orders", 2)])
    (found,) = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version).topics
    assert (found.error_code, found.name, found.is_internal) == (0, "orders", False)
    assert found.topic_id == (topic.topic_id if version >= 10 else NO_ID)  # type: ignore[union-attr]
    assert [partition.partition_index for partition in found.partitions] == [0, 1]
    for partition in found.partitions:
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (NODE_ID, [NODE_ID], [NODE_ID])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert partition.offline_replicas == []


def test_null_means_all_topics_and_an_empty_list_none(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 1), NewTopic("b", 1)])
    for version in VERSIONS[1:]:
        assert names(broker.ask(MetadataRequest(topics=None), version)) == {"a", "b"}
        assert not broker.ask(MetadataRequest(topics=[]), version).topics
    assert names(broker.ask(MetadataRequest(topics=[]), 0)) == {"a", "b"}


def test_the_list_of_all_topics_follows_changes(broker: AdminBroker) -> None:
    ask_all = MetadataRequest(topics=None)
    broker.topics.create([NewTopic("a", 1)])
    assert names(broker.ask(ask_all, 12)) == {"a"}
    broker.topics.create([NewTopic("b", 1)])
    assert names(broker.ask(ask_all, 12)) == {"a", "b"}
    broker.topics.delete(["a"])
    broker.topics.add_partitions("b", 3)
    (found,) = broker.ask(ask_all, 12).topics
    assert (found.name, len(found.partitions)) == ("b", 3)


def test_authorized_operations_are_given_only_when_asked_for(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 1)])
    for version in range(8, 14):
        answer = broker.ask(by_name("a"), version)
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED
        assert answer.cluster_authorized_operations == NOT_ASKED
        asked = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        asked.include_cluster_authorized_operations = version <= 10
        answer = broker.ask(asked, version)
        assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 0b1101_1111_1000
        assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_created_at_once_when_allowed(broker: AdminBroker, version: int) -> None:
    """What unlocked a hundred tests of other clients: the first answer has the partitions."""
    (found,) = broker.ask(by_name("fresh", create=True), version).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)
    assert broker.logs.get("fresh", 0) is not None
    again = broker.ask(by_name("fresh"), 12).topics[0]
    assert again.topic_id == broker.catalog.snapshot.topics["fresh"].topic_id


def test_auto_creation_uses_num_partitions_and_can_be_switched_off(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "three", num_partitions=3) as broker:
        (found,) = broker.ask(by_name("fresh", create=True), 12).topics
        assert len(found.partitions) == 3
        (found,) = broker.ask(by_name("other", create=False), 12).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with AdminBroker(tmp_path / "off", auto_create_topics_enable=False) as broker:
        (found,) = broker.ask(by_name("fresh", create=True), 12).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not broker.catalog.snapshot.topics


def test_one_bad_name_does_not_spoil_the_others(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a.b", 1)])
    asked = ["good", "bad name", "", "..", "x" * 250, "a_b", "__consumer_offsets", "__cluster_metadata", "a.b"]
    answer = broker.ask(by_name(*asked, create=True), 12)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "good": 0,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a.b": 0,
    }
    assert set(broker.catalog.snapshot.topics) == {"good", "a.b"}


def test_a_topic_that_is_asked_for_twice_is_answered_once(broker: AdminBroker) -> None:
    assert len(broker.ask(by_name("a", "a", create=True), 12).topics) == 1


def test_topics_are_found_by_id_from_version_12(broker: AdminBroker) -> None:
    (topic,) = broker.topics.create([NewTopic("orders", 1)])
    unknown = uuid4()
    asked = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=topic.topic_id, name=None),  # type: ignore[union-attr]
            MetadataRequestTopic(topic_id=unknown, name=None),
        ]
    )
    for version in (12, 13):
        answer = broker.ask(asked, version)
        assert [(found.name, found.error_code) for found in answer.topics] == [
            ("orders", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert answer.topics[1].topic_id == unknown
    for version in (10, 11):
        assert {found.error_code for found in broker.ask(asked, version).topics} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.serial
def test_metadata_of_many_topics_takes_time_in_proportion(broker: AdminBroker) -> None:
    """Ten times the topics cost about ten times as much, far from a hundred times."""

    def seconds(count: int) -> float:
        present = len(broker.catalog.snapshot.topics)
        broker.catalog.create_topics([NewTopic(f"t{number}", 1) for number in range(present, count)])
        begin = perf_counter()
        assert len(broker.ask(MetadataRequest(topics=None), 12).topics) == count
        return perf_counter() - begin

    small = min(seconds(1_000) for _ in range(3))
    large = min(seconds(10_000) for _ in range(3))
    assert large < 50 * small


def test_a_topic_of_more_partitions_than_a_request_may_create_is_refused(tmp_path: Path) -> None:
    """With num.partitions=200000 one name was 25 s without an answer."""
    with AdminBroker(tmp_path / "data", num_partitions=5, barnabas_request_max_partitions=4) as broker:
        (refused,) = broker.ask(by_name("wide", create=True), 12).topics
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert not broker.catalog.snapshot.topics


def test_one_request_creates_no_more_partitions_than_it_may(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", num_partitions=3, barnabas_request_max_partitions=10) as broker:
        wanted = [f"t{number}" for number in range(5)]
        codes = {topic.name: topic.error_code for topic in broker.ask(by_name(*wanted, create=True), 12).topics}
        assert sorted(codes.values()) == [0, 0, 0, 3, 3]
        codes = {topic.name: topic.error_code for topic in broker.ask(by_name(*wanted, create=True), 12).topics}
        assert set(codes.values()) == {0}, "who asks again gets the others"
