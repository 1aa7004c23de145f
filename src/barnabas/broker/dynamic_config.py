"""Broker settings that change while the broker runs, through the protocol (KIP-226).

Role: keeps two layers in the catalog, the cluster-wide default ("") and this node's own, and hands their sum to `Config`,
whose listeners resize thread pools, move limits and so on. Which keys may change is said by their rows in `settings.py`.
Thread: any handler; the main thread at start. Lock: `_lock` makes read, check, store and apply one step, so that the last
change stored is also the last one applied; listeners run under it and must not alter configs themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from barnabas.broker.catalog import Catalog
from barnabas.broker.settings import accepts_listener_key
from barnabas.config import Config, ConfigType
from barnabas.errors import ConfigError, ErrorCode, KafkaError

log = logging.getLogger(__name__)

ConfigEdit = Callable[[Mapping[str, str]], Mapping[str, str]]

CLUSTER_DEFAULT = ""


class DynamicBrokerConfig:
    """Thread-safe."""

    def __init__(self, config: Config, catalog: Catalog, node_id: int) -> None:
        self._config = config
        self._catalog = catalog
        self.own_resource = str(node_id)
        """The resource name of this node's own layer."""
        self._lock = threading.Lock()

    def load(self) -> None:
        """At start: apply what is stored. A value that is no longer accepted is left out with a warning."""
        with self._lock:
            self._config.set_dynamic(self._stored())

    def _usable(self, name: str, value: str) -> bool:
        try:
            self._config.check_dynamic({name: value})
        except ConfigError as error:
            log.warning("A stored broker setting is left out: %s", error)
            return False
        return True

    def layer(self, resource: str) -> Mapping[str, str]:
        """What was set for one resource: the node id as text, or "" for the cluster-wide default."""
        return self._catalog.snapshot.broker_configs.get(resource, {})

    def edit(self, resource: str, edit: ConfigEdit, validate_only: bool = False) -> None:
        """Replace one layer by `edit(layer)`; raises `KafkaError` and changes nothing when a value cannot be used."""
        self._check_resource(resource)
        with self._lock:
            before = self.layer(resource)
            after = dict(edit(before))
            self._check(resource, after)
            if validate_only or after == before:
                return
            self._catalog.set_broker_configs(resource, after)
            self._apply()
        log.info(
            "Settings of %s are now %s", f"broker {resource}" if resource else "all brokers", self._loggable(after)
        )

    def _apply(self) -> None:
        """Give the sum of both layers to the listeners. One that fails is our bug; the value stays stored and known."""
        try:
            self._config.set_dynamic(self._stored())
        except Exception as error:
            log.exception("A broker setting was stored but could not be applied")
            text = f"The setting is stored but could not be applied: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error

    def _stored(self) -> dict[str, str]:
        """The sum of both layers, this node's own above the default, without what an older program had accepted."""
        merged = {**self.layer(CLUSTER_DEFAULT), **self.layer(self.own_resource)}
        return {name: value for name, value in merged.items() if self._usable(name, value)}

    def _check_resource(self, resource: str) -> None:
        if resource not in (CLUSTER_DEFAULT, self.own_resource):
            text = f"Unexpected broker id, expected {self.own_resource} or empty string, but received {resource}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def _check(self, resource: str, configs: Mapping[str, str]) -> None:
        """Not a dynamic key: INVALID_REQUEST, as Kafka; a key or value that makes no sense: INVALID_CONFIG."""
        for name in configs:
            row = self._config.definition.rows.get(name)
            if row is not None and not row.dynamic:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update this config dynamically: {name}")
            if resource == CLUSTER_DEFAULT and accepts_listener_key(name):
                text = f"Cannot update {name} at default cluster level, broker id must be specified"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        try:
            self._config.check_dynamic(configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {error}") from error

    def _loggable(self, configs: Mapping[str, str]) -> dict[str, str]:
        rows = self._config.definition.rows
        hidden = {name for name in configs if name in rows and rows[name].type is ConfigType.PASSWORD}
        return {name: "[hidden]" if name in hidden else value for name, value in configs.items()}

    def __repr__(self) -> str:
        return f"DynamicBrokerConfig(node={self.own_resource}, set={dict(self._config.dynamic)})"
