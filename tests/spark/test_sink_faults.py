"""Whatever is killed in the middle of a write, nothing is lost. Rows may come twice: the sink is at-least-once.

The driver is a program of its own (`sink_driver.py`). Every round starts two of them, so this is for `make faults` only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas import Admin, Consumer
from bench.brokers import BrokerProcess, dies_with_its_parent
from tests.live_broker import KEEPS, kind_under_test
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.sink_driver import BATCHES_PER_TASK, ROWS_PER_BATCH
from tests.spark.topics import SparkTopic, make_topic
from tests.waiting import wait_until

FULL = os.environ.get("BARNABAS_FAULTS") == "full"
ROUNDS = 3
SECONDS = 240.0
PADDING = b"x" * 4000
ROWS_PER_TASK = BATCHES_PER_TASK * ROWS_PER_BATCH


def rows(first: int, count: int) -> list[bytes]:
    """Large enough that nothing waits in a buffer for more."""
    return [b"%d-" % number + PADDING for number in range(first, first + count)]


def ends(admin: Admin, topic: SparkTopic) -> int:
    partitions = [(topic.name, info.partition) for info in admin.describe_topics([topic.name])[topic.name].partitions]
    return sum(found.offset for found in admin.list_offsets(dict.fromkeys(partitions, -1)).values())


def wait_for_more(topic: SparkTopic, than: int) -> int:
    """How many records the topic has when they are more."""
    pause = threading.Event()
    with Admin({"bootstrap.servers": topic.bootstrap}) as admin:
        wait_until(lambda: pause.wait(0.05) or ends(admin, topic) > than, SECONDS, f"the first rows in {topic.name}")
        return ends(admin, topic)


def numbers(topic: SparkTopic) -> set[int]:
    """What is in the topic, each row by its number."""
    with Admin({"bootstrap.servers": topic.bootstrap}) as admin:
        left = ends(admin, topic)
    found: set[int] = set()
    with Consumer({"bootstrap.servers": topic.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic.name, partition) for partition in range(2)])
        while left > 0 and (records := consumer.poll(timeout=SECONDS)):
            left -= len(records)
            found.update(int(record.value.partition(b"-")[0]) for record in records)
    return found


def wait_for_numbers(topic: SparkTopic, wanted: set[int]) -> None:
    pause = threading.Event()
    wait_until(lambda: pause.wait(0.5) or numbers(topic) == wanted, SECONDS, "all rows in the target")


class Driver:
    """The program, and everything that it started."""

    def __init__(self, source: SparkTopic, target: SparkTopic, directory: Path) -> None:
        self.gate = directory / "gate"
        self._log = (directory / "driver.log").open("ab")
        command = [sys.executable, "-m", "tests.spark.sink_driver", source.bootstrap, source.name, target.name]
        self._process = subprocess.Popen(
            [*dies_with_its_parent(), *command, str(directory / "checkpoint"), str(self.gate)],
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, **spark_environment()},
        )

    def _descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def workers(self) -> list[psutil.Process]:
        """The Python workers: what the daemons that Java started have forked."""
        return [one for one in self._descendants() if _is_daemon(one) and _is_daemon(_parent(one))]

    def kill_workers(self) -> int:
        found = self.workers()
        for worker in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        return len(found)

    def kill(self) -> None:
        """As `kill -9` of a whole machine: Python, Java and the workers at once."""
        for one in [*self._descendants(), psutil.Process(self._process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait(30)
        self._log.close()


def _parent(process: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return process.parent()
    return None


def _is_daemon(process: psutil.Process | None) -> bool:
    """Processes come and go: one that is gone is none."""
    with contextlib.suppress(psutil.Error):
        return process is not None and "pyspark.daemon" in process.cmdline()
    return False


@contextlib.contextmanager
def driver(source: SparkTopic, target: SparkTopic, directory: Path) -> Iterator[Driver]:
    running = Driver(source, target, directory)
    try:
        yield running
    finally:
        if running._process.poll() is None:
            running.kill()


@pytest.mark.skipif(not FULL, reason="takes minutes: `make faults` runs it")
@pytest.mark.timeout(1800)
def test_killed_workers_drivers_and_brokers_lose_nothing(
    topic_name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each of them dies while a batch is half written; the driver that comes after goes on from the checkpoint."""
    gate = tmp_path / "gate"
    with BrokerProcess(kind_under_test(), KEEPS, tmp_path_factory.mktemp("broker")) as broker:
        source, target = make_topic(broker, topic_name, 2), make_topic(broker, f"{topic_name}-out", 2)
        sent = found = 0
        for _ in range(ROUNDS):
            gate.unlink(missing_ok=True)
            for partition in range(2):
                source.write(rows(sent, ROWS_PER_TASK), partition)
                sent += ROWS_PER_TASK
            with driver(source, target, tmp_path) as first:
                found = wait_for_more(target, found)
                wait_until(first.kill_workers, SECONDS, "a worker to kill")
                found = wait_for_more(target, found)  # the tasks are run again
                first.kill()
            with driver(source, target, tmp_path):
                wait_for_more(target, found)  # the batch is run again
                broker.kill()
                gate.touch()
                broker.start()
                wait_for_numbers(target, set(range(sent)))
                found = wait_for_more(target, 0)
