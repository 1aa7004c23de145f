"""The settings that producer, consumer and admin client share, with Kafka's names and defaults.

Role: rows, and the checks of combinations that cannot work. A client adds rows of its own and calls `check_common`.
Thread: import time, then read-only. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.addresses import parse_bootstrap
from barnabas.config import Config, ConfigDef, ConfigKey, ConfigType, at_least, between, one_of
from barnabas.errors import ConfigError

__all__ = ["COMMON_ROWS", "check_common", "client_config"]

_LONG, _INT, _STRING, _LIST = ConfigType.LONG, ConfigType.INT, ConfigType.STRING, ConfigType.LIST

COMMON_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey("bootstrap.servers", _LIST, (), "Brokers to begin with: host:port, several with commas."),
    ConfigKey("client.id", _STRING, "", "The name by which the broker's log, quotas and metrics know this client."),
    ConfigKey(
        "client.dns.lookup",
        _STRING,
        "use_all_dns_ips",
        "All addresses of a name are tried in turn; names are resolved again when they are used up.",
        one_of("use_all_dns_ips"),
    ),
    ConfigKey(
        "security.protocol",
        _STRING,
        "PLAINTEXT",
        "How to talk to the brokers. TLS and SASL are not here yet.",
        one_of("PLAINTEXT"),
    ),
    ConfigKey("request.timeout.ms", _INT, 30_000, "How long to wait for the answer to one request.", at_least(1)),
    ConfigKey("retry.backoff.ms", _LONG, 100, "The first wait before a failed request is sent again.", at_least(0)),
    ConfigKey(
        "retry.backoff.max.ms", _LONG, 1000, "The longest wait before a failed request is sent again.", at_least(0)
    ),
    ConfigKey("reconnect.backoff.ms", _LONG, 50, "The first wait before a broker is connected to again.", at_least(0)),
    ConfigKey(
        "reconnect.backoff.max.ms", _LONG, 1000, "The longest wait before a broker is connected to again.", at_least(0)
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms", _LONG, 10_000, "How long the first try to connect may take.", at_least(1)
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "How long a try to connect may take at most.",
        at_least(1),
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        540_000,
        "Connections that are idle for longer are closed; -1: never.",
        at_least(-1),
    ),
    ConfigKey(
        "send.buffer.bytes", _INT, 131_072, "SO_SNDBUF of the connections; -1: the system's choice.", at_least(-1)
    ),
    ConfigKey(
        "receive.buffer.bytes", _INT, 65_536, "SO_RCVBUF of the connections; -1: the system's choice.", at_least(-1)
    ),
    ConfigKey(
        "receive.message.max.bytes",
        _INT,
        100_000_000,
        "The largest response that is accepted; a larger one closes the connection (librdkafka's name).",
        between(1000, 2_147_483_647),
    ),
    ConfigKey("metadata.max.age.ms", _LONG, 300_000, "Metadata is asked for again after this time.", at_least(0)),
    ConfigKey(
        "metadata.recovery.strategy",
        _STRING,
        "rebootstrap",
        "What to do when no known broker is left: start again from bootstrap.servers, or go on trying (KIP-899).",
        one_of("rebootstrap", "none"),
    ),
    ConfigKey(
        "metadata.recovery.rebootstrap.trigger.ms",
        _LONG,
        300_000,
        "Start again from bootstrap.servers when no metadata came for this long (KIP-1102).",
        at_least(0),
    ),
)
MAX_IN_FLIGHT = ConfigKey(
    "max.in.flight.requests.per.connection",
    _INT,
    5,
    "Requests that may wait for their answer on one connection.",
    at_least(1),
)


def client_config(what: str, given: Mapping[str, object], rows: Iterable[ConfigKey] = ()) -> Config:
    """The values of a client: the common rows and its own. Unknown keys are warned about with the nearest known name."""
    check_mapping(what, given)
    own = {row.name: row for row in rows}
    definition = ConfigDef(what, [*(row for row in COMMON_ROWS if row.name not in own), *own.values()])
    config = Config(definition, given)
    check_common(config)
    return config


def check_mapping(what: str, given: object) -> None:
    """TypeError when the settings are no dict: `Producer("localhost:9092")` is what people try first."""
    if not isinstance(given, Mapping):
        example = '{"bootstrap.servers": "localhost:9092"}'
        raise TypeError(f"the settings of a {what} are a dict, for example {example}, not {type(given).__name__}")


def check_common(config: Config) -> None:
    """ConfigError for what cannot work together."""
    parse_bootstrap(config["bootstrap.servers"])
    for low, high in (
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        # Kafka: a longest wait below the first one is silently the only wait; here it is said when somebody chose both.
        if config[low] > config[high] and config.is_set(low) and config.is_set(high):
            raise ConfigError(high, config[high], f"must be at least {low} = {config[low]}")
