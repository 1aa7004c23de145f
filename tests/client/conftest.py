"""One broker process for the tests of this directory that want one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.brokers import BrokerProcess
from tests.live_broker import live_broker


@pytest.fixture(scope="session")
def live() -> Iterator[BrokerProcess]:
    with live_broker() as running:
        yield running
