"""One broker process for all tests of this directory (per xdist worker), a topic of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.brokers import BrokerProcess
from tests.live_broker import fresh_topic, live_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with live_broker() as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return fresh_topic(broker)
