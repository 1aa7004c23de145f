"""One broker for each file of tests of commands that need one; it creates no topic by itself, so that mistakes are seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.both_brokers import Broker, broker_for_test
from tests.cli.broker_process import Process, StartBroker
from tests.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with broker_for_test(config={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = broker.unique_topic_name("orders")
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap_servers)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBroker]:
    started: list[Process] = []

    def start(*arguments: str, descriptors: int | None = None, **environ: str) -> Process:
        process = Process(arguments, environ, tmp_path, descriptors)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate(timeout=20)
