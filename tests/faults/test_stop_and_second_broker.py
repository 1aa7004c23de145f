"""Rows 3 and 36 of faults.md: SIGTERM under load, and a second broker on the same directory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.brokers import BrokerProcess
from tests.faults.conftest import Report
from tests.history import Workload, WorkloadPlan
from tests.live_broker import live_broker

SECONDS_TO_STOP = 10.0
LOAD = WorkloadPlan(sends_per_second=150, topic_config={"segment.bytes": "262144"})
RECOVERED = ": recovered from offset"
"""What the broker logs for each log that it had to recover."""


def recoveries(broker: BrokerProcess) -> int:
    return broker.log_file.read_text(errors="replace").count(RECOVERED)


@pytest.mark.timeout(1000)
def test_row_3_sigterm_under_load(full: bool, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops within ten seconds, clients see nothing but a retry, and the next start recovers nothing; after a kill it does."""
    monkeypatch.setenv("BARNABAS_LOG_LEVEL", "INFO")
    rounds, slowest = 20 if full else 3, 0.0
    with live_broker() as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", LOAD) as load:
            for _ in range(rounds):
                load.await_acked(200)
                load.fault("SIGTERM")
                began = time.monotonic()
                assert broker.stop() == 0, broker.log_tail(40)
                slowest = max(slowest, time.monotonic() - began)
                broker.start()
                assert recoveries(broker) == 0
                load.await_resumed(5.0)
            broker.kill()
            broker.start()
            assert recoveries(broker) > 0, "the line is there when there is something to recover"
            load.await_resumed(5.0)
        found = load.check()
        found.demand_clean()
    assert slowest <= SECONDS_TO_STOP
    report(3, f"{rounds} stops, slowest {slowest:.2f} s (at most 10), 0 recoveries after them, {found.figures()}")


def test_row_36_a_second_broker_on_the_same_directory(report: Report, tmp_path: Path) -> None:
    """It refuses with one line, and the first one does not notice."""
    plan = WorkloadPlan(writers=1, readers=1, sends_per_second=100)
    with live_broker() as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", plan) as load:
            load.await_acked(20)
            data = str(broker.place.directory / "data")
            command = [
                sys.executable,
                "-m",
                "barnabas",
                "broker",
                "--port",
                "0",
                "--metrics-port",
                "0",
                "--data-dir",
                data,
            ]
            second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            load.await_resumed(5.0)
        found = load.check()
        found.demand_clean()
    assert second.returncode != 0
    assert len(second.stderr.splitlines()) == 1
    assert "another broker" in second.stderr
    report(36, f"exit code {second.returncode}, one line; the first one: {found.figures()}")
