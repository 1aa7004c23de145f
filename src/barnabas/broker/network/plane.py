"""What the acceptors, processors and handlers of one plane share (RP-36).

Role:    the data plane and the control plane each have one; it holds references and settings and decides nothing.
Thread:  any. Lock: none; `services` is set once before the first thread starts, the rest in the constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.broker.budget import Budget
from barnabas.broker.network.baton import NO_BATON, Baton
from barnabas.broker.network.shared_core import SharedCore
from barnabas.clock import Clock, SystemClock
from barnabas.net.deadlines import Deadlines
from barnabas.net.memory_pool import MemoryPool, UnlimitedMemoryPool
from barnabas.net.read_on import READ_ON_PER_CONNECTION, READ_ON_PER_PROCESSOR
from barnabas.net.sending import UnsentMemory

if TYPE_CHECKING:
    from barnabas.broker.apis.table import ApiRow
    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.network.request_channel import RequestChannel
    from barnabas.broker.network.stand_in import StandIn
    from barnabas.broker.request_metrics import RequestMetrics
    from barnabas.threads import FatalHandler

DATA = "data-plane"
CONTROL = "control-plane"


@dataclass(slots=True)
class Plane:
    """See the file header."""

    request_channel: RequestChannel
    quotas: ConnectionQuotas
    request_metrics: RequestMetrics
    apis: Mapping[int, ApiRow]
    name: str = DATA
    node_id: int = 1
    clock: Clock = field(default_factory=SystemClock)
    memory_pool: MemoryPool = field(default_factory=UnlimitedMemoryPool)
    max_request_bytes: int = 104_857_600
    idle_ns: int = 600_000_000_000
    deadlines: Deadlines = field(default_factory=Deadlines)
    budget: Budget = field(default_factory=Budget)
    read_on: tuple[int, int] = (READ_ON_PER_CONNECTION, READ_ON_PER_PROCESSOR)
    """Bytes read while a response is stuck, per connection and per processor."""
    unsent: UnsentMemory = field(default_factory=UnsentMemory)
    """What responses take that clients are slow to read; one for all planes."""
    inline: bool = False
    """The short cut: processors run requests that cannot block themselves, while the queue is empty."""
    enabled_apis: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """API keys by listener name, for listeners that serve only some of them."""
    baton: Baton = NO_BATON
    shared_core: SharedCore = field(default_factory=lambda: SharedCore(enabled=False))
    stand_in: StandIn | None = None
    """Set when processors commit what they append themselves; it runs their turns when the disk is slow."""
    on_fatal: FatalHandler | None = None
    services: Any = None

    def apis_of(self, listener: str) -> dict[int, ApiRow]:
        """The APIs that are enabled on a listener."""
        enabled = self.enabled_apis.get(listener)
        return {key: row for key, row in self.apis.items() if enabled is None or key in enabled}
