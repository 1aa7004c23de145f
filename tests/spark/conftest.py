"""One SparkSession and one broker of each kind for all tests of this directory (per xdist worker).

`broker` is the broker under test: ours, or Apache Kafka with BARNABAS_TEST_AGAINST=kafka. A test that takes `either_broker` runs against
both in `make test` too; Kafka is left out where Java or its jars are missing.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.brokers import OURS, BrokerProcess, Kind
from bench.peers.jars import jar_directory
from tests.live_broker import AGAINST_KAFKA, KEEPS, TEST_KAFKA

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of Spark starts a JVM and plans queries: the limit of ordinary tests is too short for it on a busy machine."""
    for item in items:
        if "tests/spark" in item.nodeid and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


def spark_environment() -> dict[str, str]:
    """What a process that starts Spark needs: workers run this Python and see these sources."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A session with two cores; the format registers itself."""
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    session = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _started(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if kind is TEST_KAFKA and not (shutil.which("java") and jar_directory().is_dir()):
        pytest.skip("Apache Kafka is not here: make peers")
    settings = {**KEEPS, "auto.create.topics.enable": "false"}
    with BrokerProcess(kind, settings, tmp_path_factory.mktemp(kind.name)) as running:
        yield running


@pytest.fixture(scope="session")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from _started(OURS, tmp_path_factory)


@pytest.fixture(scope="session")
def kafka_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from _started(TEST_KAFKA, tmp_path_factory)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """The broker under test."""
    found: BrokerProcess = request.getfixturevalue("kafka_itself" if AGAINST_KAFKA else "our_broker")
    return found


@pytest.fixture(params=["kafka_itself"] if AGAINST_KAFKA else ["our_broker", "kafka_itself"])
def either_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Ours, then Apache Kafka."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic_name() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"
