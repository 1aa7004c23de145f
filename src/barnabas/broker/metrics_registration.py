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
from barnabas.broker.network.network_metrics import register_network_metrics
from barnabas.broker.request_metrics_page import RequestMetricsPage, flush_samples
from barnabas.metrics import Sample

if TYPE_CHECKING:
    import psutil

    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.server import BrokerServer


def register_broker_metrics(server: BrokerServer) -> None:
    """Every row of `broker/metrics.py` gets its source."""
    registry, services = server.registry, server.services
    RequestMetricsPage(server.request_metrics, server.clock).register(registry)
    services.topic_metrics.register(registry)
    registry.register(rows.QUOTA_THROTTLE, services.quotas.samples)
    registry.register(rows.LOG_FLUSH, flush_samples(lambda: services.logs.flush_stats.histogram))
    registry.gauge(rows.OFFLINE_LOG_DIRECTORIES, services.logs.offline_count)
    for purgatory in services.purgatories:
        registry.gauge(
            rows.PURGATORY_SIZE, partial(_purgatory_size, purgatory), (("delayedOperation", purgatory.name),)
        )
    register_network_metrics(registry, server.socket_server)
    _register_logs(server)
    _register_cleaner(server)
    _register_node(server)


def _purgatory_size(purgatory: Purgatory) -> float:
    return purgatory.size


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


def _register_cleaner(server: BrokerServer) -> None:
    registry, logs = server.registry, server.services.logs
    cleaner, figures = logs.cleaner, logs.cleaner.figures

    def by_directory(read: Callable[[LogDir], float]) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for directory in logs.directories:
                yield Sample(read(directory), (("logDirectory", directory.path),))

        return collect

    registry.register(rows.UNCLEANABLE_PARTITIONS, by_directory(cleaner.uncleanable_count))
    registry.register(rows.UNCLEANABLE_BYTES, by_directory(cleaner.uncleanable_bytes))
    registry.gauge(rows.MAX_DIRTY_PERCENT, lambda: 100 * figures.max_dirty_ratio)
    registry.gauge(rows.CLEANER_LAST_RUN, cleaner.milliseconds_since_last_run)
    registry.gauge(rows.CLEANER_BUFFER, lambda: 100 * figures.last.map_utilization)
    registry.gauge(rows.CLEANER_RECOPY, lambda: 100 * figures.last.bytes_written / max(1, figures.last.bytes_read))
    registry.gauge(rows.CLEANER_TIME, lambda: figures.last_seconds)
    registry.gauge(rows.CLEANER_DELAY, lambda: figures.max_delay_ms / 1000)
    registry.gauge(rows.CLEANER_DEAD_THREADS, lambda: cleaner.dead_threads)
    registry.gauge(rows.CLEANINGS, lambda: figures.cleanings)


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
