"""The common server-thread base: start-up latch, shutdown latch, errors (RP-1)."""

from __future__ import annotations

import threading

import pytest

from barnabas.errors import BarnabasError, FatalBrokerError
from barnabas.threads import ServerThread, ThreadFailedToStart


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
