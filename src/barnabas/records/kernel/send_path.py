"""The way of one record from `send` into the open batch of its partition: what is done for every record, and nothing else.

Role:   `SendPath.send` finds the topic's lane, chooses the partition, and lets the open batch write the record. Whatever is not the
common case
        (a new topic, no open batch, no room, other types, serializers, interceptors) goes to `_send_slowly`, which the producer has.
        `RecordFuture` is the light end of it: a number within a `BatchResult` that all records of the batch share.
Thread: any. Lock: one per topic (`TopicLane`), held for the write of one record; `_completion` for what becomes of a batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.builder import BatchBuilder, _murmur2
    from cython.cimports.barnabas.records.kernel.turns import Turns
else:
    from barnabas.records.kernel.builder import BatchBuilder, _murmur2
    from barnabas.records.kernel.turns import Turns

    def wall_ms() -> int:
        return time.time_ns() // 1_000_000


__all__ = ["BatchResult", "OpenBatch", "ProducerRecord", "RecordFuture", "RecordMetadata", "SendPath", "TopicLane"]

log = logging.getLogger(__name__)

NO_OFFSET = -1
NO_TIMESTAMP = -1
NEVER = 1 << 62

OnDelivery = Callable[[BaseException | None, "RecordMetadata | None"], object]
Whole: TypeAlias = int
"""A number that a user gives. Cython turns a float into an argument that is annotated as `int`; this name it leaves alone."""

_completion = threading.Lock()
"""Guards what several threads may decide about one batch: its end, and who is told. Held for a few byte codes."""


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`, before it is serialized."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp: int | None = None


@cython.cclass
class RecordMetadata:
    """Where a record is. `offset` is -1 when the broker was not asked (acks=0).

    metadata = producer.send("orders", b"value").result(10)
    print(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp)
    """

    __slots__ = ("offset", "partition", "timestamp", "topic")

    def __init__(self, topic: str, partition: int, offset: int, timestamp: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordMetadata) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp})"
        )


@cython.cclass
class BatchResult:
    """What became of a batch, shared by the futures of its records.

    `settled`: the outcome is known. `finished`: the callbacks have run, too. A batch that was split points to its `parts`.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.settled = False
        self.finished = False
        self.base_offset = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.error: BaseException | None = None
        self.parts: list[tuple[int, BatchResult]] | None = None
        self._record_errors: Callable[[int], BaseException] | None = None
        self._event: threading.Event | None = None
        self._watched: list[RecordFuture] = []

    def settle(
        self,
        base_offset: int,
        append_time: int,
        error: BaseException | None = None,
        record_errors: Callable[[int], BaseException] | None = None,
    ) -> bool:
        """Decide the outcome, once (PP-30): False when it was decided before."""
        with _completion:
            if self.settled or self.parts is not None:
                return False
            self.base_offset = base_offset
            self.append_time = append_time
            self.error = error
            self._record_errors = record_errors
            self.settled = True
            watched = self._watched
            self._watched = []
        future: RecordFuture
        for future in watched:
            future._tell()
        self._finish()
        return True

    def _finish(self) -> None:
        with _completion:
            self.finished = True
            event = self._event
        if event is not None:
            event.set()

    def split(self, parts: list[tuple[int, BatchResult]]) -> None:
        """The records live on in other batches: pairs of the first record's number and its batch's result, in order."""
        future: RecordFuture
        with _completion:
            self.parts = parts
            watched = self._watched
            self._watched = []
            for future in watched:
                future._follow()
                future._result._watched.append(future)
        self._finish()

    def wait(self, seconds: float | None) -> bool:
        """Wait until the callbacks of this batch, and of all parts of it, have run."""
        deadline = None if seconds is None else time.monotonic() + seconds
        waiting = [self]
        while waiting:
            result = waiting.pop()
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not result._wait(left):
                return False
            waiting.extend(part for _, part in result.parts or ())
        return True

    def _wait(self, seconds: float | None) -> bool:
        if self.finished:
            return True
        with _completion:
            if self._event is None and not self.finished:
                self._event = threading.Event()
            event = self._event
        return event is None or self.finished or event.wait(seconds)

    def error_of(self, index: int) -> BaseException | None:
        """Why the record of this number failed, or None."""
        if self.error is None or self._record_errors is None:
            return self.error
        return self._record_errors(index)

    def __repr__(self) -> str:
        state = "split" if self.parts else "failed" if self.error else "written" if self.settled else "pending"
        return f"<BatchResult {self.topic}-{self.partition} {state} base_offset={self.base_offset}>"


@cython.cclass
class RecordFuture:
    """The outcome of one `send`, when it is there. Methods as those of `concurrent.futures.Future`.

    future = producer.send("orders", b"value")
    print(future.result(10).offset)
    """

    __slots__ = ("_callbacks", "_index", "_on_delivery", "_result", "_timestamp")

    @cython.cfunc
    @cython.inline
    def _begin(
        self,
        result: BatchResult,
        index: cython.int,
        timestamp: cython.longlong,
        on_delivery: OnDelivery | None,
    ) -> object:
        self._result = result
        self._index = index
        self._timestamp = timestamp
        self._on_delivery = on_delivery
        self._callbacks: tuple[Callable[[RecordFuture], object], ...] | None = None
        return None

    def done(self) -> bool:
        """Whether the outcome is known."""
        self._follow()
        return self._result.settled

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome: where the record is, or the error; TimeoutError after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome: None, or the error."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not self._result._wait(left):
                raise TimeoutError(f"no outcome after {timeout} s")
        return self._result.error_of(self._index)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(future)` on the I/O thread when the outcome is there; at once when it is there already."""
        with _completion:
            self._follow()
            if not self._result.settled:
                if self._callbacks is None and self._on_delivery is None:
                    self._result._watched.append(self)
                self._callbacks = (*(self._callbacks or ()), callback)
                return
        callback(self)

    def _follow(self) -> None:
        """Where the record is now, if its batch was split."""
        while self._result.parts is not None:
            parts: list[tuple[int, BatchResult]] = self._result.parts
            first, part = parts[0]
            for start, result in parts:
                if start > self._index:
                    break
                first, part = start, result
            self._index -= first
            self._result = part

    @cython.cfunc
    def _metadata(self) -> RecordMetadata:
        result: BatchResult = self._result
        made: RecordMetadata = RecordMetadata.__new__(RecordMetadata)
        made.topic = result.topic
        made.partition = result.partition
        made.offset = result.base_offset + self._index if result.base_offset >= 0 else -1
        made.timestamp = self._timestamp if result.append_time < 0 else result.append_time
        return made

    @cython.cfunc
    def _tell(self) -> object:
        """Run the callbacks; what they raise is logged and disturbs nobody."""
        on_delivery = self._on_delivery
        self._on_delivery = None
        try:
            if on_delivery is not None:
                if self._result.error is None:
                    on_delivery(None, self._metadata())
                else:
                    on_delivery(self._result.error_of(self._index), None)
        except Exception:
            log.exception("a delivery callback failed")
        if self._callbacks is not None:
            self._tell_watchers()
        return None

    def _tell_watchers(self) -> None:
        callbacks = self._callbacks
        self._callbacks = None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:
                log.exception("a callback of a future failed")

    def __repr__(self) -> str:
        return f"<RecordFuture number {self._index} of {self._result!r}>"


@cython.cclass
class OpenBatch(BatchBuilder):
    """A batch to which records are being appended, with the result that their futures share."""

    def __init__(self, buffer: bytearray, limit: int, topic: str, partition: int) -> None:
        BatchBuilder.__init__(self, buffer, limit)
        self.result = BatchResult(topic, partition)

    def try_append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture | None:
        """Append one record; None when there is no room. The caller holds the lock of the topic."""
        return self.append_watched(timestamp, key, value, headers, on_delivery)

    @cython.cfunc
    def append_watched(
        self,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture | None:
        index: cython.int = self.append_record(timestamp, key, value, headers)
        if index < 0:
            return None
        future: RecordFuture = RecordFuture.__new__(RecordFuture)
        future._begin(self.result, index, timestamp, on_delivery)
        if on_delivery is not None:
            self.result._watched.append(future)
        return future


@cython.cclass
class TopicLane:
    """The open batches of one topic, by partition, and the lock that guards them and the topic's queues: `with lane:`.

    `sticky` is the partition for records without a key; after `switch_at` bytes the partitioner is asked for another one.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.open: list[Any] = []  # an OpenBatch or None for each partition
        self.partition_count = 0
        self.sticky = -1
        self.sticky_bytes = 0
        self.switch_at = NEVER
        if not cython.compiled:
            self._lock = threading.Lock()

    def __enter__(self) -> TopicLane:
        self._lock.acquire()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()

    @cython.cfunc
    def append_now(self, key: bytes | None, value: bytes, on_delivery: OnDelivery | None) -> RecordFuture | None:
        """Append to an open batch with the time of now; None when that cannot be done here."""
        now: cython.longlong = wall_ms()
        future: RecordFuture | None = None
        partition: cython.int
        before: cython.Py_ssize_t
        with self._lock:
            if key is None:
                partition = self.sticky
                if partition < 0 or self.sticky_bytes >= self.switch_at:
                    return None
            else:
                partition = (_murmur2(key, 0, len(key)) & 0x7FFFFFFF) % self.partition_count
            batch: OpenBatch | None = self.open[partition]
            if batch is not None:
                before = batch.size
                future = batch.append_watched(now, key, value, None, on_delivery)
                if key is None:
                    self.sticky_bytes += batch.size - before
        return future


@cython.cclass
class SendPath:
    """The part of a producer that every record passes. `_direct`: records of plain bytes may take the short way."""

    def __init__(self, turns: Turns) -> None:
        self._lanes: dict[str, Any] = {}
        self._direct = False
        self._direct_keys = False
        self._turns = turns

    def send(  # noqa: PLR0913, PLR0917 - the names and order that users know
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Whole | None = None,
        timestamp: Whole | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Send a record; returns at once, unless metadata or memory must be waited for (at most `max.block.ms`).

        Key and value are bytes, or what their serializers take. `on_delivery(error, metadata)` is called on the I/O thread, in the
        order of the records of a partition. Without a `partition` records with a key go to that of the key, others to any.
        `timestamp` is in milliseconds since 1970; without one it is the time of now.

        >>> future = producer.send("orders", b"value", key=b"key", headers=[("source", b"shop")])  # doctest: +SKIP
        >>> future.result(10)  # doctest: +SKIP
        RecordMetadata(topic='orders', partition=0, offset=0, timestamp=1700000000000)
        """
        if (
            self._direct
            and type(value) is bytes
            and headers is None
            and partition is None
            and timestamp is None
            and (key is None or (self._direct_keys and type(key) is bytes))
        ):
            lane: TopicLane | None = self._lanes.get(topic)
            if lane is not None:
                future: RecordFuture | None = lane.append_now(key, value, on_delivery)
                if future is not None:
                    if self._turns.wanted:
                        self._turns.give_way()
                    return future
        record = ProducerRecord(topic, value, key, headers, partition, timestamp)
        return self._send_slowly(record, on_delivery)

    def _send_slowly(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> RecordFuture:
        """Everything that is not the common case."""
        raise NotImplementedError
