"""Fixtures for tests of the network layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.network.toy_broker import DrivenProcessor, driven


@pytest.fixture
def one() -> Iterator[DrivenProcessor]:
    """A processor that the test drives turn by turn."""
    with driven() as setup:
        yield setup
