"""`Producer`: what a user holds.

Role: puts the parts together, and does what `send` does not do for every record: waits for metadata and memory, serializes, chooses
partitions, opens batches.
Thread: any number of threads may use one producer. Its own is the I/O thread (sender.py). Lock: none of its own; see
accumulator.py.
"""

from __future__ import annotations

import itertools
import logging
import operator
import os
import select
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.addresses import resolved_bootstrap
from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Cluster, PartitionInfo
from barnabas.client.errors import ClientClosed, ClientTimeout
from barnabas.client.metadata import Metadata
from barnabas.client.network_client import NetworkClient
from barnabas.client.partition_check import PartitionCheck
from barnabas.client.times import milliseconds
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.net.poller import default_poller
from barnabas.net.selector import Selector
from barnabas.producer.accumulator import AccumulatorSettings, RecordAccumulator
from barnabas.producer.buffer_pool import BufferPool
from barnabas.producer.config import (
    acks_of,
    batch_size,
    delivery_timeout_ms,
    is_idempotent,
    producer_config,
    take_objects,
)
from barnabas.producer.errors import ForkedProducer, ProducerClosed, RecordTooLarge, SerializationError
from barnabas.producer.interceptors import InterceptorChain
from barnabas.producer.metrics import ProducerMetrics
from barnabas.producer.partitioner import Partitioner, partition_for_key
from barnabas.producer.sender import Sender, SenderSettings
from barnabas.producer.serializers import Serializer, to_bytes
from barnabas.producer.topic_queues import PendingRecord
from barnabas.producer.transaction_manager import NoSequences, SequenceKeeper, TransactionManager
from barnabas.records.compression import CODEC_NAMES
from barnabas.records.kernel.builder import encode_headers, record_size_bound
from barnabas.records.kernel.send_path import OnDelivery, ProducerRecord, RecordFuture, RecordMetadata, SendPath
from barnabas.records.kernel.turns import TurnPoller, Turns

if TYPE_CHECKING:
    import pyarrow

    from barnabas.producer.arrow import TableFuture

__all__ = ["Producer", "RecordFuture", "RecordMetadata"]

log = logging.getLogger(__name__)

_EXIT_SECONDS = 2.0
_numbers = itertools.count(1)
_alive: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_alive):
        producer._forked()


os.register_at_fork(after_in_child=_after_fork)


class Producer(SendPath):
    """Sends records to Kafka, ours or another. Settings have Kafka's names.

        with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
            producer.send("orders", b"value", key=b"key")

    One producer may be used by many threads. It does not survive a fork: make it in the child.
    """

    def __init__(self, config: Mapping[str, object], clock: Clock | None = None) -> None:
        self._turns_taken = Turns()
        super().__init__(self._turns_taken)
        self._clock: Clock = clock if clock is not None else SystemClock()
        plain, objects = take_objects(config)
        self._config = settings = producer_config(plain)
        self.client_id: str = settings["client.id"] or f"producer-{next(_numbers)}"
        self._key_serializer: Serializer | None = objects["key.serializer"]
        self._value_serializer: Serializer | None = objects["value.serializer"]
        self._partitioner: Partitioner | None = objects["partitioner.class"]
        self._interceptors = InterceptorChain(objects["interceptor.classes"])
        self._max_block_ms: int = settings["max.block.ms"]
        self._max_request_size: int = settings["max.request.size"]
        self._keyed = not settings["partitioner.ignore.keys"]
        self._refusal: Exception | None = None
        self._build(settings)
        self._direct = self._may_go_directly(clock)
        self._direct_keys = self._keyed
        self._worker = threading.Thread(
            target=self._sender.run, name=f"kafka-producer-network-thread | {self.client_id}", daemon=True
        )
        self._finalizer = weakref.finalize(self, _abandon, self._sender, self._worker, self.client_id)
        _alive.add(self)
        self._worker.start()

    def _build(self, settings: Config) -> None:
        """The parts, from the memory to the thread."""
        idempotent = is_idempotent(settings)
        self._keeper: SequenceKeeper = TransactionManager() if idempotent else NoSequences()
        self._pool = BufferPool(settings["buffer.memory"], batch_size(settings), self._clock)
        backoff = ExponentialBackoff(settings["retry.backoff.ms"], settings["retry.backoff.max.ms"])
        accumulated = _accumulator_settings(settings)
        self._accumulator = RecordAccumulator(accumulated, self._pool, self._keeper, backoff, self._lanes)
        self._metadata = Metadata(settings, self._clock, idle_ms=settings["metadata.max.idle.ms"])
        self._metadata.bootstrap(resolved_bootstrap(settings["bootstrap.servers"]))
        self._metadata.on_update(_Resizer(self._accumulator))
        selector = _make_selector(settings, self._clock, self._turns_taken)
        client = NetworkClient(selector, self._metadata, self.client_id, settings, self._clock)
        self._metrics = ProducerMetrics()
        in_flight: int = settings["max.in.flight.requests.per.connection"]
        sending = SenderSettings(
            acks=acks_of(settings),
            retries=settings["retries"],
            request_timeout_ms=settings["request.timeout.ms"],
            max_request_size=self._max_request_size,
            guarantee_order=in_flight == 1,
            retry_backoff_ms=settings["retry.backoff.ms"],
        )
        self._client = client
        self._sender = Sender(sending, client, self._accumulator, self._keeper, self._clock, self._metrics)

    def _may_go_directly(self, clock: Clock | None) -> bool:
        """Whether plain bytes need nothing but to be appended."""
        return (
            clock is None
            and self._key_serializer is None
            and self._value_serializer is None
            and self._partitioner is None
            and not self._interceptors
            and batch_size(self._config) <= self._max_request_size
        )

    # ---------------------------------------------------------------- sending

    def _send_slowly(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> RecordFuture:
        self._check_usable()
        if not self._interceptors:
            return self._send_record(record, on_delivery)
        record = self._interceptors.on_send(record)
        try:
            return self._send_record(record, self._interceptors.around(on_delivery))
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _send_record(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> RecordFuture:
        start = time.monotonic()
        topic = record.topic
        cluster = self._await_topic(topic, record.partition)
        pending = self._serialized(record, cluster, on_delivery)
        left_ms = max(self._max_block_ms - (time.monotonic() - start) * 1000, 0)
        future, wake = self._accumulator.append(topic, pending, cluster, self._now_ms(), left_ms)
        if wake:
            self._sender.wakeup()
        return future

    def _serialized(self, record: ProducerRecord, cluster: Cluster, on_delivery: OnDelivery | None) -> PendingRecord:
        key = to_bytes("key", record.key, self._key_serializer)
        value = to_bytes("value", record.value, self._value_serializer)
        headers = None if record.headers is None else _headers(record.headers)
        size = record_size_bound(key, value, headers)
        if size > self._max_request_size:
            raise RecordTooLarge(
                f"a record for {record.topic} has {size} bytes when serialized, more than max.request.size = "
                f"{self._max_request_size}"
            )
        timestamp = (
            self._clock.wall_ms() if record.timestamp is None else milliseconds("the timestamp", record.timestamp)
        )
        partition = self._partition_of(record, key, cluster)
        return PendingRecord(value, key, headers, partition, timestamp, on_delivery)

    def _partition_of(self, record: ProducerRecord, key: bytes | None, cluster: Cluster) -> int | None:
        """None: any partition will do."""
        if record.partition is not None:
            return operator.index(record.partition)
        count = len(cluster.partitions_for(record.topic))
        if self._partitioner is not None:
            chosen = self._partitioner.partition(record.topic, record.key, key, record.value, cluster)
            if not 0 <= chosen < count:
                raise ValueError(f"{self._partitioner!r} chose partition {chosen} of {record.topic}, which has {count}")
            return chosen
        if key is not None and self._keyed:
            return partition_for_key(key, count)
        return None

    def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> TableFuture:
        """Send the rows of a table: column `value`, and if they are there `key`, `headers`, `timestamp` and `partition`.

        >>> table = pyarrow.table({"value": [b"a", b"b"]})  # doctest: +SKIP
        >>> producer.send_arrow("orders", table).result()  # doctest: +SKIP
        [RecordRange(topic='orders', partition=0, first_offset=0, count=2)]
        """
        from barnabas.producer.arrow import ArrowSender, ArrowWay

        self._check_usable()
        way = ArrowWay(
            accumulator=self._accumulator,
            await_topic=self._await_topic,
            wakeup=self._sender.wakeup,
            max_block_ms=self._max_block_ms,
            max_request_size=self._max_request_size,
            keyed=self._keyed,
            clock=self._clock,
        )
        return ArrowSender(way).send(topic, table)

    # ---------------------------------------------------------------- metadata

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic; waits for metadata up to `max.block.ms`."""
        self._check_usable()
        return list(self._await_topic(topic, None).partitions_for(topic))

    def _await_topic(self, topic: str, partition: int | None) -> Cluster:
        """The cluster as soon as it has the topic (and the partition)."""
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"the topic must be a text that is not empty, not {topic!r}")
        if partition is not None and (not hasattr(partition, "__index__") or partition < 0):
            raise ValueError(f"the partition must be a number from 0 on, not {partition!r}")
        cluster = self._metadata.fetch()
        self._metadata.add_topic(topic, self._now_ms())
        if _has(cluster, topic, partition):
            return cluster
        return self._await_metadata(topic, partition)

    def _await_metadata(self, topic: str, partition: int | None) -> Cluster:
        deadline = time.monotonic() + self._max_block_ms / 1000
        check = PartitionCheck()
        while True:
            self._check_usable()
            version = self._metadata.request_update(topic)
            cluster = self._metadata.fetch()
            if _has(cluster, topic, partition):
                return cluster
            if partition is not None:
                check.look(cluster, topic, partition)
            self._sender.wakeup()
            try:
                self._metadata.await_update(version, max(deadline - time.monotonic(), 0))
            except ClientClosed as error:
                raise ProducerClosed(str(error)) from None
            except ClientTimeout:
                what = topic if partition is None else f"partition {partition} of {topic}"
                why = self._metadata.failures.words() + self._metadata.words_about(topic)
                raise ClientTimeout(f"{what} is not known within max.block.ms = {self._max_block_ms}{why}") from None
            self._metadata.raise_for_topic(topic)
            self._metadata.add_topic(topic, self._now_ms())

    # ---------------------------------------------------------------- the end

    def would_wait(self, topic: str) -> bool:
        """Whether `send` might have to wait for metadata or memory now."""
        largest = max(self._pool.poolable_size, self._max_request_size)
        return topic not in self._lanes or self._pool.queued > 0 or self._pool.available < largest

    def flush(self, timeout: float | None = None) -> int:
        """Send everything now and wait until it is done; the number of records that are not, when `timeout` seconds are over."""
        self._check_usable()
        self._accumulator.begin_flush()
        try:
            self._sender.wakeup()
            return self._accumulator.flush(timeout)
        finally:
            self._accumulator.end_flush()

    def close(self, timeout: float | None = None) -> None:
        """Send what is left, for at most `timeout` seconds, fail the rest, and stop. Closing twice does nothing."""
        if isinstance(self._refusal, ForkedProducer):
            return
        self._direct = False
        if self._refusal is None:
            self._refusal = ProducerClosed("the producer is closed")
        if threading.current_thread() is self._worker:
            self._sender.force_close()  # from a callback: waiting for ourselves would be for ever
            return
        self._sender.initiate_close()
        self._worker.join(timeout)
        if self._worker.is_alive():
            log.info("%s: not everything was sent within %s s, the rest is failed", self.client_id, timeout)
            self._sender.force_close()
            self._worker.join()
        self._finalizer.detach()
        self._interceptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _forked(self) -> None:
        """In the child: nothing of this producer works, and nothing of it may be touched, least of all its connections."""
        self._direct = False
        self._refusal = ForkedProducer(
            f"{self.client_id} was made before this process was forked, and its thread is not here; make a producer in the child"
        )
        self._finalizer.detach()

    # ---------------------------------------------------------------- looking inside

    def metrics(self) -> dict[str, float]:
        """Figures under the names that Kafka's producer has for them."""
        return {
            **self._metrics.values(),
            "buffer-total-bytes": self._pool.total,
            "buffer-available-bytes": self._pool.available,
            "buffer-exhausted-total": self._pool.exhausted_count,
            "bufferpool-wait-time-ns-total": self._pool.wait_ns,
            "waiting-threads": self._pool.queued,
            "requests-in-flight": self._client.in_flight_count(),
        }

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def __repr__(self) -> str:
        state = "open" if self._refusal is None else "closed"
        return f"<Producer {self.client_id} {state} {self._accumulator!r}>"


class _Resizer:
    """Lets topics grow; holds no reference to the producer, so that a forgotten one can be collected."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator

    def __call__(self, cluster: Cluster) -> None:
        for topic in list(self._accumulator.lanes):
            self._accumulator.lane(topic, cluster)


def _accumulator_settings(config: Config) -> AccumulatorSettings:
    name: str = config["compression.type"]
    return AccumulatorSettings(
        batch_size=batch_size(config),
        linger_ms=config["linger.ms"],
        delivery_timeout_ms=delivery_timeout_ms(config),
        codec=CODEC_NAMES.index(name),
        level=config.get(f"compression.{name}.level"),
        adaptive=config["partitioner.adaptive.partitioning.enable"],
        availability_timeout_ms=config["partitioner.availability.timeout.ms"],
    )


def _make_selector(config: Config, clock: Clock, turns: Turns) -> Selector:
    idle_ms: int = config["connections.max.idle.ms"]
    poller = TurnPoller(select.epoll(), turns) if hasattr(select, "epoll") else default_poller()
    return Selector(
        max_receive_size=config["receive.message.max.bytes"],
        idle_ns=max(idle_ms, 0) * 1_000_000,
        clock=clock,
        poller=poller,
    )


def _has(cluster: Cluster, topic: str, partition: int | None) -> bool:
    count = len(cluster.partitions_for(topic))
    return count > 0 if partition is None else partition < count


def _headers(headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]) -> bytes:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Iterable):
        raise SerializationError(f"headers are a list of (name, bytes), not {pairs!r}")
    return encode_headers([_header(pair) for pair in pairs])


def _header(pair: Any) -> tuple[str, bytes | None]:
    match pair:
        case [str(name), None | bytes() | bytearray() | memoryview() as value]:
            return name, None if value is None else bytes(value)
    raise SerializationError(f"a header is a name and bytes (or None), not {pair!r}")


def _abandon(sender: Sender, worker: threading.Thread, client_id: str) -> None:
    """The producer was forgotten, or the program ends: stop the thread."""
    log.warning("%s was not closed; records that were not sent are lost", client_id)
    sender.force_close()
    if threading.current_thread() is not worker:
        worker.join(_EXIT_SECONDS)
