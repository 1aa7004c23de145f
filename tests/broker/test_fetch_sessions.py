"""Fetch sessions (KIP-227): errors, forgotten topics, what an incremental answer leaves out, eviction; against a model."""

from __future__ import annotations

import random
import threading
import uuid
from typing import Any

import pytest

from barnabas.broker.fetch_sessions import MAX_EPOCH, FetchContext, FetchSessionCache, Results, next_epoch
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData

NAMES = 12
IDS = 13
TOPIC_ID = uuid.UUID(int=77)


def fetch(session_id: int = 0, epoch: int = 0, forget: tuple[Any, ...] = (), **topics: dict[int, int]) -> FetchRequest:
    """A request for partitions by topic name: `fetch(t={0: 5})` reads t-0 from offset 5."""
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=100) for p, o in at.items()
                ],
            )
            for name, at in topics.items()
        ],
        forgotten_topics_data=[ForgottenTopic(topic=name, partitions=list(indexes)) for name, indexes in forget],
    )


def fetch_by_id(session_id: int = 0, epoch: int = 0, forget: bool = False) -> FetchRequest:
    gone = [ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])] if forget else []
    wanted = [] if forget else [FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0)])]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=wanted, forgotten_topics_data=gone)


def data(partition: int = 0, hw: int = 10, records: bytes = b"", code: int = 0, start: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=partition, high_watermark=hw, log_start_offset=start, records=records, error_code=code
    )


def results(context: FetchContext, **change: Any) -> Results:
    return [(wanted, data(wanted.key[1], **change)) for wanted in context.partitions]


def keys(found: Results) -> list[Any]:
    return [wanted.key for wanted, _ in found]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> FetchSessionCache:
    return FetchSessionCache(clock)


def new_session(cache: FetchSessionCache, **topics: dict[int, int]) -> int:
    context = cache.new_context(fetch(0, 0, (), **topics), NAMES)
    code, session_id, _ = context.finish(results(context))
    assert code == ErrorCode.NONE
    return session_id


def test_a_fetch_without_a_session_keeps_no_state(cache: FetchSessionCache) -> None:
    context = cache.new_context(fetch(epoch=-1, t={0: 1, 1: 2}), NAMES)
    assert keys(results(context)) == [("t", 0), ("t", 1)]
    assert context.finish(results(context))[:2] == (ErrorCode.NONE, 0)
    assert context.throttled() == (ErrorCode.NONE, 0)
    assert len(cache) == 0


def test_a_full_fetch_makes_a_session_and_answers_everything(cache: FetchSessionCache) -> None:
    context = cache.new_context(fetch(t={0: 1, 1: 2}, u={0: 3}), NAMES)
    code, session_id, answered = context.finish(results(context))
    assert code == ErrorCode.NONE
    assert session_id > 0
    assert keys(answered) == [("t", 0), ("t", 1), ("u", 0)]
    assert (len(cache), cache.partitions) == (1, 3)


def test_an_incremental_answer_leaves_out_what_has_not_changed(cache: FetchSessionCache) -> None:
    """Records, a new high watermark, a new log start and an error are answered; the rest is not."""
    session_id = new_session(cache, t={0: 0, 1: 0, 2: 0, 3: 0, 4: 0})
    context = cache.new_context(fetch(session_id, 1), NAMES)
    assert len(context.partitions) == 5
    changes: list[dict[str, Any]] = [
        {},
        {"records": b"x"},
        {"hw": 11},
        {"start": 2},
        {"code": 3, "hw": -1, "start": -1},
    ]
    found = [(wanted, data(wanted.key[1], **changes[wanted.key[1]])) for wanted in context.partitions]
    assert len(context.to_answer(found)) == 4
    code, answer_id, answered = context.finish(found)
    assert (code, answer_id) == (ErrorCode.NONE, session_id)
    assert keys(answered) == [("t", 1), ("t", 2), ("t", 3), ("t", 4)]


def test_after_an_error_the_partition_is_answered_again_when_it_is_gone(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0})
    context = cache.new_context(fetch(session_id, 1), NAMES)
    assert len(context.finish(results(context, code=6))[2]) == 1
    context = cache.new_context(fetch(session_id, 2), NAMES)
    assert len(context.finish(results(context))[2]) == 1  # the same high watermark as before the error
    context = cache.new_context(fetch(session_id, 3), NAMES)
    assert context.finish(results(context))[2] == []


def test_an_unknown_session_is_error_70(cache: FetchSessionCache) -> None:
    context = cache.new_context(fetch(123, 4), NAMES)
    assert context.partitions == []
    assert context.finish([]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert context.throttled() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_another_epoch_is_error_71_and_the_session_lives_on(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0})
    for epoch in (2, 7, MAX_EPOCH):
        context = cache.new_context(fetch(session_id, epoch), NAMES)
        assert context.finish([])[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.new_context(fetch(session_id, 1), NAMES).finish([])[0] == ErrorCode.NONE


def test_mixing_names_and_ids_in_a_session_is_error_106(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0})
    assert cache.new_context(fetch_by_id(session_id, 1), IDS).finish([])[0] == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    context = cache.new_context(fetch_by_id(), IDS)
    by_id = context.finish(results(context))[1]
    assert cache.new_context(fetch(by_id, 1), NAMES).finish([])[0] == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_sessions_by_topic_id_remember_and_forget(cache: FetchSessionCache) -> None:
    """KIP-516."""
    context = cache.new_context(fetch_by_id(), IDS)
    session_id = context.finish(results(context))[1]
    context = cache.new_context(FetchRequest(session_id=session_id, session_epoch=1), IDS)
    assert keys(results(context)) == [(TOPIC_ID, 0)]
    context = cache.new_context(fetch_by_id(session_id, 2, forget=True), IDS)
    assert context.partitions == []
    assert len(cache) == 0


def test_an_incremental_request_adds_changes_and_forgets(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0, 1: 0})
    context = cache.new_context(fetch(session_id, 1, forget=(("t", (0,)), ("gone", (9,))), t={1: 5}, u={3: 7}), NAMES)
    wanted = {partition.key: partition.fetch_offset for partition in context.partitions}
    assert wanted == {("t", 1): 5, ("u", 3): 7}


def test_a_session_without_partitions_ends(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0})
    context = cache.new_context(fetch(session_id, 1, forget=(("t", (0,)),)), NAMES)
    assert context.finish([]) == (ErrorCode.NONE, 0, [])
    assert cache.new_context(fetch(session_id, 2), NAMES).finish([])[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(cache: FetchSessionCache, epoch: int) -> None:
    session_id = new_session(cache, t={0: 0})
    context = cache.new_context(fetch(session_id, epoch, t={0: 0}), NAMES)
    _, new_id, _ = context.finish(results(context))
    assert new_id != session_id
    assert (new_id == 0) == (epoch == -1)
    assert cache.new_context(fetch(session_id, 1), NAMES).finish([])[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_answer_that_comes_too_late_is_error_71(cache: FetchSessionCache) -> None:
    """The client gave up a long poll and used the session on a new connection meanwhile."""
    session_id = new_session(cache, t={0: 0})
    late = cache.new_context(fetch(session_id, 1), NAMES)
    cache.new_context(fetch(session_id, 2), NAMES)
    assert late.finish(results(late, records=b"x")) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])
    assert late.throttled() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)


def test_a_throttled_fetch_leaves_the_session_as_it_is(cache: FetchSessionCache) -> None:
    """RP-39: what was not sent is sent next time."""
    session_id = new_session(cache, t={0: 0})
    context = cache.new_context(fetch(session_id, 1), NAMES)
    assert len(context.to_answer(results(context, hw=50))) == 1
    assert context.throttled() == (ErrorCode.NONE, session_id)
    context = cache.new_context(fetch(session_id, 2), NAMES)
    assert len(context.finish(results(context, hw=50))[2]) == 1


def test_partitions_with_data_go_to_the_end_so_that_all_get_their_turn(cache: FetchSessionCache) -> None:
    session_id = new_session(cache, t={0: 0, 1: 0, 2: 0})
    context = cache.new_context(fetch(session_id, 1), NAMES)
    found = [(w, data(w.key[1], records=b"x" if w.key[1] == 0 else b"")) for w in context.partitions]
    context.finish(found)
    context = cache.new_context(fetch(session_id, 2), NAMES)
    assert [wanted.key[1] for wanted in context.partitions] == [1, 2, 0]


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(MAX_EPOCH) == 1


def test_a_full_cache_answers_session_0(clock: ManualClock) -> None:
    cache = FetchSessionCache(clock, max_entries=2)
    first, second = new_session(cache, t={0: 0, 1: 0}), new_session(cache, t={0: 0, 1: 0})
    assert first > 0
    assert second > 0
    assert new_session(cache, t={0: 0, 1: 0}) == 0
    assert new_session(cache, t={0: 0, 1: 0, 2: 0}) == 0  # larger, but the others are still young
    assert cache.evictions == 0


def test_a_cache_without_slots_never_makes_a_session(clock: ManualClock) -> None:
    assert new_session(FetchSessionCache(clock, max_entries=0), t={0: 0}) == 0


def test_a_stale_session_is_evicted_oldest_first(clock: ManualClock) -> None:
    cache = FetchSessionCache(clock, max_entries=2)
    old = new_session(cache, t={0: 0})
    clock.advance(60)
    recent = new_session(cache, t={0: 0})
    clock.advance(60.5)
    assert new_session(cache, t={0: 0}) > 0
    assert cache.evictions == 1
    assert cache.new_context(fetch(old, 1), NAMES).finish([])[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.new_context(fetch(recent, 1), NAMES).finish([])[0] == ErrorCode.NONE


def test_a_larger_session_evicts_a_smaller_one_that_is_not_young(clock: ManualClock) -> None:
    cache = FetchSessionCache(clock, max_entries=2)
    small, large = new_session(cache, t={0: 0}), new_session(cache, t={0: 0, 1: 0, 2: 0})
    for epoch in (1, 2, 3):
        clock.advance(61)
        for session_id in (small, large):
            cache.new_context(fetch(session_id, epoch), NAMES)
    assert new_session(cache, t={0: 0}) == 0  # not larger
    assert new_session(cache, t={0: 0, 1: 0}) > 0
    assert cache.new_context(fetch(small, 4), NAMES).finish([])[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.new_context(fetch(large, 4), NAMES).finish([])[0] == ErrorCode.NONE


class Model:
    """A client and a broker in the simplest words: what the client was last told about each partition it wants."""

    def __init__(self) -> None:
        self.wanted: dict[tuple[str, int], int] = {}
        self.told: dict[tuple[str, int], tuple[int, int]] = {}

    def answer(self, state: dict[tuple[str, int], tuple[int, int, int, bytes]]) -> set[tuple[str, int]]:
        """Keys that must be in the answer, and remember that they were told."""
        must = set()
        for key in self.wanted:
            hw, start, code, records = state[key]
            if records or code or self.told.get(key) != (hw, start):
                must.add(key)
                self.told[key] = (-1, start) if code else (hw, start)
        return must


def test_random_sessions_follow_the_model(cache: FetchSessionCache) -> None:
    rng = random.Random(3)
    everything = [(topic, index) for topic in "abc" for index in range(4)]
    for _ in range(60):
        model = Model()
        model.wanted = dict.fromkeys(rng.sample(everything, rng.randrange(1, 9)), 0)
        session_id = 0
        forget: list[tuple[str, int]] = []
        added = dict(model.wanted)
        for epoch in range(rng.randrange(2, 15)):
            state = {
                key: (rng.randrange(3), rng.randrange(2), rng.choice((0, 0, 0, 6)), rng.choice((b"", b"", b"x")))
                for key in everything
            }
            by_topic: dict[str, dict[int, int]] = {}
            for (topic, index), offset in added.items():
                by_topic.setdefault(topic, {})[index] = offset
            gone = tuple((topic, (index,)) for topic, index in forget)
            context = cache.new_context(fetch(session_id, epoch, gone, **by_topic), NAMES)
            assert {wanted.key: wanted.fetch_offset for wanted in context.partitions} == model.wanted
            found = []
            for wanted in context.partitions:
                hw, start, code, records = state[wanted.key]  # type: ignore[index]
                found.append((wanted, data(wanted.key[1], hw=hw, start=start, code=code, records=records)))
            code, session_id, answered = context.finish(found)
            must = model.answer(state)
            if epoch == 0:
                # A full answer holds everything; what was in error is told again either way.
                assert set(keys(answered)) == set(model.wanted)
                model.told = {key: state[key][:2] for key in model.wanted}
            else:
                assert set(keys(answered)) == must
            assert code == ErrorCode.NONE
            forget = rng.sample(sorted(model.wanted), rng.randrange(len(model.wanted)))
            added = {rng.choice(everything): rng.randrange(9) for _ in range(rng.randrange(3))}
            added = {key: offset for key, offset in added.items() if key not in forget}
            for key in forget:
                del model.wanted[key]
                model.told.pop(key, None)
            model.wanted.update(added)


def test_many_threads_may_use_the_cache_at_once(clock: ManualClock) -> None:
    cache = FetchSessionCache(clock, max_entries=10)
    failures: list[BaseException] = []

    def consumer(number: int) -> None:
        try:
            for _ in range(40):
                session_id = new_session(cache, t={0: 0, number: 1})
                for epoch in range(1, 5):
                    context = cache.new_context(fetch(session_id, epoch), NAMES)
                    code, _, _ = context.finish(results(context, hw=epoch))
                    assert code in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                cache.new_context(fetch(session_id, -1), NAMES)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=consumer, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert len(cache) <= 10
