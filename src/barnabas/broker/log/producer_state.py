"""What the log knows about idempotent producers: epoch, sequence, the last five batches and the open transaction of each.

Role: refuse old epochs and gaps, recognise what was sent before (a retry gets the first answer again), know which transactions are open,
and keep that over restarts in Kafka's snapshot files.
Thread: whoever appends. Lock: the log's append lock guards everything here; `first_unstable` is read without it.

The append path calls `check`, writes the batch, then calls `update`; recovery calls `update` alone, for every batch of a producer.

As Apache Kafka today (KIP-360): a producer that the log does not know (expired, or its records were deleted) may begin with any
sequence; UNKNOWN_PRODUCER_ID is therefore never answered.

Snapshot file <offset>.snapshot, big-endian: int16 version = 1, uint32 crc32c of what follows, int32 number of entries; each entry:
    int64 producer_id, int16 epoch, int32 last_sequence, int64 last_offset, int32 offset_delta, int64 timestamp,
    int32 coordinator_epoch, int64 current_txn_first_offset (-1: none)
A snapshot keeps only the last batch of each producer, as Kafka's.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from barnabas.broker.log.results import AppendOrigin
from barnabas.broker.log.txn_index import AbortedEntry
from barnabas.broker.log.verification import ONGOING, PendingVerification, VerificationGuard
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    add_to_sequence,
    crc32c,
)
from barnabas.records.control import EndMarker, parse_end_marker

BATCHES_KEPT = 5
SNAPSHOT_SUFFIX = ".snapshot"
NO_OFFSET = -1
NOTHING_UNSTABLE = 2**63 - 1
FIRST_ABSURD_ID = 2**62
"""No broker gets as far as this by giving away ids one after the other: such an id comes from damage, or a client made it up."""
_TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT

_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class CorruptSnapshot(Exception):
    """A snapshot file cannot be used; the state is rebuilt from the log instead."""


class SequencedBatch(NamedTuple):
    """A batch that a producer wrote: its sequence numbers and where it is."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer. `next_sequence` is what its next batch must begin with."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
        "next_sequence",
        "txn_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: deque[SequencedBatch] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp = NO_TIMESTAMP
        self.last_seen_ms = 0
        self.coordinator_epoch = -1
        self.txn_first_offset = NO_OFFSET

    def __repr__(self) -> str:
        return f"ProducerEntry(epoch={self.epoch}, next_sequence={self.next_sequence}, batches={list(self.batches)})"


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_ongoing", "_verifications", "entries", "first_unstable", "partition")

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """Open transactions, producer by first offset. Offsets only grow, so the oldest is the first."""
        self._verifications: dict[int, PendingVerification] = {}
        self.first_unstable = NOTHING_UNSTABLE
        """The first offset of the oldest open transaction; consumers with read_committed stop there."""

    # Before a write.

    def check(self, header: BatchHeader, origin: AppendOrigin) -> SequencedBatch | None:
        """The batch that this one repeats, or None when it may be written; KafkaError when it may not."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise self._old_epoch(header, entry)
        if entry.txn_first_offset >= 0 and not header.attributes & _TRANSACTION_BITS:
            raise self._not_transactional(header)
        if origin != AppendOrigin.CLIENT:
            return None
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise self._out_of_order(header, "a new epoch begins with 0")
            return None
        duplicate = self._find_duplicate(header, entry)
        if duplicate is None and header.base_sequence != entry.next_sequence:
            raise self._out_of_order(header, f"{entry.next_sequence} is next")
        return duplicate

    @staticmethod
    def _find_duplicate(header: BatchHeader, entry: ProducerEntry) -> SequencedBatch | None:
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def checked_marker(self, header: BatchHeader, checked: bytes) -> EndMarker | None:
        """The end of a transaction that a control batch holds, if its coordinator may write it; `checked` is what the checksum covers."""
        try:
            marker = parse_end_marker(header, checked[HEADER_SIZE - PREFIX_SIZE :])
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        if marker is not None:
            self.check_marker(header, marker)
        return marker

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Whether the end of a transaction may be written; `check` has compared the producer's epoch."""
        entry = self.entries.get(header.producer_id)
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {header.producer_id} in {self.partition} has coordinator epoch "
                f"{marker.coordinator_epoch}, but {entry.coordinator_epoch} was seen",
            )

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard:
        """The guard that a client's transactional write needs, once the coordinator has agreed."""
        entry = self.entries.get(producer_id)
        if entry is not None and entry.txn_first_offset >= 0:
            return ONGOING
        pending = self._verifications.get(producer_id)
        if pending is None:
            pending = self._verifications[producer_id] = PendingVerification(epoch, sequence, now_ms)
        pending.note(epoch, sequence)
        return pending.guard

    def check_verified(self, header: BatchHeader, guard: VerificationGuard) -> None:
        """A client's transactional write needs an open transaction or a guard that is still good, unless it repeats one."""
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            if entry.txn_first_offset >= 0:
                return
            if entry.epoch == header.producer_epoch and self._find_duplicate(header, entry) is not None:
                return
        pending = self._verifications.get(header.producer_id)
        if pending is None or pending.guard is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has no transaction in {self.partition}, or it has ended",
            )
        if header.base_sequence > pending.lowest_sequence:
            raise self._out_of_order(header, f"{pending.lowest_sequence} waits to be written first")

    def aborted_by(self, header: BatchHeader, marker: EndMarker, offset: int) -> AbortedEntry | None:
        """What the transaction index must hold once the marker is at an offset; None for a commit or an empty transaction."""
        entry = self.entries.get(header.producer_id)
        if marker.commit or entry is None or entry.txn_first_offset < 0:
            return None
        others = (first for first in self._ongoing if first != entry.txn_first_offset)
        return AbortedEntry(header.producer_id, entry.txn_first_offset, offset, next(others, offset + 1))

    # After a write.

    def update(self, header: BatchHeader, base_offset: int, now_ms: int, marker: EndMarker | None = None) -> None:
        """Remember a batch that was written at an offset. `marker` is what a control batch holds."""
        special = header.attributes & _TRANSACTION_BITS
        if special & CONTROL_BIT and marker is None:
            return  # compaction has removed the marker with the whole transaction
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.next_sequence = 0
            entry.batches.clear()
        entry.last_seen_ms = now_ms
        entry.last_timestamp = header.max_timestamp
        if marker is not None:
            entry.coordinator_epoch = marker.coordinator_epoch
            self._end_transaction(header.producer_id, entry)
            return  # a control batch moves the epoch, not the sequence
        sequence, delta = header.base_sequence, header.last_offset_delta
        last = (sequence + delta) & 0x7FFF_FFFF if sequence >= 0 else NO_SEQUENCE
        entry.next_sequence = (last + 1) & 0x7FFF_FFFF
        entry.batches.append(SequencedBatch(sequence, last, base_offset, base_offset + delta, header.max_timestamp))
        if special:
            self._note_transaction(header.producer_id, entry, base_offset)

    def _note_transaction(self, producer_id: int, entry: ProducerEntry, base_offset: int) -> None:
        self._verifications.pop(producer_id, None)
        if entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
            self.first_unstable = min(self.first_unstable, base_offset)

    def _end_transaction(self, producer_id: int, entry: ProducerEntry) -> None:
        self._verifications.pop(producer_id, None)
        if entry.txn_first_offset >= 0:
            del self._ongoing[entry.txn_first_offset]
            entry.txn_first_offset = NO_OFFSET
            self.first_unstable = next(iter(self._ongoing), NOTHING_UNSTABLE)

    def clear(self) -> None:
        """Forget everything: the log begins anew."""
        self.entries.clear()
        self._ongoing.clear()
        self._verifications.clear()
        self.first_unstable = NOTHING_UNSTABLE

    def last_records(self) -> dict[int, tuple[int, int]]:
        """Of each producer the last offset of its newest batch (-1: only a marker is known) and its epoch; compaction keeps those."""
        return {
            producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in self.entries.items()
        }

    def largest_id(self) -> int:
        """The largest id of a known producer, -1 without any. Absurd ones do not count: ids that go on after them would soon run out."""
        return max((producer_id for producer_id in self.entries if producer_id < FIRST_ABSURD_ID), default=-1)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not written for long (producer.id.expiration.ms); how many.

        Counted from when the broker saw them, by the monotonic clock, not from their records' time as in Kafka: a producer that writes
        old records is not an old producer, and a clock that is set forward by a day does not let retries through twice.
        """
        old = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in old:
            del self.entries[producer_id]
        stale = [each for each, pending in self._verifications.items() if now_ms - pending.began_ms >= expiration_ms]
        for producer_id in stale:
            del self._verifications[producer_id]
        return len(old)

    def _old_epoch(self, header: BatchHeader, entry: ProducerEntry) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} writes to {self.partition} with epoch {header.producer_epoch}, "
            f"but epoch {entry.epoch} was seen",
        )

    def _out_of_order(self, header: BatchHeader, expected: str) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}, epoch {header.producer_epoch}, sends sequence {header.base_sequence} "
            f"to {self.partition}: {expected}",
        )

    def _not_transactional(self, header: BatchHeader) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has an open transaction in {self.partition}, but this batch is not part of it",
        )

    # Snapshots.

    def encode(self) -> bytes:
        parts = [_SNAPSHOT_COUNT.pack(len(self.entries))]
        for producer_id, entry in self.entries.items():
            last = entry.batches[-1] if entry.batches else SequencedBatch(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.last_offset - last.base_offset,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.txn_first_offset,
                )
            )
        body = b"".join(parts)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def load(self, data: bytes, now_ms: int) -> None:
        """Replace everything by a snapshot's content."""
        entries: dict[int, ProducerEntry] = {}
        for row in _snapshot_rows(data):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = row
            entry = entries[producer_id] = ProducerEntry(epoch)
            entry.last_timestamp = timestamp
            entry.last_seen_ms = now_ms
            entry.coordinator_epoch = coordinator_epoch
            entry.txn_first_offset = txn_first_offset
            if last_offset >= 0:
                first = (last_sequence - delta) & 0x7FFF_FFFF if last_sequence >= 0 else NO_SEQUENCE
                entry.next_sequence = add_to_sequence(last_sequence, 1)
                entry.batches.append(SequencedBatch(first, last_sequence, last_offset - delta, last_offset, timestamp))
        self.clear()
        self.entries = entries
        open_ones = [(entry.txn_first_offset, producer_id) for producer_id, entry in entries.items()]
        self._ongoing = dict(sorted(each for each in open_ones if each[0] >= 0))
        self.first_unstable = next(iter(self._ongoing), NOTHING_UNSTABLE)

    def __repr__(self) -> str:
        return f"ProducerStates({self.partition}, {len(self.entries)} producers)"


def _snapshot_rows(data: bytes) -> list[tuple[int, ...]]:
    head = _SNAPSHOT_HEAD.size
    if len(data) < head + _SNAPSHOT_COUNT.size:
        raise CorruptSnapshot(f"only {len(data)} bytes")
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc32c(data[head:]) != crc:
        raise CorruptSnapshot("wrong checksum")
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, head)
    rows = data[head + _SNAPSHOT_COUNT.size :]
    if count < 0 or len(rows) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{count} entries in {len(rows)} bytes")
    return list(_SNAPSHOT_ENTRY.iter_unpack(rows))
