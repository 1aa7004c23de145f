"""Killed processes of Spark: a driver with `kill -9` at several points, a Python worker during a read. Every offset once in the output.

The output is Parquet through Spark's own file sink, which commits each micro-batch as a whole, so what is doubled or missing is the
source's fault. With BARNABAS_FAULTS=full the driver is killed more often.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from bench.brokers import BrokerProcess
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.topics import SparkTopic, make_topic
from tests.waiting import wait_until

FULL = os.environ.get("BARNABAS_FAULTS") == "full"
PARTITIONS, RECORDS = 2, 120
MANY = 6000
START_SECONDS, RUN_SECONDS = 150.0, 150.0


def filled(broker: BrokerProcess, name: str, records: int) -> SparkTopic:
    found = make_topic(broker, name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        found.write([b"%d" % number + bytes(200) for number in range(records)], partition=partition)
    return found


@contextmanager
def driver(topic: SparkTopic, directory: Path, per_batch: int = 40) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, gone at the end with its JVM and workers."""
    place = [topic.bootstrap, topic.name, str(directory), str(per_batch)]
    command = [sys.executable, "-m", "tests.spark.driver_program", *place]
    with (directory / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **spark_environment()}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def planned(directory: Path) -> int:
    """How many micro-batches the checkpoint says were planned."""
    return sum(1 for path in directory.glob("checkpoint/offsets/*") if path.name.isdigit())


def committed(directory: Path) -> int:
    return sum(1 for path in directory.glob("checkpoint/commits/*") if path.name.isdigit())


def written(directory: Path) -> list[tuple[int, int]]:
    """What the file sink has committed: only the files that its log names count."""
    names: set[str] = set()
    for entry in sorted((directory / "out" / "_spark_metadata").glob("[0-9]*")):
        lines = entry.read_text().splitlines()[1:]
        names |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    rows: list[tuple[int, int]] = []
    for name in names:
        table = pq.read_table(name.replace("%20", " "), columns=["partition", "offset"])
        rows += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return sorted(rows)


def wait_for(look: Callable[[Path], int], count: int, directory: Path, process: subprocess.Popen[bytes]) -> None:
    what = f"{count} micro-batches {look.__name__}"
    wait_until(lambda: look(directory) >= count or process.poll() is not None, START_SECONDS, what)


def everything(records: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(records)]


@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    """Killed when a batch was just planned (in full, at more points, also when one was just committed); then it runs to its end."""
    topic = filled(broker, topic_name, RECORDS)
    points = [(planned, 1), (committed, 2)] + (
        [(planned, 3), (planned, 4), (committed, 4), (planned, 5)] if FULL else []
    )
    for look, count in points:
        with driver(topic, tmp_path) as process:
            wait_for(look, count, tmp_path, process)
    with driver(topic, tmp_path) as process:
        assert process.wait(RUN_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert written(tmp_path) == everything(RECORDS)


@pytest.mark.timeout(600)
def test_a_worker_that_is_killed_during_a_read_is_replaced(
    broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    topic = filled(broker, topic_name, MANY)
    with driver(topic, tmp_path, per_batch=PARTITIONS * MANY) as process:
        wait_until(lambda: kill_worker(process, broker.place.port), START_SECONDS, "a worker that reads")
        assert process.wait(RUN_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert written(tmp_path) == everything(MANY)


def kill_worker(driver: subprocess.Popen[bytes], port: int) -> bool:
    """Kill a Python worker that has a connection to the broker: it is in the middle of a task."""
    assert driver.poll() is None, "the query ended before a worker was seen"
    for process in psutil.Process(driver.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline() and reads_from(process, port):
                process.kill()
                return True
    return False


def reads_from(process: psutil.Process, port: int) -> bool:
    return any(connection.raddr and connection.raddr.port == port for connection in process.net_connections("tcp4"))
