"""One broker process for all tests of this directory (per xdist worker), a topic of its own for each test, and Kafka's jars.

Without Java, or without Maven to fetch the jars once, the tests are left out and the reason is printed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.brokers import BrokerProcess
from bench.peers.jars import PeerUnavailable, ensure_jars
from bench.peers.tools import run_tool
from tests.live_broker import fresh_topic, live_broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test here starts up to nine JVMs, one after the other: on a busy machine the limit of ordinary tests is too short for them."""
    for item in items:
        if "tests/peers" in item.nodeid and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", autouse=True)
def _kafka_jars() -> None:
    try:
        ensure_jars()
    except PeerUnavailable as missing:
        pytest.skip(f"Kafka's own tools are not here: {missing}")


@pytest.fixture(scope="session")
def broker(_kafka_jars: None) -> Iterator[BrokerProcess]:
    with live_broker() as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return fresh_topic(broker)


class Tools:
    """Kafka's tools, pointed at the broker under test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, main_class: str, *arguments: str, stdin: str | None = None) -> str:
        return run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, timeout=50, stdin=stdin)


@pytest.fixture
def tools(broker: BrokerProcess) -> Tools:
    return Tools(broker.bootstrap)
