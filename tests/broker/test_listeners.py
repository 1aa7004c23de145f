"""Listeners are read from the settings as Kafka reads them."""

from __future__ import annotations

import pytest

from barnabas.broker.listeners import Listener, advertised, parse_listeners
from barnabas.broker.settings import broker_config
from barnabas.errors import ConfigError


def test_names_hosts_ports_and_security_are_read() -> None:
    config = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092, control://[::1]:0,CONTROLLER://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:plaintext,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "control.plane.listener.name": "CONTROL",
        }
    )
    assert parse_listeners(config) == (
        Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),
        Listener("CONTROL", "::1", 0, "PLAINTEXT"),
    )
    assert [listener.text for listener in parse_listeners(config)] == [
        "PLAINTEXT://127.0.0.1:9092",
        "CONTROL://[::1]:0",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://h:99999"},
        {"listeners": ""},
        {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"},
        {"listeners": "PLAINTEXT://h:1,CONTROL://h:1"},
        {"listeners": "SSL://h:1"},
        {"control.plane.listener.name": "NOWHERE"},
        {"inter.broker.listener.name": "NOWHERE"},
    ],
)
def test_what_cannot_be_served_is_an_error_that_names_the_setting(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listeners(broker_config(settings))
    assert caught.value.key in {*settings, "listener.security.protocol.map"}


def test_clients_are_told_the_bound_port_unless_the_setting_says_otherwise() -> None:
    bound = {"PLAINTEXT": ("127.0.0.1", 40001), "PUBLIC": ("0.0.0.0", 40002)}
    config = broker_config({"advertised.listeners": "PUBLIC://broker.example:0"})
    assert advertised(config, bound) == {"PLAINTEXT": ("127.0.0.1", 40001), "PUBLIC": ("broker.example", 40002)}
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        advertised(broker_config({"advertised.listeners": "OTHER://h:1"}), bound)
