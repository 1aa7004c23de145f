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

from barnabas.broker.dynamic_config import CLUSTER_DEFAULT
from barnabas.broker.settings import BROKER, TOPIC, accepts_listener_key, topic_default
from barnabas.config import Config, ConfigKey, ConfigType, to_text

if TYPE_CHECKING:
    from barnabas.broker.services import BrokerServices


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
    """One config as a client sees it. `layers` are all values from the one that counts down to the default."""

    name: str
    type: ConfigType
    documentation: str
    read_only: bool
    layers: tuple[Synonym, ...]

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def value(self) -> str | None:
        return None if self.sensitive or not self.layers else self.layers[0].value

    @property
    def source(self) -> ConfigSource:
        return self.layers[0].source if self.layers else ConfigSource.DEFAULT

    @property
    def synonyms(self) -> list[Synonym]:
        """The layers, without their values when the value is a secret."""
        return [Synonym(layer.name, None, layer.source) if self.sensitive else layer for layer in self.layers]


def topic_entries(broker: BrokerServices, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic config, for a topic on which `configs` are set."""
    return [_topic_entry(broker, row, configs.get(row.name)) for row in TOPIC]


def _topic_entry(broker: BrokerServices, row: ConfigKey, own: str | None) -> ConfigEntry:
    layers = [] if own is None else [Synonym(row.name, own, ConfigSource.TOPIC)]
    # What the topic falls back to may be computed (log.retention.hours in place of log.retention.ms): then the broker's
    # layers do not show it, and it is the default of the topic config.
    default = to_text(topic_default(broker.config, row))
    behind = _broker_layers(broker, BROKER[row.fallback]) if row.fallback in BROKER else []
    if not behind or behind[0].value != default:
        behind = [Synonym(row.name, default, ConfigSource.DEFAULT)]
    return ConfigEntry(row.name, row.type, row.doc, False, (*layers, *behind))


def broker_entries(broker: BrokerServices) -> list[ConfigEntry]:
    """Every setting of this broker."""
    rows = [*BROKER, *_listener_rows(broker.config)]
    return [
        ConfigEntry(row.name, row.type, row.doc, not row.dynamic, tuple(_broker_layers(broker, row))) for row in rows
    ]


def cluster_default_entries(broker: BrokerServices) -> list[ConfigEntry]:
    """Only what is set for all brokers, as Kafka answers for the broker without a name."""
    layer = broker.dynamic_config.layer(CLUSTER_DEFAULT)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        ConfigEntry(name, BROKER[name].type, BROKER[name].doc, False, (Synonym(name, layer[name], source),))
        for name in layer
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
    names = sorted(name for name in config.names() if accepts_listener_key(name))
    text = "The limit of one listener."
    return [ConfigKey(name, ConfigType.INT, None, text, dynamic=True) for name in names]
