"""Problems with topics are told now and then, and only when they last."""

from __future__ import annotations

import pytest

from barnabas.client.topic_problems import PATIENCE_MS, REPEAT_MS, TopicProblems
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponseTopic

UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
INVALID = int(ErrorCode.INVALID_TOPIC_EXCEPTION)


def topic(code: int, name: str = "orders") -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(error_code=code, name=name)]


@pytest.fixture
def problems() -> TopicProblems:
    return TopicProblems()


def test_a_topic_that_comes_within_a_moment_is_not_spoken_of(
    problems: TopicProblems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.note(topic(UNKNOWN), 0)
    problems.note(topic(UNKNOWN), PATIENCE_MS - 1)
    problems.note(topic(0), PATIENCE_MS + 1)
    problems.note(topic(UNKNOWN), PATIENCE_MS + 2)  # a new problem, with a patience of its own
    assert caplog.text == ""


def test_a_problem_that_lasts_is_told_now_and_then(problems: TopicProblems, caplog: pytest.LogCaptureFixture) -> None:
    for now_ms in range(0, PATIENCE_MS + 2 * REPEAT_MS + 1, 100):
        problems.note(topic(UNKNOWN), now_ms)
    line = "The brokers have no metadata of these topics: orders (UNKNOWN_TOPIC_OR_PARTITION); asking again"
    assert [record.getMessage() for record in caplog.records] == [line] * 3


def test_what_will_not_pass_by_itself_is_told_at_once(
    problems: TopicProblems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.note(topic(UNKNOWN), 0)
    problems.note(topic(INVALID) + topic(UNKNOWN, "other"), 1)
    assert "orders (INVALID_TOPIC_EXCEPTION)" in caplog.text
    assert "other" not in caplog.text
