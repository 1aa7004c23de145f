"""A broker without sockets and threads of its own: real catalog, real logs, and a way to ask its admin APIs.

Each question goes through the codec both ways in the version asked for, so that a field which that version cannot carry
fails the test.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, cast

from barnabas.broker.apis.table import TABLE
from barnabas.broker.catalog import CATALOG_FILE_NAME, Catalog
from barnabas.broker.dynamic_config import DynamicBrokerConfig
from barnabas.broker.log.config import LogManagerSettings
from barnabas.broker.log.manager import LogManager
from barnabas.broker.network.connection_quotas import ConnectionQuotas
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.services import BrokerServices, Node
from barnabas.broker.settings import broker_config
from barnabas.broker.topics import Topics
from barnabas.clock import SystemClock
from barnabas.errors import KafkaError
from barnabas.protocol.codec import decode_request, decode_response, encode
from barnabas.protocol.schema import Message

LISTENER = "PLAINTEXT"
NODE_ID = 7


class RecordingPurgatory:
    """Remembers which partitions were looked at."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, int]] = []

    def check_and_complete(self, key: tuple[str, int]) -> int:
        self.checked.append(key)
        return 0


class AdminBroker:
    """Open it with `with`; leaving it is a clean shutdown."""

    def __init__(self, directory: Path, **settings: object) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.directory = directory
        self.clock = SystemClock()
        self.config = broker_config({"node.id": NODE_ID, "log.dirs": str(directory), **given})
        directory.mkdir(exist_ok=True)
        self.logs = LogManager(LogManagerSettings((str(directory),), node_id=NODE_ID), self.clock)
        self.purgatory = RecordingPurgatory()

    def __enter__(self) -> AdminBroker:
        self.catalog = Catalog.open(self.directory / CATALOG_FILE_NAME, self.clock)
        self.topics = Topics(self.config, self.catalog, self.logs, [cast(Any, self.purgatory)])
        self.logs.startup(self.topics.reconcile())
        dynamic = DynamicBrokerConfig(self.config, self.catalog, NODE_ID)
        dynamic.load()
        self.quotas = ClientQuotas(self.clock)
        self.connection_quotas = ConnectionQuotas(self.config, self.clock)
        nothing = cast(Any, None)
        self.services = BrokerServices(
            config=self.config,
            clock=self.clock,
            node=Node(NODE_ID, "rack-a", {LISTENER: ("broker.example", 9092), "OTHER": ("10.1.1.1", 19092)}),
            metrics=nothing,
            apis=TABLE,
            catalog=self.catalog,
            logs=self.logs,
            topics=self.topics,
            topic_metrics=nothing,
            dynamic_config=dynamic,
            quotas=self.quotas,
            connection_quotas=self.connection_quotas,
            fetch_sessions=nothing,
            produce_purgatory=nothing,
            fetch_purgatory=cast(Any, self.purgatory),
            delete_purgatory=nothing,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.logs.shutdown()
        self.catalog.close()

    def ask(self, body: Message, version: int, listener: str = LISTENER) -> Any:
        """The decoded answer of the API whose request this is."""
        key = body.schema.api_key
        assert key is not None
        row = TABLE[key]
        assert row.serves(version)
        module = importlib.import_module(f"barnabas.broker.apis.{row.module}")
        request: Any = SimpleNamespace(
            body=decode_request(key, version, _bytes(body, version)),
            header=SimpleNamespace(api_version=version, api_key=key, client_id="test"),
            connection=SimpleNamespace(listener=listener, principal="User:ANONYMOUS"),
        )
        try:
            answer = module.handle(request, self.services)
        except KafkaError as error:
            answer = module.error_response(request.body, version, error)
        return decode_response(key, version, _bytes(answer, version))

    def log_dirs(self) -> set[str]:
        """The partition directories on disk, without those that wait for their removal."""
        found = {path.name for path in self.directory.iterdir() if path.is_dir()}
        return {name for name in found if not name.endswith("-delete")}


def _bytes(message: Message, version: int) -> bytes:
    return b"".join(bytes(cast(Any, part)) for part in encode(message, version))
