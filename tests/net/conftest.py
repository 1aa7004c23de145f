"""Fixtures of the network layer's tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from tests.net.peers import Network


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def make_network() -> Iterator[Callable[..., Network]]:
    """Networks that are closed at the end of the test; no descriptor may be left."""
    gc.collect()  # what an earlier test left to the collector must not go during this one
    before = open_descriptors()
    made: list[Network] = []

    def make(**arguments: object) -> Network:
        made.append(Network(**arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for network in made:
        network.close()
    assert open_descriptors() == before


@pytest.fixture
def network(make_network: Callable[..., Network]) -> Network:
    return make_network()
