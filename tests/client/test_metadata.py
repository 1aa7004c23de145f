"""Metadata: full and partial updates, ages and back-off, idle topics, leader epochs, listeners, waiting."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence

import pytest

from barnabas.client.cluster import Node
from barnabas.client.config import client_config
from barnabas.client.errors import ClientTimeout
from barnabas.client.metadata import LeaderAndEpoch, Metadata, MetadataUpdateRequest
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.client.mock_selector import NODE, OTHER, metadata_response

START = 1_000_000
MAX_AGE = 60_000
SETTINGS = {
    "bootstrap.servers": "boot:9092",
    "metadata.max.age.ms": MAX_AGE,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 100,
}


def make(settings: Mapping[str, object] | None = None, **arguments: object) -> Metadata:
    metadata = Metadata(client_config("test", {**SETTINGS, **(settings or {})}), **arguments)
    metadata.bootstrap([("boot", 9092)])
    return metadata


def answer(
    metadata: Metadata,
    now: int,
    topics: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    nodes: Sequence[Node] = (NODE, OTHER),
) -> bool:
    """Let a metadata request be answered; says whether it was a partial one."""
    asked = metadata.next_request(now)
    metadata.update(asked, metadata_response(nodes, topics), now)
    return asked.partial


def names(asked: MetadataUpdateRequest) -> list[str | None]:
    """The topics that a request asks for."""
    return [topic.name for topic in asked.body.topics or ()]


def with_error(name: str, code: ErrorCode) -> MetadataResponse:
    response = metadata_response([NODE])
    response.topics.append(MetadataResponseTopic(error_code=int(code), name=name))
    return response


class TestWhenToAsk:
    def test_at_first_at_once_then_after_the_maximum_age(self) -> None:
        """PP-23: metadata.max.age.ms"""
        metadata = make()
        assert metadata.time_to_next_update(START) == 0
        answer(metadata, START)
        assert metadata.time_to_next_update(START) == MAX_AGE
        assert metadata.time_to_next_update(START + MAX_AGE) == 0

    def test_a_request_is_held_back_by_the_back_off(self) -> None:
        """PP-23: retry.backoff.ms"""
        metadata = make()
        answer(metadata, START)
        version = metadata.request_update()
        assert version == metadata.update_version
        assert metadata.time_to_next_update(START) == 100
        assert metadata.time_to_next_update(START + 100) == 0

    def test_new_topics_are_asked_for_at_once(self) -> None:
        metadata = make()
        answer(metadata, START)
        metadata.add_topic("new", START)
        assert metadata.time_to_next_update(START) == 0

    def test_failures_back_off_exponentially(self) -> None:
        metadata = make({"retry.backoff.max.ms": 1000})
        for expected in (100, 200, 400, 800):
            metadata.failed_update(START)
            assert expected * 0.8 <= metadata.time_to_next_update(START) <= expected * 1.2

    def test_answers_without_news_back_off_too(self) -> None:
        metadata = make({"retry.backoff.max.ms": 1000})
        metadata.add_topic("t", START)
        waits = []
        for _ in range(5):
            answer(metadata, START, {"t": [(1, 0)]})
            metadata.request_update()
            waits.append(metadata.time_to_next_update(START))
        assert waits[0] <= 120
        assert waits[-1] >= 640


class TestUpdates:
    def test_a_partial_update_asks_for_new_topics_only_and_is_merged(self) -> None:
        """PP-23"""
        metadata = make()
        metadata.add_topic("old", START)
        assert not answer(metadata, START, {"old": [(1, 0)]})
        metadata.add_topic("new", START)
        asked = metadata.next_request(START)
        assert asked.partial
        assert names(asked) == ["new"]
        assert answer(metadata, START, {"new": [(2, 0), (1, 0)]})
        cluster = metadata.fetch()
        assert cluster.leader_for("old", 0) == NODE
        assert cluster.leader_for("new", 0) == OTHER
        assert metadata.time_to_next_update(START) > 100

    def test_a_full_update_replaces_what_was_known(self) -> None:
        """PP-23"""
        metadata = make()
        for topic in ("a", "b"):
            metadata.add_topic(topic, START)
        answer(metadata, START, {"a": [(1, 0)], "b": [(1, 0)]})
        metadata.request_update()
        assert not answer(metadata, START, {"a": [(1, 0)]}, nodes=[NODE])
        assert metadata.fetch().partitions_for("b") == ()
        assert metadata.fetch().nodes == (NODE,)

    def test_a_topic_added_while_a_request_is_in_flight_is_asked_for_next(self) -> None:
        metadata = make()
        metadata.add_topic("first", START)
        asked = metadata.next_request(START)
        metadata.add_topic("second", START)
        metadata.update(asked, metadata_response([NODE], {"first": [(1, 0)]}), START)
        assert metadata.next_request(START).partial
        assert names(metadata.next_request(START)) == ["second"]

    def test_idle_topics_are_forgotten(self) -> None:
        """PP-23: topic idle expiry"""
        metadata = make(idle_ms=1000)
        metadata.add_topic("busy", START)
        metadata.add_topic("idle", START)
        answer(metadata, START, {"busy": [(1, 0)], "idle": [(1, 0)]})
        metadata.add_topic("busy", START + 900)
        metadata.request_update()
        answer(metadata, START + 1000, {"busy": [(1, 0)], "idle": [(1, 0)]})
        assert metadata.topics == ["busy"]
        assert metadata.fetch().partitions_for("idle") == ()
        assert metadata.last_seen_epoch("idle", 0) is None

    def test_set_topics_asks_for_those_only(self) -> None:
        metadata = make()
        metadata.set_topics(["a", "b"])
        answer(metadata, START, {"a": [(1, 0)], "b": [(1, 0)]})
        metadata.set_topics(["b"])
        assert metadata.time_to_next_update(START) > 100
        metadata.request_update()
        assert names(metadata.next_request(START)) == ["b"]

    def test_all_topics(self) -> None:
        metadata = make()
        metadata.want_all_topics()
        assert metadata.next_request(START).body.topics is None
        answer(metadata, START, {"x": [(1, 0)]})
        assert metadata.fetch().leader_for("x", 0) == NODE

    def test_listeners_hear_of_each_update(self) -> None:
        """PP-23"""
        metadata = make()
        seen = []
        metadata.on_update(seen.append)
        answer(metadata, START)
        assert seen == [metadata.fetch()]

    def test_a_topic_without_leader_is_asked_for_again_soon(self) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        metadata.update(metadata.next_request(START), with_error("t", ErrorCode.LEADER_NOT_AVAILABLE), START)
        assert metadata.time_to_next_update(START) == 100
        metadata.raise_for_topic("t")

    @pytest.mark.parametrize("code", [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    def test_an_error_that_time_does_not_cure_is_raised(self, code: ErrorCode) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        metadata.update(metadata.next_request(START), with_error("t", code), START)
        with pytest.raises(KafkaError, match=r"t$") as caught:
            metadata.raise_for_topic("t")
        assert caught.value.code is code
        metadata.raise_for_topic("other")

    def test_an_error_code_from_the_future_is_no_accident(self) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        response = metadata_response([NODE])
        response.topics.append(MetadataResponseTopic(error_code=31000, name="t"))
        metadata.update(metadata.next_request(START), response, START)
        metadata.raise_for_topic("t")


class TestLeaderEpochs:
    def test_an_older_epoch_is_ignored(self) -> None:
        """PP-23: stale leader epochs"""
        metadata = make()
        metadata.add_topic("t", START)
        answer(metadata, START, {"t": [(1, 5)]})
        answer(metadata, START, {"t": [(2, 4)]})
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(NODE, 5)
        answer(metadata, START, {"t": [(2, 6)]})
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(OTHER, 6)

    def test_a_topic_made_anew_starts_over(self) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        for leader, epoch in ((1, 5), (2, 0)):
            response = metadata_response([NODE, OTHER], {"t": [(leader, epoch)]})
            response.topics[0].topic_id = uuid.UUID(int=epoch + 1)
            metadata.update(metadata.next_request(START), response, START)
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(OTHER, 0)

    def test_brokers_without_epochs_are_believed(self) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        answer(metadata, START, {"t": [(1, 5)]})
        answer(metadata, START, {"t": [(2, -1)]})
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(OTHER, -1)

    def test_an_epoch_seen_elsewhere_makes_the_leader_unknown_until_metadata_caught_up(self) -> None:
        metadata = make()
        metadata.add_topic("t", START)
        answer(metadata, START, {"t": [(1, 5)]})
        assert not metadata.update_last_seen_epoch("t", 0, 5)
        assert not metadata.update_last_seen_epoch("unknown", 0, 9)
        assert metadata.update_last_seen_epoch("t", 0, 7)
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(None, 7)
        assert metadata.time_to_next_update(START) == 100
        answer(metadata, START, {"t": [(2, 7)]})
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(OTHER, 7)

    def test_newer_leaders_named_by_other_answers_are_taken(self) -> None:
        """KIP-951"""
        metadata = make()
        metadata.add_topic("t", START)
        answer(metadata, START, {"t": [(1, 5), (1, 5)]})
        third = Node(3, "three", 9092)
        leaders = {("t", 0): (3, 6), ("t", 1): (2, 4), ("x", 0): (1, 9), ("t", 5): (8, 9)}
        assert metadata.update_leaders(leaders, [third]) == {("t", 0)}
        assert metadata.current_leader("t", 0) == LeaderAndEpoch(third, 6)
        assert metadata.current_leader("t", 1) == LeaderAndEpoch(NODE, 5)


class TestWaiting:
    def test_a_waiting_thread_is_woken_by_an_update(self) -> None:
        metadata = make()
        version = metadata.request_update()
        timer = threading.Timer(0.05, answer, (metadata, START))
        timer.start()
        metadata.await_update(version, 10)
        timer.join()
        assert metadata.update_version == version + 1

    def test_a_time_out_names_the_addresses_tried(self) -> None:
        """PP-24: broker away at the start"""
        metadata = make()
        metadata.failures.add("boot:9092", "connection refused")
        with pytest.raises(ClientTimeout, match=r"within 1 ms; tried boot:9092 \(connection refused\)"):
            metadata.await_update(metadata.update_version, 0.001)

    def test_failures_are_bounded_and_cleared_by_an_answer(self) -> None:
        metadata = make()
        for port in range(100):
            metadata.failures.add(f"h:{port}", "no")
        assert metadata.failures.words().count("no") == 16
        answer(metadata, START)
        assert metadata.failures.words() == ""
