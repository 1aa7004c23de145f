"""The producer's identity: id, epoch, and a sequence number per partition, so that retries neither double nor reorder records
(PP-31).

Role: decides which batch may be sent, gives out sequence numbers, and keeps them right through retries, expiry and lost state at
the broker. Where the numbers of a partition cannot be known any more, the epoch is raised and its batches are numbered anew from 0.
Transactions will have their states here, too (PP-32).
Thread: the I/O thread; `NoSequences` stands in when idempotence is off. Lock: `_lock`, because `abort` may come from `close` on
another thread.

What happens to a partition:

    sent, answered in order        next = last acknowledged + 1
    a batch expires after it was sent   *unresolved*: no new batch until those in flight are answered; if the numbers then do not
                                   meet, the epoch is raised
    OUT_OF_ORDER, UNKNOWN_PRODUCER_ID   the epoch is raised, the batches in flight are numbered anew and sent again
"""

from __future__ import annotations

import logging
import threading
from bisect import insort
from collections.abc import Iterable
from typing import Protocol

from barnabas.errors import ErrorCode, KafkaError
from barnabas.producer.batch import NO_SEQUENCE, ProducerBatch
from barnabas.records.batch import add_to_sequence

__all__ = ["NoSequences", "SequenceKeeper", "TransactionManager"]

log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
MAX_EPOCH = 32_767
NO_OFFSET = -1
_FATAL = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNSUPPORTED_VERSION,
)

Place = tuple[str, int]


class SequenceKeeper(Protocol):
    """What accumulator and sender ask."""

    completing: bool
    """A transaction is being ended: everything is due."""
    fatal_error: KafkaError | None

    def may_send(self, first: ProducerBatch) -> bool: ...
    def assign(self, batch: ProducerBatch) -> None: ...
    def add_in_flight(self, batch: ProducerBatch) -> None: ...
    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool: ...
    def completed(self, batch: ProducerBatch, base_offset: int) -> None: ...
    def failed(self, batch: ProducerBatch, error: BaseException, adjust: bool) -> None: ...
    def removed(self, batch: ProducerBatch) -> None: ...
    def mark_unresolved(self, batch: ProducerBatch) -> None: ...
    def prepare_turn(self) -> None: ...
    def wants_id(self) -> bool: ...
    def set_id(self, producer_id: int, epoch: int) -> None: ...
    def id_failed(self, error: KafkaError) -> None: ...


class NoSequences:
    """Without idempotence: anything may be sent, and what is retriable may be sent again."""

    completing = False
    fatal_error: KafkaError | None = None

    def may_send(self, first: ProducerBatch) -> bool:
        return True

    def assign(self, batch: ProducerBatch) -> None:
        pass

    def add_in_flight(self, batch: ProducerBatch) -> None:
        pass

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        return error.retriable

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        pass

    def failed(self, batch: ProducerBatch, error: BaseException, adjust: bool) -> None:
        pass

    def removed(self, batch: ProducerBatch) -> None:
        pass

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        pass

    def prepare_turn(self) -> None:
        pass

    def wants_id(self) -> bool:
        return False

    def set_id(self, producer_id: int, epoch: int) -> None:
        raise AssertionError("nobody asked for a producer id")

    def id_failed(self, error: KafkaError) -> None:
        raise AssertionError("nobody asked for a producer id")

    def __repr__(self) -> str:
        return "<NoSequences>"


class _Partition:
    """The numbers of one partition. `in_flight` has the batches that were drained and not answered for good, by sequence."""

    __slots__ = ("epoch", "in_flight", "last_acked_offset", "last_acked_sequence", "next_sequence", "producer_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        self.in_flight: list[ProducerBatch] = []

    def add(self, batch: ProducerBatch) -> None:
        insort(self.in_flight, batch, key=_order)

    def remove(self, batch: ProducerBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def start_again(self, producer_id: int, epoch: int) -> None:
        """Number what is in flight anew from 0."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(producer_id, epoch, sequence)
            sequence = add_to_sequence(sequence, batch.record_count)
        self.producer_id, self.epoch = producer_id, epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE


def _order(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


class TransactionManager:
    """See the file header."""

    completing = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.fatal_error: KafkaError | None = None
        self._partitions: dict[Place, _Partition] = {}
        self._unresolved: dict[Place, int] = {}  # with the sequence that would come next
        self._to_renumber: set[Place] = set()
        self._bump_needed = False

    @property
    def has_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    # ---------------------------------------------------------------- sending

    def may_send(self, first: ProducerBatch) -> bool:
        """Whether the first batch of a queue may leave now (up to five in flight, in order)."""
        with self._lock:
            if not self.has_id or self.fatal_error is not None:
                return False
            partition = self._partition(first.place)
            if not first.has_sequence:
                # New numbers would overtake batches of an older epoch, which may still be on the wire with their old numbers, or they
                # would fill a gap that may not be one.
                in_flight = partition.in_flight
                stale = bool(in_flight) and (
                    self._is_stale(partition) or any(one.sequence_was_reset for one in in_flight)
                )
                return not stale and first.place not in self._unresolved
            # A retried batch: only the next in line leaves, which brings the partition down to one in flight.
            return not partition.in_flight or partition.in_flight[0].base_sequence == first.base_sequence

    def assign(self, batch: ProducerBatch) -> None:
        """Give a new batch its numbers; one that had some keeps them, or it might be written twice."""
        if batch.has_sequence:
            return
        with self._lock:
            partition = self._partition(batch.place)
            if self._is_stale(partition) and not partition.in_flight:
                partition.start_again(self.producer_id, self.epoch)
            batch.set_producer_state(self.producer_id, self.epoch, partition.next_sequence, False)
            partition.next_sequence = add_to_sequence(partition.next_sequence, batch.record_count)
            partition.add(batch)

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """A part of a split batch: it has its numbers already."""
        with self._lock:
            self._partition(batch.place).add(batch)

    def _partition(self, place: Place) -> _Partition:
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _Partition()
        return partition

    def _is_stale(self, partition: _Partition) -> bool:
        return (partition.producer_id, partition.epoch) != (self.producer_id, self.epoch)

    # ---------------------------------------------------------------- answers

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        with self._lock:
            partition = self._partition(batch.place)
            if batch.producer_epoch == partition.epoch and _is_after(
                batch.last_sequence, partition.last_acked_sequence
            ):
                partition.last_acked_sequence = batch.last_sequence
            if base_offset >= 0:
                partition.last_acked_offset = max(partition.last_acked_offset, base_offset + batch.record_count - 1)
            partition.remove(batch)

    def failed(self, batch: ProducerBatch, error: BaseException, adjust: bool) -> None:
        """The batch will not be sent again. `adjust`: its numbers were never used, so those after it have a gap before them."""
        with self._lock:
            if isinstance(error, KafkaError) and error.code in _FATAL:
                self.fatal_error = error
            partition = self._partition(batch.place)
            partition.remove(batch)
            if self.fatal_error is not None:
                return
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            if code is ErrorCode.UNKNOWN_PRODUCER_ID:
                # The broker has forgotten us: it takes 0 next.
                partition.start_again(self.producer_id, self.epoch)
                self._unresolved.pop(batch.place, None)
            elif adjust or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._request_bump(batch.place)

    def removed(self, batch: ProducerBatch) -> None:
        """It lives on in other batches."""
        with self._lock:
            self._partition(batch.place).remove(batch)

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        """Whether the batch may be sent again; may ask for a new epoch on the way."""
        with self._lock:
            if error is ErrorCode.UNKNOWN_PRODUCER_ID:
                # Without a log start offset the broker did not know; a batch that was numbered anew meanwhile got the answer to its old
                # numbers: both are sent again as they are. Else the state is lost, by retention or otherwise.
                if log_start_offset >= 0 and not batch.sequence_was_reset:
                    self._request_bump(batch.place)
                return True
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._after_out_of_order(batch)
                return True
            return error.retriable

    def _after_out_of_order(self, batch: ProducerBatch) -> None:
        """One that is not the next in line is sent again after those before it. The next in line shows a gap: a new epoch."""
        place = batch.place
        unresolved = self._unresolved.get(place)
        partition = self._partition(place)
        is_next = batch.base_sequence == add_to_sequence(partition.last_acked_sequence, 1)
        if unresolved is None and (batch.sequence_was_reset or not is_next):
            return
        if unresolved is None or unresolved == batch.base_sequence:
            self._request_bump(place)

    # ---------------------------------------------------------------- numbers that cannot be known

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """A batch expired that may have been written."""
        with self._lock:
            following = add_to_sequence(batch.last_sequence, 1)
            known = self._unresolved.get(batch.place)
            if known is None or _is_after(following, known):
                self._unresolved[batch.place] = following

    def prepare_turn(self) -> None:
        """Before each turn of the sender: resolve what can be resolved, raise the epoch when somebody asked for it."""
        if not self._unresolved and not self._bump_needed:
            return
        with self._lock:
            for place in list(self._unresolved):
                partition = self._partition(place)
                if partition.in_flight:
                    continue
                del self._unresolved[place]
                if partition.next_sequence != add_to_sequence(partition.last_acked_sequence, 1):
                    log.info("%s-%s: sent records were never acknowledged; a new epoch begins", *place)
                    self._request_bump(place)
            if self._bump_needed:
                self._bump()

    def _request_bump(self, place: Place) -> None:
        self._bump_needed = True
        self._to_renumber.add(place)

    def _bump(self) -> None:
        """An idempotent producer raises its epoch by itself; when there is none left, it asks for a new id."""
        self._bump_needed = False
        if self.epoch >= MAX_EPOCH:
            self.producer_id, self.epoch = NO_PRODUCER_ID, -1
        else:
            self.epoch += 1
        self._renumber(self._to_renumber)

    def _renumber(self, places: Iterable[Place]) -> None:
        if not self.has_id:
            return  # when the new id is there
        for place in places:
            self._partition(place).start_again(self.producer_id, self.epoch)
            self._unresolved.pop(place, None)
        self._to_renumber.clear()

    # ---------------------------------------------------------------- the id

    def wants_id(self) -> bool:
        """Whether InitProducerId has to be asked."""
        return not self.has_id and self.fatal_error is None

    def set_id(self, producer_id: int, epoch: int) -> None:
        with self._lock:
            self.producer_id, self.epoch = producer_id, epoch
            self._renumber(list(self._to_renumber))
        log.info("Producer id %s, epoch %s", producer_id, epoch)

    def id_failed(self, error: KafkaError) -> None:
        """Asking again will not help."""
        with self._lock:
            self.fatal_error = error

    def sequence_of(self, place: Place) -> int:
        """The next sequence number of a partition."""
        with self._lock:
            return self._partition(place).next_sequence

    def __repr__(self) -> str:
        return f"<TransactionManager id={self.producer_id} epoch={self.epoch} unresolved={len(self._unresolved)}>"


def _is_after(sequence: int, other: int) -> bool:
    """Whether a sequence number comes after another, which may be the last before the wrap to 0, or none."""
    return other == NO_SEQUENCE or 0 < (sequence - other) & 0x7FFF_FFFF < 0x4000_0000
