"""Listeners: where the broker listens and what it tells its clients, read from the settings.

Role: `listeners`, `advertised.listeners` and `listener.security.protocol.map` as checked objects.
Thread: any. Lock: none, everything here is immutable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from barnabas.config import Config
from barnabas.errors import ConfigError

# PLAINTEXT://host:9092, CLIENTS://[::1]:0, INTERNAL://:9092
_FORM = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<six>[0-9A-Fa-f:.%]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})"
)
_ALLOWED = "must be a list of NAME://host:port, each name and each port once"

SUPPORTED_SECURITY = ("PLAINTEXT",)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket."""

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def text(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(config: Config) -> tuple[Listener, ...]:
    """The listeners of the broker; raises `ConfigError`. A listener of the controller role alone is not opened."""
    security = _security_map(config)
    found = [Listener(*parsed, _security_of(parsed[0], security)) for parsed in _parse(config, "listeners")]
    found = [listener for listener in found if listener.name not in _controller_listeners(config)] or found
    names = [listener.name for listener in found]
    ports = [(listener.host, listener.port) for listener in found if listener.port]
    if not found or len(set(names)) < len(names) or len(set(ports)) < len(ports):
        raise ConfigError("listeners", ",".join(config["listeners"]), _ALLOWED)
    _check_named(config, "control.plane.listener.name", names)
    _check_named(config, "inter.broker.listener.name", names)
    return tuple(found)


def advertised(config: Config, bound: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """What each listener is advertised as: the setting, else where it is bound; port 0 means the bound port."""
    endpoints = {name: (_reachable(host), port) for name, (host, port) in bound.items()}
    controller = _controller_listeners(config)
    for name, host, port in _parse(config, "advertised.listeners"):
        if name in controller and name not in bound:
            continue
        if name not in bound:
            raise ConfigError("advertised.listeners", name, f"must name one of the listeners {', '.join(bound)}")
        endpoints[name] = (host or endpoints[name][0], port or bound[name][1])
    return endpoints


def _reachable(host: str) -> str:
    """The name to advertise for a listener on every interface."""
    if host not in ("", "0.0.0.0", "::"):
        return host
    import socket

    return socket.getfqdn() or "localhost"


def _parse(config: Config, key: str) -> list[tuple[str, str, int]]:
    found = []
    for text in config[key]:
        match = _FORM.fullmatch(text)
        if not match or int(match["port"]) > 65535:
            raise ConfigError(key, text, _ALLOWED)
        host = match["six"] if match["six"] is not None else match["host"]
        found.append((match["name"].upper(), host, int(match["port"])))
    return found


def _controller_listeners(config: Config) -> frozenset[str]:
    """Kafka's KRaft files name a listener of the controller; this node needs none."""
    return frozenset(name.strip().upper() for name in (config["controller.listener.names"] or ()))


def _security_map(config: Config) -> dict[str, str]:
    pairs = [item.partition(":") for item in config["listener.security.protocol.map"]]
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def _security_of(name: str, security: dict[str, str]) -> str:
    protocol = security.get(name, name)
    if protocol not in SUPPORTED_SECURITY:
        allowed = f"must map to one of {', '.join(SUPPORTED_SECURITY)} (TLS and SASL are not there yet)"
        raise ConfigError("listener.security.protocol.map", f"{name}:{protocol}", allowed)
    return protocol


def _check_named(config: Config, key: str, names: list[str]) -> None:
    name: str | None = config[key]
    if name and name.upper() not in names:
        raise ConfigError(key, name, f"must be one of the listeners {', '.join(names)}")
