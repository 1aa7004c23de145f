"""One broker for each file of tests of commands that need one; it creates no topic by itself, so that mistakes are seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from tests.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = broker.unique_topic_name("orders")
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def shell(broker: EmbeddedBroker) -> Shell:
    return Shell(broker.bootstrap_servers)
