"""Fetch (key 1): limits, waiting, sessions, ids, epochs, isolation, quotas; records come as regions of the log's file."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.apis import fetch as fetch_api
from barnabas.broker.apis.fetch import DelayedFetch
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.results import AbortedTransaction, ReadResult
from barnabas.errors import ErrorCode, KafkaError
from barnabas.net.send import FileRegion
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from barnabas.records.batch import iterate_batches
from tests.broker.data_broker import UNKNOWN_ID, Asked, DataBroker, batch

VALUES = [b"one", b"two" * 10, b"three" * 100]
SIZES = [len(batch([value])) for value in VALUES]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    """Topic t: two partitions, three batches of one record in partition 0."""
    with DataBroker(tmp_path / "data") as opened:
        opened.create("t", 2)
        opened.fill("t", *VALUES)
        yield opened


def fetch(*partitions: tuple[str | uuid.UUID, int, int], **fields: Any) -> FetchRequest:
    """A request for (topic name or id, partition, offset); `epoch`, `partition_max_bytes` apply to all of them."""
    epoch = fields.pop("epoch", -1)
    limit = fields.pop("partition_max_bytes", 1 << 20)
    topics = [
        FetchTopic(
            topic=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, uuid.UUID) else uuid.UUID(int=0),
            partitions=[
                FetchPartition(
                    partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=limit
                )
            ],
        )
        for topic, index, offset in partitions
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


def parts(answer: Any) -> list[Any]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def codes(answer: Any) -> list[int]:
    return [partition.error_code for partition in parts(answer)]


def offsets(partition: Any) -> list[int]:
    """Base offsets of the whole batches in a partition's records."""
    return [header.base_offset for header, _ in iterate_batches(partition.records)]


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_read_in_every_version(broker: DataBroker, version: int) -> None:
    topic_id = broker.catalog.snapshot.topics["t"].topic_id
    answer = broker.ask(fetch((topic_id if version >= 13 else "t", 0, 1)), version)
    (partition,) = parts(answer)
    assert offsets(partition) == [1, 2]
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 3, 3)
    assert partition.preferred_read_replica == -1
    assert (answer.throttle_time_ms, answer.error_code) == (0, 0)
    assert answer.responses[0].topic == ("" if version >= 13 else "t")
    if version >= 13:
        assert answer.responses[0].topic_id == topic_id


def test_records_are_a_region_of_the_file(broker: DataBroker) -> None:
    """RP-26: no byte of a record is touched."""
    request = Asked(1, 12, fetch(("t", 0, 0)), broker.clock)
    message = fetch_api.handle(cast(Any, request), broker.services)
    assert message is not None
    assert isinstance(message.responses[0].partitions[0].records, FileRegion)


def test_an_offset_inside_a_batch_gives_the_whole_batch(broker: DataBroker) -> None:
    broker.log("t", 1).append(memoryview(batch([b"a", b"b", b"c"])))
    (partition,) = parts(broker.ask(fetch(("t", 1, 2)), 12))
    assert offsets(partition) == [0]


def test_the_first_batch_is_given_whole_even_if_it_is_larger_than_the_limit(broker: DataBroker) -> None:
    (partition,) = parts(broker.ask(fetch(("t", 0, 2), max_bytes=1), 12))
    assert len(partition.records) == SIZES[2]
    (partition,) = parts(broker.ask(fetch(("t", 0, 2), partition_max_bytes=1), 12))
    assert len(partition.records) == SIZES[2]


def test_max_bytes_is_for_all_partitions_together(broker: DataBroker) -> None:
    broker.fill("t", *VALUES, partition=1)
    first, second = parts(broker.ask(fetch(("t", 0, 0), ("t", 1, 0), max_bytes=sum(SIZES) + SIZES[0]), 12))
    assert (len(first.records), len(second.records)) == (sum(SIZES), SIZES[0])
    first, second = parts(broker.ask(fetch(("t", 0, 0), ("t", 1, 0), max_bytes=SIZES[0]), 12))
    assert (len(first.records), len(second.records)) == (SIZES[0], 0)
    assert (second.error_code, second.high_watermark) == (0, 3)


def test_only_the_first_partition_with_data_may_exceed_the_limit(broker: DataBroker) -> None:
    broker.fill("t", *VALUES, partition=1)
    empty, first = parts(broker.ask(fetch(("t", 1, 3), ("t", 0, 0), max_bytes=1), 12))
    assert (len(empty.records), len(first.records)) == (0, SIZES[0])
    first, second = parts(broker.ask(fetch(("t", 0, 0), ("t", 1, 0), max_bytes=1), 12))
    assert (len(first.records), len(second.records)) == (SIZES[0], 0)


def test_the_partition_limit_is_kept(broker: DataBroker) -> None:
    (partition,) = parts(broker.ask(fetch(("t", 0, 0), partition_max_bytes=SIZES[0] + SIZES[1]), 12))
    assert len(partition.records) == SIZES[0] + SIZES[1]


def test_the_brokers_own_limit_is_kept(tmp_path: Path) -> None:
    with DataBroker(tmp_path / "limited", fetch_max_bytes=1024) as broker:
        broker.create("t")
        broker.fill("t", *[b"x" * 300] * 10)
        (partition,) = parts(broker.ask(fetch(("t", 0, 0), max_bytes=1 << 30), 12))
        assert len(partition.records) <= 1024


def test_errors_are_per_partition(broker: DataBroker) -> None:
    request = fetch(("t", 0, 0), ("t", 9, 0), ("nowhere", 0, 0), ("t", 0, 0))
    request.topics[3].partitions[0].partition = 1
    request.topics[3].partitions[0].fetch_offset = 77
    answer = broker.ask(request, 12)
    assert codes(answer) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]
    failed = parts(answer)[3]
    assert (failed.high_watermark, failed.log_start_offset, len(failed.records)) == (-1, -1, 0)


def test_offsets_outside_the_log_are_out_of_range(broker: DataBroker) -> None:
    broker.log("t").delete_records_before(2)
    for offset in (-1, 0, 1, 4):
        assert codes(broker.ask(fetch(("t", 0, offset)), 12)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
    (partition,) = parts(broker.ask(fetch(("t", 0, 2)), 12))
    assert partition.log_start_offset == 2


def test_an_unknown_topic_id_is_error_100(broker: DataBroker) -> None:
    """KIP-516."""
    assert codes(broker.ask(fetch((UNKNOWN_ID, 0, 0)), 13)) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_leader_epochs_are_checked(broker: DataBroker) -> None:
    """KIP-320."""
    assert codes(broker.ask(fetch(("t", 0, 0), epoch=0), 12)) == [ErrorCode.NONE]
    assert codes(broker.ask(fetch(("t", 0, 0), epoch=1), 12)) == [ErrorCode.UNKNOWN_LEADER_EPOCH]


@pytest.mark.parametrize("version", [4, 12, 14, 15, 18])
def test_a_fetch_in_the_name_of_a_replica_is_refused(broker: DataBroker, version: int) -> None:
    """CVE-2018-1288: no watermark moves, no session is made."""
    request = fetch(("t", 0, 0), ("t", 1, 0), session_epoch=0 if version >= 7 else -1)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
    else:
        request.replica_id = 2
    answer = broker.ask(request, version)
    assert codes(answer) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert all(len(partition.records) == 0 for partition in parts(answer))
    assert (answer.session_id, len(broker.services.fetch_sessions)) == (0, 0)


def test_many_fetches_in_the_name_of_a_replica_make_few_lines(
    broker: DataBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    began = time.monotonic()
    for _ in range(50):
        assert codes(broker.ask(fetch(("t", 0, 0), replica_id=2), 12)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert len(caplog.records) <= 2 + int(time.monotonic() - began)


def test_the_debugging_replica_of_the_tools_may_read(broker: DataBroker) -> None:
    assert codes(broker.ask(fetch(("t", 0, 0), replica_id=-2), 12)) == [ErrorCode.NONE]


def test_an_old_client_cannot_read_a_zstd_topic(broker: DataBroker) -> None:
    broker.create("z", compression_type="zstd")
    assert codes(broker.ask(fetch(("z", 0, 0)), 9)) == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
    assert codes(broker.ask(fetch(("z", 0, 0)), 10)) == [ErrorCode.NONE]


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
def test_a_storage_error_is_one_that_the_client_knows(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    def failing(*_: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(PartitionLog, "read", failing)
    assert codes(broker.ask(fetch(("t", 0, 0)), version)) == [code]


def test_an_unexpected_error_fails_only_its_partition(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    read = PartitionLog.read

    def failing(self: PartitionLog, *rest: Any) -> Any:
        if self.partition == 1:
            raise RuntimeError("on purpose")
        return read(self, *rest)

    monkeypatch.setattr(PartitionLog, "read", failing)
    answer = broker.ask(fetch(("t", 0, 0), ("t", 1, 0)), 12)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_read_committed_names_the_aborted_transactions(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is ready for transactions; read_uncommitted has null instead of a list."""
    aborted = (AbortedTransaction(7, 1),)
    monkeypatch.setattr(PartitionLog, "read", lambda *_: ReadResult(b"", 3, 2, 0, aborted))
    (partition,) = parts(broker.ask(fetch(("t", 0, 0), isolation_level=1), 12))
    assert partition.last_stable_offset == 2
    assert [(found.producer_id, found.first_offset) for found in partition.aborted_transactions] == [(7, 1)]
    (partition,) = parts(broker.ask(fetch(("t", 0, 0)), 12))
    assert partition.aborted_transactions is None


def test_a_fetch_for_nothing_is_answered_at_once(broker: DataBroker) -> None:
    answer = broker.ask(fetch(max_wait_ms=10_000), 12)
    assert answer.responses == []


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_data_and_is_answered_by_the_append(broker: DataBroker) -> None:
    """RP-38: and the long poll is no throttling."""
    asked = broker.send(fetch(("t", 1, 0), ("t", 0, 3), max_wait_ms=500), 12)
    assert asked.answers == []
    assert (broker.fetch_purgatory.delayed, broker.fetch_purgatory.size) == (1, 2)
    broker.fill("t", b"new", partition=1)
    broker.advance(0.2)
    assert broker.fetch_purgatory.check_and_complete(("t", 1)) == 1
    assert offsets(parts(asked.answer)[0]) == [0]
    assert asked.answer.throttle_time_ms == 0
    assert (broker.fetch_purgatory.delayed, len(broker.timer)) == (0, 0)


def test_a_fetch_is_answered_empty_when_its_time_is_over(broker: DataBroker) -> None:
    """RP-38."""
    asked = broker.send(fetch(("t", 1, 0), max_wait_ms=500), 12)
    broker.advance(0.499)
    assert asked.answers == []
    broker.advance(0.002)
    (partition,) = parts(asked.answer)
    assert (partition.error_code, len(partition.records), partition.high_watermark) == (0, 0, 0)
    assert asked.answer.throttle_time_ms == 0
    assert broker.fetch_purgatory.expired == 1


def test_min_bytes_are_waited_for(broker: DataBroker) -> None:
    """RP-38: two batches are not enough, three are."""
    size = len(batch([b"new"]))
    asked = broker.send(fetch(("t", 1, 0), max_wait_ms=500, min_bytes=3 * size), 12)
    for done in (0, 0, 1):
        broker.fill("t", b"new", partition=1)
        assert broker.fetch_purgatory.check_and_complete(("t", 1)) == done
    assert offsets(parts(asked.answer)[0]) == [0, 1, 2]


def test_min_bytes_count_over_all_partitions_and_within_their_limits(broker: DataBroker) -> None:
    size = len(batch([b"new"]))
    request = fetch(("t", 0, 3), ("t", 1, 0), max_wait_ms=500, min_bytes=2 * size, partition_max_bytes=size)
    asked = broker.send(request, 12)
    broker.fill("t", b"new", b"new", partition=1)  # only one of them may be counted
    assert broker.fetch_purgatory.check_and_complete(("t", 1)) == 0
    broker.fill("t", b"new", partition=0)
    assert broker.fetch_purgatory.check_and_complete(("t", 0)) == 1
    assert [offsets(partition) for partition in parts(asked.answer)] == [[3], [0]]


def append(broker: DataBroker, partition: int, value: bytes) -> int:
    """As Produce does it; the bytes that were written."""
    result = broker.log("u", partition).append(memoryview(batch([value])))
    broker.fetch_purgatory.check_and_complete(("u", partition), result.size)
    assert result.size == len(batch([value]))
    return result.size


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("seed", range(10))
def test_each_fetch_ends_with_the_append_that_brings_enough(broker: DataBroker, seed: int, isolation: int) -> None:
    """Over whatever partitions it comes; appends ask only those that they may have brought enough for."""
    broker.create("u", 2)
    chance = random.Random(seed)
    waiting: list[tuple[Any, list[int], int]] = []
    for _ in range(30):
        partitions = chance.sample((0, 1), chance.choice((1, 2)))
        wanted = chance.choice((1, 2, chance.randint(2, 4000)))
        spots = [("u", partition, 0) for partition in partitions]
        asked = broker.send(fetch(*spots, max_wait_ms=500, min_bytes=wanted, isolation_level=isolation), 12)
        waiting.append((asked, partitions, wanted))
    brought = dict.fromkeys((0, 1), 0)
    for _ in range(60):
        value = bytes(chance.randint(1, 100))
        partition = chance.choice((0, 1))
        brought[partition] += append(broker, partition, value)
        for asked, partitions, wanted in waiting:
            assert len(asked.answers) == (sum(brought[each] for each in partitions) >= wanted)


def test_an_append_does_not_ask_a_fetch_that_needs_more(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("u", 2)
    for spots in ([("u", 1, 0)], [("u", 1, 0), ("u", 0, 0)]):
        broker.send(fetch(*spots, max_wait_ms=500, min_bytes=1 << 20), 12)
    asked: list[object] = []
    monkeypatch.setattr(DelayedFetch, "ready_for", lambda self, key: bool(asked.append(self)))
    for _ in range(20):
        append(broker, 1, b"new")
    assert asked == []
    assert broker.fetch_purgatory.delayed == 2


def test_min_bytes_above_max_bytes_do_not_wait_for_ever(broker: DataBroker) -> None:
    asked = broker.send(fetch(("t", 0, 0), max_wait_ms=500, min_bytes=1 << 20, max_bytes=SIZES[0]), 12)
    assert len(asked.answers) == 1


def test_an_error_is_answered_at_once(broker: DataBroker) -> None:
    asked = broker.send(fetch(("t", 1, 0), ("t", 0, 99), max_wait_ms=500), 12)
    assert codes(asked.answer) == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    asked = broker.send(fetch(("nowhere", 0, 0), max_wait_ms=500), 12)
    assert codes(asked.answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_that_is_not_there_does_not_turn_a_long_poll_into_a_tight_loop(broker: DataBroker) -> None:
    """RP-38: the other partitions are waited for; the error comes with the answer."""
    asked = broker.send(fetch(("t", 1, 0), ("nowhere", 0, 0), max_wait_ms=500), 12)
    assert asked.answers == []
    broker.advance(0.6)
    assert codes(asked.answer) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_deleted_topic_ends_the_wait(broker: DataBroker) -> None:
    asked = broker.send(fetch(("t", 1, 0), max_wait_ms=500), 12)
    broker.topics.delete(["t"])
    assert codes(asked.answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_delayed_fetch_that_fails_is_still_answered(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-37: every request gets exactly one answer."""
    asked = broker.send(fetch(("t", 1, 0), max_wait_ms=500), 12)
    monkeypatch.setattr(fetch_api.Fetch, "answer", lambda *_: 1 / 0)
    broker.advance(1)
    assert asked.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_no_append_is_missed_by_a_fetch_that_begins_to_wait(broker: DataBroker) -> None:
    """RP-38: an appender and a consumer race; the clock stands still, so only the append can answer."""
    for offset in range(150):
        start = threading.Barrier(2)

        def append(start: threading.Barrier = start) -> None:
            start.wait(10)
            broker.fill("t", b"x", partition=1)
            broker.fetch_purgatory.check_and_complete(("t", 1))

        thread = threading.Thread(target=append)
        thread.start()
        start.wait(10)
        asked = broker.send(fetch(("t", 1, offset), max_wait_ms=10_000), 12)
        thread.join(10)
        assert offsets(parts(asked.answer)[0]) == [offset]


# ---- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_answers_only_what_is_new(broker: DataBroker, version: int) -> None:
    """KIP-227."""
    topic: str | uuid.UUID = broker.catalog.snapshot.topics["t"].topic_id if version >= 13 else "t"
    full = broker.ask(fetch((topic, 0, 3), (topic, 1, 0), session_epoch=0), version)
    assert full.session_id > 0
    assert len(parts(full)) == 2
    session = {"session_id": full.session_id, "max_wait_ms": 0}
    assert broker.ask(fetch(session_epoch=1, **session), version).responses == []
    broker.fill("t", b"new", partition=1)
    answer = broker.ask(fetch(session_epoch=2, **session), version)
    assert [(p.partition_index, offsets(p)) for p in parts(answer)] == [(1, [0])]
    answer = broker.ask(fetch((topic, 1, 1), session_epoch=3, **session), version)
    assert parts(answer) == []
    broker.topics.delete(["t"])
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.ask(fetch(session_epoch=4, **session), version)) == [gone] * 2


def test_a_session_waits_for_all_of_its_partitions(broker: DataBroker) -> None:
    """RP-38, KIP-227."""
    session_id = broker.ask(fetch(("t", 0, 3), ("t", 1, 0), session_epoch=0), 12).session_id
    asked = broker.send(fetch(session_id=session_id, session_epoch=1, max_wait_ms=500), 12)
    broker.fill("t", b"new", partition=1)
    broker.fetch_purgatory.check_and_complete(("t", 1))
    assert [partition.partition_index for partition in parts(asked.answer)] == [1]


def test_forgotten_partitions_are_not_read(broker: DataBroker) -> None:
    session_id = broker.ask(fetch(("t", 0, 3), ("t", 1, 0), session_epoch=0), 12).session_id
    broker.fill("t", b"new", partition=1)
    request = fetch(session_id=session_id, session_epoch=1)
    request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[1])]
    assert parts(broker.ask(request, 12)) == []


def test_session_errors_are_answered_for_the_whole_request(broker: DataBroker) -> None:
    assert broker.ask(fetch(session_id=99, session_epoch=1), 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = broker.ask(fetch(("t", 0, 0), session_epoch=0), 12).session_id
    wrong = broker.ask(fetch(session_id=session_id, session_epoch=5), 12)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    mixed = broker.ask(fetch(session_id=session_id, session_epoch=1), 13)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


# ---- quotas and metrics ----------------------------------------------------------------------------------------------


def test_a_consumer_over_its_quota_gets_an_empty_answer_and_the_data_later(broker: DataBroker) -> None:
    """RP-39."""
    broker.quotas.update({"client-id": "test"}, "consumer_byte_rate", 100)
    first = broker.send(fetch(("t", 0, 0), session_epoch=0, partition_max_bytes=sum(SIZES)), 12)
    assert first.throttle_ms == 0
    again = broker.send(fetch(("t", 0, 0), partition_max_bytes=sum(SIZES)), 12)
    while again.throttle_ms == 0:
        again = broker.send(fetch(("t", 0, 0), partition_max_bytes=sum(SIZES)), 12)
    assert again.answer.responses == []
    assert again.answer.throttle_time_ms == again.throttle_ms > 0
    assert again.throttle_kind == "Fetch"
    broker.clock.advance(12)
    assert len(parts(broker.ask(fetch(("t", 0, 0)), 12))) == 1


def test_an_answer_is_never_larger_than_what_the_quota_can_ever_allow(broker: DataBroker) -> None:
    """RP-39: or the consumer would be throttled for ever."""
    broker.quotas.update({"user": "alice"}, "consumer_byte_rate", 15)
    answer = broker.ask(fetch(("t", 0, 0)), 12)
    assert 0 < len(parts(answer)[0].records) <= 150


def test_a_batch_larger_than_the_quota_can_ever_allow_is_still_delivered(broker: DataBroker) -> None:
    """RP-39: once per full set of windows."""
    broker.quotas.update({"user": "alice"}, "consumer_byte_rate", 10)
    assert len(parts(broker.ask(fetch(("t", 0, 2)), 12))[0].records) == SIZES[2] > 100
    assert broker.send(fetch(("t", 0, 2)), 12).throttle_ms > 0
    broker.clock.advance(11)
    assert len(parts(broker.ask(fetch(("t", 0, 2)), 12))[0].records) == SIZES[2]


def test_traffic_is_counted_by_topic(broker: DataBroker) -> None:
    """RP-32: a long poll counts once."""
    broker.ask(fetch(("t", 0, 0), ("t", 9, 0), ("nowhere", 0, 0)), 12)
    asked = broker.send(fetch(("t", 1, 0), max_wait_ms=500), 12)
    broker.advance(1)
    assert len(asked.answers) == 1
    traffic = broker.traffic.of("t")
    assert (traffic.bytes_out, traffic.fetch_requests, traffic.failed_fetch_requests) == (sum(SIZES), 3, 1)
    assert broker.traffic.total("failed_fetch_requests") == 2


@pytest.mark.parametrize("version", [4, 12])
def test_the_error_answer_can_be_read_in_every_version(broker: DataBroker, version: int) -> None:
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    answer = fetch_api.error_response(fetch(("t", 0, 0)), version, error)
    if version < 7:
        assert codes(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    else:
        assert (answer.error_code, answer.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
