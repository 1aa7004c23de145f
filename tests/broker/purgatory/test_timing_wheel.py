"""The timing wheel (RP-38): exact order, upper wheels, cancellation, no drift, no busy spin."""

from __future__ import annotations

import random
import threading
import time

from barnabas.broker.purgatory.timing_wheel import MAX_SLEEP_NS, TICK_NS, Timer, TimerTask, TimerThread
from barnabas.clock import ManualClock, SystemClock
from tests.waiting import wait_until

MS = 1_000_000


class Recorded(TimerTask):
    """Writes itself and the time into a list when it expires."""

    __slots__ = ("_clock", "_log", "name")

    def __init__(self, name: object, log: list[tuple[object, int]], clock: ManualClock) -> None:
        super().__init__()
        self.name = name
        self._log = log
        self._clock = clock

    def expire(self) -> None:
        self._log.append((self.name, self._clock.monotonic_ns()))


def turn(timer: Timer, clock: ManualClock, milliseconds: int) -> None:
    """Advance millisecond by millisecond, as a thread that is never late would."""
    for _ in range(milliseconds):
        clock.advance(0.001)
        timer.advance()


def test_a_task_expires_at_its_deadline_and_never_before() -> None:
    """RP-38."""
    clock = ManualClock()
    timer = Timer(clock)
    log: list[tuple[object, int]] = []
    start = clock.monotonic_ns()
    timer.add(Recorded("a", log, clock), 10 * MS)
    turn(timer, clock, 9)
    assert log == []
    turn(timer, clock, 1)
    assert log == [("a", start + 10 * MS)]
    assert len(timer) == 0


def test_a_deadline_between_two_ticks_is_rounded_up() -> None:
    clock = ManualClock(monotonic_ns=1_000_300_000)
    timer = Timer(clock)
    log: list[tuple[object, int]] = []
    timer.add(Recorded("a", log, clock), 1 * MS)  # due at 1.0013 s
    clock.advance(0.0009)  # 1.0012 s
    assert timer.advance() == 0
    clock.advance(0.0008)  # 1.0020 s, the tick that follows the deadline
    assert timer.advance() == 1


def test_tasks_of_one_turn_run_in_the_order_of_their_deadlines() -> None:
    """RP-38: also when they come from different wheels."""
    clock = ManualClock()
    timer = Timer(clock, wheel_size=4)
    log: list[tuple[object, int]] = []
    delays = list(range(1, 400))
    random.Random(7).shuffle(delays)
    for delay in delays:
        timer.add(Recorded(delay, log, clock), delay * MS)
    clock.advance(1)
    assert timer.advance() == len(delays)
    assert [name for name, _ in log] == sorted(delays)


def test_tasks_of_the_upper_wheels_move_down_and_expire_on_their_tick() -> None:
    """RP-38: wheel of 4 ticks, so 1000 ms need five levels."""
    clock = ManualClock()
    timer = Timer(clock, wheel_size=4)
    log: list[tuple[object, int]] = []
    start = clock.monotonic_ns()
    delays = [1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000]
    for delay in delays:
        timer.add(Recorded(delay, log, clock), delay * MS)
    turn(timer, clock, 1000)
    assert log == [(delay, start + delay * MS) for delay in delays]


def test_random_tasks_expire_exactly_on_time_whatever_the_steps_of_the_clock() -> None:
    """RP-38: against the model "every task whose deadline has come, in the order of the deadlines"."""
    rng = random.Random(11)
    clock = ManualClock()
    timer = Timer(clock, wheel_size=8)
    log: list[tuple[object, int]] = []
    model: list[int] = []
    for _ in range(600):
        for _ in range(rng.randrange(4)):
            delay_ns = rng.randrange(2_000) * MS
            timer.add(Recorded(clock.monotonic_ns() + delay_ns, log, clock), delay_ns)
            model.append(clock.monotonic_ns() + delay_ns)
        clock.advance(rng.choice((0.001, 0.002, 0.007, 0.050, 0.3)))
        timer.advance()
        due = sorted(deadline for deadline in model if deadline < clock.monotonic_ns())
        got = [name for name, _ in log]
        assert got[: len(due)] == due
        assert all(name <= clock.monotonic_ns() for name, _ in log if isinstance(name, int))
    assert len(log) + len(timer) == len(model)


def test_a_task_that_adds_itself_again_does_not_drift() -> None:
    """RP-38: 200 rounds of 5 ms end after exactly one second."""
    clock = ManualClock()
    timer = Timer(clock)
    times: list[int] = []

    class Again(TimerTask):
        __slots__ = ()

        def expire(self) -> None:
            times.append(clock.monotonic_ns())
            timer.add(self, 5 * MS)

    start = clock.monotonic_ns()
    timer.add(Again(), 5 * MS)
    turn(timer, clock, 1000)
    assert times == [start + round_ * 5 * MS for round_ in range(1, 201)]


def test_a_cancelled_task_never_runs_and_its_bucket_does_not_wake_the_thread() -> None:
    """RP-38: a stream of long polls that are answered early leaves nothing to wake up for."""
    clock = ManualClock()
    timer = Timer(clock)
    log: list[tuple[object, int]] = []
    tasks = [Recorded(i, log, clock) for i in range(500)]
    for delay, task in enumerate(tasks, start=1):
        timer.add(task, delay * MS)
    assert timer.next_deadline_ns() == clock.monotonic_ns() + MS
    assert all(timer.cancel(task) for task in tasks)
    assert not timer.cancel(tasks[0])
    assert timer.next_deadline_ns() is None
    assert len(timer) == 0
    turn(timer, clock, 600)
    assert log == []


def test_a_task_with_no_delay_runs_in_the_next_turn() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    log: list[tuple[object, int]] = []
    timer.add(Recorded("now", log, clock), 0)
    timer.add(Recorded("past", log, clock), -5)
    turn(timer, clock, 1)
    assert {name for name, _ in log} == {"now", "past"}


def test_a_task_that_fails_does_not_stop_the_others(caplog: object) -> None:
    clock = ManualClock()
    timer = Timer(clock)
    log: list[tuple[object, int]] = []

    def fail() -> None:
        raise RuntimeError("on purpose")

    timer.schedule(1, fail)
    timer.add(Recorded("after", log, clock), 2 * MS)
    turn(timer, clock, 2)
    assert [name for name, _ in log] == ["after"]


def test_the_clock_may_jump_far_over_all_wheels() -> None:
    clock = ManualClock()
    timer = Timer(clock, wheel_size=4)
    log: list[tuple[object, int]] = []
    for delay in (3, 70, 5_000):
        timer.add(Recorded(delay, log, clock), delay * MS)
    clock.advance(3600)
    assert timer.advance() == 3
    timer.add(Recorded("later", log, clock), 2 * MS)
    turn(timer, clock, 2)
    assert [name for name, _ in log] == [3, 70, 5_000, "later"]


def test_the_thread_sleeps_until_something_is_due_and_does_not_spin() -> None:
    """RP-38: an idle timer turns at most once per 200 ms; a task that is added wakes it in time."""

    class CountingClock(SystemClock):
        __slots__ = ("reads",)

        def __init__(self) -> None:
            self.reads = 0

        def monotonic_ns(self) -> int:
            self.reads += 1
            return time.monotonic_ns()

    clock = CountingClock()
    timer = Timer(clock)
    thread = TimerThread(timer, 1)
    thread.start()
    try:
        done = threading.Event()
        before = clock.reads
        start = time.monotonic_ns()
        timer.schedule(30, done.set)
        assert done.wait(5)
        took_ms = (time.monotonic_ns() - start) / MS
        assert took_ms >= 30
        # two reads per turn, one per add: a spinning thread would have read it thousands of times
        assert clock.reads - before < 20 + took_ms / 10
    finally:
        assert thread.shutdown(5)


def test_a_nearer_task_wakes_a_thread_that_sleeps_for_a_farther_one() -> None:
    """RP-38."""
    timer = Timer(SystemClock())
    thread = TimerThread(timer, 1)
    thread.start()
    try:
        order: list[str] = []
        cancel_far = timer.schedule(300_000, lambda: order.append("far"))
        timer.schedule(10, lambda: order.append("near"))
        wait_until(lambda: order, what="the nearer task, long before the farther one")
        assert order == ["near"]
        assert cancel_far()
    finally:
        assert thread.shutdown(5)


def test_many_threads_may_add_and_cancel_at_once() -> None:
    """RP-38: each task either runs or was cancelled, exactly one of them."""
    timer = Timer(SystemClock())
    thread = TimerThread(timer, 1)
    thread.start()
    ran: list[int] = []
    cancelled: list[int] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for number in range(seed * 1000, seed * 1000 + 200):
            cancel = timer.schedule(rng.randrange(5), lambda n=number: ran.append(n))  # type: ignore[misc]
            if rng.random() < 0.5 and cancel():
                cancelled.append(number)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        wait_until(lambda: len(ran) + len(cancelled) == 800)
        assert sorted(ran + cancelled) == [seed * 1000 + i for seed in range(4) for i in range(200)]
        assert len(timer) == 0
    finally:
        assert thread.shutdown(5)


def test_a_tick_is_a_millisecond_and_the_longest_sleep_two_hundred() -> None:
    assert (TICK_NS, MAX_SLEEP_NS) == (1_000_000, 200_000_000)
