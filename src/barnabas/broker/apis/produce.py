"""Produce (key 0), versions 3-13 (advertised from 0, KAFKA-18659; v0-2 are refused by a disconnect).

acks 0: nothing is answered, and an error closes the connection (RP-40). acks 1 and -1: answered after the append; with
`log.flush.acks.all=true` acks=-1 waits in the produce purgatory until the bytes are on disk (RP-41). Other acks: 21.
Each partition takes exactly one batch of format v2; partitions fail one by one, never the request as a whole.

v7  zstd; before: UNSUPPORTED_COMPRESSION_TYPE      v8   error messages, and one for each record (KIP-467)
v10 leader hints (KIP-951): one node never has any  v13  topics by id only, UNKNOWN_TOPIC_ID (KIP-516)
Transactions are not there yet: a transactional id is answered with UNSUPPORTED_VERSION, a transactional batch without one
with INVALID_TXN_STATE (by the log); neither is written.

Thread: a processor (inline) or any handler; a durable answer comes from the flusher's or the timer's thread.
Lock: none of its own here; `DelayedProduce` has one for the partitions that it still waits for.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.log.results import RecordsRefused
from barnabas.broker.purgatory import DelayedOperation
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.records.batch import CODEC_MASK, HEADER_SIZE

if TYPE_CHECKING:
    from barnabas.broker.catalog import TopicInfo
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_STORAGE_ERROR = 4
ZSTD = 4
ADMIN_CLIENT_ID = "__admin_client"
"""Kafka's own coordinator traffic uses it; only this client may write to internal topics."""
ATTRIBUTES_LOW_BYTE_AT = 22

Pending = list[tuple["PartitionLog", int, PartitionProduceResponse]]


def handle(request: Request, broker: BrokerServices) -> ProduceResponse | None:
    body: ProduceRequest = request.body
    acks = body.acks
    if acks == 0:
        _handle_without_answer(request, broker)
        return None
    if acks not in (1, -1):
        return error_response(body, request.header.api_version, KafkaError(ErrorCode.INVALID_REQUIRED_ACKS))
    pending: Pending | None = [] if acks == -1 and broker.config["log.flush.acks.all"] else None
    message, _ = append_all(request, broker, pending)
    if pending:
        _wait_until_durable(request, broker, message, pending)
        return None
    if broker.quotas.enabled:
        message.throttle_time_ms = broker.quotas.charge_produce(request, request.size, exempt=False)
    return message


def error_response(body: ProduceRequest, version: int, error: KafkaError) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(data.index, version, error) for data in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )


def _handle_without_answer(request: Request, broker: BrokerServices) -> None:
    """acks=0: the producer learns of an error only by the end of its connection (RP-40)."""
    try:
        message, failed = append_all(request, broker, None)
    except Exception:
        log.exception("%r failed; acks=0, so its connection is closed", request)
        request.close_connection()
        return
    if broker.quotas.enabled:
        broker.quotas.charge_produce(request, request.size, exempt=True)
    if failed:
        log.info("Closing %s: acks=0 and %s", request.connection.connection_id, _first_error(message))
        request.close_connection()
    else:
        request.respond_nothing()


def append_all(request: Request, broker: BrokerServices, pending: Pending | None) -> tuple[ProduceResponse, int]:
    """Append every partition; the answer, and how many failed. What must be flushed first is added to `pending`."""
    body: ProduceRequest = request.body
    version = request.header.api_version
    snapshot = broker.catalog.snapshot
    failed = 0
    topics = []
    for topic in body.topic_data:
        by_id = version >= FIRST_VERSION_WITH_IDS
        info = snapshot.topics_by_id.get(topic.topic_id) if by_id else snapshot.topics.get(topic.name)
        refusal = _refusal(request, info)
        partitions = []
        for data in topic.partition_data:
            if refusal is None and info is not None:
                answer = _append(request, broker, info, data, pending)
            else:
                answer = _refused(broker, info, data.index, version, refusal)
            if answer.error_code:
                failed += 1
            partitions.append(answer)
        topics.append(_topic_answer(topic, partitions))
    return ProduceResponse(responses=topics), failed


def _topic_answer(topic: TopicProduceData, partitions: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)


def _refusal(request: Request, info: TopicInfo | None) -> KafkaError | None:
    """Why nothing of this topic may be written."""
    if info is None:
        by_id = request.header.api_version >= FIRST_VERSION_WITH_IDS
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if info.internal and request.header.client_id != ADMIN_CLIENT_ID:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot write to the internal topic {info.name}.")
    if request.body.transactional_id is not None:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no transactions.")
    return None


def _append(
    request: Request, broker: BrokerServices, info: TopicInfo, data: PartitionProduceData, pending: Pending | None
) -> PartitionProduceResponse:
    name = info.name
    index = data.index
    version = request.header.api_version
    traffic = broker.topic_metrics.of(name)
    try:
        partition_log = broker.logs.get(name, index)
        if partition_log is None:
            inside = 0 <= index < info.partition_count
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if inside else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = data.records
        if records is None or version < FIRST_VERSION_WITH_ZSTD:
            records = check_records(records, version)
        result = partition_log.append(records)
    except KafkaError as error:
        traffic.produce_failed()
        return _failed(index, version, error)
    except Exception:
        # Other partitions of this request may have been written, so only this one fails.
        log.exception("Appending to %s-%d failed", name, index)
        traffic.produce_failed()
        return _failed(index, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    traffic.produced(result.last_offset - result.base_offset + 1, len(records))
    if broker.fetch_purgatory.watchers:
        broker.fetch_purgatory.check_and_complete((name, index))
    answer = PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if pending is not None:
        pending.append((partition_log, result.last_offset + 1, answer))
    return answer


def check_records(records: memoryview | None, version: int) -> memoryview:
    """What depends on the request's version; the log checks the batch itself."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A partition needs exactly one record batch.")
    if (
        version < FIRST_VERSION_WITH_ZSTD
        and len(records) >= HEADER_SIZE
        and records[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK == ZSTD
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} cannot carry zstd.")
    return records


def _refused(
    broker: BrokerServices, info: TopicInfo | None, index: int, version: int, refusal: KafkaError | None
) -> PartitionProduceResponse:
    traffic = broker.topic_metrics.unknown if info is None else broker.topic_metrics.of(info.name)
    traffic.produce_failed()
    return _failed(index, version, refusal or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _failed(index: int, version: int, error: KafkaError) -> PartitionProduceResponse:
    code = error.code
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the older client does not know 56 and would not retry
    answer = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=error.message)
    if isinstance(error, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=each.number, batch_index_error_message=each.message)
            for each in error.record_errors
        ]
    return answer


def _first_error(message: ProduceResponse) -> str:
    for topic in message.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return f"{topic.name}-{partition.index}: {partition.error_message}"
    return "no error"


def _wait_until_durable(request: Request, broker: BrokerServices, message: ProduceResponse, pending: Pending) -> None:
    operation = DelayedProduce(request, broker, message, pending)
    for slot, (partition_log, offset, _) in enumerate(pending):
        partition_log.on_durable(offset, partial(operation.durable, slot))
    keys = [(partition_log.topic, partition_log.partition) for partition_log, _, _ in pending]
    broker.produce_purgatory.try_complete_else_watch(operation, keys, request.body.timeout_ms * 1_000_000)


class DelayedProduce(DelayedOperation):
    """Waits until all partitions of a request are on disk (RP-41); after its time the others get REQUEST_TIMED_OUT."""

    __slots__ = ("_broker", "_lock", "_message", "_request", "_waiting")

    def __init__(self, request: Request, broker: BrokerServices, message: ProduceResponse, pending: Pending) -> None:
        super().__init__()
        self._request = request
        self._broker = broker
        self._message = message
        self._lock = threading.Lock()
        self._waiting = {slot: answer for slot, (_, _, answer) in enumerate(pending)}

    def durable(self, slot: int, code: ErrorCode) -> None:
        """One partition was flushed, or will never be. On the flusher's thread, or at once on the handler's."""
        with self._lock:
            answer = self._waiting.pop(slot, None)
            if answer is not None and code != ErrorCode.NONE:
                _turn_into_error(answer, code)
            done = not self._waiting
        if done:
            self.try_complete()

    def ready(self) -> bool:
        return not self._waiting

    def on_complete(self) -> None:
        with self._lock:
            late, self._waiting = self._waiting, {}
        for answer in late.values():
            _turn_into_error(answer, ErrorCode.REQUEST_TIMED_OUT)
        quotas = self._broker.quotas
        if quotas.enabled:
            request = self._request
            self._message.throttle_time_ms = quotas.charge_produce(request, request.size, exempt=False)
        self._request.respond(self._message)

    def __repr__(self) -> str:
        return f"<DelayedProduce {len(self._waiting)} partitions of {self._request!r}>"


def _turn_into_error(answer: PartitionProduceResponse, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.error_message = code.text
