"""Log lines of one kind come at most once per interval, and none goes uncounted."""

from __future__ import annotations

import logging
import re
import threading

import pytest

from barnabas.clock import ManualClock
from barnabas.log_limit import MINUTE_NS, MOST_KINDS, LogLimit

log = logging.getLogger(__name__)


class Limited:
    """A limit on a clock that stands still, and the lines that came through."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        self.clock = ManualClock()
        self.limit = LogLimit(log, self.clock.monotonic_ns, MINUTE_NS)
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def limited(caplog: pytest.LogCaptureFixture) -> Limited:
    return Limited(caplog)


def test_the_first_line_is_written_and_the_next_after_the_interval_says_how_many_were_left_out(
    limited: Limited,
) -> None:
    for number in range(120):
        limited.limit.error("read", "cannot read at %d", number)
        limited.clock.advance(0.5)
    assert limited.lines == ["cannot read at 0"]
    limited.limit.error("read", "cannot read at %d", 120)
    assert limited.lines[1:] == ["cannot read at 120 (119 more like it were left out before)"]
    limited.clock.advance(60)
    limited.limit.error("read", "cannot read at %d", 121)
    assert limited.lines[2:] == ["cannot read at 121"]


def test_kinds_do_not_hide_each_other(limited: Limited) -> None:
    for number in range(3):
        for kind in ("one", "two"):
            limited.limit.warning(kind, "%s %d", kind, number)
    assert limited.lines == ["one 0", "two 0"]


def test_however_many_kinds_there_are_lines_and_memory_are_bounded(limited: Limited) -> None:
    for number in range(1000):
        limited.limit.error(f"kind {number}", "line %d", number)
    assert limited.lines == [f"line {number}" for number in range(MOST_KINDS + 1)]
    limited.clock.advance(60)
    limited.limit.error("kind 5000", "line 5000")
    limited.limit.error("kind 5000", "line 5001")
    assert limited.lines[MOST_KINDS + 1 :] == ["line 5000"]


def test_a_line_of_a_level_that_is_switched_off_is_not_counted(
    limited: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    limited.limit.warning("kind", "not wanted")
    caplog.set_level(logging.WARNING)
    limited.limit.warning("kind", "wanted")
    assert limited.lines == ["wanted"]


def test_a_line_names_the_place_that_wrote_it_and_brings_the_error(
    limited: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError("broken")
    limited.limit.warning("kind", "it is %s", "broken", exc_info=error)
    (record,) = caplog.records
    assert record.funcName == "test_a_line_names_the_place_that_wrote_it_and_brings_the_error"
    assert record.exc_info
    assert record.exc_info[1] is error


def test_of_many_threads_every_line_is_written_or_counted(limited: Limited) -> None:
    barrier = threading.Barrier(4)

    def write() -> None:
        barrier.wait(10)
        for _ in range(500):
            limited.limit.error("kind", "line")
            limited.clock.advance(1)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    limited.clock.advance(60)
    limited.limit.error("kind", "line")
    lines = limited.lines
    assert 2 <= len(lines) <= 2000 // 60 + 2
    assert len(lines) + sum(int(count) for line in lines for count in re.findall(r"\d+", line)) == 2001
