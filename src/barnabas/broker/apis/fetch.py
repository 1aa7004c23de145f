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
import threading
import uuid
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.apis.partition_lookup import NO_EPOCH, epoch_error, find_log
from barnabas.broker.fetch_sessions import FetchContext, Results, TopicKey, Wanted
from barnabas.broker.inline_work import NeedsHandler, unlimited
from barnabas.broker.log.arrivals import LOOK, Arrivals
from barnabas.broker.log.results import IsolationLevel, ReadResult
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.slices import slices
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
    from barnabas.broker.catalog import TopicInfo
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
MOST_SHARES = 100
"""Partitions of a waiting fetch whose shares of what is missing are kept apart; one with more is asked at each append to any of them."""


def handle(request: Request, broker: BrokerServices) -> FetchResponse | None:
    progress: DelayedFetch | Fetch | None = request.progress
    if isinstance(progress, DelayedFetch):
        progress.go_on()
        return None
    if progress is not None:
        return _read(progress)
    body: FetchRequest = request.body
    version = request.header.api_version
    replica_id = body.replica_state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else body.replica_id
    if replica_id >= 0:
        return _refuse_follower(request)
    return _read(Fetch(request, broker, broker.fetch_sessions.new_context(body, version)))


def _read(fetch: Fetch) -> FetchResponse | None:
    """Answer now or later. A handler begins anew with what was too much for a light request, with the session as it is."""
    try:
        return _read_or_wait(fetch, fetch.broker)
    except NeedsHandler:
        fetch.request.progress = fetch
        raise


def _read_or_wait(fetch: Fetch, broker: BrokerServices) -> FetchResponse | None:
    body: FetchRequest = fetch.request.body
    results = fetch.read()
    if body.max_wait_ms <= 0 or not fetch.readable or fetch.failed or fetch.size >= fetch.min_bytes:
        return fetch.answer(results)
    _wait(fetch, min(body.max_wait_ms, broker.config["barnabas.fetch.max.wait.ms"]))
    return None


def weigh(body: FetchRequest, broker: BrokerServices) -> int:
    """Fifty bytes may stand for a session of many partitions."""
    return broker.fetch_sessions.partitions_of(body.session_id) if body.session_id else 0


def _wait(fetch: Fetch, wait_ms: int) -> None:
    """Let it wait, in a place where the end of its connection finds it."""
    connection = fetch.request.connection
    operation = DelayedFetch(fetch)
    if fetch.request.inline and fetch.min_bytes > 1:
        operation.ready()  # if it must look for its places in the logs, and that is too much, a handler does
    connection.waiting = operation
    if connection.channel is None:  # closed meanwhile, perhaps before there was anything to cancel
        operation.cancel()
        return
    if connection.hung_up:
        operation.hang_up()
        return
    if fetch.request.heavy:  # another handler may go on with it before this one has left
        fetch.request.release_buffer()
        fetch.request.local_done_ns = fetch.request.request_channel.now_ns()
    with unlimited():
        fetch.broker.fetch_purgatory.try_complete_else_watch(operation, operation.keys, wait_ms * 1_000_000)


def error_response(body: FetchRequest, version: int, error: KafkaError) -> FetchResponse:
    """With an error for the whole request there are no partitions in the answer, but versions before 7 have no such field."""
    return FetchResponse(error_code=error.code, responses=_all_partitions(body, error.code) if version < 7 else [])


def _refuse_follower(request: Request) -> FetchResponse:
    _warnings.warning("", "%s sent a Fetch as if it were a replica; refused", request.connection.connection_id)
    return FetchResponse(responses=_all_partitions(request.body, ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def _all_partitions(body: FetchRequest, code: ErrorCode) -> list[FetchableTopicResponse]:
    topics = []
    for topic in body.topics:
        failed: list[PartitionData] = []
        for some in slices(topic.partitions):
            failed.extend([_failed(partition.partition, code) for partition in some])
        topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=failed))
    return topics


class Fetch:
    """One Fetch request with its limits; `read` may run twice, when it begins and when its wait is over."""

    __slots__ = (
        "_min_one_batch",
        "_old",
        "_remaining",
        "_topic",
        "_unchanged",
        "broker",
        "context",
        "failed",
        "isolation",
        "max_bytes",
        "min_bytes",
        "readable",
        "request",
        "size",
    )

    def __init__(self, request: Request, broker: BrokerServices, context: FetchContext) -> None:
        body: FetchRequest = request.body
        self.request = request
        self.broker = broker
        self.context = context
        self.isolation = IsolationLevel.READ_COMMITTED if body.isolation_level else IsolationLevel.READ_UNCOMMITTED
        max_bytes: int = min(body.max_bytes, broker.config["fetch.max.bytes"])
        if broker.quotas.enabled:
            max_bytes = int(min(max_bytes, broker.quotas.max_fetch_bytes(request)))
        self.max_bytes = max_bytes
        self.min_bytes = min(body.min_bytes, max_bytes)
        self._old = request.header.api_version < FIRST_VERSION_WITH_ZSTD

    def read(self) -> Results:
        """Read all partitions, within the limits; sets `size`, `failed` and `readable`, those that could be waited for."""
        self.size = 0
        self.failed = False
        self.readable: list[Wanted] = []
        self._unchanged: dict[str, int] = {}
        self._remaining = self.max_bytes
        self._min_one_batch = True
        self._topic: tuple[TopicKey, TopicInfo | None] = ("", None)
        results: Results = []
        for some in slices(self.context.partitions):
            self._read_some(some, results)
        return results

    def _read_some(self, partitions: Sequence[Wanted], results: Results) -> None:
        skips_unchanged = self.context.skips_unchanged
        for wanted in partitions:
            source = wanted.source
            if source is None or not source.available:
                found = self._find(wanted.key)
                if isinstance(found, ErrorCode):
                    self._fail(wanted, found, results)
                    continue
                wanted.source = source = found
            elif skips_unchanged and _unchanged(source, wanted):
                self.readable.append(wanted)
                self._unchanged[source.topic] = self._unchanged.get(source.topic, 0) + 1
                continue
            self._read_partition(source, wanted, results)

    def _find(self, key: tuple[TopicKey, int]) -> PartitionLog | ErrorCode:
        """The log of a partition; neighbours of the same topic share its look-up."""
        topic, index = key
        last, info = self._topic
        if last is not topic:
            snapshot = self.broker.catalog.snapshot
            info = snapshot.topics.get(topic) if isinstance(topic, str) else snapshot.topics_by_id.get(topic)
            self._topic = (topic, info)
        if info is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
        return find_log(self.broker, info, index)

    def _read_partition(self, source: PartitionLog, wanted: Wanted, results: Results) -> None:
        try:
            error = self._refusal(source, wanted)
            if error is not None:
                self._fail(wanted, error, results)
                return
            limit = max(0, min(wanted.max_bytes, self._remaining))
            found = source.read(wanted.fetch_offset, limit, self._min_one_batch, self.isolation)
        except NeedsHandler:
            raise
        except KafkaError as failure:
            self._fail(wanted, failure.code, results)
            return
        except Exception:
            log.exception("Reading %r failed", wanted)
            self._fail(wanted, ErrorCode.UNKNOWN_SERVER_ERROR, results)
            return
        self.readable.append(wanted)
        size = len(found.records)
        if size:
            self.size += size
            self._min_one_batch = False
            self._remaining = max(0, self._remaining - size)
        results.append((wanted, self._partition_data(wanted.key[1], found)))

    def _refusal(self, source: PartitionLog, wanted: Wanted) -> ErrorCode | None:
        """What can be seen without reading; cheaper than an exception, of which there may be one for each partition."""
        error = epoch_error(source, wanted.leader_epoch)
        if error is not None:
            return error
        if self._old and source.config.compression_type == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        inside = source.log_start_offset <= wanted.fetch_offset <= source.log_end_offset
        return None if inside or not source.available else ErrorCode.OFFSET_OUT_OF_RANGE

    def _fail(self, wanted: Wanted, code: ErrorCode, results: Results) -> None:
        self.failed = self.failed or code not in WAIT_DESPITE
        if code is ErrorCode.KAFKA_STORAGE_ERROR and (
            self.request.header.api_version < FIRST_VERSION_WITH_STORAGE_ERROR
        ):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the older client does not know 56 and would not retry
        results.append((wanted, _failed(wanted.key[1], code)))

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
        """One addition for each run of partitions of a topic: it takes a lock."""
        run: TopicKey = ""
        partitions = failed = size = 0
        for some in slices(results):
            for wanted, data in some:
                topic = wanted.key[0]
                if topic is not run and topic != run:
                    self._add_traffic(run, partitions, failed, size)
                    run = topic
                    partitions = failed = size = 0
                partitions += 1
                if data.error_code:
                    failed += 1
                elif data.records is not None:
                    size += len(data.records)
        self._add_traffic(run, partitions, failed, size)
        for name, unchanged in self._unchanged.items():
            self.broker.topic_metrics.of(name).fetched(0, unchanged)

    def _add_traffic(self, topic: TopicKey, partitions: int, failed: int, size: int) -> None:
        if partitions:
            snapshot = self.broker.catalog.snapshot
            info = snapshot.topics.get(topic) if isinstance(topic, str) else snapshot.topics_by_id.get(topic)
            metrics = self.broker.topic_metrics
            traffic = metrics.unknown if info is None else metrics.of(info.name)
            traffic.fetched(size, partitions, failed)


def _unchanged(source: PartitionLog, wanted: Wanted) -> bool:
    """Whether a read would bring nothing that the client does not know: it is at the end of the log, as it was told last."""
    end = source.log_end_offset
    return (
        wanted.fetch_offset == end == wanted.high_watermark
        and source.log_start_offset == wanted.local_log_start_offset
        and wanted.leader_epoch in (NO_EPOCH, source.leader_epoch)
    )


class DelayedFetch(DelayedOperation):
    """A fetch that waits for data. Ready when `min_bytes` can be read, or when a partition has gone or was cut.

    An append asks about its own partition only, and nothing is read for it: `Arrivals` counts. `_lock` guards the sum. Who makes a heavy
    fetch ready does not read its partitions, of which there may be very many: it goes back to the handlers.
    """

    __slots__ = ("_available", "_fetch", "_lock", "_needs", "_needs_less", "_owes", "_returned", "_waits")

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self._fetch = fetch
        self._lock = threading.Lock()
        self._returned = threading.Lock()  # acquired once, by whoever gives it back to the handlers
        self._available = 0
        self._owes = False  # completed, but a handler must still read and answer
        self._waits: dict[Hashable, _Wait] = {}
        for some in slices(fetch.readable):
            for wanted in some:
                self._wait_for(wanted)
        self._needs_less = False
        self._needs = 0
        if fetch.min_bytes > 1:
            self._needs = self._share_of(fetch.min_bytes)

    def _wait_for(self, wanted: Wanted) -> None:
        source = wanted.source
        if source is not None:
            fetch = self._fetch
            arrivals = source.arrivals(wanted.fetch_offset, fetch.isolation) if fetch.min_bytes > 1 else None
            self._waits[source.topic, source.partition] = _Wait(source, wanted, arrivals)

    @property
    def keys(self) -> list[Hashable]:
        return list(self._waits)

    def ready(self) -> bool:
        for some in slices(list(self._waits.values())):
            for wait in some:
                if self._ends(wait):
                    return True
        return False

    def needs(self, key: Hashable) -> int:
        """A transaction that ends brings more than its marker: while there are any in a partition, each append may be the one."""
        wait = self._waits.get(key)
        return 0 if wait is None or wait.in_transaction else self._needs

    def needs_less(self) -> bool:
        if not self._needs_less:
            return False
        with self._lock:
            less, self._needs_less = self._needs_less, False
        return less

    def _share_of(self, missing: int) -> int:
        """What each partition may bring before anybody looks: of several, all together no more than half of what is missing."""
        partitions = len(self._waits)
        if partitions > 1:
            return missing // (2 * partitions) if partitions <= MOST_SHARES else 0
        return missing

    def ready_for(self, key: Hashable) -> bool:
        wait = self._waits.get(key)
        try:
            return wait is not None and self._ends(wait)
        except NeedsHandler:  # who appends does not look for places in the log, but has whoever answers look
            return True

    def _ends(self, wait: _Wait) -> bool:
        """Whether this partition ends the wait, by itself or with what the others have."""
        source = wait.source
        if not source.available:
            return True
        fetch = self._fetch
        end = source.last_stable_offset if fetch.isolation else source.high_watermark
        wait.in_transaction = end != source.high_watermark and bool(fetch.isolation)
        if wait.offset >= end:
            return wait.offset > end
        if wait.arrivals is None:  # one byte is enough
            return True
        counted = wait.arrivals.count(wait.limit)
        if counted == LOOK:
            return True
        with self._lock:
            self._available += counted - wait.counted
            wait.counted = counted
            missing = fetch.min_bytes - self._available
            if self._needs * len(self._waits) > missing:
                self._needs = self._share_of(missing)
                self._needs_less = len(self._waits) > 1
            return missing <= 0

    def force_complete(self) -> bool:
        request = self._fetch.request
        if not request.heavy or not request.local_done_ns or self.completed:
            return self.finish()
        if not self._returned.acquire(blocking=False):
            return False
        request.progress = self
        return request.request_channel.put(request) or self.finish()  # no handler takes it any more: the broker stops

    def finish(self) -> bool:
        """Complete on this thread, whatever that costs."""
        return super().force_complete()

    def go_on(self) -> None:
        """On a handler's thread, to which the request went back."""
        if self._owes:
            self._answer()
        else:
            self.finish()

    def on_complete(self) -> None:
        self._fetch.request.connection.waiting = None
        try:
            self._answer()
        except NeedsHandler:  # who appends does not do that much work for a reader
            if not self._leave_to_handler():
                with unlimited():
                    self._answer()

    def _leave_to_handler(self) -> bool:
        request = self._fetch.request
        if not request.local_done_ns or request.buffer is not None:
            return False  # the thread that ran the request has not left it
        self._owes = request.heavy = True
        request.progress = self
        return request.request_channel.put(request)

    def _answer(self) -> None:
        request = self._fetch.request
        try:
            message = self._fetch.answer(self._fetch.read())
        except NeedsHandler:
            raise
        except Exception:
            log.exception("%r failed", self)
            message = error_response(
                request.body, request.header.api_version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            )
        request.respond(message)

    def hang_up(self) -> None:
        """A client that only finished sending gets what there is now. Not when its request is heavy: whoever saw the hang-up must not do
        that much work, and Kafka's clients never half-close."""
        if not self._fetch.request.heavy:
            self.force_complete()
        elif self.cancel():
            self._fetch.request.close_connection()

    def on_cancel(self) -> None:
        self._fetch.request.connection.waiting = None

    def __repr__(self) -> str:
        return f"<DelayedFetch {len(self._waits)} partitions of {self._fetch.request!r}>"


class _Wait:
    """One partition of a delayed fetch. `counted`: what it has brought so far, under the operation's lock."""

    __slots__ = ("arrivals", "counted", "in_transaction", "limit", "offset", "source")

    def __init__(self, source: PartitionLog, wanted: Wanted, arrivals: Arrivals | None) -> None:
        self.source = source
        self.offset = wanted.fetch_offset
        self.limit = wanted.max_bytes
        self.arrivals = arrivals
        self.counted = 0
        self.in_transaction = True  # nobody has looked yet


def _by_topic(results: Results) -> list[FetchableTopicResponse]:
    """Neighbours of the same topic share an entry."""
    topics: list[FetchableTopicResponse] = []
    last: object = None
    for some in slices(results):
        for wanted, data in some:
            topic = wanted.key[0]
            if topic is not last and topic != last:
                last = topic
                topics.append(
                    FetchableTopicResponse(topic_id=topic)
                    if isinstance(topic, uuid.UUID)
                    else FetchableTopicResponse(topic=topic)
                )
            topics[-1].partitions.append(data)
    return topics


def _charged_size(results: Results) -> int:
    size = 0
    for some in slices(results):
        for _, data in some:
            size += PARTITION_OVERHEAD + len(data.records or b"")
    return size


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=INVALID_OFFSET,
        last_stable_offset=INVALID_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
