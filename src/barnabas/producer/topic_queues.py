"""The batches of one topic that were not sent yet: a queue per partition (PP-7).

Role: the lane that records are appended to (records/kernel/send_path.py) with the queues behind it, and the choice of the partition
for records without a key. Only the last batch of a queue may be open.
Thread: any. Lock: the lane's own, `with queues:`; every method here wants it held.
"""

from __future__ import annotations

from collections import deque

from barnabas.client.cluster import Cluster
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.partitioner import BuiltInPartitioner
from barnabas.records.kernel.builder import RowSource
from barnabas.records.kernel.send_path import NEVER, BatchResult, OnDelivery, RecordFuture, TopicLane

__all__ = ["PendingRecord", "RowSpan", "TopicQueues"]


class PendingRecord:
    """A record that is being appended the long way."""

    __slots__ = ("headers", "key", "on_delivery", "partition", "timestamp", "value")

    def __init__(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition  # None: any
        self.timestamp = timestamp
        self.on_delivery = on_delivery


class RowSpan:
    """Rows that are being appended: those from `start` to `stop`, of all or of those that `rows` lists."""

    __slots__ = ("rows", "source", "start", "stop")

    def __init__(self, source: RowSource, start: int, stop: int, rows: bytearray | None) -> None:
        self.source = source
        self.start = start
        self.stop = stop
        self.rows = rows


class TopicQueues(TopicLane):
    """See the file header."""

    def __init__(self, topic: str, sticky_size: int, partitioner: BuiltInPartitioner) -> None:
        super().__init__(topic)
        self.queues: list[deque[ProducerBatch]] = []
        self.partitioner = partitioner
        self.sticky_size = max(sticky_size, 1)
        self.used: set[int] = set()  # partitions that ever had a batch

    def resize(self, partition_count: int) -> None:
        """As many queues as the topic has partitions; a topic that was made anew with fewer keeps its old queues until they are empty."""
        while len(self.queues) < partition_count:
            self.queues.append(deque())
            self.open.append(None)
        if partition_count != self.partition_count:
            self.partition_count = partition_count
            self.switch_at = NEVER if partition_count == 1 else 2 * self.sticky_size
            if self.sticky >= partition_count:
                self.sticky = -1

    def choose_sticky(self, cluster: Cluster) -> int:
        """The partition for a record without a key: a new one when enough went to the present one and its last batch is full.

        Switching while a batch has room would send many small batches; beyond twice the size it is done all the same (KIP-794).
        """
        if self.sticky < 0 or (
            self.sticky_bytes >= self.sticky_size
            and (self.sticky_bytes >= 2 * self.sticky_size or self._last_is_full(self.sticky))
        ):
            self._switch(cluster)
        return self.sticky

    def _switch(self, cluster: Cluster) -> None:
        self.sticky = self.partitioner.next_partition(cluster, self.partition_count)
        self.sticky_bytes = 0

    def _last_is_full(self, partition: int) -> bool:
        queue = self.queues[partition]
        return not queue or queue[-1].is_full

    def try_append(self, partition: int, record: PendingRecord) -> RecordFuture | None:
        """Append to the open batch; None when there is none, or no room in it, which closes it."""
        batch: ProducerBatch | None = self.open[partition]
        if batch is None:
            return None
        future = self._append(batch, record)
        if future is None:
            self.close_open(partition)
        return future

    def append_rows(
        self, partition: int, span: RowSpan, now_ms: int, sticky: bool
    ) -> tuple[BatchResult, int, int] | None:
        """Append rows to the open batch: its result, the number of the first and how many. What has no room closes the batch."""
        batch: ProducerBatch | None = self.open[partition]
        if batch is None:
            return None
        first, before = batch.record_count, batch.size
        written = batch.append_rows(span.source, span.start, span.stop, now_ms, span.rows)
        if sticky:
            self.sticky_bytes += batch.size - before
        span.start += written
        if span.start < span.stop:
            self.close_open(partition)
        return (batch.result, first, written) if written else None

    def add_batch(self, batch: ProducerBatch, record: PendingRecord) -> RecordFuture:
        """Open a new batch with its first record, for which it has room."""
        future = self._append(batch, record)
        if future is None:
            raise AssertionError(f"{batch!r} was made for a record and has no room for it")
        self.add_open(batch)
        return future

    def add_open(self, batch: ProducerBatch) -> None:
        partition = batch.place[1]
        self.queues[partition].append(batch)
        self.used.add(partition)
        self.open[partition] = batch

    def _append(self, batch: ProducerBatch, record: PendingRecord) -> RecordFuture | None:
        before = batch.size
        future = batch.try_append(record.timestamp, record.key, record.value, record.headers, record.on_delivery)
        if future is not None and batch.place[1] == self.sticky and record.partition is None:
            self.sticky_bytes += batch.size - before
        return future

    def close_open(self, partition: int) -> None:
        """No record more for the open batch of this partition."""
        batch: ProducerBatch | None = self.open[partition]
        if batch is not None:
            batch.close_for_appends()
            self.open[partition] = None

    def take_first(self, partition: int) -> ProducerBatch:
        """The oldest batch, to be sent or failed; if it was open, it is closed."""
        batch = self.queues[partition].popleft()
        if self.open[partition] is batch:
            self.close_open(partition)
        return batch

    def remove(self, batch: ProducerBatch) -> None:
        """Take a batch out, wherever it is; nothing happens when it is not here."""
        partition = batch.place[1]
        if self.open[partition] is batch:
            self.close_open(partition)
        if batch in self.queues[partition]:
            self.queues[partition].remove(batch)

    def insert_in_order(self, batch: ProducerBatch) -> None:
        """Put a batch that has a sequence number back in front, behind those with smaller ones (PP-27)."""
        queue = self.queues[batch.place[1]]
        before: list[ProducerBatch] = []
        while queue and queue[0].has_sequence and queue[0].base_sequence < batch.base_sequence:
            before.append(queue.popleft())
        queue.appendleft(batch)
        queue.extendleft(reversed(before))
