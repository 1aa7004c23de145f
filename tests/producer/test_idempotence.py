"""Sequence numbers through retries, expiry and lost state at the broker (PP-31), on a manual clock."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.producer.errors import DeliveryTimeout
from barnabas.producer.transaction_manager import MAX_EPOCH, _is_after
from tests.producer.parts import INIT_PRODUCER_ID, Parts, header_of

OUT_OF_ORDER, UNKNOWN = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID
RETRIABLE = ErrorCode.NOT_ENOUGH_REPLICAS


def started(**accumulated: object) -> Parts:
    parts = Parts(accumulated, idempotent=True)
    parts.give_id()
    return parts


def sequences(parts: Parts) -> list[tuple[int, int, int]]:
    """(id, epoch, sequence) of the requests in flight."""
    return [header_of(request)[9:12] for request in parts.pending()]


def turns(parts: Parts, count: int = 6) -> None:
    for _ in range(count):
        parts.sender.run_once()


class TestNumbers:
    def test_batches_are_numbered_and_several_are_in_flight(self) -> None:
        """PP-31: up to 5 in flight in order."""
        parts = started()
        parts.append(b"a")
        parts.append(b"b")
        parts.close_batch()
        parts.append_batches(6)
        turns(parts, 8)
        assert sequences(parts) == [(7, 0, 0), (7, 0, 2), (7, 0, 3), (7, 0, 4), (7, 0, 5)]

    def test_numbers_go_round(self) -> None:
        """PP-31: from 2^31 - 1 to 0."""
        parts = started()
        parts.append(b"first")
        parts.send_and_answer()
        partition = parts.keeper._partitions["t", 0]
        partition.next_sequence = 2**31 - 1
        partition.last_acked_sequence = 2**31 - 2
        futures = [parts.append(b"a"), parts.append(b"b")]
        parts.close_batch()
        futures += parts.append_batches(1)
        turns(parts, 2)
        assert [number for _, _, number in sequences(parts)] == [2**31 - 1, 1]
        for request in parts.pending():
            parts.answer(request)
        assert all(future.exception(0) is None for future in futures)
        assert partition.last_acked_sequence == 1

    @pytest.mark.parametrize(
        ("sequence", "other", "after"),
        [(0, -1, True), (5, 4, True), (4, 5, False), (0, 2**31 - 1, True), (2**31 - 1, 0, False)],
    )
    def test_what_comes_after_what(self, sequence: int, other: int, after: bool) -> None:
        """PP-31."""
        assert _is_after(sequence, other) is after

    def test_a_retry_keeps_its_numbers_and_its_place(self) -> None:
        """PP-27: in sequence order; PP-31: one in flight while the first is retried."""
        parts = started()
        futures = parts.append_batches(3)
        turns(parts, 3)
        first, second, third = parts.pending()
        parts.answer(first, RETRIABLE)
        parts.answer(second, OUT_OF_ORDER)
        parts.answer(third, OUT_OF_ORDER)
        parts.clock.advance(0.1)
        for number in range(3):
            turns(parts, 2)
            assert sequences(parts) == [(7, 0, number)]
            parts.answer(parts.pending()[0], base_offset=number)
        assert [future.result(0).offset for future in futures] == [0, 1, 2]

    def test_answers_out_of_order_keep_the_order_of_the_queue(self) -> None:
        """PP-27: the later batch comes back first, and is placed behind the earlier one."""
        parts = started()
        parts.append_batches(3)
        turns(parts, 3)
        first, second, third = parts.pending()
        parts.answer(third, OUT_OF_ORDER)
        parts.answer(first, RETRIABLE)
        parts.answer(second, OUT_OF_ORDER)
        queue = parts.accumulator.lanes["t"].queues[0]
        assert [batch.base_sequence for batch in queue] == [0, 1, 2]

    def test_a_split_batch_keeps_the_numbers_of_its_records(self) -> None:
        """PP-26, PP-31."""
        parts = started()
        with parts.accumulator.open_batch(parts.accumulator.lane("t", parts.metadata.known), 0, 4000, 0, 0):
            pass
        futures = [parts.append(b"x" * 100) for _ in range(20)]
        parts.close_batch()
        later = parts.append_batches(1)
        turns(parts, 2)
        too_large, after = parts.pending()
        parts.answer(too_large, ErrorCode.MESSAGE_TOO_LARGE)
        parts.answer(after, OUT_OF_ORDER)
        parts.clock.advance(0.1)
        following = 0
        while not later[0].done():
            parts.sender.run_once()
            (request,) = parts.pending()
            header = header_of(request)
            assert header.base_sequence == following
            following += header.record_count
            parts.answer(request, base_offset=header.base_sequence)
        assert [future.result(0).offset for future in futures] == list(range(20))
        assert later[0].result(0).offset == 20


class TestGaps:
    def test_a_batch_that_failed_for_good_gives_the_rest_a_new_epoch(self) -> None:
        """PP-31: the first fails fatally, later sequences are adjusted."""
        parts = started()
        futures = parts.append_batches(2)
        turns(parts, 2)
        first, second = parts.pending()
        parts.answer(first, ErrorCode.INVALID_RECORD)
        parts.answer(second, OUT_OF_ORDER)
        parts.clock.advance(0.1)
        turns(parts, 2)
        assert sequences(parts) == [(7, 1, 0)]
        parts.answer(parts.pending()[0], base_offset=4)
        assert futures[0].exception(0) is not None
        assert futures[1].result(0).offset == 4

    def test_a_gap_before_the_next_in_line_raises_the_epoch(self) -> None:
        """PP-31: OUT_OF_ORDER for the batch that must be the next."""
        parts = started()
        parts.append_batches(1)
        parts.send_and_answer()
        future = parts.append_batches(1)[0]
        parts.send_and_answer(OUT_OF_ORDER)
        parts.clock.advance(0.1)
        turns(parts, 2)
        assert sequences(parts) == [(7, 1, 0)]
        parts.answer(parts.pending()[0])
        assert future.exception(0) is None

    @pytest.mark.parametrize(("log_start", "epoch"), [(10, 1), (-1, 0)])
    def test_state_that_the_broker_lost(self, log_start: int, epoch: int) -> None:
        """PP-31: UNKNOWN_PRODUCER_ID; when the broker did not know the log start, the same numbers are tried again."""
        parts = started()
        parts.append_batches(1)
        parts.send_and_answer(base_offset=3)
        future = parts.append_batches(1)[0]
        parts.send_and_answer(UNKNOWN, log_start_offset=log_start)
        parts.clock.advance(0.1)
        turns(parts, 2)
        assert sequences(parts) == [(7, epoch, 0 if epoch else 1)]
        parts.answer(parts.pending()[0])
        assert future.exception(0) is None

    def test_new_batches_wait_until_those_of_the_old_epoch_are_done(self) -> None:
        """PP-31: batches drained with the old epoch."""
        parts = started()
        parts.append_batches(2)
        turns(parts, 2)
        first, second = parts.pending()
        parts.answer(first, OUT_OF_ORDER)
        parts.append_batches(1)
        parts.clock.advance(0.1)
        turns(parts, 3)
        assert parts.keeper.epoch == 1
        assert second in parts.pending()  # still with the old numbers on its way
        assert [number for _, epoch, number in sequences(parts) if epoch == 1] == [0]

    def test_when_the_epochs_are_used_up_a_new_id_is_asked_for(self) -> None:
        """PP-31: retry when the id changes."""
        parts = started()
        parts.append_batches(1)
        parts.send_and_answer()
        parts.keeper.epoch = MAX_EPOCH
        partition = parts.keeper._partitions["t", 0]
        partition.epoch = MAX_EPOCH
        future = parts.append_batches(1)[0]
        parts.send_and_answer(OUT_OF_ORDER)
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert not parts.pending()
        (request,) = parts.pending(INIT_PRODUCER_ID)
        from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse

        parts.client.end(request, InitProducerIdResponse(0, 0, 8, 0))
        parts.sender.run_once()
        assert sequences(parts) == [(8, 0, 0)]
        parts.answer(parts.pending()[0])
        assert future.exception(0) is None


class TestExpiry:
    def test_a_batch_that_was_never_sent_leaves_no_gap(self) -> None:
        """PP-31: expiry of unsent batches."""
        parts = started(delivery_timeout_ms=100)
        parts.client.unready = {0, 1}
        expired = parts.append_batches(1)[0]
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert isinstance(expired.exception(0), DeliveryTimeout)
        parts.client.unready = set()
        parts.append_batches(1)
        parts.sender.run_once()
        assert sequences(parts) == [(7, 0, 0)]

    def test_an_expired_batch_that_was_sent_holds_the_partition_until_the_rest_is_answered(self) -> None:
        """PP-31: unresolved sequences; when those behind it are written, so was it, and all goes on with the same epoch."""
        parts = started(delivery_timeout_ms=100)
        expired = parts.append_batches(1)[0]
        parts.sender.run_once()
        parts.clock.advance(0.06)
        second = parts.append_batches(1)[0]
        parts.sender.run_once()
        parts.clock.advance(0.05)
        parts.sender.run_once()
        parts.append_batches(1)
        turns(parts, 3)
        assert isinstance(expired.exception(0), DeliveryTimeout)
        assert len(parts.pending()) == 2  # the new batch waits
        first_request, second_request = parts.pending()
        parts.answer(first_request, base_offset=0)
        parts.answer(second_request, base_offset=1)
        assert second.result(0).offset == 1
        turns(parts, 2)
        assert sequences(parts) == [(7, 0, 2)]

    def test_when_nothing_in_flight_was_acknowledged_the_epoch_is_raised(self) -> None:
        """PP-31: epoch bump on unresolved sequences: expiry of all sent batches."""
        parts = started(delivery_timeout_ms=100)
        futures = parts.append_batches(2)
        turns(parts, 2)
        parts.clock.advance(0.1)
        parts.sender.run_once()
        assert all(isinstance(future.exception(0), DeliveryTimeout) for future in futures)
        for request in parts.pending():
            parts.client.end(request, disconnected=True)
        parts.append_batches(1)
        turns(parts, 2)
        assert sequences(parts) == [(7, 1, 0)]
