"""The settings that limit connections: rows of the broker's table, their form for a single listener, and what they may not be together.

Role: declaration only. None of them can be set at run time to what would lock out the administrator who sets it.
Thread: any. Lock: none, everything here is immutable.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from barnabas.config import Allowed, ConfigKey, ConfigType, at_least
from barnabas.errors import ConfigError

MAX_INT = 2**31 - 1
MOST_OVERRIDES = 1000

_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_COUNT = re.compile(r"[0-9]{1,10}")
_LISTENER_KEY = re.compile(
    r"listener\.name\.(?P<listener>[a-z0-9_.-]+)\.(?P<key>max\.connections|max\.connection\.creation\.rate)"
)


def _overrides_allowed(items: tuple[str, ...]) -> bool:
    return len(items) <= MOST_OVERRIDES and all(_override_allowed(item) for item in items)


def _override_allowed(item: str) -> bool:
    host, _, count = item.rpartition(":")
    known = is_address(host.strip("[]")) or _HOST_NAME.fullmatch(host) is not None
    return known and _COUNT.fullmatch(count) is not None and int(count) <= MAX_INT


def is_address(host: str) -> bool:
    """Whether it is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


CONNECTIONS = (
    ConfigKey(
        "max.connections",
        ConfigType.INT,
        MAX_INT,
        "Connections to the broker; above it the acceptor waits. At run time at least 2, as many as an administrator's client needs.",
        at_least(0),
        dynamic=True,
        at_run_time=at_least(2),
    ),
    ConfigKey(
        "max.connections.per.ip",
        ConfigType.INT,
        MAX_INT,
        "Connections from one address; above it they are rejected. 0 only together with max.connections.per.ip.overrides. At run time "
        "0 or at least 2, as many as an administrator's client needs.",
        at_least(0),
        dynamic=True,
        at_run_time=Allowed("must be 0 or at least 2", lambda count: count != 1),
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        ConfigType.LIST,
        (),
        "Exceptions to max.connections.per.ip: address:count, separated by commas. The names of hosts are looked up in the background.",
        Allowed(f"must be a list of host:count, at most {MOST_OVERRIDES} of them", _overrides_allowed),
        dynamic=True,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        ConfigType.INT,
        MAX_INT,
        "New connections per second; above it accepts are delayed. At run time at least 1.",
        at_least(0),
        dynamic=True,
        at_run_time=at_least(1),
    ),
)

_BY_NAME = {row.name: row for row in CONNECTIONS}


def listener_row(name: str) -> ConfigKey | None:
    """The row of `listener.name.<name>.<key>`, a connection limit of one listener (RP-9, RP-10): that of `<key>`, with no default."""
    match = _LISTENER_KEY.fullmatch(name)
    return replace(_BY_NAME[match["key"]], name=name, default=None) if match else None


def check_listener(name: str, value: object, listeners: Collection[str]) -> None:
    """Refuse a limit of a listener that the broker does not have: nobody would follow it, and there would be no end of such names."""
    match = _LISTENER_KEY.fullmatch(name)
    if match and match["listener"].upper() not in listeners:
        raise ConfigError(name, value, f"must name one of the listeners {', '.join(listeners)}")


def check_connection_limits(values: Mapping[str, Any]) -> None:
    """As Kafka: nobody could connect."""
    key = "max.connections.per.ip"
    overrides = [item.rpartition(":")[2] for item in values[f"{key}.overrides"]]
    if values[key] == 0 and not any(int(count) for count in overrides):
        raise ConfigError(key, 0, f"needs an address with a count above 0 in {key}.overrides: nobody could connect")
