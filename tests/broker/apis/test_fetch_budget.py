"""Fetch: what one request, one session and one wait may cost. Work is counted, not timed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.apis import fetch as fetch_api
from barnabas.broker.apis.fetch import DelayedFetch
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.log.files import FileSystem
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.testing import EmbeddedBroker
from tests.broker.apis.test_fetch import codes, fetch, offsets, parts
from tests.broker.apis.test_produce import produce
from tests.broker.data_broker import Asked, DataBroker, batch

ONE = batch([b"hello"])
MANY = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        opened.create("t", 2)
        yield opened


def unknown(count: int, **fields: Any) -> FetchRequest:
    """A request for many partitions of a topic that is not there."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(count)]
    return FetchRequest(min_bytes=1, topics=[FetchTopic(topic="nowhere", partitions=wanted)], **fields)


def heavy(broker: DataBroker, body: FetchRequest) -> Asked:
    """As a handler takes it from the heavy lane."""
    asked = broker.receive(body, 12)
    asked.heavy = True
    broker.run(asked)
    return asked


def finish(broker: DataBroker, waiting: Asked) -> None:
    """The handler that takes it up again."""
    assert cast(Any, waiting.request_channel.take(0)) is waiting
    broker.run(waiting)


def weight(broker: DataBroker, body: FetchRequest) -> int:
    return fetch_api.weigh(body, broker.services)


# Sessions.


def test_partitions_of_unknown_topics_take_no_place(broker: DataBroker) -> None:
    for _ in range(5):
        answer = broker.ask(unknown(MANY, session_epoch=0), 12)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * MANY
    sessions = broker.services.fetch_sessions
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_nor_when_they_are_added_to_a_session(broker: DataBroker) -> None:
    sessions = broker.services.fetch_sessions
    session_id = broker.ask(fetch(("t", 0, 0), session_epoch=0), 12).session_id
    assert session_id
    answer = broker.ask(unknown(MANY, session_id=session_id, session_epoch=1), 12)
    assert (answer.session_id, len(codes(answer))) == (0, MANY)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_all_sessions_together_remember_a_bounded_number_of_partitions(broker: DataBroker) -> None:
    broker.create("wide", 40)
    broker.services.fetch_sessions = sessions = FetchSessionCache(broker.clock, max_partitions=100)
    wanted = [("wide", index, 0) for index in range(40)]
    ids = [broker.ask(fetch(*wanted, session_epoch=0), 12).session_id for _ in range(5)]
    assert [bool(session_id) for session_id in ids] == [True, True, False, False, False]
    assert sessions.partitions == 80
    # A session cannot grow beyond that either: it ends, and its client begins anew without one.
    small = broker.ask(fetch(("wide", 0, 0), session_epoch=0), 12).session_id
    answer = broker.ask(fetch(*wanted, session_id=small, session_epoch=1), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 80


def test_the_setting_bounds_them_in_a_broker() -> None:
    with EmbeddedBroker(config={"barnabas.fetch.session.cache.partitions": 7}) as broker:
        assert broker.server.services.fetch_sessions._max_partitions == 7


def test_a_few_bytes_that_stand_for_a_large_session_are_as_heavy_as_it(broker: DataBroker) -> None:
    broker.create("wide", MANY)
    wanted = [("wide", index, 0) for index in range(MANY)]
    full = fetch(*wanted, session_epoch=0)
    assert weight(broker, full) == 0  # its own elements are counted when it is decoded
    session_id = broker.ask(full, 12).session_id
    for body in (
        FetchRequest(session_id=session_id, session_epoch=1),
        FetchRequest(session_id=session_id, session_epoch=9),
    ):
        assert weight(broker, body) == MANY
    assert weight(broker, FetchRequest(session_id=session_id + 1, session_epoch=1)) == 0
    assert weight(broker, FetchRequest(session_epoch=-1)) == 0


# Waiting.


def test_a_heavy_fetch_is_read_by_a_handler_and_not_by_who_appends(broker: DataBroker) -> None:
    waiting = heavy(broker, fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=10_000))
    assert waiting.answers == []
    broker.ask(produce(("t", 0, ONE)), 9)
    broker.ask(produce(("t", 1, ONE)), 9)
    assert waiting.answers == []
    assert waiting.request_channel.depth() == 1
    finish(broker, waiting)
    assert [offsets(part) for part in parts(waiting.answer)] == [[0], [0]]
    assert not broker.fetch_purgatory.watchers
    broker.advance(11)
    assert waiting.request_channel.depth() == 0


def test_a_heavy_fetch_whose_time_is_over_is_read_by_a_handler_too(broker: DataBroker) -> None:
    waiting = heavy(broker, fetch(("t", 0, 0), max_wait_ms=1000))
    broker.advance(1.1)
    assert waiting.answers == []
    finish(broker, waiting)
    assert len(parts(waiting.answer)) == 1
    assert not broker.fetch_purgatory.watchers


def test_a_heavy_fetch_whose_client_goes_on_its_way_back_is_not_answered(broker: DataBroker) -> None:
    waiting = heavy(broker, fetch(("t", 0, 0), max_wait_ms=10_000))
    operation: DelayedFetch = waiting.connection.waiting
    broker.ask(produce(("t", 0, ONE)), 9)
    assert operation.cancel()
    finish(broker, waiting)
    assert waiting.answers == []
    assert not broker.fetch_purgatory.watchers


def test_a_heavy_fetch_is_answered_at_once_when_the_handlers_have_gone(broker: DataBroker) -> None:
    waiting = heavy(broker, fetch(("t", 0, 0), max_wait_ms=10_000))
    waiting.request_channel.close()
    assert broker.fetch_purgatory.complete_all() == 1
    assert len(parts(waiting.answer)) == 1


def test_the_wait_of_a_client_is_bounded(broker: DataBroker) -> None:
    waiting = broker.send(fetch(("t", 0, 0), max_wait_ms=2**31 - 1), 12)
    broker.advance(299)
    assert waiting.answers == []
    broker.advance(2)
    assert len(parts(waiting.answer)) == 1


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each read of a file of the log."""
    found: list[int] = []
    pread = FileSystem.pread

    def counted(self: FileSystem, fd: int, length: int, position: int) -> bytes:
        found.append(position)
        return pread(self, fd, length, position)

    monkeypatch.setattr(FileSystem, "pread", counted)
    return found


def test_an_append_reads_nothing_for_fetches_that_wait_for_more(broker: DataBroker, reads: list[int]) -> None:
    """Neither of its own partition nor of the others that they name: positions tell how much has come."""
    broker.fill("t", b"x", partition=1)
    need = len(batch([b"x"])) + 5 * len(ONE)
    body = fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=10_000, min_bytes=need)
    waiting = [broker.send(body, 12) for _ in range(100)]
    reads.clear()
    for _ in range(4):
        broker.ask(produce(("t", 0, ONE)), 9)
    assert not any(asked.answers for asked in waiting)
    assert not reads
    broker.ask(produce(("t", 0, ONE)), 9)
    assert reads
    assert all(list(map(offsets, parts(asked.answer))) == [[0, 1, 2, 3, 4], [0]] for asked in waiting)


def test_an_append_asks_nobody_who_waits_for_another_partition(broker: DataBroker) -> None:
    for _ in range(500):
        assert broker.send(fetch(("t", 1, 0), max_wait_ms=10_000, min_bytes=1 << 20), 12).answers == []
    assert list(broker.fetch_purgatory.watchers) == [("t", 1)]
    assert broker.fetch_purgatory.size == 500
    broker.ask(produce(("t", 0, ONE)), 9)
    assert broker.fetch_purgatory.delayed == 500


def test_reading_in_slices_covers_all_partitions(broker: DataBroker) -> None:
    """More than one slice of everything: named, read, forgotten, answered."""
    topic_id = broker.create("wide", 600)
    wanted: list[tuple[str | uuid.UUID, int, int]] = [(topic_id, index, 0) for index in range(600)]
    first = broker.ask(fetch(*wanted, session_epoch=0), 13)
    assert [part.partition_index for part in parts(first)] == list(range(600))
    for index in (0, 255, 256, 599):
        broker.fill("wide", b"x", partition=index)
    body = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
    second = broker.ask(body, 13)
    assert [part.partition_index for part in parts(second)] == [0, 255, 256, 599]
    assert cast(Any, second).session_id == first.session_id
