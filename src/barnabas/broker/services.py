"""What the APIs may use: the broker's services, wired by `server.py` and handed to every handler.

Role: one object instead of a constructor with twenty parameters; it holds references and decides nothing.
Thread: any; every service says itself who may call it. Lock: none, the slots are set once before the first request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.apis.table import ApiRow
    from barnabas.broker.catalog import Catalog
    from barnabas.broker.dynamic_config import DynamicBrokerConfig
    from barnabas.broker.fetch_sessions import FetchSessionCache
    from barnabas.broker.log.manager import LogManager
    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.quotas import ClientQuotas
    from barnabas.broker.topic_metrics import TopicMetrics
    from barnabas.broker.topics import Topics
    from barnabas.clock import Clock
    from barnabas.config import Config
    from barnabas.metrics import Registry


@dataclass(frozen=True, slots=True)
class Node:
    """This broker as clients see it."""

    id: int
    rack: str | None
    endpoints: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where each listener is advertised: name → (host, port)."""

    def endpoint(self, listener: str) -> tuple[str, int]:
        """The address to give to a client that came through this listener."""
        return self.endpoints[listener]


@dataclass(slots=True)
class BrokerServices:
    """Everything an API handler can ask."""

    config: Config
    clock: Clock
    node: Node
    metrics: Registry
    apis: Mapping[int, ApiRow]
    catalog: Catalog
    logs: LogManager
    topics: Topics
    topic_metrics: TopicMetrics
    dynamic_config: DynamicBrokerConfig
    quotas: ClientQuotas
    connection_quotas: ConnectionQuotas
    fetch_sessions: FetchSessionCache
    produce_purgatory: Purgatory
    fetch_purgatory: Purgatory
    delete_purgatory: Purgatory

    @property
    def purgatories(self) -> tuple[Purgatory, Purgatory, Purgatory]:
        return self.produce_purgatory, self.fetch_purgatory, self.delete_purgatory
