"""Where the time of requests goes, by API (RP-31), and the log of slow requests.

Role:    each processor has a `RequestShard` and records every finished request into it; `RequestMetrics` merges the shards
         when somebody scrapes. The total of a request is the sum of its parts by construction: it is added up from them.
Thread:  a shard is written by its processor only; merging and everything else from any thread.
Lock:    `RequestMetrics._lock` guards the list of shards. A shard has none: each int is read before or after an update.

Recording is on the hot path: what is counted for every request is in `request_figures`, which is compiled.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.request_figures import PARTS, RequestFigures
from barnabas.errors import ErrorCode
from barnabas.metrics import Histogram
from barnabas.native import is_codec_native
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from barnabas.broker.network.request import ConnectionContext, Request
    from barnabas.protocol.header import RequestHeader

request_log = logging.getLogger("kafka.request.logger")

RECENT = 256
FETCH = int(ApiKey.FETCH)
CONSUMER, FOLLOWER = "FetchConsumer", "FetchFollower"

ErrorCounter = Callable[[Any, dict[int, int]], None]


class CompletedRequest:
    """A finished request and the parts of its time in ns, for reports; made when somebody asks."""

    __slots__ = ("connection", "header", "name", "parts", "start_ns")

    def __init__(
        self, name: str, header: RequestHeader, connection: ConnectionContext, start_ns: int, parts: tuple[int, ...]
    ) -> None:
        self.name = name
        self.header = header
        self.connection = connection
        self.start_ns = start_ns
        self.parts = dict(zip(PARTS, parts, strict=True))

    @property
    def total_ms(self) -> float:
        return self.parts["total"] / 1e6

    def as_json(self) -> str:
        """The line of Kafka's request log. Bodies are left out: they may hold secrets and are the clients' business."""
        header, connection = self.header, self.connection
        return json.dumps(
            {
                "requestHeader": {
                    "requestApiKey": header.api_key,
                    "requestApiVersion": header.api_version,
                    "correlationId": header.correlation_id,
                    "clientId": header.client_id,
                    "requestApiKeyName": self.name,
                },
                "connection": connection.connection_id,
                "totalTimeMs": _ms(self.parts["total"]),
                "requestQueueTimeMs": _ms(self.parts["queue"]),
                "localTimeMs": _ms(self.parts["local"]),
                "remoteTimeMs": _ms(self.parts["remote"]),
                "throttleTimeMs": _ms(self.parts["throttle"]),
                "responseQueueTimeMs": _ms(self.parts["response_queue"]),
                "sendTimeMs": _ms(self.parts["send"]),
                "securityProtocol": connection.security_protocol,
                "principal": connection.principal,
                "listener": connection.listener,
                "clientInformation": {
                    "softwareName": connection.client_software_name,
                    "softwareVersion": connection.client_software_version,
                },
            },
            separators=(",", ":"),
        )

    def __repr__(self) -> str:
        times = " ".join(f"{part}={_ms(ns)}" for part, ns in self.parts.items())
        return f"<{self.name} v{self.header.api_version} {self.connection.connection_id} ms: {times}>"


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


class ApiStats:
    """What is counted of one API in one shard."""

    __slots__ = ("conversions", "errors", "figures", "name", "temporary", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures = RequestFigures()
        self.versions: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.conversions = Histogram()
        self.temporary = Histogram()

    @property
    def count(self) -> int:
        return self.figures.count

    def merge(self, other: ApiStats) -> None:
        """Add what another shard has; `self` must be private to the caller."""
        self.figures.merge(other.figures)
        _add_counts(self.versions, other.versions)
        _add_counts(self.errors, other.errors)
        self.conversions.merge(other.conversions)
        self.temporary.merge(other.temporary)

    def histogram(self, part: str) -> Histogram:
        """One part as a histogram in ns."""
        return self.figures.histogram(part)

    def request_bytes(self) -> Histogram:
        return self.figures.request_bytes()

    def __repr__(self) -> str:
        return f"<ApiStats {self.name} count={self.count}>"


def _add_counts(mine: dict[int, int], theirs: dict[int, int]) -> None:
    for key, value in theirs.copy().items():  # the copy is one step, its owner may add a key meanwhile
        mine[key] = mine.get(key, 0) + value


class RequestShard:
    """The request figures of one processor. Single writer."""

    __slots__ = ("_owner", "_recent", "stats")

    def __init__(self, owner: RequestMetrics) -> None:
        self._owner = owner
        self.stats: dict[int | str, ApiStats] = {}
        self._recent: deque[tuple[Any, ...]] = deque(maxlen=RECENT)

    def record(self, request: Request, end_ns: int) -> None:
        """A request is finished: its response has left, or will never leave."""
        request.end_ns = end_ns
        header = request.header
        key = header.api_key
        stats = self.stats.get(key) if key != FETCH else self.stats.get(fetch_name(request.body))
        if stats is None:
            stats = self._new_stats(request)
        start = request.start_ns
        dequeue, local_done, complete = request.dequeue_ns, request.local_done_ns, request.complete_ns
        stamps = (start, dequeue, local_done, complete, request.response_dequeue_ns, end_ns)
        parts = stats.figures.record(stamps, request.throttle_ms * 1_000_000, request.size)
        version = header.api_version
        versions = stats.versions
        versions[version] = versions.get(version, 0) + 1
        response = request.response
        if response is not None:
            count_errors(response, stats.errors)
        elif request.errors is not None:
            _add_counts(stats.errors, request.errors)
        if request.conversions_ns or request.temporary_bytes:
            stats.conversions.record(request.conversions_ns)
            stats.temporary.record(request.temporary_bytes)
        self._recent.append((stats.name, header, request.connection, start, parts))
        if parts[6] >= self._owner.log_threshold_ns:
            self._owner.log_slow(self._recent[-1])

    def _new_stats(self, request: Request) -> ApiStats:
        key = request.header.api_key
        index = fetch_name(request.body) if key == FETCH else key
        stats = self.stats[index] = ApiStats(_name(index))
        return stats

    def record_error(self, api_key: int, code: ErrorCode) -> None:
        """A request that could not even be parsed."""
        index: int | str = CONSUMER if api_key == FETCH else api_key
        if api_key not in APIS:
            index = "Unknown"  # the key is the peer's to choose, and must not make a label each
        stats = self.stats.get(index)
        if stats is None:
            stats = self.stats[index] = ApiStats(_name(index))
        stats.errors[code] = stats.errors.get(code, 0) + 1

    def recent(self) -> list[CompletedRequest]:
        return [CompletedRequest(*entry) for entry in self._recent.copy()]


def _name(index: int | str) -> str:
    return index if isinstance(index, str) else APIS[index].name


def fetch_name(body: Any) -> str:
    """A follower names its replica id: in the request itself up to v14, in `replica_state` from v15 on."""
    if body is None or (body.replica_id < 0 and body.replica_state.replica_id < 0):
        return CONSUMER
    return FOLLOWER


class RequestMetrics:
    """All shards of a broker. Thread-safe."""

    def __init__(self, log_threshold_ms: int = -1) -> None:
        self._lock = threading.Lock()
        self._shards: list[RequestShard] = []
        self._retired = RequestShard(self)
        self.log_threshold_ns = 0
        self.set_log_threshold(log_threshold_ms)

    def set_log_threshold(self, milliseconds: int) -> None:
        """Requests that took at least this long are logged; -1 means none (`barnabas.request.log.threshold.ms`)."""
        self.log_threshold_ns = milliseconds * 1_000_000 if milliseconds >= 0 else 1 << 62

    def new_shard(self) -> RequestShard:
        shard = RequestShard(self)
        with self._lock:
            self._shards.append(shard)
        return shard

    def retire(self, shard: RequestShard) -> None:
        """The processor of this shard has ended; its counts stay, because counters never go back."""
        with self._lock:
            if shard in self._shards:
                self._shards.remove(shard)
                for index, stats in shard.stats.items():
                    self._retired.stats.setdefault(index, ApiStats(stats.name)).merge(stats)
                self._retired._recent.extend(shard._recent)

    def snapshot(self) -> dict[str, ApiStats]:
        """The figures of every API by name, summed over the shards; Fetch is the sum of its two kinds."""
        with self._lock:
            shards = [*self._shards, self._retired]
        total: dict[str, ApiStats] = {}
        for shard in shards:
            for stats in shard.stats.copy().values():
                total.setdefault(stats.name, ApiStats(stats.name)).merge(stats)
        kinds = [total[name] for name in (CONSUMER, FOLLOWER) if name in total]
        if kinds:
            fetch = total["Fetch"] = ApiStats("Fetch")
            for kind in kinds:
                fetch.merge(kind)
        return total

    def recent(self, limit: int = 50) -> list[CompletedRequest]:
        """The last completed requests, oldest first."""
        with self._lock:
            shards = [*self._shards, self._retired]
        found = [request for shard in shards for request in shard.recent()]
        found.sort(key=lambda request: request.start_ns)
        return found[-limit:]

    def log_slow(self, entry: tuple[Any, ...]) -> None:
        if request_log.isEnabledFor(logging.INFO):
            request_log.info("Completed request:%s", CompletedRequest(*entry).as_json())

    def __repr__(self) -> str:
        return f"<RequestMetrics shards={len(self._shards)}>"


# ---- errors by code ------------------------------------------------------------------------------------------------

_counters: dict[type, ErrorCounter] = {}


def _choose_counter() -> ErrorCounter:
    if is_codec_native():
        return cast(ErrorCounter, import_module("barnabas.protocol.native.layout").count_errors)
    return count_errors_plainly


def count_errors_plainly(response: Any, counts: dict[int, int]) -> None:
    """Count every `error_code` of a response."""
    _error_counter(type(response))(response, counts)


count_errors: ErrorCounter = _choose_counter()


def _error_counter(cls: type[Message]) -> ErrorCounter:
    """The function that counts every `error_code` of a response of this class; made from its declaration on first use."""
    counter = _counters.get(cls)
    if counter is None:
        counter = _counters[cls] = _make_counter(cls) or _count_nothing
    return counter


def _count_nothing(message: Any, counts: dict[int, int]) -> None:
    """For a response that has no error code at all."""


def _make_counter(cls: type[Message]) -> ErrorCounter | None:
    """None when neither the class nor anything below it has an error code."""
    own = any(spec.name == "error_code" for spec in cls.schema.fields)
    below = list(_counters_below(cls))
    if not own and not below:
        return None

    def count(message: Any, counts: dict[int, int]) -> None:
        if own:
            code = message.error_code
            counts[code] = counts.get(code, 0) + 1
        for name, counter in below:
            for item in getattr(message, name) or ():
                counter(item, counts)

    if own and not below:
        return _count_own
    return count


def _count_own(message: Any, counts: dict[int, int]) -> None:
    code = message.error_code
    counts[code] = counts.get(code, 0) + 1


def _counters_below(cls: type[Message]) -> Iterator[tuple[str, ErrorCounter]]:
    for spec in cls.schema.fields:
        if spec.is_array and isinstance(spec.kind, type):
            counter = _make_counter(spec.kind)
            if counter is not None:
                yield spec.name, counter


def error_name(code: int) -> str:
    """The label of an error code, also for one that no table has."""
    known = ErrorCode._value2member_map_.get(code)
    return str(code) if known is None else known.name


def parts_of(entries: Iterable[CompletedRequest]) -> dict[str, int]:
    """The sums of the parts over some requests, for "where did the time go" reports."""
    sums = dict.fromkeys(PARTS, 0)
    for entry in entries:
        for part, ns in entry.parts.items():
            sums[part] += ns
    return sums
