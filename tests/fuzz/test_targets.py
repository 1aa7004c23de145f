"""Each target of tests/fuzz under coverage for some seconds, the same inputs every time; `make fuzz` tries millions of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import NOT_INSTALLED, Limits, run_target
from tests.fuzz.engine import is_available
from tests.fuzz.target import NAMES

RUNS = {"fetched": 4_000, "logs": 1_000, "scan": 4_000, "responses": 6_000, "requests": 10_000, "frames": 10_000}
QUICK = 20_000
SEED = 18
ROOMY_MB = 4096
"""Linux counts the memory of the process that started another one to its peak, so that the bound of `make fuzz` would say nothing here."""


@pytest.mark.skipif(not is_available(), reason=NOT_INSTALLED)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_no_input_breaks_a_promise(name: str, tmp_path: Path) -> None:
    limits = Limits(RUNS.get(name, QUICK), SEED, memory_mb=ROOMY_MB)
    result = run_target(name, limits, tmp_path / "grown", tmp_path / "findings", seconds=550)
    kept = [each.read_bytes() for each in result.findings]
    assert result.code == 0, f"{result.line}\n{result.trace}\n{kept}"
    assert result.runs >= limits.runs
