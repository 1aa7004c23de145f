"""Configs with value, source and synonyms: what DescribeConfigs and CreateTopics (v5+) show of a topic or a broker.

Role: computes each entry from its row in `settings.py` and from the layers in which it may be set. Pure functions.
Thread: any handler. Lock: none, reads the catalog's snapshot.

A value comes from the first layer that has it; the others are its synonyms (KIP-226)::

    topic ─► this broker, dynamic ─► all brokers, dynamic ─► server.properties ─► default
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.broker.connection_settings import listener_row
from barnabas.broker.dynamic_config import CLUSTER_DEFAULT
from barnabas.broker.settings import BROKER
from barnabas.broker.topic_settings import TOPIC, topic_default
from barnabas.config import Config, ConfigKey, ConfigType, to_text

if TYPE_CHECKING:
    from barnabas.broker.services import BrokerServices


# Topic configs behind which several settings stand; the first that is set counts.
IN_LONGER_UNITS = {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One layer's value; `name` differs between a topic config and the broker setting behind it."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as a client sees it. `layers` are all values from the one that counts (`effective`) to the default."""

    row: ConfigKey
    read_only: bool
    effective: str | None
    layers: tuple[Synonym, ...]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def sensitive(self) -> bool:
        return self.row.type is ConfigType.PASSWORD

    @property
    def value(self) -> str | None:
        return None if self.sensitive else self.effective

    @property
    def source(self) -> ConfigSource:
        return self.layers[0].source

    @property
    def synonyms(self) -> list[Synonym]:
        """The layers, without their values when the value is a secret."""
        return [Synonym(layer.name, None, layer.source) if self.sensitive else layer for layer in self.layers]


def topic_entries(broker: BrokerServices, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic config, for a topic on which `configs` are set."""
    return [_topic_entry(broker, row, configs.get(row.name)) for row in TOPIC]


def _topic_entry(broker: BrokerServices, row: ConfigKey, own: str | None) -> ConfigEntry:
    inherited = to_text(topic_default(broker.config, row))
    layers = [] if own is None else [Synonym(row.name, own, ConfigSource.TOPIC)]
    layers += _inherited_layers(broker, row, inherited)
    return ConfigEntry(row, False, inherited if own is None else own, tuple(layers))


def _inherited_layers(broker: BrokerServices, row: ConfigKey, inherited: str | None) -> list[Synonym]:
    """The broker settings behind a topic config. Those in longer units show what the administrator wrote, as in Kafka."""
    names = IN_LONGER_UNITS.get(row.name) or (row.fallback,)
    found = [layer for name in names if name in BROKER for layer in _broker_layers(broker, BROKER[name])]
    found = [layer for layer in found if layer.value is not None]
    if not found or (len(names) == 1 and found[0].value != inherited):
        return [Synonym(row.name, inherited, ConfigSource.DEFAULT)]
    return found


def broker_entries(broker: BrokerServices) -> list[ConfigEntry]:
    """Every setting of this broker."""
    return [_broker_entry(broker, row) for row in [*BROKER, *_listener_rows(broker.config)]]


def _broker_entry(broker: BrokerServices, row: ConfigKey) -> ConfigEntry:
    layers = tuple(_broker_layers(broker, row))
    return ConfigEntry(row, not row.dynamic, layers[0].value, layers)


def cluster_default_entries(broker: BrokerServices) -> list[ConfigEntry]:
    """Only what is set for all brokers, as Kafka answers for the broker without a name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        ConfigEntry(BROKER[name], False, value, (Synonym(name, value, source),))
        for name, value in broker.dynamic_config.layer(CLUSTER_DEFAULT).items()
        if name in BROKER
    ]


def _broker_layers(broker: BrokerServices, row: ConfigKey) -> list[Synonym]:
    dynamic = broker.dynamic_config
    name = row.name
    found = (
        (dynamic.layer(dynamic.own_resource).get(name), ConfigSource.DYNAMIC_BROKER),
        (dynamic.layer(CLUSTER_DEFAULT).get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.config.given.get(name), ConfigSource.STATIC_BROKER),
    )
    layers = [Synonym(name, value, source) for value, source in found if value is not None]
    default = to_text(row.default)
    if not layers or default is not None:
        layers.append(Synonym(name, default, ConfigSource.DEFAULT))
    return layers


def _listener_rows(config: Config) -> list[ConfigKey]:
    """Limits of single listeners have no row of their own; those that are set are shown all the same."""
    return [row for name in sorted(config.names()) if name not in BROKER and (row := listener_row(name)) is not None]
