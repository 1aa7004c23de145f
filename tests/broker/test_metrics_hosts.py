"""Issue 18: a web page cannot read the metrics through somebody's browser (DNS rebinding)."""

from __future__ import annotations

import http.client
import socket

import pytest

from barnabas.broker.metrics_hosts import KnownHosts
from barnabas.testing import EmbeddedBroker

LOOPBACK = "127.0.0.1"
ON = {"barnabas.metrics.listener": "127.0.0.1:0", "advertised.listeners": "PLAINTEXT://broker.example:0"}


def status(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_names_that_nobody_has_told_the_broker_are_refused() -> None:
    """At d6c2b90 every name was served."""
    with EmbeddedBroker(config=ON | {"barnabas.metrics.hosts": "grafana.example"}) as broker:
        port = broker.server.metrics_port
        assert port is not None
        assert status(port, "attacker.example") == 421
        assert status(port, f"attacker.example:{port}") == 421
        assert status(port, "127.0.0.1.attacker.example") == 421
        for name in ("127.0.0.1", "[::1]", "localhost", "broker.example", "Grafana.Example.", socket.gethostname()):
            assert status(port, f"{name}:{port}") == 200, name


@pytest.mark.parametrize("reached_at", [LOOPBACK, "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_what_comes_through_loopback_is_checked_on_every_listener(reached_at: str) -> None:
    assert not KnownHosts().allow("attacker.example", reached_at)
    assert KnownHosts().allow("10.1.2.3", reached_at)


def test_what_comes_from_elsewhere_may_use_any_name_until_names_are_set() -> None:
    """A Prometheus that finds its targets by DNS needs no setting."""
    assert KnownHosts().allow("barnabas.monitoring.svc", "10.1.2.3")
    assert not KnownHosts(["broker.example"]).allow("barnabas.monitoring.svc", "10.1.2.3")
    assert KnownHosts(["*"]).allow("barnabas.monitoring.svc", LOOPBACK)


def test_no_host_is_no_browser() -> None:
    assert KnownHosts(["broker.example"]).allow("", LOOPBACK)
