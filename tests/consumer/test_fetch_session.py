"""Fetch sessions: full, then only changes; lost and begun again."""

from __future__ import annotations

import uuid

import pytest

from barnabas.consumer.fetch_session import FetchSession, Wanted
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse

ID = uuid.UUID(int=7)


def row(offset: int, topic_id: uuid.UUID = ID) -> Wanted:
    return Wanted(topic_id, offset, 0, 1000)


def build(session: FetchSession, wanted: dict[tuple[str, int], Wanted]) -> tuple[int, int, dict[int, int], list[int]]:
    """(session, epoch, offsets asked for by partition, partitions forgotten)"""
    request = session.build(wanted, FetchRequest(max_wait_ms=1, min_bytes=1))
    asked = {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}
    gone = [number for topic in request.forgotten_topics_data for number in topic.partitions]
    return request.session_id, request.session_epoch, asked, gone


def answer(session: FetchSession, session_id: int = 0, error: int = 0) -> bool:
    return session.take(FetchResponse(throttle_time_ms=0, session_id=session_id, error_code=error))


def test_after_a_full_request_only_changes_are_sent() -> None:
    session = FetchSession()
    assert build(session, {("t", 0): row(5), ("t", 1): row(6)}) == (0, 0, {0: 5, 1: 6}, [])
    assert answer(session, 99)
    assert build(session, {("t", 0): row(9), ("t", 1): row(6)}) == (99, 1, {0: 9}, [])
    answer(session, 99)
    assert build(session, {("t", 0): row(9)}) == (99, 2, {}, [1])
    answer(session, 99)
    assert build(session, {("t", 0): row(9), ("t", 2): row(1)}) == (99, 3, {2: 1}, [])


def test_a_broker_without_sessions_gets_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(2):
        assert build(session, {("t", 0): row(5)}) == (0, 0, {0: 5}, [])
        answer(session, 0)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 99),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 99),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 0),
    ],
)
def test_a_lost_session_is_begun_again(error: ErrorCode, kept: int) -> None:
    session = FetchSession()
    build(session, {("t", 0): row(5)})
    answer(session, 99)
    build(session, {("t", 0): row(5)})
    assert not answer(session, 0, int(error))
    assert build(session, {("t", 0): row(5)}) == (kept, 0, {0: 5}, [])


def test_a_broken_connection_begins_again_in_place_of_the_old_session() -> None:
    session = FetchSession()
    build(session, {("t", 0): row(5)})
    answer(session, 99)
    session.lost_connection()
    assert build(session, {("t", 0): row(5)}) == (99, 0, {0: 5}, [])


def test_a_topic_made_anew_is_forgotten_and_asked_for() -> None:
    session = FetchSession()
    build(session, {("t", 0): row(5)})
    answer(session, 99)
    assert build(session, {("t", 0): row(0, uuid.UUID(int=8))}) == (99, 1, {0: 0}, [0])


def test_a_session_names_topics_in_one_way() -> None:
    session = FetchSession()
    build(session, {("t", 0): row(5)})
    answer(session, 99)
    assert session.uses_ids
    assert build(session, {("t", 0): row(5, uuid.UUID(int=0))}) == (99, 0, {0: 5}, [])
    assert not session.uses_ids


def test_the_end_of_a_session() -> None:
    session = FetchSession()
    assert session.build_close(FetchRequest(max_wait_ms=0, min_bytes=0)) is None
    build(session, {("t", 0): row(5)})
    answer(session, 99)
    request = session.build_close(FetchRequest(max_wait_ms=0, min_bytes=0))
    assert request is not None
    assert (request.session_id, request.session_epoch, request.topics) == (99, -1, [])
