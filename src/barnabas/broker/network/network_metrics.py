"""The metrics of the network layer as rows of the registry (RP-32): read when somebody scrapes, never on the hot path.

Role:    binds the figures of socket server, handler pools and processors to the rows of `broker/metrics.py`.
Thread:  whoever scrapes. Lock: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker import metrics as rows
from barnabas.metrics import MetricRow, Registry, Sample, label_text

if TYPE_CHECKING:
    from barnabas.broker.network.processor import Processor
    from barnabas.broker.network.socket_server import SocketServer


def register_network_metrics(registry: Registry, server: SocketServer) -> None:
    """Queues, idle shares, memory and connections. A removed processor's samples are gone with it (RP-8)."""
    for plane in server.planes:
        channel = plane.request_channel
        labels = label_text(plane=plane.name)
        registry.gauge(rows.REQUEST_QUEUE_SIZE, channel.depth, labels)
        registry.gauge(rows.RESPONSE_QUEUE_TOTAL, channel.response_queue_size, labels)
        registry.gauge(rows.HANDLER_IDLE, partial(server.handler_idle_share, plane.name), labels)
    registry.gauge(rows.NETWORK_IDLE, server.network_idle_share)
    registry.gauge(rows.MEMORY_POOL_AVAILABLE, server.memory_pool.available)
    registry.gauge(rows.MEMORY_POOL_USED, server.memory_pool.used)
    for acceptor in server.acceptors.values():
        registry.gauge(rows.ACCEPTOR_BLOCKED, acceptor.blocked.share, label_text(listener=acceptor.listener.name))
    _register_processors(registry, server)


def _register_processors(registry: Registry, server: SocketServer) -> None:
    def each(row: MetricRow, read: Callable[[Processor], float]) -> None:
        with_listener = "listener" in row.labels
        label = row.labels[-1]

        def collect() -> Iterator[Sample]:
            for one in server.processors:
                listener = {"listener": one.listener.name} if with_listener else {}
                yield Sample(read(one), label_text(**listener, **{label: str(one.id)}))

        registry.register(row, collect)

    each(rows.PROCESSOR_IDLE, lambda one: one.idle.share())
    each(rows.RESPONSE_QUEUE_SIZE, lambda one: one.response_queue_size())
    each(rows.CONNECTION_COUNT, lambda one: one.connection_count())
    each(rows.CONNECTIONS_CREATED, lambda one: one.selector.connections_created)
    each(rows.CONNECTIONS_CLOSED, lambda one: one.selector.connections_closed)
    each(rows.UNSENT_BYTES, lambda one: one.selector.sending.unsent()[0])
    each(rows.OLDEST_UNSENT, lambda one: one.selector.sending.unsent()[1] / 1e6)
    each(rows.EXPIRED_KILLED, lambda one: one.expired_killed)
    registry.register(rows.CONNECTIONS_BY_SOFTWARE, lambda: _software(server))


def _software(server: SocketServer) -> Iterator[Sample]:
    counts: dict[str, int] = {}
    for processor in server.processors:
        for (name, version), count in processor.software.copy().items():
            labels = label_text(
                listener=processor.listener.name, clientSoftwareName=name, clientSoftwareVersion=version
            )
            counts[labels] = counts.get(labels, 0) + count
    for labels, count in counts.items():
        yield Sample(count, labels)
