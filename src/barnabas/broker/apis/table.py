"""The API table (RP-37): one row per API that this broker serves; ApiVersions, dispatch and docs are computed from it.

Role:    api key -> module in this folder, versions, whether it may run inline on the processor.
Threads: read by every processor and handler; a row resolves its handler on first use.
Lock:    none; resolving twice in a race stores the same function twice.

A handler module offers two functions, and may offer a third::

    handle(request, broker) -> message | None        None: answered later through request.respond
    error_response(body, version, error) -> message  the whole request failed with a KafkaError
    weigh(body, broker) -> int                       how many elements it will touch or answer, where the body does not tell; asked by
                                                     the processor for each request, so it is a look-up, no loop (`broker/budget.py`)

Handlers are imported on first use, so that a broker that has only been asked for ApiVersions has not paid for the
import of the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices
    from barnabas.errors import KafkaError

Handler = Callable[["Request", "BrokerServices"], Any]
ErrorResponse = Callable[[Any, int, "KafkaError"], Any]
Weigh = Callable[[Any, "BrokerServices"], int]

PACKAGE = "barnabas.broker.apis"
CHARGED_BY_HANDLER = ("produce", "fetch")
"""They charge bytes and time to the client's quotas themselves; for the others the row charges the time (RP-39)."""


class ApiRow:
    """One API: its key, the versions served, the module that serves it, whether it can never block (`inline`), and whether it may block for
    long (`admin`)."""

    __slots__ = (
        "admin",
        "advertised_min",
        "error_response",
        "handle",
        "inline",
        "key",
        "max_version",
        "min_version",
        "module",
        "weigh",
    )

    handle: Handler
    error_response: ErrorResponse
    weigh: Weigh | None

    def __init__(
        self,
        key: int,
        module: str,
        versions: tuple[int, int],
        *,
        inline: bool = False,
        admin: bool = False,
        advertised_min: int | None = None,
    ) -> None:
        self.key = key
        self.module = module
        self.min_version, self.max_version = versions
        self.inline = inline
        self.admin = admin
        self.advertised_min = self.min_version if advertised_min is None else advertised_min
        self.handle = self._first_handle
        self.error_response = self._first_error_response
        self.weigh = self._first_weigh

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def load(self) -> ModuleType:
        """Import the module and put its functions in place of the loaders."""
        module = importlib.import_module(f"{PACKAGE}.{self.module}")
        self.error_response = module.error_response
        self.weigh = getattr(module, "weigh", None)
        self.handle = module.handle if self.module in CHARGED_BY_HANDLER else _charging_time(module.handle)
        return module

    def _first_handle(self, request: Request, broker: BrokerServices) -> Any:
        self.load()
        return self.handle(request, broker)

    def _first_error_response(self, body: Any, version: int, error: KafkaError) -> Any:
        self.load()
        return self.error_response(body, version, error)

    def _first_weigh(self, body: Any, broker: BrokerServices) -> int:
        self.load()
        return 0 if self.weigh is None else self.weigh(body, broker)

    def __repr__(self) -> str:
        return f"ApiRow({self.key}, {self.module!r}, v{self.min_version}-{self.max_version}, inline={self.inline})"


def _charging_time(handle: Handler) -> Handler:
    def charged(request: Request, broker: BrokerServices) -> Any:
        message = handle(request, broker)
        if message is not None and broker.quotas.enabled:
            broker.quotas.charge_other(request, message)
        return message

    return charged


# Versions are those of Apache Kafka 4.3 (clients infer the release from the combination, so they stay coherent).
# Produce is advertised from 0 although v0-2 are refused by a disconnect: older librdkafka turns compression off
# otherwise (KAFKA-18659). Inline rows touch only memory and the page cache; everything that may write the catalog,
# search a time index or read a log is left to the handlers. Admin rows change what the catalog or the configuration
# holds, each time. They may wait for a disk, a lock or threads: at most a quarter of the handlers runs them at a time
# (`network/slow_lane.py`).
ROWS: tuple[ApiRow, ...] = (
    ApiRow(0, "produce", (3, 13), inline=True, advertised_min=0),
    ApiRow(1, "fetch", (4, 18), inline=True),
    ApiRow(2, "list_offsets", (1, 11)),
    ApiRow(3, "metadata", (0, 13)),
    ApiRow(10, "find_coordinator", (0, 6), inline=True),
    ApiRow(18, "api_versions", (0, 4), inline=True),
    ApiRow(19, "create_topics", (2, 7), admin=True),
    ApiRow(20, "delete_topics", (1, 6), admin=True),
    ApiRow(21, "delete_records", (0, 2), admin=True),
    ApiRow(22, "init_producer_id", (0, 5)),
    ApiRow(23, "offset_for_leader_epoch", (2, 4), inline=True),
    ApiRow(32, "describe_configs", (1, 4)),
    ApiRow(33, "alter_configs", (0, 2), admin=True),
    ApiRow(35, "describe_log_dirs", (1, 5)),
    ApiRow(37, "create_partitions", (0, 3), admin=True),
    ApiRow(44, "incremental_alter_configs", (0, 1), admin=True),
    ApiRow(46, "list_partition_reassignments", (0, 0)),
    ApiRow(48, "describe_client_quotas", (0, 1)),
    ApiRow(49, "alter_client_quotas", (0, 1), admin=True),
    ApiRow(60, "describe_cluster", (0, 2)),
    ApiRow(74, "list_config_resources", (0, 1)),
    ApiRow(75, "describe_topic_partitions", (0, 0)),
)

TABLE: dict[int, ApiRow] = {row.key: row for row in ROWS}
