"""The fair lock: whoever waits gets it next."""

from __future__ import annotations

import signal
import threading

import pytest

from barnabas.fair_lock import FairLock
from tests.waiting import wait_until


def waiting(lock: FairLock, count: int) -> bool:
    return f"waiting={count}" in repr(lock)


def test_a_loop_over_the_lock_does_not_keep_it_to_itself() -> None:
    lock = FairLock()
    rounds: list[int] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            with lock:
                rounds.append(1)

    looping = threading.Thread(target=loop)
    looping.start()
    try:
        for _ in range(100):
            with lock:
                before = len(rounds)
                wait_until(lambda: waiting(lock, 1))
            with lock:
                assert len(rounds) == before + 1
    finally:
        stop.set()
        looping.join(30)


def test_those_who_wait_are_served_in_their_order() -> None:
    lock = FairLock()
    order: list[int] = []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
    with lock:
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: waiting(lock, number + 1))  # type: ignore[misc]
    for thread in threads:
        thread.join(30)
    assert order == list(range(5))
    assert not lock.locked()


def test_it_works_as_the_lock_of_a_condition() -> None:
    lock = FairLock()
    changed = threading.Condition(lock)  # type: ignore[arg-type]
    seen: list[bool] = []

    def wait() -> None:
        with lock:
            seen.append(changed.wait_for(lambda: bool(seen) and seen[0] is False, 30))

    with lock:
        assert not changed.wait_for(lambda: False, 0.01)
    waiter = threading.Thread(target=wait)
    waiter.start()
    with lock:
        seen.append(False)
        changed.notify_all()
    waiter.join(30)
    assert seen == [False, True]
    assert not lock.locked()


def test_a_wait_that_is_interrupted_leaves_the_lock_whole() -> None:
    lock = FairLock()

    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            wait_until(lambda: waiting(lock, 1))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            assert let_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(30)
        with pytest.raises(Interrupted):
            lock.acquire()
        assert waiting(lock, 0)
    finally:
        let_go.set()
        holder.join(30)
        signal.signal(signal.SIGUSR1, before)
    with lock:
        pass


def test_only_a_lock_that_is_held_can_be_released() -> None:
    with pytest.raises(RuntimeError):
        FairLock().release()


def test_who_has_waited_long_enough_goes_and_holds_up_nobody() -> None:
    lock = FairLock()
    with lock:
        assert not lock.acquire(timeout=0.01)
        assert not lock.acquire(timeout=0)
        assert waiting(lock, 0)
    assert lock.acquire(timeout=30)
    lock.release()
    assert not lock.locked()
