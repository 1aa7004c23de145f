"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis.authorized_operations import TOPIC_OPERATIONS
from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.broker.admin_broker import NODE_ID, AdminBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def describe(broker: AdminBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    body = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    return broker.ask(body, 0)


def content(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]


def test_a_topic_is_described_with_id_and_partitions(broker: AdminBroker) -> None:
    (made,) = broker.topics.create([NewTopic("orders", 2)])
    answer = describe(broker, "orders")
    (topic,) = answer.topics
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, made.topic_id, False)  # type: ignore[union-attr]
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    for part in topic.partitions:
        assert (part.leader_id, part.leader_epoch, part.isr_nodes) == (NODE_ID, 0, [NODE_ID])
        assert (part.replica_nodes, part.offline_replicas, part.eligible_leader_replicas) == ([NODE_ID], [], [])
    assert answer.next_cursor is None


def test_unknown_topics_are_told_and_never_created(broker: AdminBroker) -> None:
    answer = describe(broker, "unknown", "bad name")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert not broker.catalog.snapshot.topics


@pytest.mark.parametrize("asked", [(), ("c", "a", "b", "a")])
@pytest.mark.parametrize("limit", [-5, 1, 2, 3, 4, 5, 6, 7])
def test_all_pages_together_hold_every_partition_once_and_in_order(
    broker: AdminBroker, limit: int, asked: tuple[str, ...]
) -> None:
    broker.topics.create([NewTopic("b", 1), NewTopic("c", 2), NewTopic("a", 3)])
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = describe(broker, *asked, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in content(answer) for index in indexes]
        assert 1 <= len(page) <= max(1, limit)
        seen += page
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


def test_a_page_never_has_more_than_two_thousand_partitions(broker: AdminBroker) -> None:
    broker.catalog.create_topics([NewTopic("wide", 2500)])
    answer = describe(broker, limit=2**31 - 1)
    assert len(answer.topics[0].partitions) == 2000
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("wide", 2000)


def test_paging_goes_on_when_the_topic_of_the_cursor_was_deleted(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 1), NewTopic("c", 3)])
    assert content(describe(broker, cursor=("b", 2))) == [("c", [0, 1, 2])]
    assert content(describe(broker, cursor=("c", 2))) == [("c", [2])]
    assert content(describe(broker, cursor=("d", 0))) == []
    assert content(describe(broker, "b", "c", cursor=("b", 2))) == [("b", []), ("c", [0, 1, 2])]


def test_a_negative_cursor_is_refused(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 1)])
    (topic,) = describe(broker, "a", cursor=("a", -1)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_topics_fill_a_page_too(broker: AdminBroker) -> None:
    names = [f"none-{number:04}" for number in range(3_000)]
    body = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    first = broker.ask(body, 0)
    assert [topic.name for topic in first.topics] == names[:2_000]
    body.cursor = first.next_cursor
    second = broker.ask(body, 0)
    assert [topic.name for topic in second.topics] == names[2_000:]
    assert second.next_cursor is None
