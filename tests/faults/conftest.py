"""Fault tests: small counts in `make test`, those of faults.md in `make faults` (BARNABAS_FAULTS=full).

Each row reports its figures, which are printed at the end of the run, one line per row. They travel with the report of the test,
so that they also arrive from the worker processes of a parallel run.
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from bench.brokers import OURS, BrokerProcess
from tests.live_broker import SMALL_SEGMENTS

_ROW = "fault row"
_lines: list[str] = []

Report = Callable[[int, str], None]
Start = Callable[..., "FaultyWorld"]


class FaultyWorld:
    """A broker in a process of its own, and what a fault test wants to know of it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.port = broker.place.port

    @property
    def pid(self) -> int:
        return self._broker.process.pid

    @property
    def running(self) -> bool:
        return self._broker.process.poll() is None

    def log(self) -> str:
        return self._broker.log_file.read_text(errors="replace")

    def metric(self, name: str) -> list[float]:
        """The values of all samples of a metric."""
        with urllib.request.urlopen(self._broker.metrics_url, timeout=10) as page:
            text = page.read().decode()
        return [float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)]

    def total(self, name: str) -> float:
        return sum(self.metric(name))


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether the full counts are wanted."""
    return os.environ.get("BARNABAS_FAULTS") == "full"


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """`report(row, figures)`: what was measured for a row of faults.md."""

    def add(row: int, figures: str) -> None:
        record_property(_ROW, f"row {row:>2}: {figures}")

    return add


@pytest.fixture
def start_broker() -> Iterator[Start]:
    """Start a broker process with these settings; it is stopped after the test, and must stop in order."""
    with contextlib.ExitStack() as started:

        def start(settings: dict[str, object] | None = None) -> FaultyWorld:
            texts = {name: str(value) for name, value in {**SMALL_SEGMENTS, **(settings or {})}.items()}
            broker = started.enter_context(BrokerProcess(OURS, texts))
            started.callback(_stop_in_order, broker)
            return FaultyWorld(broker)

        yield start


def _stop_in_order(broker: BrokerProcess) -> None:
    code = broker.stop()
    assert code == 0, f"exit code {code}:\n{broker.log_tail(40)}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _lines.extend(str(text) for name, text in report.user_properties if name == _ROW)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _lines:
        terminalreporter.section("fault rows")
        for line in sorted(_lines):
            terminalreporter.line(line)
