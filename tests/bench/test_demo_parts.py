"""The parts of the demo that need neither broker nor Spark: reports of batches, ranges of offsets, what is shown."""

from __future__ import annotations

import io
from collections import Counter
from decimal import Decimal

import pytest
from rich.console import Console

from bench.demo.batches import Batch, BatchLog, QueryFailed, batch_of
from bench.demo.display import Display, Figures, Rate
from bench.demo.proof import compared, ranges_of
from bench.time_breakdown import ApiTime


def report(number: int, rows: int, **ends: int) -> dict[str, object]:
    offsets = ", ".join(f'"{name[1:]}": {end}' for name, end in ends.items())
    return {
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1000},
        "sources": [{"endOffset": '{"orders": {' + offsets + "}}"}],
        "eventTime": {"watermark": "1970-01-01T00:00:07.250Z"},
        "stateOperators": [{"numRowsTotal": 9}],
    }


class ScriptedQuery:
    """A query that reports what it is told to."""

    name = "lake"

    def __init__(self, *reports: dict[str, object]) -> None:
        self.recentProgress = list(reports)

    def exception(self) -> None:
        return None


def test_a_batch_is_read_from_sparks_report() -> None:
    assert batch_of(report(3, 50, p0=20, p1=30)) == Batch(3, 50, 1.5, {0: 20, 1: 30}, 7250, 9)


def test_a_report_is_counted_once_and_idleness_is_no_batch() -> None:
    idle = {**report(1, 0, p0=50), "durationMs": {"triggerExecution": 3, "latestOffset": 2}}
    log = BatchLog(ScriptedQuery(report(0, 50, p0=50), idle))
    log.update()
    log.update()
    assert (log.rows, sorted(log.batches)) == (50, [0])


def test_a_batch_that_was_never_seen_is_an_error() -> None:
    log = BatchLog(ScriptedQuery(report(0, 50, p0=50), report(2, 50, p0=150)))
    log.update()
    with pytest.raises(QueryFailed, match=r"only the batches \[0, 2\]"):
        log.in_order()


def test_ranges_have_the_watermark_of_the_batch_before() -> None:
    batches = [
        Batch(0, 0, 1.0, {0: 0, 1: 0}, 0, 0),
        Batch(1, 30, 1.0, {0: 10, 1: 20}, 1000, 0),
        Batch(2, 5, 1.0, {0: 15, 1: 20}, 2000, 0),
        Batch(3, 2, 1.0, {0: 15, 1: 21, 2: 1}, 3000, 0),
    ]
    assert list(ranges_of(batches)) == [
        (0, 0, 10, 0),
        (1, 0, 20, 0),
        (0, 10, 15, 1000),
        (1, 20, 21, 2000),
        (2, 0, 1, 2000),
    ]


def test_totals_must_be_equal_and_may_be_repeated() -> None:
    assert compared(Counter(["a", "b"]), Counter(["a", "b"])).holds
    twice = compared(Counter(["a", "b", "b"]), Counter(["a", "b"]))
    assert twice.holds
    assert "1 written twice" in twice.text
    assert not compared(Counter(["a"]), Counter(["a", "b"])).holds
    assert not compared(Counter(["a", "x"]), Counter(["a", "b"])).holds
    assert not compared(Counter(), Counter()).holds, "no totals at all prove nothing"


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.of(0.0, 0) == 0
    assert rate.of(2.0, 200) == 100
    assert rate.of(10.0, 200) == 0, "over the last two looks when they are far apart"


def figures(elapsed: float, draining: bool = False) -> Figures:
    log = BatchLog(ScriptedQuery(report(0, 50_000, p0=50_000)))
    log.update()
    total = {
        "start": "2026-11-16T02:31:20",
        "end": "2026-11-16T02:31:25",
        "category": "books",
        "orders": 1,
        "pieces": 2,
    }
    latest = ({**total, "revenue": Decimal("1234.50")},)
    apis = (ApiTime("Produce", 1000, (0.0, 0.001, 0.0, 0.0, 0.0, 0.0)),)
    return Figures(elapsed, 60, draining, 60_000, 600, min(elapsed, 50.0), (log,), latest, apis)


def test_a_terminal_shows_rows_lag_batches_totals_and_request_times() -> None:
    screen = io.StringIO()
    display = Display(Console(file=screen, force_terminal=True, width=100, height=50))
    with display.running():
        display.show(figures(34.0))
    shown = screen.getvalue()
    for expected in (
        "0:34",
        "of 1:00",
        "60 000",
        "query lake",
        "50 000",
        "10 000",
        "1.5 s",
        "books",
        "1 234.50",
        "Produce",
    ):
        assert expected in shown, expected


def test_a_pipe_gets_a_line_every_five_seconds() -> None:
    page = io.StringIO()
    display = Display(Console(file=page, width=120))
    with display.running():
        for tenths in range(0, 110, 5):
            display.show(figures(tenths / 10))
    lines = page.getvalue().splitlines()
    assert len(lines) == 3
    assert "lag 10 000, batch 0 took 1.5 s" in lines[1]


def test_when_no_more_orders_are_sent_the_rate_is_that_of_the_time_in_which_they_were() -> None:
    page = io.StringIO()
    display = Display(Console(file=page, width=120))
    with display.running():
        display.show(figures(49.0))
        for seconds in (60.0, 70.0, 80.0):
            display.show(figures(seconds, draining=True))
    assert page.getvalue().count("sent 60 000 (1 200/s)") == 3
