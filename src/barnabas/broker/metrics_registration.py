"""Registers the broker's gauges and collectors with the metric rows (RP-31, RP-32).

Role: the bridge between live objects and the text page; everything here runs on scrape, nothing on the request path.
Thread: registration at start; the collectors on the thread that scrapes. Lock: none, the figures are read as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from barnabas.broker import metrics as rows
from barnabas.broker.request_metrics_page import RequestMetricsPage, flush_samples
from barnabas.metrics import Labels, Sample

if TYPE_CHECKING:
    import psutil

    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.network.processor import Processor
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.server import BrokerServer


def register_broker_metrics(server: BrokerServer) -> None:
    """Every row of `broker/metrics.py` gets its source."""
    registry, services = server.registry, server.services
    RequestMetricsPage(server.request_metrics, server.clock).register(registry)
    services.topic_metrics.register(registry)
    registry.register(rows.QUOTA_THROTTLE, services.quotas.samples)
    registry.register(rows.LOG_FLUSH, flush_samples(lambda: services.logs.flush_stats.histogram))
    for purgatory in services.purgatories:
        registry.gauge(
            rows.PURGATORY_SIZE, partial(_purgatory_size, purgatory), (("delayedOperation", purgatory.name),)
        )
    _register_network(server)
    _register_logs(server)
    _register_node(server)


def _purgatory_size(purgatory: Purgatory) -> float:
    return purgatory.size


def _register_network(server: BrokerServer) -> None:
    registry, sockets = server.registry, server.socket_server
    for plane in sockets.planes:
        labels = (("plane", plane.name),)
        channel = plane.request_channel
        registry.gauge(rows.REQUEST_QUEUE_SIZE, channel.depth, labels)
        registry.gauge(rows.RESPONSE_QUEUE_TOTAL, channel.response_queue_size, labels)
        registry.gauge(rows.HANDLER_IDLE, partial(_handler_idle, server, plane.name), labels)
    registry.gauge(rows.NETWORK_IDLE, sockets.network_idle_share)
    registry.gauge(rows.MEMORY_POOL_AVAILABLE, sockets.memory_pool.available)
    registry.gauge(rows.MEMORY_POOL_USED, sockets.memory_pool.used)
    for acceptor in sockets.acceptors.values():
        registry.gauge(rows.ACCEPTOR_BLOCKED, acceptor.blocked.share, (("listener", acceptor.listener.name),))
    _register_processors(server)


def _handler_idle(server: BrokerServer, plane: str) -> float:
    pool = server.socket_server.pools.get(plane)
    return pool.idle_share() if pool else 1.0


def _register_processors(server: BrokerServer) -> None:
    """Processors come and go at run time: each scrape asks which there are."""
    registry = server.registry

    def each(read: Callable[[Processor], float], with_listener: bool = True) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for processor in server.socket_server.processors:
                labels: Labels = (("networkProcessor", str(processor.id)),)
                if with_listener:
                    labels = (("listener", processor.listener.name), *labels)
                yield Sample(read(processor), labels)

        return collect

    registry.register(rows.PROCESSOR_IDLE, each(lambda p: p.idle.share(), with_listener=False))
    registry.register(rows.CONNECTION_COUNT, each(lambda p: p.connection_count()))
    registry.register(rows.CONNECTIONS_CREATED, each(lambda p: p.selector.connections_created))
    registry.register(rows.CONNECTIONS_CLOSED, each(lambda p: p.selector.connections_closed))
    registry.register(rows.EXPIRED_KILLED, each(lambda p: p.expired_killed))
    registry.register(rows.CONNECTIONS_BY_SOFTWARE, lambda: _software(server))
    registry.register(rows.RESPONSE_QUEUE_SIZE, lambda: _response_queues(server))


def _response_queues(server: BrokerServer) -> Iterator[Sample]:
    for processor in server.socket_server.processors:
        yield Sample(processor.response_queue_size(), (("processor", str(processor.id)),))


def _software(server: BrokerServer) -> Iterator[Sample]:
    counts: dict[Labels, int] = {}
    for processor in server.socket_server.processors:
        for (name, version), count in processor.software.copy().items():
            labels = (
                ("listener", processor.listener.name),
                ("clientSoftwareName", name),
                ("clientSoftwareVersion", version),
            )
            counts[labels] = counts.get(labels, 0) + count
    for found, count in counts.items():
        yield Sample(count, found)


def _register_logs(server: BrokerServer) -> None:
    registry, logs = server.registry, server.services.logs

    def each(read: Callable[[PartitionLog], float]) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for log in logs.logs():
                yield Sample(read(log), (("topic", log.topic), ("partition", str(log.partition))))

        return collect

    registry.register(rows.LOG_SIZE, each(lambda log: log.size))
    registry.register(rows.LOG_START_OFFSET, each(lambda log: log.log_start_offset))
    registry.register(rows.LOG_END_OFFSET, each(lambda log: log.log_end_offset))
    registry.register(rows.LOG_SEGMENTS, each(lambda log: log.segment_count))
    registry.register(rows.OLDEST_OFFSET, each(lambda log: log.log_start_offset))
    registry.register(rows.CURRENT_OFFSET, each(lambda log: log.high_watermark))
    registry.gauge(rows.PARTITIONS, lambda: len(logs.logs()))
    registry.gauge(rows.LEADERS, lambda: len(logs.logs()))


def _register_node(server: BrokerServer) -> None:
    registry = server.registry
    registry.gauge(rows.BROKER_STATE, lambda: server.state)
    registry.gauge(rows.UNDER_REPLICATED, lambda: 0)
    registry.gauge(rows.ISR_SHRINKS, lambda: 0)
    registry.gauge(rows.ACTIVE_CONTROLLERS, lambda: 1)
    registry.gauge(rows.BROKERS, lambda: 1)
    registry.gauge(rows.PROCESS_MEMORY, lambda: _process().memory_info().rss)
    registry.gauge(rows.PROCESS_CPU, lambda: sum(os.times()[:2]))
    registry.gauge(rows.PROCESS_FDS, lambda: _process().num_fds())


@cache
def _process() -> psutil.Process:
    """Imported with the first scrape: psutil costs 8 ms and 2 MB, which a broker that starts need not pay."""
    import psutil

    return psutil.Process()
