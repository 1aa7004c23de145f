"""A live broker whose directory has a FIFO where a file should be, or belongs to another broker: what it says, and how soon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME
from bench.brokers import OURS, BrokerProcess
from tests import wire
from tests.live_broker import error_lines

STORAGE_ERROR = 56
SECONDS_TO_START = 30.0
TOPIC = "probe"


def produce(broker: BrokerProcess, partition: int) -> tuple[int, int]:
    """Error code and offset of one Produce."""
    with wire.connect(broker.place.port) as sock:
        answer = wire.ask(sock, wire.produce(TOPIC, wire.batch([b"x"]), acks=-1, partition=partition))
        return wire.produce_result(answer, TOPIC)


@contextmanager
def stopped_broker() -> Iterator[BrokerProcess]:
    """It has two partitions with a record each, and was stopped in order."""
    with BrokerProcess(OURS, {}) as broker:
        with wire.connect(broker.place.port) as sock:
            wire.ask(sock, wire.create_topic(TOPIC, 2))
        assert [produce(broker, partition) for partition in range(2)] == [(0, 0), (0, 0)]
        assert broker.stop() == 0
        broker.log_file.unlink()
        yield broker


def test_a_fifo_in_a_partition_takes_one_partition_offline_and_holds_nobody_up() -> None:
    with stopped_broker() as broker:
        path = broker.place.directory / "data" / f"{TOPIC}-0" / "00000000000000000000.index"
        path.unlink()
        os.mkfifo(path)
        broker.start()
        assert broker.started_in < SECONDS_TO_START
        assert produce(broker, 0)[0] == STORAGE_ERROR
        assert produce(broker, 1) == (0, 1)
        assert broker.stop() == 0
        (line,) = error_lines(broker)
        assert f"{TOPIC}-0 is offline until the next start: {path} is a FIFO, not a file" in line
        path.unlink()
        broker.start()
        assert [produce(broker, partition) for partition in range(2)] == [(0, 1), (0, 2)]
        assert broker.stop() == 0


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", CATALOG_FILE_NAME])
def test_a_fifo_in_the_log_directory_refuses_the_start(name: str) -> None:
    with stopped_broker() as broker:
        path = broker.place.directory / "data" / name
        path.unlink()
        os.mkfifo(path)
        assert refusal(broker).endswith(f"{path} is a FIFO, not a file: move it away and start again")


@pytest.mark.parametrize("setting", ["node.id", "cluster.id"])
def test_the_directory_of_another_broker_refuses_the_start(setting: str) -> None:
    with stopped_broker() as broker:
        path = broker.place.directory / "data" / "meta.properties"
        stored = dict(line.split("=") for line in path.read_text().splitlines()[1:])
        broker.settings = {setting: "2"}
        assert f"{setting} = '2': {path} says {setting}={stored[setting]}, " in refusal(broker)
        broker.settings = {setting: stored[setting]}
        broker.start()
        assert [produce(broker, partition) for partition in range(2)] == [(0, 1), (0, 1)]
        assert broker.stop() == 0


def test_a_catalog_that_is_lost_is_made_anew_for_the_same_cluster() -> None:
    with stopped_broker() as broker:
        data = broker.place.directory / "data"
        before = (data / "meta.properties").read_text()
        for file in data.glob(f"{CATALOG_FILE_NAME}*"):
            file.unlink()
        broker.start()
        assert [produce(broker, partition) for partition in range(2)] == [(0, 1), (0, 1)]
        assert broker.stop() == 0
        assert (data / "meta.properties").read_text() == before


def refusal(broker: BrokerProcess) -> str:
    """The one line with which the broker ends."""
    broker.spawn()
    assert broker.process.wait(SECONDS_TO_START) == 2
    (line,) = broker.log_file.read_text().splitlines()
    broker.log_file.unlink()
    return line
