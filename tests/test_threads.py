"""The common server-thread base: start-up latch, shutdown latch, errors (RP-1)."""

from __future__ import annotations

import threading
import time

import pytest

from barnabas.errors import BarnabasError, FatalBrokerError
from barnabas.threads import (
    LONGEST_PAUSE_SECONDS,
    FreeNumbers,
    ServerThread,
    ThreadFailedToStart,
    pause_seconds,
    wait_seconds,
)


class Loop(ServerThread):
    """Turns when told to, and records what happened on its own thread."""

    def __init__(self, fail_start: bool = False) -> None:
        self.fatal: list[str] = []
        super().__init__("loop", on_fatal=lambda name, error: self.fatal.append(f"{name}: {error}"))
        self.fail_start = fail_start
        self.turn = threading.Event()
        self.turned = threading.Semaphore(0)
        self.closed = False
        self.raises: BaseException | None = None

    def on_start(self) -> None:
        if self.fail_start:
            raise OSError("no port")

    def run_once(self) -> None:
        self.turn.wait(5)
        self.turn.clear()
        self.turned.release()
        if self.raises:
            raise self.raises

    def wakeup(self) -> None:
        self.turn.set()

    def on_stop(self) -> None:
        self.closed = True


def test_shutdown_wakes_the_thread_and_waits_until_it_has_closed_what_it_owns() -> None:
    """RP-1"""
    loop = Loop()
    loop.start()
    assert loop.is_alive()
    assert loop.shutdown(5)
    assert loop.closed
    assert not loop.is_alive()


def test_a_thread_that_fails_to_start_is_reported_to_the_caller_and_closes_what_it_opened() -> None:
    """RP-1"""
    loop = Loop(fail_start=True)
    with pytest.raises(ThreadFailedToStart, match="loop: no port") as caught:
        loop.start()
    assert isinstance(caught.value.__cause__, OSError)
    assert loop.closed


def test_an_unexpected_error_in_one_turn_does_not_end_the_loop() -> None:
    loop = Loop()
    loop.raises = ValueError("one bad turn")
    loop.start()
    for _ in range(3):
        loop.turn.set()
        assert loop.turned.acquire(timeout=5)
    assert loop.shutdown(5)
    assert not loop.fatal


def test_a_fatal_error_ends_the_loop_closes_and_tells_the_owner() -> None:
    loop = Loop()
    loop.raises = FatalBrokerError("no memory left")
    loop.start()
    loop.turn.set()
    assert loop.await_shutdown(5)
    assert loop.fatal == ["loop: no memory left"]
    assert loop.closed


def test_a_thread_starts_only_once() -> None:
    loop = Loop()
    loop.start()
    with pytest.raises(BarnabasError, match="started before"):
        loop.start()
    assert loop.shutdown(5)


def test_a_thread_whose_turns_fail_pauses_longer_and_longer_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 18, C3: 18 000 tracebacks in four seconds."""
    turns = threading.Semaphore(0)

    class Broken(ServerThread):
        def run_once(self) -> None:
            turns.release()
            raise OverflowError("timeout value is too large")

    broken = Broken("broken")
    began = time.monotonic()
    broken.start()
    for _ in range(8):
        assert turns.acquire(timeout=30)
    assert time.monotonic() - began >= sum(map(pause_seconds, range(1, 8)))
    assert broken.shutdown(30)
    assert [record.getMessage() for record in caplog.records] == ["broken: an unexpected error in one turn; going on"]


def test_pauses_grow_from_a_millisecond_to_a_second_and_shrink_with_turns_that_succeed() -> None:
    assert [pause_seconds(failures) for failures in (1, 2, 3)] == [0.001, 0.002, 0.004]
    assert pause_seconds(50) == LONGEST_PAUSE_SECONDS


def test_a_pause_ends_with_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.threads.FIRST_PAUSE_SECONDS", 1000.0)
    monkeypatch.setattr("barnabas.threads.LONGEST_PAUSE_SECONDS", 1000.0)
    loop = Loop()
    loop.raises = ValueError("one bad turn")
    loop.start()
    loop.turn.set()
    assert loop.turned.acquire(timeout=30)
    assert loop.shutdown(30)


def test_a_thread_that_the_system_refuses_is_an_error_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 18, C2."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    loop = Loop()
    with pytest.raises(ThreadFailedToStart, match="loop: can't start new thread"):
        loop.start()
    assert loop.shutdown(0.1)
    assert not loop.is_alive()


@pytest.mark.parametrize("milliseconds", [0, 1, 2**31 - 1, 2**63 - 1])
def test_every_wait_is_one_that_the_platform_takes(milliseconds: int) -> None:
    seconds = wait_seconds(milliseconds)
    assert seconds == min(milliseconds / 1000, 86_400)
    assert seconds < threading.TIMEOUT_MAX
    assert seconds * 1000 < 2**31, "what epoll takes"


def test_the_smallest_free_number_is_taken() -> None:
    numbers = FreeNumbers()
    assert [numbers.take() for _ in range(4)] == [0, 1, 2, 3]
    numbers.give_back(2)
    numbers.give_back(0)
    assert [numbers.take() for _ in range(3)] == [0, 2, 4]
