"""Consumers that a Python worker keeps for its next task: used again, by one task at a time, never after a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from barnabas.spark.worker import ConsumerCache

SETTINGS = {"bootstrap.servers": "127.0.0.1:9"}


@pytest.fixture
def consumers() -> Iterator[ConsumerCache]:
    cache = ConsumerCache(most_idle=2)
    yield cache
    cache.close()


def test_the_next_task_of_the_same_topic_gets_the_same_consumer(consumers: ConsumerCache) -> None:
    with consumers.borrow(SETTINGS, "t", "id") as first, consumers.borrow(SETTINGS, "t", "id") as beside:
        assert beside is not first
    with consumers.borrow(SETTINGS, "t", "id") as again:
        assert again in (first, beside)


@pytest.mark.parametrize(
    ("settings", "topic", "topic_id"),
    [
        ({**SETTINGS, "client.id": "x"}, "t", "id"),
        (SETTINGS, "u", "id"),
        (SETTINGS, "t", "another"),
        (SETTINGS, "t", None),
    ],
    ids=["settings", "topic", "made anew", "no id"],
)
def test_anything_else_gets_another(
    consumers: ConsumerCache, settings: dict[str, object], topic: str, topic_id: str
) -> None:
    with consumers.borrow(SETTINGS, "t", "id") as first:
        pass
    with consumers.borrow(settings, topic, topic_id) as other:
        assert other is not first


def test_a_task_that_fails_closes_its_consumer(consumers: ConsumerCache) -> None:
    with pytest.raises(ValueError, match="row"), consumers.borrow(SETTINGS, "t", "id") as consumer:
        raise ValueError("a bad row")
    assert len(consumers) == 0
    with pytest.raises(Exception, match="closed"):
        consumer.assign([("t", 0)])


def test_only_the_last_few_wait(consumers: ConsumerCache) -> None:
    for name in "abc":
        with consumers.borrow(SETTINGS, name, None) as consumer:
            pass
    assert len(consumers) == 2
    with consumers.borrow(SETTINGS, "c", None) as again:
        assert again is consumer


def test_a_forked_child_has_none_of_them(consumers: ConsumerCache) -> None:
    with consumers.borrow(SETTINGS, "t", "id"):
        pass
    child = os.fork()
    if not child:
        consumers.forget()
        os._exit(len(consumers))
    assert os.waitpid(child, 0)[1] == 0
    assert len(consumers) == 1
