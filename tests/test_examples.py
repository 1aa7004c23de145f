"""Every example runs as it stands, in a process of its own, and prints what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.both_brokers import broker_for_test

FOLDER = Path(__file__).parent.parent / "examples"
PRINTED = {
    "admin.py": (
        "has 3 partitions",
        "refused: TOPIC_ALREADY_EXISTS",
        "retention.ms is 60000, default: False",
        "begins at 4",
    ),
    "arrow.py": ("100000 rows written", "100000 rows read, their mean is 49.5"),
    "asyncio_pipeline.py": ("200 records went through, the last is b'ORDER 199'",),
    "produce_and_consume.py": (
        "the first record has offset 0",
        "refused: MESSAGE_TOO_LARGE",
        "0: b'customer-1' bought a book",
        "1000 records read, 0 to go",
    ),
}
# tests/spark/test_examples_spark.py runs these.
WITH_SPARK = {"orders_generator.py", "orders_pipeline.py", "spark_connect.py"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with broker_for_test() as broker:
        yield broker.bootstrap_servers


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error::ResourceWarning"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_no_example_is_forgotten() -> None:
    found = {path.name for path in FOLDER.iterdir() if path.suffix == ".py"}
    assert found == {*PRINTED, *WITH_SPARK, "testing_with_pytest.py"}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_runs_against_a_broker(name: str, servers: str, tmp_path: Path) -> None:
    printed = run(str(FOLDER / name), servers, folder=tmp_path)
    assert [line for line in PRINTED[name] if line not in printed] == []


def test_an_example_starts_a_broker_of_its_own(tmp_path: Path) -> None:
    printed = run(str(FOLDER / "produce_and_consume.py"), folder=tmp_path)
    assert [line for line in PRINTED["produce_and_consume.py"] if line not in printed] == []


def test_the_example_of_tests_passes(tmp_path: Path) -> None:
    printed = run("-m", "pytest", str(FOLDER / "testing_with_pytest.py"), "-p", "no:cacheprovider", folder=tmp_path)
    assert "2 passed" in printed
