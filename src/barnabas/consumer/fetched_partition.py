"""What one fetch brought of one partition: batches that are checked and decoded only when somebody wants their records.

Role: cuts the bytes into batches, leaves out control batches and, for read_committed, the records of aborted transactions; decodes the
rest through the record kernel. Bytes behind the last whole batch are ignored, as the protocol allows.
Thread: the consumer's; no lock.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.consumer.assignment import PartitionState
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.records.batch import HEADER_SIZE, PREFIX_SIZE, BatchHeader, CorruptBatch, parse_header
from barnabas.records.compression import NONE, decompress
from barnabas.records.control import parse_end_marker
from barnabas.records.kernel.checksum import crc32c
from barnabas.records.kernel.fetched import Record, read_records, rows_before
from barnabas.records.kernel.record_layout import record_spans

__all__ = ["DecodedBatch", "Decoding", "FetchedPartition"]

_RECORDS_IN_CHECKED = HEADER_SIZE - PREFIX_SIZE


class Decoding(NamedTuple):
    """How batches are read."""

    check_crcs: bool
    read_committed: bool
    max_decompressed: int


class DecodedBatch(NamedTuple):
    """The records of one batch: `data` decompressed, `spans` where each is, `skip` how many of the first are not wanted."""

    data: bytes
    spans: array[int]
    skip: int
    header: BatchHeader


class FetchedPartition:
    """See the file header. `position` is where to read on behind what was taken, `end_offset` behind all of it."""

    __slots__ = (
        "_aborted",
        "_aborting",
        "_batch",
        "_batches",
        "_data",
        "_decoding",
        "_index",
        "_next_offset",
        "_records",
        "end_offset",
        "epoch",
        "position",
        "size",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        offset: int,
        data: memoryview,
        aborted: Iterable[AbortedTransaction],
        decoding: Decoding,
    ) -> None:
        self.state = state
        self.epoch = state.epoch
        self.position = offset
        self.size = len(data)
        self._data = data
        self._decoding = decoding
        self._aborted = deque(sorted(aborted, key=lambda row: row.first_offset))
        self._aborting: set[int] = set()  # producers whose records belong to an aborted transaction at this place
        self._batch: DecodedBatch | None = None  # the one whose records are being handed out
        self._records: list[Record] = []
        self._index = 0
        self._next_offset = offset  # behind the batch that was decoded last
        self._batches = self._cut()
        self.end_offset = self._batches[-1][1].next_offset if self._batches else offset

    def _cut(self) -> deque[tuple[int, BatchHeader]]:
        found: deque[tuple[int, BatchHeader]] = deque()
        position, end = 0, len(self._data)
        try:
            while end - position >= HEADER_SIZE:
                header = parse_header(self._data, position)
                if header.size > end - position:
                    break
                found.append((position, header))
                position += header.size
        except CorruptBatch as error:
            if not found:
                raise self._corrupt(self.position, error) from error
            # What is whole comes first; the next fetch begins at the bad batch and reports it.
        if end and not found:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{self.state!r}: the broker sent {end} bytes without a whole batch; raise max.partition.fetch.bytes",
            )
        return found

    @property
    def is_stale(self) -> bool:
        """The consumer went elsewhere after this was asked for."""
        return self.epoch != self.state.epoch

    def take_records(self, limit: int) -> list[Record]:
        """The next records of one batch, at most `limit`; empty behind the last."""
        if self._index >= len(self._records) and not self._decode_records():
            return []
        taken = self._records[self._index : self._index + limit]
        self._index += len(taken)
        at_end = self._index >= len(self._records)
        self.position = self._next_offset if at_end else taken[-1].offset + 1
        return taken

    def take_batch(self) -> DecodedBatch | None:
        """The rest of the batch that is being handed out, or the next one; None behind the last."""
        left = len(self._records) - self._index
        if self._batch is not None and left:
            batch: DecodedBatch | None = self._batch._replace(skip=self._batch.header.record_count - left)
            self._records, self._index = [], 0
        else:
            batch = self._next_batch()
        if batch is not None:
            self.position = self._next_offset
        return batch

    def _decode_records(self) -> bool:
        batch = self._batch = self._next_batch()
        self._records, self._index = [], 0
        if batch is None:
            return False
        topic, number = self.state.partition
        self._records = read_records(batch.data, batch.spans, batch.header, topic, number, self.position)
        return True

    def _next_batch(self) -> DecodedBatch | None:
        """The next batch with wanted records, decoded; None behind the last. The position moves over what is left out."""
        while self._batches:
            place, header = self._batches[0]
            decoded = self._decode(place, header) if self._is_wanted(place, header) else None
            self._batches.popleft()
            self._next_offset = header.next_offset
            if decoded is not None:
                data, spans = decoded
                first = self.position - header.base_offset
                skip = rows_before(spans, first) if first > 0 else 0
                if skip < header.record_count:
                    return DecodedBatch(data, spans, skip, header)
            self.position = header.next_offset
        return None

    def _is_wanted(self, position: int, header: BatchHeader) -> bool:
        if self._decoding.read_committed:
            while self._aborted and self._aborted[0].first_offset <= header.last_offset:
                self._aborting.add(self._aborted.popleft().producer_id)
            if header.control:
                self._end_of_transaction(position, header)
            elif header.transactional and header.producer_id in self._aborting:
                return False
        return not header.control and header.record_count > 0

    def _end_of_transaction(self, position: int, header: BatchHeader) -> None:
        if header.producer_id in self._aborting:
            try:
                marker = parse_end_marker(header, bytes(self._data[position + HEADER_SIZE : position + header.size]))
            except CorruptBatch as error:
                raise self._corrupt(header.base_offset, error) from error
            if marker is not None and not marker.commit:
                self._aborting.discard(header.producer_id)

    def _decode(self, position: int, header: BatchHeader) -> tuple[bytes, array[int]]:
        checked = bytes(self._data[position + PREFIX_SIZE : position + header.size])
        try:
            if self._decoding.check_crcs and crc32c(checked, 0, len(checked)) != header.crc:
                raise CorruptBatch("the checksum is wrong")
            if header.codec == NONE:
                return checked, record_spans(checked, _RECORDS_IN_CHECKED, header.record_count)
            data = decompress(header.codec, checked[_RECORDS_IN_CHECKED:], self._decoding.max_decompressed)
            return data, record_spans(data, 0, header.record_count)
        except CorruptBatch as error:
            raise self._corrupt(header.base_offset, error) from error

    def _corrupt(self, offset: int, error: CorruptBatch) -> KafkaError:
        topic, number = self.state.partition
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {offset} of {topic}-{number}: {error}; to go on without it, seek behind it",
        )

    def __repr__(self) -> str:
        return f"<FetchedPartition {self.state!r} {self.position} to {self.end_offset}>"
