"""Settings: server.properties, and what a value may be for the broker and for a topic.

Input: a byte for whose settings they are, a properties file.
"""

from __future__ import annotations

import logging

from barnabas.broker.listeners import advertised, parse_listeners
from barnabas.broker.log.config import LogConfig
from barnabas.broker.metrics_http import metrics_address
from barnabas.broker.settings import BROKER, broker_config, inline_requests, log_directories
from barnabas.broker.topic_settings import TOPIC, topic_values
from barnabas.config import Config, ConfigDef, load_properties, to_text
from barnabas.errors import ConfigError
from tests.fuzz.target import Reader, must, outcome

logging.disable(logging.WARNING)  # of unknown settings, which are most


def run(data: bytes) -> None:
    reader = Reader(data)
    kind, text = reader.byte() % 3, reader.rest().decode("utf-8", "replace")
    given = load_properties(text)
    if kind == 0:
        config = outcome((ConfigError,), broker_config, given).value
        if config is not None:
            _use(config)
    elif kind == 1:
        dynamic = broker_config({})
        if not outcome((ConfigError,), dynamic.set_dynamic, given).error:
            _read_again(BROKER, given)
    else:
        values = outcome((ConfigError,), topic_values, broker_config({}), given).value
        if values is not None:
            LogConfig.from_topic_config(values)
            _read_again(TOPIC, given)


def _use(config: Config) -> None:
    """What a start makes of the values."""
    outcome((ConfigError,), metrics_address, config)
    listeners = outcome((ConfigError,), parse_listeners, config).value
    if listeners:
        outcome((ConfigError,), advertised, config, {each.name: ("127.0.0.1", each.port or 1) for each in listeners})
    log_directories(config)
    inline_requests(config)
    repr(config)


def _read_again(rows: ConfigDef, given: dict[str, str]) -> None:
    """A value as DescribeConfigs shows it is the same value when somebody sets it."""
    for name, text in given.items():
        if name in rows:
            value = rows[name].parse(text)
            again = rows[name].parse(to_text(value))
            must(value == again, f"{name}={text!r} is {value!r}, shown and set again {again!r}")


def seeds() -> dict[str, bytes]:
    server = """# a comment
listeners=PLAINTEXT://127.0.0.1:9092,OTHER://[::1]:0
listener.security.protocol.map : OTHER:PLAINTEXT,\\
  PLAINTEXT:PLAINTEXT
advertised.listeners=PLAINTEXT://host:9092
num.io.threads=8
log.dirs=/a,/b
barnabas.metrics.listener=[::1]:9100
max.connections.per.ip.overrides=127.0.0.1:5,::1:6
log.cleaner.max.compaction.lag.ms=9223372036854775807
log.cleaner.io.buffer.load.factor=0.9
control.plane.listener.name=OTHER
"""
    found = {"server": b"\0" + server.encode()}
    for number, rows in ((1, BROKER), (2, TOPIC)):
        for row in rows:
            if number == 2 or row.dynamic:
                value = to_text(row.default)
                found[f"{number}-{row.name}"] = (
                    bytes([number]) + f"{row.name}={'' if value is None else value}\n".encode()
                )
    return found
