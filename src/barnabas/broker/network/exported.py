"""The metrics of the request path as rows of the registry (RP-31, RP-32): read when somebody scrapes, never on the hot path.

Role:    binds the figures of socket server, handler pools and request metrics to the rows of `broker/metrics.py`.
Thread:  whoever scrapes. Lock: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.broker import metrics as rows
from barnabas.broker.request_metrics import ApiStats, RequestMetrics, error_name
from barnabas.metrics import Histogram, MetricRow, Registry, Sample, bucket_of

if TYPE_CHECKING:
    from barnabas.broker.network.processor import Processor
    from barnabas.broker.network.socket_server import SocketServer

BOUNDS_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUND_BUCKETS = tuple((f"{bound:g}", bucket_of(round(bound * 1e9))) for bound in BOUNDS_SECONDS)
_PARTS = ("queue", "local", "remote", "throttle", "response_queue", "send", "total")  # in the order of rows.TIMES
NS_PER_MS = 1e6


def register_request_metrics(registry: Registry, metrics: RequestMetrics) -> None:
    """Every row by API. Each row takes its own snapshot: a scrape is rare, and the rows stay independent."""

    def each(make: Callable[[ApiStats], Iterable[Sample]]) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for stats in metrics.snapshot().values():
                yield from make(stats)

        return collect

    for part, row, seconds in zip(_PARTS, rows.TIMES, rows.SECONDS, strict=True):
        registry.register(row, each(lambda s, part=part: _summary(s, s.histogram(part), NS_PER_MS)))  # type: ignore[misc]
        registry.register(seconds, each(lambda s, part=part: _buckets(s, s.histogram(part))))  # type: ignore[misc]
    registry.register(rows.REQUEST_BYTES, each(lambda s: _summary(s, s.request_bytes(), 1)))
    registry.register(rows.MESSAGE_CONVERSIONS_TIME, each(lambda s: _summary(s, s.conversions, NS_PER_MS)))
    registry.register(rows.TEMPORARY_MEMORY, each(lambda s: _summary(s, s.temporary, 1)))
    registry.register(rows.REQUESTS, each(_requests))
    registry.register(rows.ERRORS, each(_errors))


def _summary(stats: ApiStats, histogram: Histogram, divisor: float) -> Iterator[Sample]:
    name = ("request", stats.name)
    values = histogram.quantiles(rows.QUANTILES)
    for quantile, value in zip(rows.QUANTILES, values, strict=True):
        yield Sample(value / divisor, (name, ("quantile", f"{quantile:g}")))
    yield Sample(histogram.sum / divisor, (name,), "_sum")
    yield Sample(histogram.count, (name,), "_count")


def _buckets(stats: ApiStats, histogram: Histogram) -> Iterator[Sample]:
    name = ("request", stats.name)
    counts = histogram.buckets
    seen, at = 0, 0
    for text, last in _BOUND_BUCKETS:
        seen += sum(counts[at : last + 1])
        at = last + 1
        yield Sample(seen, (name, ("le", text)), "_bucket")
    yield Sample(histogram.count, (name, ("le", "+Inf")), "_bucket")
    yield Sample(histogram.sum / 1e9, (name,), "_sum")
    yield Sample(histogram.count, (name,), "_count")


def _requests(stats: ApiStats) -> Iterator[Sample]:
    for version, count in sorted(stats.versions.items()):
        yield Sample(count, (("request", stats.name), ("version", str(version))))


def _errors(stats: ApiStats) -> Iterator[Sample]:
    for code, count in sorted(stats.errors.items()):
        yield Sample(count, (("request", stats.name), ("error", error_name(code))))


def register_network_metrics(registry: Registry, server: SocketServer) -> None:
    """Queues, idle shares, memory and connections. A removed processor's samples are gone with it (RP-8)."""
    for plane in server.planes:
        channel = plane.request_channel
        labels = (("plane", plane.name),)
        registry.gauge(rows.REQUEST_QUEUE_SIZE, channel.depth, labels)
        registry.gauge(rows.RESPONSE_QUEUE_TOTAL, channel.response_queue_size, labels)
        registry.gauge(rows.HANDLER_IDLE, lambda name=plane.name: server.handler_idle_share(name), labels)  # type: ignore[misc]
    registry.gauge(rows.NETWORK_IDLE, server.network_idle_share)
    registry.gauge(rows.MEMORY_POOL_AVAILABLE, server.memory_pool.available)
    registry.gauge(rows.MEMORY_POOL_USED, server.memory_pool.used)
    for acceptor in server.acceptors.values():
        registry.gauge(rows.ACCEPTOR_BLOCKED, acceptor.blocked.share, (("listener", acceptor.listener.name),))
    _register_processors(registry, server)


def _register_processors(registry: Registry, server: SocketServer) -> None:
    def each(row: MetricRow, read: Callable[[Processor], float]) -> None:
        with_listener = "listener" in row.labels
        label = row.labels[-1]

        def collect() -> Iterator[Sample]:
            for one in server.processors:
                listener = (("listener", one.listener.name),) if with_listener else ()
                yield Sample(read(one), (*listener, (label, str(one.id))))

        registry.register(row, collect)

    each(rows.PROCESSOR_IDLE, lambda one: one.idle.share())
    each(rows.RESPONSE_QUEUE_SIZE, lambda one: one.response_queue_size())
    each(rows.CONNECTION_COUNT, lambda one: one.connection_count())
    each(rows.CONNECTIONS_CREATED, lambda one: one.selector.connections_created)
    each(rows.CONNECTIONS_CLOSED, lambda one: one.selector.connections_closed)
    each(rows.EXPIRED_KILLED, lambda one: one.expired_killed)
    registry.register(rows.CONNECTIONS_BY_SOFTWARE, lambda: _software(server))


def _software(server: SocketServer) -> Iterator[Sample]:
    counts: dict[tuple[str, str, str], int] = {}
    for processor in server.processors:
        for (name, version), count in processor.software.copy().items():
            key = (processor.listener.name, name, version)
            counts[key] = counts.get(key, 0) + count
    for (listener, name, version), count in counts.items():
        labels = (("listener", listener), ("clientSoftwareName", name), ("clientSoftwareVersion", version))
        yield Sample(count, labels)
