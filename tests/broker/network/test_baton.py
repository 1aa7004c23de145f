"""The baton: turns by the batch, as advice only."""

from __future__ import annotations

import os
import select
import threading
import time

import pytest

from barnabas.broker.network.baton import CERTAIN, NO_BATON, PATIENCE_SECONDS, Baton, ShortWaits, TurnPoller
from barnabas.records.kernel.turns import readable_soon


def test_only_one_thread_holds_it_and_turns_may_begin_and_end_twice() -> None:
    baton = Baton()
    first, second = baton.turn(), baton.turn()
    first.begin()
    first.begin()
    assert first.held
    first.end()
    first.end()
    second.begin()
    assert second.held
    second.end()


def test_who_has_waited_long_enough_goes_on_without_it() -> None:
    """A thread that blocks while it holds the baton delays nobody for long."""
    baton = Baton()
    blocked, other = baton.turn(), baton.turn()
    blocked.begin()
    start = time.monotonic()
    other.begin()
    assert time.monotonic() - start >= PATIENCE_SECONDS * 0.9
    assert not other.held
    other.end()
    blocked.end()
    other.begin()
    assert other.held


def test_without_the_gil_there_is_no_baton() -> None:
    turns = [NO_BATON.turn(), NO_BATON.turn()]
    for turn in turns:
        turn.begin()
        assert not turn.held
        turn.end()


class RecordingPoller:
    def __init__(self) -> None:
        self.held_while_polling: list[bool] = []
        self.turn = Baton().turn()

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        self.held_while_polling.append(self.turn.held)
        return [(1, 1)]

    def register(self, fd: int, events: int, /) -> None: ...

    modify = register

    def unregister(self, fd: int, /) -> None: ...

    def close(self) -> None: ...


def test_a_poller_lets_go_of_the_baton_only_while_it_waits() -> None:
    inner = RecordingPoller()
    rung: list[bool] = []
    poller = TurnPoller(inner, inner.turn, lambda: rung.append(inner.turn.held))
    inner.turn.begin()
    assert poller.poll(0, 10) == [(1, 1)]
    assert poller.poll(0.3, 10) == [(1, 1)]
    assert inner.held_while_polling == [True, False]
    assert rung == [True, False]  # others are woken after the turn has ended
    assert inner.turn.held
    inner.turn.end()


def test_many_threads_never_hold_it_together_unless_they_were_impatient() -> None:
    baton = Baton()
    inside: list[int] = []
    together: list[int] = []

    def work() -> None:
        turn = baton.turn()
        for _ in range(200):
            turn.begin()
            if turn.held:
                inside.append(1)
                together.append(len(inside))
                inside.pop()
            turn.end()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(together) == {1}


def test_a_short_wait_is_expected_only_after_many_short_ones() -> None:
    waits = ShortWaits()
    rises = 0
    while not waits.likely():
        waits.note(True)
        rises += 1
    assert 4 <= rises <= 16
    for _ in range(1000):
        waits.note(True)
    assert waits.share <= CERTAIN
    falls = 0
    while waits.likely():
        waits.note(False)
        falls += 1
    assert 2 <= falls <= 8
    for _ in range(1000):
        waits.note(False)
    assert waits.share == 0
    for turn in range(100):  # every second wait is short: not enough
        waits.note(turn % 2 == 0)
    assert not waits.likely()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")
def test_it_asks_for_what_is_there_and_for_no_longer_than_it_was_told() -> None:
    epoll = select.epoll()
    fd = os.eventfd(0)
    try:
        epoll.register(fd, select.EPOLLIN)
        start = time.monotonic()
        assert not readable_soon(epoll.fileno(), 1_000_000)
        assert time.monotonic() - start < 5
        os.eventfd_write(fd, 1)
        assert readable_soon(epoll.fileno(), 1_000_000)
    finally:
        os.close(fd)
        epoll.close()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")
def test_a_poller_that_expects_a_short_wait_still_sleeps_until_something_happens() -> None:
    epoll = select.epoll()
    fd = os.eventfd(0)
    poller = TurnPoller(epoll, Baton().turn(), lambda: None)
    try:
        epoll.register(fd, select.EPOLLIN)
        os.eventfd_write(fd, 1)
        for _ in range(100):
            assert poller.poll(1, 10) == [(fd, select.EPOLLIN)]
        os.eventfd_read(fd)
        for _ in range(3):
            start = time.monotonic()
            assert poller.poll(0.05, 10) == []
            assert 0.04 <= time.monotonic() - start < 5
        threading.Timer(0.05, os.eventfd_write, (fd, 1)).start()
        assert poller.poll(20, 10) == [(fd, select.EPOLLIN)]
    finally:
        os.close(fd)
        epoll.close()
