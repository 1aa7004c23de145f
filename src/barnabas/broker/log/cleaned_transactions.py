"""Transactions while a log is compacted: which batches belong to an aborted one, and which markers nobody needs any more.

Role: follows the batches in order of their offsets (Kafka's CleanedTransactionMetadata). It is told of aborted transactions by the
transaction indexes, because data comes before the marker that says so.
Thread: one cleaner's. Lock: none.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from barnabas.broker.log.txn_index import AbortedEntry
from barnabas.records.batch import HEADER_SIZE, BatchHeader
from barnabas.records.control import parse_end_marker


class CleanedTransactions:
    """The transactions that are open at the batch that was read last."""

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedEntry]] = []
        self._aborted: dict[int, AbortedEntry] = {}
        self._aborted_with_data: set[int] = set()
        self._committed: set[int] = set()
        self.kept: list[AbortedEntry] = []
        """Aborted transactions of which something is left: the transaction index of the new segment."""

    def expect(self, aborted: Iterable[AbortedEntry]) -> None:
        """Aborted transactions of the batches that come next; one that was told before does no harm."""
        for transaction in aborted:
            heapq.heappush(self._ahead, (transaction.first_offset, transaction))

    def _begin_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._ahead)
            self._aborted.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction and can go."""
        self._begin_up_to(header.last_offset)
        if not header.transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_needless_marker(self, header: BatchHeader, batch: bytes) -> bool:
        """Whether a control batch ends a transaction of which no data was met. An abort marker outlives its data by one cleaning."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        marker = parse_end_marker(header, batch[HEADER_SIZE:])
        if marker is None:
            return True
        if marker.commit:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._aborted_with_data:
            return True
        self._aborted_with_data.discard(producer_id)
        self.kept.append(transaction)
        return False

    def take_kept(self) -> list[AbortedEntry]:
        """What the new segment's index must hold; once."""
        kept, self.kept = self.kept, []
        return kept

    def __repr__(self) -> str:
        return f"CleanedTransactions({len(self._aborted)} aborted, {len(self._committed)} committed ones are open)"
