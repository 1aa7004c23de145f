"""One turn of the I/O thread after the other, on a manual clock: Kafka's Sender behaviours (PP-1 .. PP-5, PP-25 .. PP-30)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.client.errors import UnsupportedVersion
from barnabas.errors import ErrorCode, KafkaError
from barnabas.producer.errors import DeliveryTimeout, ProducerClosed
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.kernel.send_path import RecordMetadata
from tests.producer.parts import INIT_PRODUCER_ID, TOPIC_ID, Parts, cluster, record_errors
from tests.producer.reading import read_batch

RETRIABLE = ErrorCode.NOT_ENOUGH_REPLICAS


def values(request: Any) -> list[bytes]:
    return [
        item.value
        for topic in request.body.topic_data
        for data in topic.partition_data
        for item in read_batch(data.records)
    ]


def traced(monkeypatch: pytest.MonkeyPatch, *calls: tuple[object, str]) -> list[str]:
    """The names of these calls, in the order in which they come."""
    steps: list[str] = []

    def trace(thing: object, name: str) -> None:
        call = getattr(thing, name)

        def traced_call(*arguments: object) -> object:
            steps.append(name)
            return call(*arguments)

        monkeypatch.setattr(thing, name, traced_call)

    for thing, name in calls:
        trace(thing, name)
    return steps


class TestOneTurn:
    def test_the_steps_come_in_this_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """PP-2, PP-3: numbers, cluster, who is ready, unknown leaders, nodes, drain, expiry, requests, poll."""
        parts = Parts(idempotent=True, known=cluster({"t": (0,), "u": (-1,)}))
        parts.give_id()
        parts.append(b"a")
        parts.append(b"b", topic="u")
        steps = traced(
            monkeypatch,
            (parts.keeper, "prepare_turn"),
            (parts.metadata, "fetch"),
            (parts.metadata, "request_update"),
            *((parts.accumulator, name) for name in ("expired", "drain")),
            *((parts.client, name) for name in ("poll", "send", "ready")),
        )
        parts.sender.run_once()
        assert steps == ["prepare_turn", "fetch", "request_update", "ready", "drain", "expired", "send", "poll"]

    def test_a_request_holds_no_more_than_max_request_size(self) -> None:
        """PP-3: what is left over goes with the next one."""
        parts = Parts(sending={"max_request_size": 2500}, known=cluster({"t": (0, 0, 0)}))
        for partition in range(3):
            parts.append(b"x" * 900, partition)
        parts.sender.run_once()
        parts.sender.run_once()
        sizes = [
            [len(data.records) for data in request.body.topic_data[0].partition_data] for request in parts.pending()
        ]
        assert [len(batches) for batches in sizes] == [2, 1]
        assert sum(sizes[0]) <= 2500

    def test_throttle_and_latency_are_measured(self) -> None:
        """PP-25: what a user sees of quotas."""
        parts = Parts()
        parts.append(b"a")
        parts.sender.run_once()
        (request,) = parts.pending()
        rows = [TopicProduceResponse("t", TOPIC_ID, [PartitionProduceResponse(0, 0, 0)])]
        parts.client.end(request, ProduceResponse(rows, 40, []))
        figures = parts.sender.metrics.values()
        assert figures["produce-throttle-time-max"] == pytest.approx(40, rel=0.1)
        assert figures["request-latency-max"] == 0

    def test_a_record_is_sent_and_its_future_told(self) -> None:
        """PP-2, PP-25: base offset and append time reach every record's future."""
        parts = Parts()
        first, second = parts.append(b"a"), parts.append(b"b", timestamp=1001)
        parts.sender.run_once()
        (request,) = parts.pending()
        assert values(request) == [b"a", b"b"]
        assert not first.done()
        parts.answer(request, base_offset=42)
        assert first.result(0) == RecordMetadata("t", 0, 42, 1000)
        assert second.result(0) == RecordMetadata("t", 0, 43, 1001)
        assert parts.pool.available == parts.pool.total

    def test_an_append_time_of_the_broker_is_the_records_time(self) -> None:
        """PP-25."""
        parts = Parts()
        future = parts.append(b"a")
        parts.send_and_answer(log_append_time_ms=5555)
        assert future.result(0).timestamp == 5555

    def test_callbacks_run_in_order_and_a_bad_one_disturbs_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        """PP-25: on the I/O thread, here the test's."""
        parts = Parts()
        told: list[object] = []

        def bad(_error: object, _metadata: object) -> None:
            raise ValueError("bad callback")

        for number in range(3):
            parts.append(b"x", on_delivery=lambda error, metadata, n=number: told.append((n, error, metadata.offset)))
        parts.append(b"x", on_delivery=bad)
        parts.append(b"x", on_delivery=lambda error, metadata: told.append(metadata.offset))
        with caplog.at_level(logging.ERROR):
            parts.send_and_answer(base_offset=10)
        assert told == [(0, None, 10), (1, None, 11), (2, None, 12), 14]
        assert "bad callback" in caplog.text

    def test_one_request_per_node_with_all_its_partitions(self) -> None:
        """PP-3: build and send one ProduceRequest per node; PP-15: acks and time-out."""
        parts = Parts(sending={"acks": 1, "request_timeout_ms": 777}, known=cluster({"t": (0, 1, 0), "u": (0,)}))
        for partition in range(3):
            parts.append(b"x", partition)
        parts.append(b"y", 0, "u")
        parts.sender.run_once()
        requests = {request.node_id: request for request in parts.pending()}
        found = {
            node: {(topic.name, data.index) for topic in request.body.topic_data for data in topic.partition_data}
            for node, request in requests.items()
        }
        assert found == {0: {("t", 0), ("t", 2), ("u", 0)}, 1: {("t", 1)}}
        body = requests[0].body
        assert (body.acks, body.timeout_ms, body.transactional_id) == (1, 777, None)
        assert body.topic_data[0].topic_id == TOPIC_ID

    def test_without_an_answer_to_wait_for_the_end_of_the_send_is_the_end(self) -> None:
        """PP-15: acks=0 completes when the send completes."""
        parts = Parts(sending={"acks": 0})
        future = parts.append(b"a")
        parts.sender.run_once()
        (request,) = parts.pending()
        assert not request.expect_response
        parts.client.end(request)
        assert future.result(0).offset == -1

    def test_an_unready_node_gets_nothing_and_the_poll_waits_for_it(self) -> None:
        """PP-3: drop nodes that are not ready; PP-5: no spinning."""
        parts = Parts()
        parts.client.unready = {0}
        parts.client.delay_ms = 333
        parts.append(b"a")
        parts.sender.run_once()
        assert not parts.pending()
        assert parts.client.poll_timeouts == [333]

    def test_unknown_leaders_ask_for_metadata_and_do_not_block(self) -> None:
        """PP-3: a flag only."""
        parts = Parts(known=cluster({"t": (-1,)}))
        parts.append(b"a")
        parts.sender.run_once()
        assert (parts.metadata.updates_asked, parts.metadata.topics) == (1, {"t"})
        assert not parts.pending()

    def test_the_metadata_of_an_old_broker_has_no_topic_ids(self) -> None:
        """PP-18: then only versions with names may be used."""
        parts = Parts()
        parts.metadata.known.topics["t"].id = None
        parts.append(b"a")
        parts.sender.run_once()
        assert parts.pending()[0].max_version == 12


class TestPollTimeout:
    """PP-5."""

    def test_nothing_to_do(self) -> None:
        """PP-5: the thread sleeps long when nothing is there; metadata's age is the network client's business."""
        parts = Parts()
        parts.sender.run_once()
        assert parts.client.poll_timeouts == [60_000]

    def test_zero_after_something_was_sent(self) -> None:
        """PP-5: there may be more."""
        parts = Parts()
        parts.append_batches(2)
        parts.sender.run_once()
        parts.sender.run_once()
        assert parts.client.poll_timeouts == [0, 0]

    def test_the_time_to_the_end_of_the_linger(self) -> None:
        """PP-5: never oversleeps a deadline."""
        parts = Parts({"linger_ms": 50})
        parts.append(b"a")
        parts.clock.advance(0.02)
        parts.sender.run_once()
        assert parts.client.poll_timeouts == [30]

    def test_the_time_to_the_expiry_of_a_batch(self) -> None:
        """PP-5: in flight or not."""
        parts = Parts({"delivery_timeout_ms": 200})
        parts.append(b"a")
        parts.sender.run_once()
        parts.clock.advance(0.05)
        parts.sender.run_once()
        assert parts.client.poll_timeouts == [0, 150]


class TestTheThread:
    def test_an_exception_in_one_turn_is_logged_and_the_loop_goes_on(self, caplog: pytest.LogCaptureFixture) -> None:
        """PP-1, row 44."""
        parts = Parts()
        turns: list[int] = []

        def poll() -> None:
            turns.append(1)
            if len(turns) == 3:
                parts.sender.initiate_close()
            raise RuntimeError("broken turn")

        parts.client.on_poll = poll
        with caplog.at_level(logging.ERROR):
            parts.sender.run()
        assert len(turns) == 3
        assert caplog.text.count("RuntimeError: broken turn") == 3
        assert parts.client.closed

    def test_closing_sends_what_is_left(self) -> None:
        """PP-1: on close it drains what is left."""
        parts = Parts({"linger_ms": 100_000})
        future = parts.append(b"a")
        parts.sender.initiate_close()

        def answer() -> None:
            for request in parts.pending():
                parts.answer(request, base_offset=9)

        parts.client.on_poll = answer
        parts.sender.run()
        assert future.result(0).offset == 9
        assert parts.client.closed

    @pytest.mark.parametrize("forced", [False, True])
    def test_closing_while_the_epoch_must_be_raised(self, forced: bool) -> None:
        """PP-1, PP-31: close and forced close with sequences that must begin anew."""
        parts = Parts(idempotent=True)
        parts.give_id()
        futures = parts.append_batches(2)
        parts.sender.run_once()
        parts.sender.run_once()
        first, second = parts.pending()
        parts.answer(first, ErrorCode.INVALID_RECORD)
        parts.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        (parts.sender.force_close if forced else parts.sender.initiate_close)()

        def answer() -> None:
            parts.clock.advance(0.1)
            for request in parts.pending():
                parts.answer(request, base_offset=3)

        parts.client.on_poll = answer
        parts.sender.run()
        assert all(future.done() for future in futures)
        assert isinstance(futures[1].exception(0), ProducerClosed if forced else type(None))
        assert parts.pool.available == parts.pool.total

    def test_a_forced_close_fails_the_rest(self) -> None:
        """PP-1: then fails the rest; connections are closed before memory goes back."""
        parts = Parts()
        sent = parts.append(b"a")
        parts.sender.run_once()
        waiting = parts.append(b"b")
        parts.sender.force_close()
        parts.sender.run()
        for future in (sent, waiting):
            assert isinstance(future.exception(0), ProducerClosed)
        assert parts.client.closed
        assert parts.pool.available == parts.pool.total


class TestRetries:
    def test_a_retriable_error_is_tried_again_after_the_back_off(self) -> None:
        """PP-27: re-enqueue at the head."""
        parts = Parts()
        futures = parts.append_batches(2)
        parts.send_and_answer(RETRIABLE)
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert values(parts.pending()[0]) == [b"0"]
        parts.answer(parts.pending()[0], base_offset=5)
        assert futures[0].result(0).offset == 5

    @pytest.mark.parametrize("timed_out", [False, True])
    def test_a_broken_connection_is_retried(self, timed_out: bool) -> None:
        """PP-27, PP-29: and metadata is asked for when the connection broke."""
        parts = Parts()
        future = parts.append(b"a")
        parts.sender.run_once()
        parts.client.end(parts.pending()[0], disconnected=True, timed_out=timed_out)
        assert not future.done()
        assert parts.metadata.updates_asked == (0 if timed_out else 1)
        parts.clock.advance(0.1)
        parts.send_and_answer(base_offset=3)
        assert future.result(0).offset == 3

    def test_attempts_are_limited(self) -> None:
        """PP-27: attempts left."""
        parts = Parts(sending={"retries": 1})
        future = parts.append(b"a")
        parts.send_and_answer(RETRIABLE)
        parts.clock.advance(0.1)
        parts.send_and_answer(RETRIABLE)
        error = future.exception(0)
        assert isinstance(error, KafkaError)
        assert error.code is RETRIABLE

    def test_an_error_that_cannot_be_cured_fails_the_batch(self) -> None:
        """PP-28: any other error fails the batch with that error."""
        parts = Parts()
        future = parts.append(b"a")
        parts.send_and_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            future.result(0)
        assert parts.pool.available == parts.pool.total

    def test_a_duplicate_is_a_success(self) -> None:
        """PP-28: DUPLICATE_SEQUENCE_NUMBER."""
        parts = Parts()
        future = parts.append(b"a")
        parts.send_and_answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1)
        assert future.exception(0) is None

    def test_errors_of_single_records_reach_their_callers(self) -> None:
        """KIP-467: the one that is named has its own error, the others say why they failed."""
        parts = Parts()
        futures = [parts.append(b"%d" % number) for number in range(3)]
        parts.send_and_answer(
            ErrorCode.INVALID_RECORD, record_errors=record_errors((1, "no key"), (2, None)), error_message="bad batch"
        )
        texts = [str(future.exception(0)) for future in futures]
        assert texts[0].endswith("another record of the same batch was refused")
        assert texts[1:] == ["INVALID_RECORD: no key", "INVALID_RECORD: bad batch"]

    def test_a_version_that_the_broker_lacks_fails_the_batch(self) -> None:
        """PP-18."""
        parts = Parts()
        future = parts.append(b"a")
        parts.sender.run_once()
        parts.client.end(parts.pending()[0], version_mismatch=UnsupportedVersion("too old"))
        with pytest.raises(KafkaError, match="too old"):
            future.result(0)

    def test_an_answer_that_leaves_a_partition_out_fails_it(self) -> None:
        """A hostile or broken server may answer anything; no future may hang."""
        parts = Parts(known=cluster({"t": (0, 0)}))
        futures = [parts.append(b"a", 0), parts.append(b"b", 1)]
        parts.sender.run_once()
        (request,) = parts.pending()
        request.body.topic_data[0].partition_data.pop()
        parts.answer(request, base_offset=1)
        assert futures[0].result(0).offset == 1
        assert "does not name the partition" in str(futures[1].exception(0))

    @pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], ids=str)
    def test_wrong_metadata_is_asked_for_again(self, error: ErrorCode) -> None:
        """PP-29."""
        parts = Parts()
        parts.append(b"a")
        parts.send_and_answer(error)
        assert parts.metadata.updates_asked == 1

    def test_a_new_leader_in_the_answer_is_taken(self) -> None:
        """KIP-951."""
        parts = Parts()
        parts.append(b"a")
        parts.send_and_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderIdAndEpoch(1, 5))
        assert parts.metadata.new_leaders == {("t", 0): (1, 5)}


class TestOrder:
    def test_with_one_in_flight_a_partition_waits_for_its_answer(self) -> None:
        """PP-3: max.in.flight = 1 mutes the drained partitions."""
        parts = Parts(sending={"guarantee_order": True}, known=cluster({"t": (0, 0)}))
        parts.append_batches(2, 0)
        parts.append_batches(1, 1)
        parts.sender.run_once()
        parts.sender.run_once()
        assert len(parts.pending()) == 1
        parts.answer(parts.pending()[0], RETRIABLE)
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert values(parts.pending()[0]) == [b"0", b"0"]  # the first of each partition again
        parts.answer(parts.pending()[0])
        parts.sender.run_once()
        assert values(parts.pending()[0]) == [b"1"]


class TestExpiry:
    def test_an_unsent_batch_expires_and_its_callback_may_append(self) -> None:
        """PP-3: expire accumulated batches; the callback sends the record again."""
        parts = Parts({"delivery_timeout_ms": 100})
        parts.client.unready = {0}
        again: list[object] = []

        def retry(error: object, _metadata: object) -> None:
            again.append(error)
            parts.append(b"again")

        future = parts.append(b"a", on_delivery=retry)
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert isinstance(future.exception(0), DeliveryTimeout)
        assert again == [future.exception(0)]
        assert parts.accumulator.has_undrained()

    def test_a_batch_in_flight_expires_but_keeps_its_memory(self) -> None:
        """PP-6, KAFKA-19012: until its request has come to its end."""
        parts = Parts({"delivery_timeout_ms": 100})
        future = parts.append(b"a")
        parts.sender.run_once()
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert isinstance(future.exception(0), DeliveryTimeout)
        assert parts.pool.available == parts.pool.total - 1024
        assert values(parts.pending()[0]) == [b"a"]
        parts.answer(parts.pending()[0], base_offset=1)
        assert parts.pool.available == parts.pool.total
        assert isinstance(future.exception(0), DeliveryTimeout)  # PP-30: decided once

    @pytest.mark.parametrize("forced", [False, True])
    def test_a_close_frees_the_memory_of_an_expired_batch(self, forced: bool) -> None:
        """PP-6: its request was never answered, and nobody waits for that any more."""
        parts = Parts({"delivery_timeout_ms": 100})
        parts.append(b"a")
        parts.sender.run_once()
        parts.clock.advance(0.1)
        parts.sender.run_once()
        (parts.sender.force_close if forced else parts.sender.initiate_close)()
        parts.sender.run()
        assert parts.client.closed
        assert parts.pool.available == parts.pool.total

    def test_a_closed_connection_frees_the_memory_of_an_expired_batch(self) -> None:
        """PP-6."""
        parts = Parts({"delivery_timeout_ms": 100})
        parts.append(b"a")
        parts.sender.run_once()
        parts.clock.advance(0.1)
        parts.sender.run_once()
        parts.client.end(parts.pending()[0], disconnected=True)
        assert parts.pool.available == parts.pool.total
        assert not parts.accumulator.has_undrained()

    def test_an_expired_batch_is_neither_split_nor_retried(self) -> None:
        """PP-26, PP-27."""
        for error in (ErrorCode.MESSAGE_TOO_LARGE, RETRIABLE):
            parts = Parts({"delivery_timeout_ms": 100})
            future = parts.append(b"a")
            parts.append(b"b")
            parts.sender.run_once()
            parts.clock.advance(0.1)
            parts.answer(parts.pending()[0], error)
            assert future.exception(0) is not None
            assert not parts.accumulator.has_undrained()
            assert parts.pool.available == parts.pool.total


class TestSplit:
    def test_a_batch_that_is_too_large_is_split_and_sent_again(self) -> None:
        """PP-26."""
        parts = Parts()
        with parts.accumulator.open_batch(parts.accumulator.lane("t", cluster()), 0, 4000, 0, 0):
            pass
        told: list[int] = []
        futures = [
            parts.append(b"%02d" % n * 50, on_delivery=lambda error, metadata: told.append(metadata.offset))
            for n in range(20)
        ]
        later = parts.append_batches(1)[0]
        parts.send_and_answer(ErrorCode.MESSAGE_TOO_LARGE)
        offset = 0
        while not futures[-1].done():
            parts.sender.run_once()
            (request,) = parts.pending()
            count = len(values(request))
            assert count > 1
            parts.answer(request, base_offset=offset)
            offset += count
        assert [future.result(0).offset for future in futures] == list(range(20)) == told
        assert not later.done() or later.result(0).offset >= 20
        assert parts.sender.metrics.batch_splits.value == 1

    def test_a_single_record_that_is_too_large_fails(self) -> None:
        """PP-26: only with more than one record."""
        parts = Parts()
        future = parts.append(b"a")
        parts.send_and_answer(ErrorCode.MESSAGE_TOO_LARGE)
        assert "MESSAGE_TOO_LARGE" in str(future.exception(0))


class TestTheProducerId:
    def test_nothing_is_sent_before_the_id_is_there(self) -> None:
        """PP-31."""
        parts = Parts(idempotent=True)
        parts.append(b"a")
        parts.give_id()
        assert not parts.pending()
        parts.sender.run_once()
        assert len(parts.pending()) == 1

    def test_a_node_that_is_not_ready_is_waited_for(self) -> None:
        parts = Parts(idempotent=True)
        parts.client.unready = {0, 1}
        parts.sender.run_once()
        assert not parts.client.requests
        assert parts.metadata.updates_asked == 1
        parts.client.unready = set()
        parts.give_id()
        assert parts.keeper.producer_id == 7

    def test_an_error_that_passes_is_tried_again(self) -> None:
        parts = Parts(idempotent=True)
        parts.sender.run_once()
        parts.client.end(
            parts.pending(INIT_PRODUCER_ID)[0],
            InitProducerIdResponse(0, int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), -1, -1),
        )
        parts.sender.run_once()
        assert not parts.client.requests
        assert parts.client.poll_timeouts[-1] == 100
        parts.clock.advance(0.1)
        parts.give_id()

    def test_a_refusal_fails_every_record(self) -> None:
        """PP-31: cluster authorization."""
        parts = Parts(idempotent=True)
        future = parts.append(b"a")
        parts.sender.run_once()
        refusal = InitProducerIdResponse(0, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), -1, -1)
        parts.client.end(parts.pending(INIT_PRODUCER_ID)[0], refusal)
        parts.sender.run_once()
        assert "CLUSTER_AUTHORIZATION_FAILED" in str(future.exception(0))
        assert not parts.client.requests
