"""DeleteTopics: by name and by id, with everything that was kept for the topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas.broker.catalog import NewTopic, TopicInfo
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.admin_broker import AdminBroker

VERSIONS = range(1, 7)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def request(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


def made(broker: AdminBroker, name: str, partitions: int = 1) -> TopicInfo:
    (topic,) = broker.topics.create([NewTopic(name, partitions)])
    assert isinstance(topic, TopicInfo)
    return topic


def codes(answer: Any) -> list[tuple[str | None, int]]:
    return [(result.name, result.error_code) for result in answer.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_goes_with_its_data_and_waiting_fetches_are_woken(broker: AdminBroker, version: int) -> None:
    topic = made(broker, "orders", 2)
    made(broker, "kept")
    answer = broker.ask(request(version, "orders", "unknown"), version)
    assert codes(answer) == [("orders", 0), ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert set(broker.catalog.snapshot.topics) == {"kept"}
    assert broker.logs.get("orders", 0) is None
    assert broker.log_dirs() == {"kept-0"}
    assert broker.purgatory.checked == [("orders", 0), ("orders", 1)]
    if version >= 5:
        assert answer.responses[1].error_message
    if version >= 6:
        assert answer.responses[0].topic_id == topic.topic_id


@pytest.mark.parametrize("version", [5, 6])
def test_internal_topics_stay(broker: AdminBroker, version: int) -> None:
    broker.topics.create([NewTopic("__consumer_offsets", 1, {}, True)])
    made(broker, "orders")
    answer = broker.ask(request(version, "__consumer_offsets", "orders"), version)
    assert codes(answer) == [("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION), ("orders", 0)]
    assert set(broker.catalog.snapshot.topics) == {"__consumer_offsets"}


def test_a_topic_is_deleted_by_id(broker: AdminBroker) -> None:
    topic = made(broker, "orders")
    unknown = uuid4()
    states = [DeleteTopicState(topic_id=topic.topic_id), DeleteTopicState(topic_id=unknown)]
    answer = broker.ask(DeleteTopicsRequest(topics=states), 6)
    assert codes(answer) == [("orders", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert not broker.catalog.snapshot.topics


def test_what_makes_no_sense_is_refused_topic_by_topic(broker: AdminBroker) -> None:
    topic = made(broker, "orders")
    other = made(broker, "other")
    made(broker, "good")
    states = [
        DeleteTopicState(name="orders"),
        DeleteTopicState(topic_id=topic.topic_id),
        DeleteTopicState(name="other", topic_id=other.topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="nowhere"),
        DeleteTopicState(name="nowhere"),
        DeleteTopicState(name="good"),
    ]
    answer = broker.ask(DeleteTopicsRequest(topics=states), 6)
    assert [result.error_code for result in answer.responses] == [ErrorCode.INVALID_REQUEST] * 6 + [0]
    assert set(broker.catalog.snapshot.topics) == {"orders", "other"}


@pytest.mark.parametrize("version", VERSIONS)
def test_deletion_can_be_forbidden(tmp_path: Path, version: int) -> None:
    with AdminBroker(tmp_path / "data", delete_topic_enable=False) as broker:
        made(broker, "orders")
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert codes(broker.ask(request(version, "orders"), version)) == [("orders", code)]
        assert "orders" in broker.catalog.snapshot.topics


def test_the_same_name_can_be_used_again_and_gets_another_id(broker: AdminBroker) -> None:
    ids: set[UUID] = set()
    for _ in range(5):
        ids.add(made(broker, "orders").topic_id)
        broker.ask(request(6, "orders"), 6)
    assert len(ids) == 5


def test_listeners_hear_of_a_deleted_topic(broker: AdminBroker) -> None:
    heard: list[TopicInfo] = []
    broker.topics.on_delete(heard.append)
    topic = made(broker, "orders")
    broker.ask(request(6, "orders"), 6)
    assert heard == [topic]
