"""The I/O thread of a producer (PP-1 .. PP-5).

Role: `run_once` looks which batches are due, makes a Produce request per node, and polls the network client. All that becomes of a
batch is done here, on this thread; the callbacks of records run here, too.
Thread: one, named `kafka-producer-network-thread | <client.id>`; `wakeup`, `initiate_close` and `force_close` from any. Lock: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.client.cluster import Cluster
from barnabas.client.network_client import NetworkClient
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.producer.accumulator import NEVER_MS, Ready, RecordAccumulator
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.errors import DeliveryTimeout, ProducerClosed
from barnabas.producer.metrics import ProducerMetrics
from barnabas.producer.produce_answers import AnswerHandler, error_code
from barnabas.producer.transaction_manager import SequenceKeeper
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = ["Sender", "SenderSettings"]

log = logging.getLogger(__name__)

LAST_VERSION_WITH_NAMES = 12
_MAX_POLL_MS = 60_000


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """What the user chose, as far as it matters here."""

    acks: int = -1
    retries: int = 2_147_483_647
    request_timeout_ms: int = 30_000
    max_request_size: int = 1_048_576
    guarantee_order: bool = False
    retry_backoff_ms: int = 100
    transactional_id: str | None = None


class Sender:
    """See the file header."""

    def __init__(
        self,
        settings: SenderSettings,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        keeper: SequenceKeeper,
        clock: Clock,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._metadata = client.metadata
        self._accumulator = accumulator
        self._keeper = keeper
        self._clock = clock
        self.metrics = metrics if metrics is not None else ProducerMetrics()
        self._answers = AnswerHandler(self, client.metadata)
        self._in_flight: dict[tuple[str, int], list[ProducerBatch]] = {}
        self._asking_for_id = False
        self._ask_for_id_at_ms = 0
        self._running = True
        self._forced = False

    # ---------------------------------------------------------------- the thread

    def run(self) -> None:
        """Until it is closed; then as long as something is left to send, or until the close is forced."""
        log.debug("The producer's I/O thread starts")
        try:
            while self._running:
                self._turn()
            while not self._forced and self._has_work():
                self._turn()
        finally:
            self._end()

    def _turn(self) -> None:
        try:
            self.run_once()
        except Exception:
            log.exception("an unexpected error in one turn of the producer's I/O thread; going on")

    def _has_work(self) -> bool:
        """Records that are not decided yet. A request for metadata that nobody answers keeps nobody."""
        return self._accumulator.has_incomplete

    def _end(self) -> None:
        """What is left will never be sent; connections are closed first, so that no request uses its memory any more."""
        try:
            self._client.close()
        except Exception:
            log.exception("an error while the producer's connections were closed")
        self._accumulator.take_back_memory()
        self._accumulator.abort_all(ProducerClosed("the producer was closed before the record was sent"))
        log.debug("The producer's I/O thread ends")

    def wakeup(self) -> None:
        """Let the present or next poll return at once."""
        self._client.wakeup()

    def initiate_close(self) -> None:
        """No record more; what is there is sent."""
        self._accumulator.close()
        self._running = False
        self.wakeup()

    def force_close(self) -> None:
        """Fail what is there, now."""
        self._forced = True
        self.initiate_close()

    # ---------------------------------------------------------------- one turn

    def run_once(self) -> None:
        """Numbers first (later: transactions), then batches, then the network (PP-2)."""
        keeper = self._keeper
        keeper.prepare_turn()
        now_ms = self._now_ms()
        if keeper.fatal_error is not None:
            self._accumulator.abort_all(keeper.fatal_error)
            self._client.poll(self._settings.retry_backoff_ms, now_ms)
            return
        timeout_ms = self.send_producer_data(now_ms)
        if keeper.wants_id():
            timeout_ms = min(timeout_ms, self._ask_for_id(now_ms))
        self._client.poll(min(timeout_ms, _MAX_POLL_MS), now_ms)

    def send_producer_data(self, now_ms: int) -> int:
        """Send what is due; how long the poll may take (PP-3, PP-5)."""
        accumulator = self._accumulator
        cluster = self._metadata.fetch()
        ready = accumulator.ready(cluster, now_ms)
        if ready.unknown_leader_topics:
            self._ask_for_leaders(ready, now_ms)
        not_ready_ms = self._drop_unready(ready, now_ms) if ready.nodes else NEVER_MS
        drained: dict[int, list[ProducerBatch]] = {}
        if ready.nodes:
            drained = accumulator.drain(cluster, ready, list(ready.nodes), self._settings.max_request_size, now_ms)
            self._note_in_flight(drained)
        self._expire(now_ms)
        timeout_ms = min(ready.next_check_ms, not_ready_ms, accumulator.next_expiry_ms - now_ms)
        if any(drained.values()):
            timeout_ms = 0  # there may be more for the same nodes
        for node_id, batches in drained.items():
            if batches:
                self._send_request(node_id, batches, cluster, now_ms)
        return max(timeout_ms, 0)

    def _ask_for_leaders(self, ready: Ready, now_ms: int) -> None:
        for topic in ready.unknown_leader_topics:
            self._metadata.add_topic(topic, now_ms)
        self._metadata.request_update()

    def _drop_unready(self, ready: Ready, now_ms: int) -> int:
        """Leave out nodes that cannot take a request now; how long until that may change by time alone."""
        delay_ms = NEVER_MS
        for node in list(ready.nodes.values()):
            can_send = self._client.ready(node, now_ms)
            self._accumulator.note_node(node.id, now_ms, can_send)
            if not can_send:
                del ready.nodes[node.id]
                delay_ms = min(delay_ms, self._client.poll_delay_ms(node, now_ms))
        return delay_ms

    def _note_in_flight(self, drained: dict[int, list[ProducerBatch]]) -> None:
        for batches in drained.values():
            for batch in batches:
                self._in_flight.setdefault(batch.place, []).append(batch)
                if self._settings.guarantee_order:
                    self._accumulator.mute(batch.place)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    # ---------------------------------------------------------------- requests

    def _send_request(self, node_id: int, batches: list[ProducerBatch], cluster: Cluster, now_ms: int) -> None:
        """One request with all batches for a node; the batches' memory is sent as it is (PP-14)."""
        by_place = {batch.place: batch for batch in batches}
        ids = {topic: cluster.topic_id(topic) for topic, _ in by_place}
        names: dict[object, str] = {topic_id: topic for topic, topic_id in ids.items()}
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            batch.sent()
            by_topic.setdefault(batch.place[0], []).append(
                PartitionProduceData(index=batch.place[1], records=batch.view)
            )
        body = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[_topic_data(topic, ids[topic], data) for topic, data in by_topic.items()],
        )
        request = ClientRequest(
            node_id,
            int(ApiKey.PRODUCE),
            body,
            now_ms,
            self._settings.acks != 0,
            lambda response: self._handle_response(response, by_place, names),
            self._settings.request_timeout_ms,
            max_version=LAST_VERSION_WITH_NAMES if None in names else 32_767,
        )
        self.metrics.sent(batches, now_ms)
        try:
            self._client.send(request, now_ms)
        except Exception as error:
            log.exception("a Produce request could not be sent")
            self._answers.fail_unsent(by_place, error, now_ms)

    def _handle_response(
        self, response: ClientResponse, batches: dict[tuple[str, int], ProducerBatch], names: dict[object, str]
    ) -> None:
        self._answers.handle(response, batches, names)
        if response.was_answered:
            self.metrics.answered(response.latency_ms, getattr(response.body, "throttle_time_ms", 0))

    def _ask_for_id(self, now_ms: int) -> int:
        """InitProducerId to whoever is free; how long until it may be tried again."""
        if self._asking_for_id:
            return NEVER_MS
        if now_ms < self._ask_for_id_at_ms:
            return self._ask_for_id_at_ms - now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None:
            self._metadata.request_update()
            return self._settings.retry_backoff_ms
        if not self._client.ready(node, now_ms):
            return min(self._client.poll_delay_ms(node, now_ms), self._settings.request_timeout_ms)
        body = InitProducerIdRequest(
            transactional_id=self._settings.transactional_id, transaction_timeout_ms=2_147_483_647
        )
        self._asking_for_id = True
        self._client.send(
            ClientRequest(node.id, int(ApiKey.INIT_PRODUCER_ID), body, now_ms, True, self._handle_id), now_ms
        )
        return NEVER_MS

    def _handle_id(self, response: ClientResponse) -> None:
        self._asking_for_id = False
        if response.version_mismatch is not None:
            self._keeper.id_failed(response.version_mismatch)
        elif response.body is None:
            self._ask_for_id_at_ms = response.received_ms + self._settings.retry_backoff_ms
        else:
            code = error_code(response.body.error_code)
            if code is ErrorCode.NONE:
                self._keeper.set_id(response.body.producer_id, response.body.producer_epoch)
            elif code.retriable:
                self._ask_for_id_at_ms = response.received_ms + self._settings.retry_backoff_ms
            else:
                self._keeper.id_failed(KafkaError(code, f"no producer id: {code.text}"))

    # ---------------------------------------------------------------- expiry

    def _expire(self, now_ms: int) -> None:
        """Fail what is older than delivery.timeout.ms. A request that is on its way keeps its memory (see `release`)."""
        accumulator = self._accumulator
        accumulator.reset_next_expiry()
        expired = self._expired_in_flight(now_ms)
        expired.extend(accumulator.expired(now_ms))
        for batch in expired:
            error = DeliveryTimeout(
                f"{batch.record_count} records for {batch.place[0]}-{batch.place[1]} were not acknowledged within "
                f"delivery.timeout.ms: {now_ms - batch.created_ms} ms have passed"
            )
            may_be_written = batch.has_sequence and (batch.in_retry or batch.in_flight)
            self.fail_batch(batch, error, False)
            if may_be_written:
                self._keeper.mark_unresolved(batch)

    def _expired_in_flight(self, now_ms: int) -> list[ProducerBatch]:
        found: list[ProducerBatch] = []
        timeout = self._accumulator.settings.delivery_timeout_ms
        for batches in list(self._in_flight.values()):
            for batch in batches:
                if batch.has_expired(timeout, now_ms):
                    found.append(batch)
                else:
                    self._accumulator.note_expiry(batch)
                    break
        return found

    def has_expired(self, batch: ProducerBatch, now_ms: int) -> bool:
        return batch.has_expired(self._accumulator.settings.delivery_timeout_ms, now_ms)

    # ---------------------------------------------------------------- the end of a batch, as `produce_answers` decides

    @property
    def retries(self) -> int:
        return self._settings.retries

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int, now_ms: int) -> bool:
        return (
            not self.has_expired(batch, now_ms)
            and batch.attempts < self._settings.retries
            and not batch.done
            and self._keeper.can_retry(batch, code, log_start_offset)
        )

    def complete_batch(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        self._keeper.completed(batch, base_offset)
        self._forget(batch)
        batch.complete(base_offset, append_time)
        self._accumulator.release(batch)

    def fail_batch(
        self,
        batch: ProducerBatch,
        error: BaseException,
        adjust: bool,
        record_errors: Callable[[int], BaseException] | None = None,
    ) -> None:
        self.metrics.record_errors.add(batch.record_count)
        self._keeper.failed(batch, error, adjust)
        self._forget(batch)
        batch.fail(error, record_errors)
        self._accumulator.release(batch)

    def reenqueue_batch(self, batch: ProducerBatch, now_ms: int) -> None:
        self._forget(batch)
        self.metrics.record_retries.add(batch.record_count)
        self._accumulator.reenqueue(batch, now_ms)

    def split_batch(self, batch: ProducerBatch) -> None:
        log.warning("The broker finds %r too large; it is split", batch)
        self._keeper.removed(batch)
        self._forget(batch)
        self._accumulator.split(batch)
        self.metrics.batch_splits.add()
        self._accumulator.release(batch)

    def late_answer(self, batch: ProducerBatch, written: bool, base_offset: int) -> None:
        """The answer for a batch whose outcome was decided before: its numbers may be known now, and its memory is free."""
        if written:
            self._keeper.completed(batch, base_offset)
        self._forget(batch)
        self._accumulator.release(batch)

    def unmute(self, batch: ProducerBatch) -> None:
        if self._settings.guarantee_order:
            self._accumulator.unmute(batch.place)

    def _forget(self, batch: ProducerBatch) -> None:
        batches = self._in_flight.get(batch.place)
        if batches is not None and batch in batches:
            batches.remove(batch)
            if not batches:
                del self._in_flight[batch.place]

    def __repr__(self) -> str:
        return f"<Sender {'running' if self._running else 'closing'} in_flight={len(self._in_flight)} {self._keeper!r}>"


def _topic_data(topic: str, topic_id: object, data: list[PartitionProduceData]) -> TopicProduceData:
    made = TopicProduceData(name=topic, partition_data=data)
    if topic_id is not None:
        made.topic_id = topic_id  # type: ignore[assignment]
    return made
