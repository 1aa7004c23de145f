"""What one fetch brought of one partition: batches that are checked and decoded only when somebody wants their records.

Role: leaves out control batches and, for read_committed, the records of aborted transactions; decodes the rest through the record
kernel, batch by batch into records, or many batches at a time into a run for columns. Bytes behind the last whole batch are ignored, as
the protocol allows.
Thread: the consumer's; no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from barnabas.consumer.assignment import PartitionState
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    PREFIX_SIZE,
    BatchHeader,
    CorruptBatch,
    parse_header,
)
from barnabas.records.compression import NONE, decompress
from barnabas.records.control import parse_end_marker
from barnabas.records.kernel.checksum import crc32c
from barnabas.records.kernel.fetched import Record, batch_records
from barnabas.records.kernel.record_layout import record_spans
from barnabas.records.kernel.runs import Run, whole_batches

__all__ = ["Decoding", "FetchedPartition"]

_RECORDS_IN_CHECKED = HEADER_SIZE - PREFIX_SIZE
_ALL_ROWS = 1 << 62


class Decoding(NamedTuple):
    """How batches are read."""

    check_crcs: bool
    read_committed: bool
    max_decompressed: int


class FetchedPartition:
    """See the file header. `position` is where to read on behind what was taken, `end_offset` behind all of it."""

    __slots__ = (
        "_aborted",
        "_aborting",
        "_batch_place",
        "_data",
        "_decoding",
        "_end",
        "_index",
        "_next_offset",
        "_place",
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
        self._records: list[Record] = []  # of the batch that is being handed out, which is at _batch_place
        self._index = 0
        self._next_offset = offset  # behind that batch
        self._place = self._batch_place = 0  # of the next batch
        self._end, next_offset = whole_batches(data)
        if not self._end and len(data):
            self._raise_no_batch()
        self._data = data[: self._end]
        self.end_offset = max(offset, next_offset)  # nothing that a broker sends leads backwards

    def _raise_no_batch(self) -> NoReturn:
        if len(self._data) >= HEADER_SIZE:
            self._header(0)
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{self.state!r}: the broker sent {len(self._data)} bytes without a whole batch; raise max.partition.fetch.bytes",
        )

    def _header(self, place: int) -> BatchHeader:
        try:
            return parse_header(self._data, place)
        except CorruptBatch as error:
            raise self._corrupt(self.position, error) from error

    def _checked_batch(self, place: int) -> tuple[BatchHeader, bytes]:
        """A header, and the bytes of its batch that have a checksum. Nothing in the header is believed before that: a flipped bit would
        make it a batch that nobody wants."""
        header = self._header(place)
        checked = bytes(self._data[place + PREFIX_SIZE : place + header.size])
        if self._decoding.check_crcs and crc32c(checked, 0, len(checked)) != header.crc:
            raise self._corrupt(header.base_offset, CorruptBatch("the checksum is wrong"))
        return header, checked

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

    def take_run(self, max_rows: int) -> Run | None:
        """The next batches with wanted records, about `max_rows` of them, measured for columns; None behind the last."""
        if self._index < len(self._records):  # the rest of a batch that was handed out record by record comes first
            self._place = self._batch_place
            self._records, self._index = [], 0
        decoding = self._decoding
        while self._place < self._end:
            run = Run(self._data, self._place, self.position)
            none_aborted = not (decoding.read_committed and (self._aborted or self._aborting))
            run.measure(decoding.check_crcs, none_aborted, max_rows)
            if run.stop > self._place:
                self._place = run.stop
            else:
                run = self._unusual_run(self._place)
            self.position = max(self.position, run.next_offset)
            if run.sizes.rows:
                return run
        return None

    def _unusual_run(self, place: int) -> Run:
        """The batch that a run ended in front of, as a run of its own: without records if it is left out, decompressed if need be."""
        header, checked = self._checked_batch(place)
        run = Run(memoryview(b""), 0, header.next_offset)
        if self._is_wanted(place, header):
            data, begin = self._decompressed(checked, header)
            run = Run(memoryview(_plain_header(header, len(data) - begin) + data[begin:]), 0, self.position)
            run.measure(False, True, _ALL_ROWS)
            if not run.stop:
                self._raise_bad_records(data, begin, header)
        self._place = place + header.size
        return run

    def _decode_records(self) -> bool:
        """Decode the next batch with wanted records; False behind the last. The position moves over what is left out."""
        self._records, self._index = [], 0
        topic, number = self.state.partition
        while self._place < self._end:
            place = self._place
            header, checked = self._checked_batch(place)
            if self._is_wanted(place, header):
                data, begin = self._decompressed(checked, header)
                try:
                    self._records = batch_records(data, begin, header, topic, number, self.position)
                except CorruptBatch as error:
                    raise self._corrupt(header.base_offset, error) from error
            self._place, self._batch_place = place + header.size, place
            self._next_offset = header.next_offset
            if self._records:
                return True
            self.position = max(self.position, header.next_offset)
        return False

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

    def _decompressed(self, checked: bytes, header: BatchHeader) -> tuple[bytes, int]:
        """The records of a batch, and where they begin in these bytes."""
        try:
            if header.codec == NONE:
                return checked, _RECORDS_IN_CHECKED
            return decompress(header.codec, checked[_RECORDS_IN_CHECKED:], self._decoding.max_decompressed), 0
        except CorruptBatch as error:
            raise self._corrupt(header.base_offset, error) from error

    def _raise_bad_records(self, data: bytes, begin: int, header: BatchHeader) -> None:
        """The strict reading knows what is wrong with records that a run cannot be made of."""
        try:
            record_spans(data, begin, header.record_count)
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


def _plain_header(header: BatchHeader, size: int) -> bytes:
    """The header of the same batch with `size` bytes of records that are not compressed."""
    attributes, length = header.attributes & ~CODEC_MASK, HEADER_SIZE - LENGTH_OVERHEAD + size
    return HEADER.pack(*header._replace(attributes=attributes, batch_length=length))
