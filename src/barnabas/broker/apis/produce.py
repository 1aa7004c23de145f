"""Produce (key 0), versions 3-13 (advertised from 0, KAFKA-18659; v0-2 are refused by a disconnect).

acks 0: nothing is answered, and an error closes the connection (RP-40). acks 1 and -1: answered after the append; with
`log.flush.acks.all=true` acks=-1 waits in the produce purgatory until the bytes are on disk (RP-41). Other acks: 21.
Each partition takes exactly one batch of format v2; partitions fail one by one, never the request as a whole.
A partition that is named twice is written once: the second batch is refused with INVALID_REQUEST. (Kafka writes the last one and
forgets the others without a word.)

v7  zstd; before: UNSUPPORTED_COMPRESSION_TYPE      v8   error messages, and one for each record (KIP-467)
v10 leader hints (KIP-951): one node never has any  v13  topics by id only, UNKNOWN_TOPIC_ID (KIP-516)
Transactions are not there yet: a transactional id is answered with UNSUPPORTED_VERSION, a transactional batch without one
with INVALID_TXN_STATE (by the log); neither is written. Internal topics are written by the broker alone, whatever the client calls
itself. (Kafka makes an exception for the client id `__admin_client`, which anybody can claim.)

A processor does up to `barnabas.produce.light.bytes` of work for a request and leaves the rest to a handler (`Appending`). What batches
expand to is bounded by `barnabas.produce.max.expanded.bytes`, the texts of errors by the size of the request.

Thread: a processor (inline) or any handler; a durable answer comes from the flusher's or the timer's thread.
Lock: none of its own here; `DelayedProduce` has one for the partitions that it still waits for.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.budget import NeedsHandler
from barnabas.broker.log.expansion import Expansion, ExpansionUsedUp
from barnabas.broker.log.results import AppendOrigin, RecordsRefused
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.slices import SLICE, slices
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
ATTRIBUTES_LOW_BYTE_AT = 22
_CLIENT = AppendOrigin.CLIENT
LIGHT_BYTES_KEY = "barnabas.produce.light.bytes"
EXPANDED_BYTES_KEY = "barnabas.produce.max.expanded.bytes"
COMPRESSED_BYTES_KEY = "barnabas.produce.max.recompressed.bytes"
PARTITION_WORK = 16_384
"""A partition takes about as long as looking at so many bytes, whatever it holds: it is a system call."""
REFUSAL_WORK = 2048
"""So does naming a record that is refused."""
LIGHT_COMPRESSION = 65_536
"""Records that a processor compresses again for one request: that takes ten times as long as anything else."""
TEXT_BYTES = 65_536
"""The texts of errors in an answer may be as long together, or as long as the request if that is more."""

Pending = list[tuple["PartitionLog", int, PartitionProduceResponse]]


def handle(request: Request, broker: BrokerServices) -> ProduceResponse | None:
    body: ProduceRequest = request.body
    acks = body.acks
    if acks == 0:
        _handle_without_answer(request, broker)
        return None
    if acks not in (1, -1):
        return error_response(body, request.header.api_version, KafkaError(ErrorCode.INVALID_REQUIRED_ACKS))
    appending = append_all(request, broker)
    if appending.pending:
        _wait_until_durable(request, broker, appending)
        return None
    message = appending.message
    if broker.quotas.enabled:
        message.throttle_time_ms = broker.quotas.charge_produce(request, request.size, exempt=False)
    return message


def error_response(body: ProduceRequest, version: int, error: KafkaError) -> ProduceResponse:
    texts = Texts(TEXT_BYTES)
    topics = []
    for topic in body.topic_data:
        failed: list[PartitionProduceResponse] = []
        for some in slices(topic.partition_data):
            failed.extend([_failed(data.index, version, error, texts) for data in some])
        topics.append(_topic_answer(topic, failed))
    return ProduceResponse(responses=topics)


def _handle_without_answer(request: Request, broker: BrokerServices) -> None:
    """acks=0: the producer learns of an error only by the end of its connection (RP-40)."""
    try:
        appending = append_all(request, broker)
    except NeedsHandler:
        raise
    except Exception:
        log.exception("%r failed; acks=0, so its connection is closed", request)
        request.close_connection()
        return
    if broker.quotas.enabled:
        broker.quotas.charge_produce(request, request.size, exempt=True)
    if appending.failed:
        log.info("Closing %s: acks=0 and %s", request.connection.connection_id, _first_error(appending.message))
        request.close_connection()
    else:
        request.respond_nothing()


def append_all(request: Request, broker: BrokerServices) -> Appending:
    """Append every partition. `NeedsHandler` when a processor has done its share; a handler goes on where it stopped."""
    appending: Appending | None = request.progress
    if appending is None:
        appending = Appending(request, broker)
    appending.run(request.inline)
    return appending


class Texts:
    """How much may still be said about errors in one answer."""

    __slots__ = ("_left",)

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, text: str) -> str | None:
        """The text, or None when it would be too much; the code says what happened too."""
        self._left -= len(text)
        return text if self._left >= 0 else None


class Appending:
    """The appends of one request, as far as they have come, and their answers."""

    __slots__ = (
        "_broker",
        "_expansion",
        "_light",
        "_next",
        "_request",
        "_texts",
        "_work",
        "_written",
        "failed",
        "message",
        "pending",
    )

    def __init__(self, request: Request, broker: BrokerServices) -> None:
        body: ProduceRequest = request.body
        topics = body.topic_data
        self._request = request
        self._broker = broker
        self._light: int = broker.config[LIGHT_BYTES_KEY]
        self._work = 0
        self._expansion = Expansion(0)
        self._texts: Texts | None = None
        self._written: set[PartitionLog] | None = None
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            self._written = set()  # to find out when one is named twice
        self._next = (0, 0)
        self.failed = 0
        """Partitions that were not written."""
        self.message = ProduceResponse()
        durable = body.acks == -1 and broker.config["log.flush.acks.all"]
        self.pending: Pending | None = [] if durable else None
        """What must be on disk before the answer may go."""

    @property
    def work(self) -> int:
        """What was done so far, in bytes that were looked at."""
        return self._work + self._expansion.done

    def run(self, inline: bool) -> None:
        """Go on with the first partition that has no answer yet."""
        expansion = self._expansion
        if inline:
            expansion.granted, expansion.compressible = self._light, LIGHT_COMPRESSION
        else:
            config = self._broker.config
            expansion.granted, expansion.compressible = config[EXPANDED_BYTES_KEY], config[COMPRESSED_BYTES_KEY]
        try:
            self._append_rest(inline)
        finally:
            expansion.give_back()

    def _append_rest(self, inline: bool) -> None:
        request = self._request
        body: ProduceRequest = request.body
        snapshot = self._broker.catalog.snapshot
        by_id = request.header.api_version >= FIRST_VERSION_WITH_IDS
        number, done = self._next
        answers = self.message.responses
        for topic in body.topic_data[number:] if number else body.topic_data:
            if number == len(answers):
                answers.append(_topic_answer(topic, []))
            info = snapshot.topics_by_id.get(topic.topic_id) if by_id else snapshot.topics.get(topic.name)
            self._append_topic(topic.partition_data[done:] if done else topic.partition_data, info, inline)
            number, done = number + 1, 0
            self._next = (number, 0)

    def _append_topic(self, partitions: list[PartitionProduceData], info: TopicInfo | None, inline: bool) -> None:
        refusal = _refusal(self._request, info)
        answers = self.message.responses[-1].partition_responses
        for some in (partitions,) if len(partitions) <= SLICE else slices(partitions):
            for data in some:
                if inline:
                    self._take_share(data)
                if refusal is None and info is not None:
                    answer = self._append(info, data, inline)
                else:
                    answer = self._refuse(info, data.index, refusal)
                if answer.error_code:
                    self.failed += 1
                answers.append(answer)

    def _take_share(self, data: PartitionProduceData) -> None:
        """Whether a processor may also do this one."""
        records = data.records
        self._work += PARTITION_WORK if records is None else PARTITION_WORK + len(records)
        if self.work > self._light:
            raise self._step_back()

    def _step_back(self) -> NeedsHandler:
        answers = self.message.responses
        self._next = (len(answers) - 1, len(answers[-1].partition_responses))
        self._request.progress = self
        return NeedsHandler()

    def _append(self, info: TopicInfo, data: PartitionProduceData, inline: bool) -> PartitionProduceResponse:
        broker = self._broker
        name = info.name
        index = data.index
        version = self._request.header.api_version
        traffic = broker.topic_metrics.of(name)
        try:
            partition_log = self._log_of(info, index)
            records = data.records
            if records is None or version < FIRST_VERSION_WITH_ZSTD:
                records = check_records(records, version)
            result = partition_log.append(records, 0, _CLIENT, None, self._expansion)
        except NeedsHandler:
            raise self._step_back() from None
        except KafkaError as error:
            if inline and isinstance(error, ExpansionUsedUp):
                raise self._step_back() from None
            if isinstance(error, RecordsRefused):
                self._work += REFUSAL_WORK * len(error.record_errors)
            traffic.produce_failed()
            return self._failed(index, error)
        except Exception:
            # Other partitions of this request may have been written, so only this one fails.
            log.exception("Appending to %s-%d failed", name, index)
            traffic.produce_failed()
            return self._failed(index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if self._written is not None:
            self._written.add(partition_log)
        traffic.produced(result.last_offset - result.base_offset + 1, len(records))
        if broker.fetch_purgatory.watchers:
            broker.fetch_purgatory.check_and_complete((name, index), result.size)
        answer = PartitionProduceResponse(
            index=index,
            base_offset=result.base_offset,
            log_append_time_ms=result.append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if self.pending is not None:
            self.pending.append((partition_log, result.last_offset + 1, answer))
        return answer

    def _log_of(self, info: TopicInfo, index: int) -> PartitionLog:
        partition_log = self._broker.logs.get(info.name, index)
        if partition_log is None:
            inside = 0 <= index < info.partition_count
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if inside else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._written is not None and partition_log in self._written:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names this partition twice.")
        return partition_log

    def _refuse(self, info: TopicInfo | None, index: int, refusal: KafkaError | None) -> PartitionProduceResponse:
        metrics = self._broker.topic_metrics
        traffic = metrics.unknown if info is None else metrics.of(info.name)
        traffic.produce_failed()
        return self._failed(index, refusal or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _failed(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        request = self._request
        if self._texts is None:
            self._texts = Texts(max(TEXT_BYTES, request.size))
        return _failed(index, request.header.api_version, error, self._texts)


def _topic_answer(topic: TopicProduceData, partitions: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)


def _refusal(request: Request, info: TopicInfo | None) -> KafkaError | None:
    """Why nothing of this topic may be written."""
    if info is None:
        by_id = request.header.api_version >= FIRST_VERSION_WITH_IDS
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if info.internal:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot write to the internal topic {info.name}.")
    if request.body.transactional_id is not None:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no transactions.")
    return None


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


def _failed(index: int, version: int, error: KafkaError, texts: Texts) -> PartitionProduceResponse:
    code = error.code
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the older client does not know 56 and would not retry
    text = texts.take(error.message)
    answer = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=text)
    if isinstance(error, RecordsRefused):
        for each in error.record_errors:
            text = texts.take(each.message)
            if text is None:
                break
            named = BatchIndexAndErrorMessage(batch_index=each.number, batch_index_error_message=text)
            answer.record_errors.append(named)
    return answer


def _first_error(message: ProduceResponse) -> str:
    for topic in message.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return f"{topic.name}-{partition.index}: {partition.error_message}"
    return "no error"


def _wait_until_durable(request: Request, broker: BrokerServices, appending: Appending) -> None:
    pending = appending.pending or []
    operation = DelayedProduce(request, broker, appending.message, pending)
    slot = 0
    for some in slices(pending):
        for partition_log, offset, _ in some:
            partition_log.on_durable(offset, partial(operation.durable, slot))
            slot += 1
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
