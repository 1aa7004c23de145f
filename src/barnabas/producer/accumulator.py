"""Records that wait to be sent: bounded memory, a queue of batches per partition, and which of them are due (PP-6 .. PP-9, PP-11).

Role: `append` from user threads; `ready`, `drain`, `reenqueue`, `split`, expiry and the end of batches from the I/O thread.
Thread: any; `ready` and `drain` only the I/O thread. Lock: one per topic for its queues (topic_queues.py), `_lock` for the table of
topics and the set of batches whose outcome is open. Memory is waited for, and batches are compressed and ended, outside of both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Cluster, Node
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.buffer_pool import BufferPool
from barnabas.producer.compression_ratio import CompressionRatios
from barnabas.producer.errors import ProducerClosed
from barnabas.producer.partitioner import BuiltInPartitioner
from barnabas.producer.topic_queues import PendingRecord, TopicQueues
from barnabas.producer.transaction_manager import SequenceKeeper
from barnabas.records.compression import NONE
from barnabas.records.kernel.builder import HEADER_SIZE, record_size_bound
from barnabas.records.kernel.send_path import RecordFuture

__all__ = ["AccumulatorSettings", "Ready", "RecordAccumulator"]

NEVER_MS = 1 << 62
_SMALLEST_BATCH = HEADER_SIZE + 1
_MAX_PLAIN_SHARE = 16  # a compressed batch may take as many times batch.size plain bytes


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """What the user chose, as far as it matters here."""

    batch_size: int
    linger_ms: int = 0
    delivery_timeout_ms: int = 120_000
    codec: int = NONE
    level: int | None = None
    adaptive: bool = True
    availability_timeout_ms: int = 0


@dataclass(slots=True)
class Ready:
    """The result of one look at all queues: who can be sent to, and when to look again."""

    nodes: dict[int, Node] = field(default_factory=dict)
    next_check_ms: int = NEVER_MS
    unknown_leader_topics: set[str] = field(default_factory=set)
    waiting: dict[int, list[tuple[TopicQueues, int]]] = field(default_factory=dict)
    """By node, the partitions that have a batch, sent or not."""


class _Look:
    """One look at all queues. `everything_due`: memory is short, or a flush, a close or the end of a transaction is going on."""

    __slots__ = ("cluster", "everything_due", "now_ms")

    def __init__(self, cluster: Cluster, now_ms: int, everything_due: bool) -> None:
        self.cluster = cluster
        self.now_ms = now_ms
        self.everything_due = everything_due


class _NodeTimes:
    """When a node last had something to send, and when it could (KIP-794)."""

    __slots__ = ("drained_ms", "ready_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_ms = self.drained_ms = now_ms


class RecordAccumulator:
    """See the file header. `lanes` is shared with the send path."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        pool: BufferPool,
        keeper: SequenceKeeper,
        backoff: ExponentialBackoff,
        lanes: dict[str, TopicQueues] | None = None,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.ratios = CompressionRatios()
        self._keeper = keeper
        self._backoff = backoff
        self.lanes: dict[str, TopicQueues] = {} if lanes is None else lanes
        self._lock = threading.Lock()
        self._incomplete: set[ProducerBatch] = set()
        self._on_the_wire: set[ProducerBatch] = set()  # done, and a request still uses their memory
        self._flushes = 0
        self._muted: set[tuple[str, int]] = set()
        self._drain_after: dict[int, tuple[str, int]] = {}
        self._node_times: dict[int, _NodeTimes] = {}
        self._next_expiry_ms = NEVER_MS
        self.closed = False

    # ---------------------------------------------------------------- appending

    def lane(self, topic: str, cluster: Cluster) -> TopicQueues:
        """The queues of a topic, with one for each partition that the cluster has now."""
        lane = self.lanes.get(topic)
        count = len(cluster.partitions_for(topic))
        if lane is None:
            with self._lock:
                lane = self.lanes.get(topic)
                if lane is None:
                    lane = TopicQueues(topic, self.settings.batch_size, BuiltInPartitioner(topic))
                    with lane:
                        lane.resize(count)
                    self.lanes[topic] = lane
        if count != lane.partition_count and count > 0:
            with lane:
                lane.resize(count)
        return lane

    def append(
        self, topic: str, record: PendingRecord, cluster: Cluster, now_ms: int, max_block_ms: float
    ) -> tuple[RecordFuture, bool]:
        """Append the long way: the record's future, and whether the I/O thread should be woken.

        Memory is waited for without a lock; what happened meanwhile (another thread opened a batch, records without a key moved to another
        partition, the producer was closed) is looked at again afterwards.
        """
        lane = self.lane(topic, cluster)
        with lane:
            partition = self._partition_of(lane, record, cluster)
            future = lane.try_append(partition, record)
        if future is not None:
            return future, len(lane.queues[partition]) > 1
        size = max(self.plain_limit(topic), record_size_bound(record.key, record.value, record.headers))
        buffer = self.pool.allocate(size, max_block_ms)
        used = False
        try:
            with lane:
                partition = self._partition_of(lane, record, cluster)
                future = lane.try_append(partition, record)
                if future is None:
                    batch = ProducerBatch((topic, partition), buffer, size, now_ms)
                    future = lane.add_batch(batch, record)
                    used = True
                    with self._lock:
                        self._incomplete.add(batch)
        finally:
            if not used:
                self.pool.deallocate(buffer, size)
        return future, True

    @contextmanager
    def open_batch(
        self, lane: TopicQueues, partition: int, needed: int, now_ms: int, max_block_ms: float
    ) -> Iterator[None]:
        """For callers that append rows themselves: in the block, which has the topic's lock, there is an open batch with room for a record
        of `needed` bytes, or one that somebody else opened. The first rows belong into the block: without the lock the I/O thread could
        take the batch while it is empty, and brokers refuse empty ones."""
        size = max(self.plain_limit(lane.topic), needed)
        buffer = self.pool.allocate(size, max_block_ms)
        used = False
        try:
            with lane:
                self.raise_if_closed()
                if lane.open[partition] is None:
                    batch = ProducerBatch((lane.topic, partition), buffer, size, now_ms)
                    lane.add_open(batch)
                    used = True
                    with self._lock:
                        self._incomplete.add(batch)
                yield
        finally:
            if not used:
                self.pool.deallocate(buffer, size)

    def plain_limit(self, topic: str) -> int:
        """How many bytes a batch may gather before compression."""
        size = self.settings.batch_size
        if self.settings.codec != NONE:
            size = min(self.ratios.plain_limit(topic, size), size * _MAX_PLAIN_SHARE, self.pool.total)
        return max(size, _SMALLEST_BATCH)

    def _partition_of(self, lane: TopicQueues, record: PendingRecord, cluster: Cluster) -> int:
        self.raise_if_closed()
        return lane.choose_sticky(cluster) if record.partition is None else record.partition

    def raise_if_closed(self) -> None:
        if self.closed:
            raise ProducerClosed("the producer was closed while a record was being sent")

    # ---------------------------------------------------------------- what is due

    def ready(self, cluster: Cluster, now_ms: int) -> Ready:
        """Which nodes have something to send now, and when to look again (PP-8)."""
        found = Ready()
        look = _Look(
            cluster, now_ms, self.pool.queued > 0 or self.closed or self._flushes > 0 or self._keeper.completing
        )
        for lane in list(self.lanes.values()):
            if not self._is_idle(lane):
                self._look_at(lane, look, found)
        return found

    def _is_idle(self, lane: TopicQueues) -> bool:
        """Nothing to send, and no weights to take back: of the topics that were ever sent to, most are like this."""
        return not any(lane.queues) and not lane.partitioner.weighs and self.settings.availability_timeout_ms <= 0

    def _look_at(self, lane: TopicQueues, look: _Look, found: Ready) -> None:
        """One topic; on the way the lengths of its queues, once each partition had a batch (KIP-794)."""
        adaptive = self.settings.adaptive and 1 < lane.partition_count <= len(lane.used)
        lengths: dict[int, int] = {}
        for partition, queue in enumerate(lane.queues):
            if not queue and not adaptive:
                continue
            leader = look.cluster.leader_for(lane.topic, partition)
            if leader is not None and adaptive and self._is_available(leader):
                lengths[partition] = len(queue)
            if queue and leader is None:
                found.unknown_leader_topics.add(lane.topic)
            elif queue and leader is not None:
                self._look_at_queue(lane, partition, leader, look, found)
        if adaptive:
            with lane:
                lane.partitioner.update_load(list(lengths.values()), list(lengths), lane.partition_count)

    def _look_at_queue(self, lane: TopicQueues, partition: int, leader: Node, look: _Look, found: Ready) -> None:
        with lane:
            queue = lane.queues[partition]
            if not queue:
                return
            first = queue[0]
            full = len(queue) > 1 or first.is_full
        found.waiting.setdefault(leader.id, []).append((lane, partition))
        if (lane.topic, partition) in self._muted:
            return
        waited = first.waited_ms(look.now_ms)
        backing_off = self._is_backing_off(first, look.cluster, waited)
        wait_ms = self._backoff_ms(first) if backing_off else self.settings.linger_ms
        if not backing_off and (full or look.everything_due or waited >= wait_ms):
            found.nodes[leader.id] = leader
        else:
            found.next_check_ms = min(found.next_check_ms, max(wait_ms - waited, 0))

    def _is_available(self, node: Node) -> bool:
        limit = self.settings.availability_timeout_ms
        times = self._node_times.get(node.id)
        return limit <= 0 or times is None or times.ready_ms - times.drained_ms <= limit

    def note_node(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """A node had something to send; whether it could be sent to."""
        if self.settings.availability_timeout_ms <= 0:
            return
        times = self._node_times.setdefault(node_id, _NodeTimes(now_ms))
        if can_drain:
            times.drained_ms = now_ms
        times.ready_ms = now_ms

    def _is_backing_off(self, batch: ProducerBatch, cluster: Cluster, waited_ms: int) -> bool:
        """A retried batch waits, unless its partition has a new leader."""
        if not batch.attempts:
            return False
        info = cluster.partition(*batch.place)
        if info is not None:
            batch.note_leader_epoch(info.leader_epoch)
        return not batch.leader_changed and waited_ms < self._backoff_ms(batch)

    def _backoff_ms(self, batch: ProducerBatch) -> int:
        """Decided once per attempt, because it has jitter and is asked for again and again."""
        if batch.backoff_attempt != batch.attempts:
            batch.backoff_attempt = batch.attempts
            batch.backoff_ms = self._backoff.after(batch.attempts - 1)
        return batch.backoff_ms

    # ---------------------------------------------------------------- draining

    def drain(
        self, cluster: Cluster, ready: Ready, nodes: Collection[int], max_size: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """At most one batch of each partition for each of these nodes, up to `max_size` bytes per node."""
        return {node: self._drain_node(cluster, node, ready.waiting.get(node, []), max_size, now_ms) for node in nodes}

    def _drain_node(
        self, cluster: Cluster, node: int, waiting: list[tuple[TopicQueues, int]], max_size: int, now_ms: int
    ) -> list[ProducerBatch]:
        """Begin after the partition at which the last round ended, so that none starves (PP-9)."""
        size = 0
        drained: list[ProducerBatch] = []
        for lane, partition in self._rotated(node, waiting):
            place = (lane.topic, partition)
            if place in self._muted:
                continue
            with lane:
                if not lane.queues[partition]:
                    continue
                first = lane.queues[partition][0]
                if self._is_backing_off(first, cluster, first.waited_ms(now_ms)):
                    continue
                if drained and size + first.size > max_size:
                    break
                if not self._keeper.may_send(first):
                    continue
                batch = lane.take_first(partition)
                self._keeper.assign(batch)
            self._seal(batch, now_ms)
            size += batch.size
            drained.append(batch)
            self._drain_after[node] = place
        return drained

    def _rotated(self, node: int, waiting: list[tuple[TopicQueues, int]]) -> list[tuple[TopicQueues, int]]:
        last = self._drain_after.get(node)
        if last is None or len(waiting) < 2:
            return waiting
        for index, (lane, partition) in enumerate(waiting):
            if (lane.topic, partition) == last:
                return waiting[index + 1 :] + waiting[: index + 1]
        return waiting

    def _seal(self, batch: ProducerBatch, now_ms: int) -> None:
        """Outside the lock: it may compress."""
        ratio = batch.seal(self.settings.codec, self.settings.level, now_ms)
        if self.settings.codec != NONE and not batch.attempts:
            self.ratios.update(batch.place[0], ratio)

    def mute(self, place: tuple[str, int]) -> None:
        self._muted.add(place)

    def unmute(self, place: tuple[str, int]) -> None:
        self._muted.discard(place)

    def has_undrained(self) -> bool:
        return any(queue for lane in list(self.lanes.values()) for queue in lane.queues)

    # ---------------------------------------------------------------- back into the queue

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Send it again: at the head, or where its sequence number belongs."""
        batch.reenqueued(now_ms)
        self._put_back(batch)

    def split(self, batch: ProducerBatch) -> int:
        """A batch that the broker finds too large comes back in parts, before everything else; how many."""
        self.ratios.reset(batch.place[0], max(1.0, (batch.size - HEADER_SIZE) / max(batch.plain_size - HEADER_SIZE, 1)))
        parts = batch.split(self.settings.batch_size)
        with self._lock:
            self._incomplete.update(parts)
        for part in reversed(parts):
            if part.has_sequence:
                self._keeper.add_in_flight(part)
            self._put_back(part)
        return len(parts)

    def _put_back(self, batch: ProducerBatch) -> None:
        lane = self.lanes[batch.place[0]]
        with lane:
            if batch.has_sequence:
                lane.insert_in_order(batch)
            else:
                lane.queues[batch.place[1]].appendleft(batch)

    # ---------------------------------------------------------------- expiry

    @property
    def next_expiry_ms(self) -> int:
        """When the oldest batch that was seen by the last look will be too old."""
        return self._next_expiry_ms

    def reset_next_expiry(self) -> None:
        self._next_expiry_ms = NEVER_MS

    def note_expiry(self, batch: ProducerBatch) -> None:
        self._next_expiry_ms = min(self._next_expiry_ms, batch.created_ms + self.settings.delivery_timeout_ms)

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Batches that waited for too long, taken out of their queues in the order of sending."""
        found: list[ProducerBatch] = []
        timeout = self.settings.delivery_timeout_ms
        for lane in list(self.lanes.values()):
            if not any(lane.queues):
                continue
            for partition, queue in enumerate(lane.queues):
                if not queue:
                    continue
                with lane:
                    while queue and queue[0].has_expired(timeout, now_ms):
                        found.append(lane.take_first(partition))
                    if queue:
                        self.note_expiry(queue[0])
        return found

    # ---------------------------------------------------------------- the end of batches

    def release(self, batch: ProducerBatch) -> None:
        """The batch is done. Its memory goes back now, or, while a request uses it, when that has come to its end (PP-6)."""
        with self._lock:
            self._incomplete.discard(batch)
            if batch.freed:
                return
            if batch.in_flight:
                self._on_the_wire.add(batch)
                return
            self._on_the_wire.discard(batch)
            batch.freed = True
        if not batch.is_split:
            self.pool.deallocate(batch.buffer, batch.limit)

    def take_back_memory(self) -> None:
        """All connections are closed: no request uses any memory any more, also not that of batches that expired on their way."""
        with self._lock:
            lent, self._on_the_wire = self._on_the_wire, set()
            for batch in (*lent, *self._incomplete):
                batch.in_flight = False
        for batch in lent:
            self.release(batch)

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def incomplete(self) -> list[ProducerBatch]:
        with self._lock:
            return list(self._incomplete)

    def flush(self, timeout: float | None) -> int:
        """Wait until everything appended before is done; how many records are still open when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waited_for = self.incomplete()
        results = [batch.result for batch in waited_for]
        for result in results:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not result.wait(left):
                break
        return sum(batch.record_count for batch in waited_for if not batch.result.finished)

    def begin_flush(self) -> None:
        with self._lock:
            self._flushes += 1

    def end_flush(self) -> None:
        with self._lock:
            self._flushes -= 1

    def abort_all(self, error: BaseException) -> None:
        """Fail every batch whose outcome is open."""
        self._abort(self.incomplete(), error)

    def abort_undrained(self, error: BaseException) -> None:
        """Fail the batches that were never sent."""
        self._abort([batch for batch in self.incomplete() if not batch.has_sequence and not batch.in_flight], error)

    def _abort(self, batches: Iterable[ProducerBatch], error: BaseException) -> None:
        for batch in batches:
            lane = self.lanes[batch.place[0]]
            with lane:
                lane.remove(batch)
            batch.fail(error)
            self.release(batch)

    def close(self) -> None:
        """No record more; what is here is sent."""
        self.closed = True
        self.pool.close()

    def __repr__(self) -> str:
        return f"<RecordAccumulator topics={len(self.lanes)} incomplete={len(self._incomplete)} {self.pool!r}>"
