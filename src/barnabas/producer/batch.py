"""A batch on its way: records for one partition, from the first append to the end of its request (PP-7, PP-10, PP-26, PP-30).

Role: what the builder (records/kernel) does not know: times, attempts, the producer's numbers, compression, splitting, and whether
a request still uses the memory.
Thread: user threads append under the lock of the topic; the I/O thread has it from `seal` on. Lock: the topic's, then none. The
outcome is decided once, whichever thread comes first (`BatchResult.settle`).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.records.batch import TRANSACTIONAL_BIT, add_to_sequence
from barnabas.records.compression import NONE, compress, decompress
from barnabas.records.kernel.builder import HEADER_SIZE
from barnabas.records.kernel.send_path import BatchResult, OpenBatch
from barnabas.records.reader import read_varint

__all__ = ["NO_SEQUENCE", "ProducerBatch"]

NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_LEADER_EPOCH = -1


class ProducerBatch(OpenBatch):
    """See the file header. `place` is (topic, partition)."""

    def __init__(self, place: tuple[str, int], buffer: bytearray, limit: int, now_ms: int) -> None:
        super().__init__(buffer, limit, place[0], place[1])
        self.place = place
        self.created_ms = now_ms
        self.last_attempt_ms = now_ms
        self.drained_ms = now_ms
        self.attempts = 0
        self.is_split = False  # its memory is not from the pool
        self.in_flight = False  # a request uses the memory
        self.freed = False
        self.codec = NONE
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        self.sequence_was_reset = False
        self.leader_epoch = NO_LEADER_EPOCH
        self._attempted_leader_epoch = NO_LEADER_EPOCH
        self._sealed = False
        self.backoff_attempt = 0  # the attempt for which `backoff_ms` was chosen
        self.backoff_ms = 0

    # State

    @property
    def is_full(self) -> bool:
        """No record more will be taken."""
        return bool(self.closed or (self.record_count > 0 and self.size >= self.limit))

    @property
    def done(self) -> bool:
        return self.result.settled

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.record_count - 1)

    @property
    def in_retry(self) -> bool:
        return self.attempts > 0

    def waited_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self.last_attempt_ms)

    def has_expired(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms - self.created_ms >= delivery_timeout_ms

    # The leader, to skip the back-off when it changed (KIP-951)

    def note_leader_epoch(self, epoch: int) -> None:
        self.leader_epoch = max(self.leader_epoch, epoch)

    @property
    def leader_changed(self) -> bool:
        """Since the last attempt."""
        return (
            self.attempts > 0
            and self.leader_epoch != NO_LEADER_EPOCH
            and self.leader_epoch > self._attempted_leader_epoch
        )

    # On its way

    def set_producer_state(self, producer_id: int, epoch: int, base_sequence: int, transactional: bool) -> None:
        """The numbers that the header gets when the batch is sealed."""
        self.producer_id = producer_id
        self.producer_epoch = epoch
        self.base_sequence = base_sequence
        self.transactional = transactional

    def reset_producer_state(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Other numbers for a batch that was sent before; they are written when it is sealed again, not while a request uses the memory."""
        self.sequence_was_reset = True
        self.set_producer_state(producer_id, epoch, base_sequence, self.transactional)

    def seal(self, codec: int, level: int | None, now_ms: int) -> float:
        """Compress (once) and write the header; the ratio that the compression reached, or 1."""
        self.drained_ms = max(self.drained_ms, now_ms)
        ratio = 1.0
        self.close_for_appends()
        if codec != NONE and not self._sealed:
            ratio = self._compress(codec, level)
        self._sealed = True
        attributes = self.codec | (TRANSACTIONAL_BIT if self.transactional else 0)
        self.write_header(attributes, self.producer_id, self.producer_epoch, self.base_sequence)
        return ratio

    def _compress(self, codec: int, level: int | None) -> float:
        """In place: the memory stays what it was. Records that grow by compression are sent as they are."""
        plain: int = self.size - HEADER_SIZE
        records = compress(codec, bytes(memoryview(self.buffer)[HEADER_SIZE : self.size]), level)
        if len(records) < plain:
            self.replace_records(records)
            self.codec = codec
        return len(records) / plain

    def sent(self) -> None:
        """A request with this batch is on its way."""
        self.in_flight = True
        self._attempted_leader_epoch = self.leader_epoch

    def reenqueued(self, now_ms: int) -> None:
        self.attempts += 1
        self.last_attempt_ms = max(self.last_attempt_ms, now_ms)

    # The end

    def complete(self, base_offset: int, append_time: int) -> bool:
        """Written. False when the outcome was decided before."""
        return self.result.settle(base_offset, append_time)

    def fail(self, error: BaseException, record_errors: Callable[[int], BaseException] | None = None) -> bool:
        """Not written, as far as we know. False when the outcome was decided before."""
        self.close_for_appends()
        return self.result.settle(-1, -1, error, record_errors)

    def split(self, batch_size: int) -> list[ProducerBatch]:
        """The records in batches of at most `batch_size` bytes, or one record, in order; futures and callbacks go with them (PP-26)."""
        parts: list[ProducerBatch] = []
        results: list[tuple[int, BatchResult]] = []
        for number, (timestamp, key, value, headers) in enumerate(self._records()):
            if not parts or parts[-1].append(timestamp, key, value, headers) < 0:
                needed = HEADER_SIZE + 32 + len(key or b"") + len(value or b"") + len(headers)
                size = max(batch_size, needed)
                part = ProducerBatch(self.place, bytearray(size), size, self.created_ms)
                part.is_split = True
                part.append(timestamp, key, value, headers)
                parts.append(part)
                results.append((number, part.result))
        sequence = self.base_sequence
        for part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence, self.transactional)
                sequence = add_to_sequence(sequence, part.record_count)
        self.result.split(results)
        return parts

    def _records(self) -> list[tuple[int, bytes | None, bytes | None, bytes]]:
        """What was appended: timestamp, key, value and encoded headers of each record. Its own bytes, so they are not doubted."""
        stored = bytes(memoryview(self.buffer)[HEADER_SIZE : self.size])
        data = decompress(self.codec, stored, self.plain_size)
        found = []
        position = 0
        for _ in range(self.record_count):
            length, position = read_varint(data, position)
            end = position + length
            delta, position = read_varint(data, position + 1)
            _, position = read_varint(data, position)
            key, position = _nullable(data, position)
            value, position = _nullable(data, position)
            found.append((self.base_timestamp + delta, key, value, data[position:end]))
            position = end
        return found

    def __repr__(self) -> str:
        topic, partition = self.place
        return (
            f"<ProducerBatch {topic}-{partition} records={self.record_count} size={self.size} attempts={self.attempts} "
            f"sequence={self.base_sequence}>"
        )


def _nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length
