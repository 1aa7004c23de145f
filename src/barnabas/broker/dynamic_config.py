"""Broker settings that change while the broker runs, through the protocol (KIP-226).

Role: keeps two layers in the catalog, the cluster-wide default ("") and this node's own, and hands their sum to `Config`, whose followers
resize thread pools, move limits and so on. Which keys may change, and to what, is said by their rows in `settings.py`. A change is
parsed and checked, applied, and then stored: what cannot be applied or stored is undone, so that no stored value prevents a start.
Thread: any handler; the main thread at start. Lock: `_lock` makes read, check, apply and store one step, so that the last change applied is
also the last one stored; followers run under it and must not alter configs themselves. Who waits for it gives up after `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from barnabas.broker.catalog import Catalog
from barnabas.broker.connection_settings import check_listener, listener_row
from barnabas.broker.listeners import parse_listeners
from barnabas.config import Config, ConfigType
from barnabas.errors import ConfigError, ErrorCode, KafkaError, shown

log = logging.getLogger(__name__)

ConfigEdit = Callable[[Mapping[str, str]], Mapping[str, str]]

CLUSTER_DEFAULT = ""
PATIENCE_SECONDS = 1.0


class DynamicBrokerConfig:
    """Thread-safe."""

    def __init__(self, config: Config, catalog: Catalog, node_id: int) -> None:
        self._config = config
        self._catalog = catalog
        self.own_resource = str(node_id)
        """The resource name of this node's own layer."""
        self._listeners = [listener.name for listener in parse_listeners(config)]
        self._lock = threading.Lock()
        self._unusable: dict[str, set[str]] = {}
        """Keys by resource that are stored with a value which no change would accept."""

    def load(self) -> None:
        """At start: apply what is stored. A value that cannot be used any more is left out, with a warning that names it."""
        with self._change():
            for resource in (CLUSTER_DEFAULT, self.own_resource):
                stored = self.layer(resource)
                self._unusable[resource] = {name for name, value in stored.items() if not self._usable(name, value)}
            stored = self._merged({})
            if self._enabled:
                self._config.load_dynamic(stored)
            elif stored:
                log.warning(
                    "barnabas.dynamic.settings.enable=false: stored broker settings are left out: %s", _text(stored)
                )

    def _usable(self, name: str, value: str) -> bool:
        try:
            self._check_value(name, value)
        except ConfigError as error:
            log.warning("a stored broker setting is left out: %s", error)
            return False
        return True

    def _check_value(self, name: str, value: str) -> None:
        row = self._config.definition.row_of(name)
        if row is None:
            raise ConfigError(name, value, "is not a setting of the broker")
        check_listener(name, value, self._listeners)
        row.parse_at_run_time(value)

    @property
    def _enabled(self) -> bool:
        return bool(self._config["barnabas.dynamic.settings.enable"])

    def layer(self, resource: str) -> Mapping[str, str]:
        """What was set for one resource (the node id as text, or "" for the cluster-wide default), less what was left out."""
        stored = self._stored(resource)
        left_out = self._unusable.get(resource, set()) | self._config.left_out
        return {name: value for name, value in stored.items() if name not in left_out} if left_out else stored

    def _stored(self, resource: str) -> Mapping[str, str]:
        return self._catalog.snapshot.broker_configs.get(resource, {})

    def edit(self, resource: str, edit: ConfigEdit, validate_only: bool = False) -> None:
        """Replace one layer by `edit(layer)`; raises `KafkaError` and changes nothing when a value cannot be used or applied."""
        self._check_resource(resource)
        with self._change():
            after = dict(edit(self.layer(resource)))
            self._check(resource, after)
            if validate_only or after == self._stored(resource):
                return
            with self._applied(self._merged({resource: after})):
                self._catalog.set_broker_configs(resource, after)
            self._unusable.pop(resource, None)
        log.info(
            "Settings of %s are now %s",
            f"broker {resource}" if resource else "all brokers",
            _text(self._loggable(after)) or "the defaults",
        )

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """One change at a time; who cannot wait for the one before is told so."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            text = f"Another change of broker settings was not finished within {PATIENCE_SECONDS:.0f} s; try again"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _applied(self, values: Mapping[str, str]) -> Iterator[None]:
        """The values are in force within the block and, unless it raises, after it. INVALID_CONFIG when they cannot be applied."""
        with contextlib.ExitStack() as applied:
            try:
                if self._enabled:
                    applied.enter_context(self._config.changed(values))
            except Exception as error:
                log.warning("broker settings could not be applied, the earlier ones stay: %s", error)
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"The setting could not be applied: {error}") from error
            yield

    def _merged(self, changed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """The sum of both layers, this node's own above the default."""
        layers = [changed.get(resource, self.layer(resource)) for resource in (CLUSTER_DEFAULT, self.own_resource)]
        return {**layers[0], **layers[1]}

    def _check_resource(self, resource: str) -> None:
        if resource not in (CLUSTER_DEFAULT, self.own_resource):
            text = f"Unexpected broker id, expected {self.own_resource} or empty string, but received {shown(resource)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def _check(self, resource: str, configs: Mapping[str, str]) -> None:
        """Not a dynamic key: INVALID_REQUEST, as Kafka; a key or value that makes no sense: INVALID_CONFIG."""
        for name in configs:
            row = self._config.definition.rows.get(name)
            if row is not None and not row.dynamic:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update this config dynamically: {name}")
            if resource == CLUSTER_DEFAULT and listener_row(name):
                text = f"Cannot update {name} at default cluster level, broker id must be specified"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        try:
            for name, value in configs.items():
                self._check_value(name, value)
            if self._enabled:
                self._config.check_steps(self._merged({resource: configs}))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {error}") from error

    def _loggable(self, configs: Mapping[str, str]) -> dict[str, str]:
        rows = self._config.definition.rows
        hidden = {name for name in configs if name in rows and rows[name].type is ConfigType.PASSWORD}
        return {name: "[hidden]" if name in hidden else value for name, value in configs.items()}

    def __repr__(self) -> str:
        return f"DynamicBrokerConfig(node={self.own_resource}, set={dict(self._config.dynamic)})"


def _text(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in configs.items())
