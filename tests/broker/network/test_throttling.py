"""The thread that ends throttlings (RP-39), and the meter of idle and blocked time (RP-32)."""

from __future__ import annotations

import pytest

from barnabas.broker.network.throttling import ThrottledChannelReaper
from barnabas.broker.network.time_share import TimeShare
from barnabas.clock import ManualClock
from tests.waiting import wait_until


def test_callbacks_run_in_order_of_their_time_and_not_before() -> None:
    clock = ManualClock()
    reaper = ThrottledChannelReaper(clock)
    ran: list[str] = []
    reaper.schedule(200, lambda: ran.append("late"))
    reaper.schedule(100, lambda: ran.append("early"))
    reaper.schedule(100, lambda: ran.append("early, second"))
    clock.advance(0.15)
    reaper.run_once()
    assert ran == ["early", "early, second"]
    clock.advance(0.1)
    reaper.run_once()
    assert ran[-1] == "late"
    assert len(reaper) == 0


def test_the_thread_runs_what_is_due_and_survives_a_failing_callback(caplog: pytest.LogCaptureFixture) -> None:
    """Fault row 44."""
    reaper = ThrottledChannelReaper()
    ran: list[int] = []
    reaper.start()
    try:
        reaper.schedule(1, lambda: ran.append(1 // 0))
        reaper.schedule(2, lambda: ran.append(1))
        wait_until(lambda: ran == [1])
    finally:
        reaper.shutdown(5)
    assert "ZeroDivisionError" in caplog.text


def test_what_still_waits_at_shutdown_is_run_so_that_nobody_stays_muted() -> None:
    reaper = ThrottledChannelReaper()
    ran: list[int] = []
    reaper.start()
    reaper.schedule(600_000, lambda: ran.append(1))
    assert reaper.shutdown(5)
    assert ran == [1]


def test_a_share_is_taken_over_the_last_minute() -> None:
    clock = ManualClock()
    meter = TimeShare(clock)
    assert meter.share() == 0
    meter.add(1_000_000_000)
    clock.advance(2)
    assert meter.share() == pytest.approx(0.5)
    clock.advance(60)
    meter.share()
    clock.advance(60)
    assert meter.share() == 0
    assert "TimeShare" in repr(meter)


def test_a_share_is_never_above_one() -> None:
    clock = ManualClock()
    meter = TimeShare(clock)
    clock.advance(1)
    meter.add(5_000_000_000)
    assert meter.share() == 1
