"""`barnabas doctor spark`: each usual failure, provoked for real, is named with its cure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark import doctor
from barnabas.spark.doctor import OK, SKIPPED, WRONG, Finding, explain
from barnabas.spark.requirements import MissingOnWorker, require_arrow
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import ROOT, spark_environment

Findings = dict[str, dict[str, str]]


def run_doctor(*flags: str, **variables: str) -> tuple[int, Findings]:
    """The exit code, and the findings by the begin of their names."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "doctor", "spark", "--format", "json", *flags],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env={**os.environ, **spark_environment(), **variables},
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, {row["check"]: row for row in json.loads(done.stdout)}


def one(findings: Findings, begin: str) -> dict[str, str]:
    [found] = [row for check, row in findings.items() if check.startswith(begin)]
    return found


def bare_python(directory: Path, python: str = sys.executable) -> str:
    """A Python without any package."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60)
    return str(directory / "bin" / "python3")


def other_python() -> str:
    """A Python of another minor version that runs."""
    homes = sorted((Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob("3.*/bin/python3"))
    names = [shutil.which(f"python3.{minor}") for minor in range(15, 9, -1)]
    for candidate in [*names, *map(str, reversed(homes))]:
        versions = {} if candidate is None else doctor._versions(candidate)
        if versions.get("python", "3.11").split(".")[:2] != [str(part) for part in sys.version_info[:2]]:
            assert candidate is not None
            return candidate
    pytest.skip("there is no second Python here")


def test_everything_is_well(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        code, findings = run_doctor("-b", broker.bootstrap_servers)
    assert code == 0, findings
    assert {row["status"] for row in findings.values()} == {OK}
    assert broker_address(findings) in one(findings, "Broker, from the executor on")["found"]
    assert "pyarrow" in one(findings, "Worker on")["found"]
    assert {"Python", "PySpark", "Arrow (pyarrow)", "Barnabas", "Java", "Worker's Python", "Spark session"} <= set(
        findings
    )


def broker_address(findings: Findings) -> str:
    return one(findings, "Broker, from the driver")["found"].split(" ")[0]


def test_no_java_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    code, findings = run_doctor(JAVA_HOME=str(tmp_path))
    java = findings["Java"]
    assert (code, java["status"]) == (1, WRONG)
    assert f"no Java: {tmp_path}/bin/java does not run" in java["found"]
    assert "set JAVA_HOME" in java["mend"]
    assert findings["Spark session"]["status"] == SKIPPED


def test_no_java_on_the_path_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no java on PATH" in doctor._java().found


@pytest.mark.parametrize(
    ("version", "status"), [("1.8.0_402", WRONG), ("11.0.2", WRONG), ("17", OK), ("21.0.1", OK), ("25-ea", OK)]
)
def test_the_version_of_java_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, status: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor._java().status == status


def test_pyarrow_missing_on_a_worker_and_a_broker_that_executors_cannot_reach(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    code, findings = run_doctor("-b", "127.0.0.1:1", PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    assert code == 1
    assert "pyarrow missing in" in findings["Worker's Python"]["found"]
    assert f"export PYSPARK_PYTHON={sys.executable}" in findings["Worker's Python"]["mend"]
    worker = one(findings, "Worker on")
    assert (worker["status"], "pyarrow missing in" in worker["found"]) == (WRONG, True)
    reach = one(findings, "Broker, from the executor on")
    assert reach["status"] == WRONG
    assert "127.0.0.1:1: [Errno 111]" in reach["found"]
    assert "advertised.listeners" in reach["mend"]
    # A user's query in the same session says it, too: this is what `spark.read.format("barnabas").load()` raised.
    assert "MissingOnWorker: pyarrow is missing" in findings['format("barnabas")']["found"]


def test_another_python_on_a_worker_is_named(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "other", other_python())
    code, findings = run_doctor(PYSPARK_PYTHON=python)
    assert code == 1
    assert "is another Python than the driver's" in findings["Worker's Python"]["found"]
    assert findings["Worker's Python"]["status"] == WRONG


def test_a_python_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python3")
    found = doctor._worker_python()
    assert (found.status, "does not exist" in found.found) == (WRONG, True)


def test_a_broker_that_is_not_there_is_named() -> None:
    found, addresses = doctor._broker("127.0.0.1:1")
    assert found.status == WRONG
    assert "not reachable from the driver" in found.found
    assert "127.0.0.1:1" in found.found
    assert addresses == ["127.0.0.1:1"]


def test_a_cluster_that_does_not_answer_ends_with_the_time(tmp_path: Path) -> None:
    code, findings = run_doctor("--master", "spark://127.0.0.1:1", "--timeout", "1")
    assert code == 1
    assert "no answer of spark://127.0.0.1:1 within 1 s" in findings["Spark session"]["found"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.", "Java does not start"),
        ("java.lang.UnsupportedClassVersionError: org/apache/spark/…", "Java is too old"),
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version",
            "another Python version",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "pyarrow is missing on a worker"),
        ("ModuleNotFoundError: No module named 'barnabas'", "barnabas is missing on a worker"),
        ('java.io.IOException: Cannot run program "python9": error=2', "does not exist on a worker"),
    ],
)
def test_messages_of_spark_are_explained(error: str, words: str) -> None:
    found = explain(f"Job aborted due to stage failure\n{error}\n\tat Something.java:1")
    assert isinstance(found, Finding)
    assert words in found.found
    assert error in found.found
    assert found.mend


def test_other_messages_are_left_alone() -> None:
    assert explain("something else") is None


def test_a_query_where_arrow_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require_arrow()
    missing: Any = lambda name: None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", missing)
    with pytest.raises(
        MissingOnWorker, match=r"pyarrow is missing in the Python that Spark runs its workers with.*PYSPARK_PYTHON"
    ):
        require_arrow()
