"""Registers the broker's gauges and collectors with the metric rows (RP-31, RP-32).

Role: the bridge between live objects and the text page; everything here runs on scrape, nothing on the request path.
Thread: registration at start; the collectors on the thread that scrapes. Lock: none, the figures are read as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from barnabas.broker import metrics as rows
from barnabas.broker.metrics_settings import MOST_KEY
from barnabas.broker.network.network_metrics import register_network_metrics
from barnabas.broker.request_metrics_page import RequestMetricsPage, flush_samples
from barnabas.broker.slices import slices
from barnabas.metrics import Sample, Table, label_text

if TYPE_CHECKING:
    import psutil

    from barnabas.broker.log.log_dir import LogDir
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.server import BrokerServer
    from barnabas.metrics import MetricRow


def register_broker_metrics(server: BrokerServer) -> None:
    """Every row of `broker/metrics.py` gets its source."""
    registry, services = server.registry, server.services
    RequestMetricsPage(server.request_metrics, server.clock).register(registry)
    most = partial(server.config.__getitem__, MOST_KEY)
    services.topic_metrics.register(registry, most)
    services.quotas.register(registry)
    registry.register(rows.LOG_FLUSH, flush_samples(lambda: services.logs.flush_stats.histogram))
    registry.gauge(rows.OFFLINE_LOG_DIRECTORIES, services.logs.offline_count)
    for purgatory in services.purgatories:
        registry.gauge(
            rows.PURGATORY_SIZE, partial(_purgatory_size, purgatory), label_text(delayedOperation=purgatory.name)
        )
    register_network_metrics(registry, server.socket_server)
    _register_logs(server, most)
    _register_cleaner(server)
    _register_node(server)


def _purgatory_size(purgatory: Purgatory) -> float:
    return purgatory.size


def _register_logs(server: BrokerServer, most: Callable[[], int]) -> None:
    registry, logs = server.registry, server.services.logs
    columns: Sequence[tuple[MetricRow, Callable[[PartitionLog], float]]] = (
        (rows.LOG_SIZE, lambda log: log.size),
        (rows.LOG_START_OFFSET, lambda log: log.log_start_offset),
        (rows.LOG_END_OFFSET, lambda log: log.log_end_offset),
        (rows.LOG_SEGMENTS, lambda log: log.segment_count),
        (rows.OLDEST_OFFSET, lambda log: log.log_start_offset),
        (rows.CURRENT_OFFSET, lambda log: log.high_watermark),
    )

    def lines() -> Iterator[Sequence[tuple[str, PartitionLog]]]:
        for part in slices(logs.logs()[: most()]):
            yield [(label_text(topic=log.topic, partition=str(log.partition)), log) for log in part]

    registry.register_table(Table(columns, lines))
    registry.gauge(rows.LEFT_OUT, lambda: max(0, len(logs.logs()) - most()), label_text(what="partitions"))
    registry.gauge(rows.PARTITIONS, lambda: len(logs.logs()))
    registry.gauge(rows.LEADERS, lambda: len(logs.logs()))


def _register_cleaner(server: BrokerServer) -> None:
    registry, logs = server.registry, server.services.logs
    cleaner, figures = logs.cleaner, logs.cleaner.figures

    def by_directory(read: Callable[[LogDir], float]) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for directory in logs.directories:
                yield Sample(read(directory), label_text(logDirectory=directory.path))

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
