"""Fetch (key 1), versions 4-18: records from the log file to the socket, without a copy (RP-26).

Answered at once when `min_bytes` are there, a partition cannot be read, or nothing can be waited for; else the request waits in
the fetch purgatory (RP-38) until an append makes it ready or `max_wait_ms` is over, and is then read again. That wait is
RemoteTime and never goes into `throttle_time_ms`. `max_bytes` bounds the answer (also `fetch.max.bytes`), but the first
batch of the first partition with data is always given whole. read_committed reads to the last stable offset and names
the aborted transactions.

v5  log start offset              v7   sessions (KIP-227)                v9   leader epoch, 74/75 (KIP-320)
v10 zstd; before: 76              v11  preferred replica: never one      v12  diverging epoch: only for followers
v13 topics by id (KIP-516)        v15  replica state (KIP-903)           v16  leader hints (KIP-951): never any here

A fetch that claims to be a follower's (`replica_id` >= 0) needs ClusterAction, which nobody has here: each partition is
answered with TOPIC_AUTHORIZATION_FAILED and nothing moves (CVE-2018-1288).

Thread: a processor (inline) or any handler; delayed fetches complete on the appending or the timer's thread.
Lock: none; sessions and purgatory have their own.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from barnabas.broker.apis.partition_lookup import check_leader_epoch, log_of, topic_by_id, topic_by_name
from barnabas.broker.fetch_sessions import FetchContext, Results, Wanted
from barnabas.broker.log.results import IsolationLevel, ReadResult
from barnabas.broker.purgatory import DelayedOperation
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.log_limit import LogLimit
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

log = logging.getLogger(__name__)
_warnings = LogLimit(log, SystemClock.monotonic_ns)

FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_STORAGE_ERROR = 6
INVALID_OFFSET = -1
WAIT_DESPITE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Only a metadata refresh of the client cures these; answered at once among partitions that could be waited for, they
would make it ask in a tight loop until then. Kafka waits too."""
PARTITION_OVERHEAD = 48
"""About what a partition costs in an answer besides its records, for the quota."""


def handle(request: Request, broker: BrokerServices) -> FetchResponse | None:
    body: FetchRequest = request.body
    version = request.header.api_version
    replica_id = body.replica_state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else body.replica_id
    if replica_id >= 0:
        return _refuse_follower(request)
    fetch = Fetch(request, broker, broker.fetch_sessions.new_context(body, version))
    results = fetch.read()
    if body.max_wait_ms <= 0 or not fetch.sources or fetch.failed or fetch.size >= fetch.min_bytes:
        return fetch.answer(results)
    operation = DelayedFetch(fetch)
    keys = [(source.topic, source.partition) for source, _ in fetch.sources]
    broker.fetch_purgatory.try_complete_else_watch(operation, keys, body.max_wait_ms * 1_000_000)
    return None


def error_response(body: FetchRequest, version: int, error: KafkaError) -> FetchResponse:
    """With an error for the whole request there are no partitions in the answer, but versions before 7 have no such field."""
    return FetchResponse(error_code=error.code, responses=_all_partitions(body, error.code) if version < 7 else [])


def _refuse_follower(request: Request) -> FetchResponse:
    _warnings.warning("", "%s sent a Fetch as if it were a replica; refused", request.connection.connection_id)
    return FetchResponse(responses=_all_partitions(request.body, ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def _all_partitions(body: FetchRequest, code: ErrorCode) -> list[FetchableTopicResponse]:
    return [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_failed(partition.partition, code) for partition in topic.partitions],
        )
        for topic in body.topics
    ]


class Fetch:
    """One Fetch request with its limits; `read` may run twice, when it begins and when its wait is over."""

    __slots__ = ("broker", "context", "failed", "isolation", "max_bytes", "min_bytes", "request", "size", "sources")

    def __init__(self, request: Request, broker: BrokerServices, context: FetchContext) -> None:
        body: FetchRequest = request.body
        self.request = request
        self.broker = broker
        self.context = context
        self.isolation = IsolationLevel.READ_COMMITTED if body.isolation_level else IsolationLevel.READ_UNCOMMITTED
        max_bytes = min(body.max_bytes, broker.config["fetch.max.bytes"])
        if broker.quotas.enabled:
            max_bytes = int(min(max_bytes, broker.quotas.max_fetch_bytes(request)))
        self.max_bytes = max_bytes
        self.min_bytes = min(body.min_bytes, max_bytes)
        self.size = 0
        self.failed = False
        self.sources: list[tuple[PartitionLog, Wanted]] = []

    def read(self) -> Results:
        """Read all partitions, within the limits; sets `size`, `failed` and `sources`."""
        results: Results = []
        self.sources = []
        self.failed = False
        remaining = self.max_bytes
        min_one_batch = True
        for wanted in self.context.partitions:
            try:
                source = self._source(wanted)
                found = self._read_partition(source, wanted, remaining, min_one_batch)
            except KafkaError as error:
                self.failed = self.failed or error.code not in WAIT_DESPITE
                results.append((wanted, _failed(wanted.key[1], self._code(error))))
                continue
            except Exception:
                log.exception("Reading %r failed", wanted)
                self.failed = True
                results.append((wanted, _failed(wanted.key[1], ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            self.sources.append((source, wanted))
            size = len(found.records)
            if size:
                min_one_batch = False
                remaining = max(0, remaining - size)
            results.append((wanted, self._partition_data(wanted.key[1], found)))
        self.size = sum(len(data.records) for _, data in results if data.records)
        return results

    def _source(self, wanted: Wanted) -> PartitionLog:
        topic, index = wanted.key
        info = topic_by_id(self.broker, topic) if isinstance(topic, uuid.UUID) else topic_by_name(self.broker, topic)
        source = log_of(self.broker, info, index)
        check_leader_epoch(source, wanted.request.current_leader_epoch)
        old = self.request.header.api_version < FIRST_VERSION_WITH_ZSTD
        if old and source.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return source

    def _read_partition(self, source: PartitionLog, wanted: Wanted, remaining: int, min_one_batch: bool) -> ReadResult:
        limit = min(wanted.request.partition_max_bytes, remaining)
        return source.read(wanted.request.fetch_offset, max(limit, 0), min_one_batch, self.isolation)

    def _partition_data(self, index: int, found: ReadResult) -> PartitionData:
        aborted = None
        if self.isolation:
            aborted = [
                AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in found.aborted
            ]
        return PartitionData(
            partition_index=index,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=aborted,
            records=found.records,
        )

    def _code(self, error: KafkaError) -> ErrorCode:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and (
            self.request.header.api_version < FIRST_VERSION_WITH_STORAGE_ERROR
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the older client does not know 56 and would not retry
        return error.code

    def answer(self, results: Results) -> FetchResponse:
        """The answer; the session moves on here, unless a quota makes it an empty one."""
        context = self.context
        quotas = self.broker.quotas
        if quotas.enabled:
            throttle_ms = quotas.charge_fetch(self.request, _charged_size(context.to_answer(results)))
            if throttle_ms > 0:
                code, session_id = context.throttled()
                return FetchResponse(throttle_time_ms=throttle_ms, error_code=code, session_id=session_id)
        code, session_id, answered = context.finish(results)
        self._count(results)
        return FetchResponse(error_code=code, session_id=session_id, responses=_by_topic(answered))

    def _count(self, results: Results) -> None:
        metrics = self.broker.topic_metrics
        topics_by_id = self.broker.catalog.snapshot.topics_by_id
        topics = self.broker.catalog.snapshot.topics
        for wanted, data in results:
            topic = wanted.key[0]
            info = topics_by_id.get(topic) if isinstance(topic, uuid.UUID) else topics.get(topic)
            traffic = metrics.unknown if info is None else metrics.of(info.name)
            if data.error_code:
                traffic.fetch_failed()
            else:
                traffic.fetched(len(data.records or b""))


class DelayedFetch(DelayedOperation):
    """A fetch that waits for data. Ready when `min_bytes` can be read, or when a partition has gone or was cut."""

    __slots__ = ("_fetch", "_sources")

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self._fetch = fetch
        self._sources = fetch.sources

    def ready(self) -> bool:
        fetch = self._fetch
        committed = fetch.isolation
        get_log = fetch.broker.logs.get
        available = 0
        for source, wanted in self._sources:
            if get_log(source.topic, source.partition) is not source:
                return True
            end = source.last_stable_offset if committed else source.high_watermark
            offset = wanted.request.fetch_offset
            if offset > end:
                return True
            if offset < end:
                if fetch.min_bytes <= 1:
                    return True
                available += _available(source, wanted, fetch.isolation)
                if available >= fetch.min_bytes:
                    return True
        return False

    def on_complete(self) -> None:
        request = self._fetch.request
        try:
            message = self._fetch.answer(self._fetch.read())
        except Exception:
            log.exception("%r failed", self)
            message = error_response(
                request.body, request.header.api_version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            )
        request.respond(message)

    def __repr__(self) -> str:
        return f"<DelayedFetch {len(self._sources)} partitions of {self._fetch.request!r}>"


def _available(source: PartitionLog, wanted: Wanted, isolation: IsolationLevel) -> int:
    """Bytes that a read would give now; an error counts as nothing, the end of the wait reports it."""
    partition = wanted.request
    try:
        return len(source.read(partition.fetch_offset, partition.partition_max_bytes, True, isolation).records)
    except KafkaError:
        return 0


def _by_topic(results: Results) -> list[FetchableTopicResponse]:
    """Neighbours of the same topic share an entry."""
    topics: list[FetchableTopicResponse] = []
    last: object = None
    for wanted, data in results:
        topic = wanted.key[0]
        if topic != last:
            last = topic
            topics.append(
                FetchableTopicResponse(topic_id=topic)
                if isinstance(topic, uuid.UUID)
                else FetchableTopicResponse(topic=topic)
            )
        topics[-1].partitions.append(data)
    return topics


def _charged_size(results: Results) -> int:
    return sum(PARTITION_OVERHEAD + len(data.records or b"") for _, data in results)


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=INVALID_OFFSET,
        last_stable_offset=INVALID_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
