"""Delayed operations (RP-38): each completes exactly once, whoever gets there first, and no wake-up is lost."""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.purgatory import DelayedOperation, Purgatory, Timer, TimerThread
from barnabas.clock import ManualClock, SystemClock
from tests.waiting import wait_until

MS = 1_000_000
KEY = ("t", 0)


class Waiting(DelayedOperation):
    """Ready when its box says so; counts how often it completed and expired."""

    __slots__ = ("box", "completions", "expirations")

    def __init__(self, box: dict[str, bool]) -> None:
        super().__init__()
        self.box = box
        self.completions = 0
        self.expirations = 0

    def ready(self) -> bool:
        return self.box["ready"]

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("Fetch", timer)


def test_what_is_ready_completes_at_once_and_is_never_watched(purgatory: Purgatory, timer: Timer) -> None:
    operation = Waiting({"ready": True})
    assert purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
    assert (operation.completions, purgatory.size, purgatory.delayed, len(timer)) == (1, 0, 0, 0)
    assert not purgatory.watchers


def test_an_event_on_any_of_its_keys_completes_it_and_clears_all(purgatory: Purgatory, timer: Timer) -> None:
    box = {"ready": False}
    operation = Waiting(box)
    keys = [("t", 0), ("t", 1), ("u", 0), ("t", 0)]
    assert not purgatory.try_complete_else_watch(operation, keys, 100 * MS)
    assert (purgatory.size, purgatory.delayed, len(timer)) == (3, 1, 1)
    assert purgatory.check_and_complete(("t", 1)) == 0
    box["ready"] = True
    assert purgatory.check_and_complete(("v", 0)) == 0
    assert purgatory.check_and_complete(("u", 0)) == 1
    assert (operation.completions, operation.expirations) == (1, 0)
    assert (purgatory.size, purgatory.delayed, len(timer)) == (0, 0, 0)
    assert purgatory.check_and_complete(("t", 0)) == 0


def test_time_completes_it_and_says_so(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    operation = Waiting({"ready": False})
    purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
    clock.advance(0.099)
    timer.advance()
    assert operation.completions == 0
    clock.advance(0.002)
    timer.advance()
    assert (operation.completions, operation.expirations) == (1, 1)
    assert (purgatory.size, purgatory.delayed, purgatory.expired) == (0, 0, 1)


def test_one_event_completes_only_those_that_are_ready(purgatory: Purgatory) -> None:
    boxes = [{"ready": False} for _ in range(5)]
    operations = [Waiting(box) for box in boxes]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
    boxes[1]["ready"] = boxes[3]["ready"] = True
    assert purgatory.check_and_complete(KEY) == 2
    assert [operation.completions for operation in operations] == [0, 1, 0, 1, 0]
    assert purgatory.delayed == 3
    assert purgatory.complete_all() == 3
    assert [operation.completions for operation in operations] == [1] * 5
    assert not purgatory.watchers


def test_an_operation_that_fails_does_not_fail_the_event(purgatory: Purgatory) -> None:
    class Failing(Waiting):
        __slots__ = ()

        def on_complete(self) -> None:
            raise RuntimeError("on purpose")

    box = {"ready": False}
    good = Waiting(box)
    purgatory.try_complete_else_watch(Failing(box), [KEY], 100 * MS)
    purgatory.try_complete_else_watch(good, [KEY], 100 * MS)
    box["ready"] = True
    assert purgatory.check_and_complete(KEY) == 1
    assert good.completions == 1
    assert not purgatory.watchers


def test_what_somebody_else_completed_before_it_was_watched_leaves_nothing_behind(
    purgatory: Purgatory, timer: Timer
) -> None:
    """The flusher may complete a durable Produce while the handler is still about to put it into the purgatory."""

    class CompletedInBetween(Waiting):
        __slots__ = ()

        def ready(self) -> bool:
            threading.Thread(target=self.force_complete).start()
            wait_until(lambda: self.completions == 1)
            return False

    operation = CompletedInBetween({"ready": False})
    assert purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
    assert (operation.completions, purgatory.size, purgatory.delayed, len(timer)) == (1, 0, 0, 0)


def test_completing_is_exactly_once_under_races() -> None:
    """RP-38: an event, the time and a forced end race for each of 600 operations; no wake-up is lost either."""
    timer = Timer(SystemClock())
    thread = TimerThread(timer, 1)
    purgatory = Purgatory("Race", timer)
    thread.start()
    stop = threading.Event()

    def events() -> None:
        while not stop.is_set():
            purgatory.check_and_complete(KEY)

    def forces() -> None:
        while not stop.is_set():
            purgatory.complete_all()

    racers = [threading.Thread(target=target) for target in (events, events, forces)]
    for racer in racers:
        racer.start()
    try:
        operations = []
        for number in range(600):
            box = {"ready": False}
            operation = Waiting(box)
            purgatory.try_complete_else_watch(operation, [KEY, ("t", number % 7)], (number % 3) * MS)
            box["ready"] = True
            operations.append(operation)
        wait_until(lambda: all(operation.completed for operation in operations))
        wait_until(lambda: purgatory.delayed == 0 and len(timer) == 0)
    finally:
        stop.set()
        for racer in racers:
            racer.join(10)
        assert thread.shutdown(5)
    assert [operation.completions for operation in operations] == [1] * 600
    assert purgatory.size == 0


def test_no_wake_up_is_lost_between_the_last_check_and_the_watch_list() -> None:
    """RP-38: the event comes once, at a random moment of `try_complete_else_watch`; the operation must not sleep on."""
    timer = Timer(ManualClock())
    purgatory = Purgatory("Wake", timer)
    for _ in range(300):
        box = {"ready": False}
        operation = Waiting(box)
        start = threading.Barrier(2)

        def event(box: dict[str, bool] = box, start: threading.Barrier = start) -> None:
            start.wait(10)
            box["ready"] = True
            purgatory.check_and_complete(KEY)

        thread = threading.Thread(target=event)
        thread.start()
        start.wait(10)
        purgatory.try_complete_else_watch(operation, [KEY], 1000 * MS)
        thread.join(10)
        assert operation.completions == 1
    assert len(timer) == 0


class Hungry(DelayedOperation):
    """Ready when enough is in the box; counts how often it was asked."""

    __slots__ = ("asked", "box", "wanted")

    def __init__(self, box: list[int], wanted: int) -> None:
        super().__init__()
        self.box = box
        self.wanted = wanted
        self.asked = 0

    def ready(self) -> bool:
        self.asked += 1
        return self.box[0] >= self.wanted

    def needs(self, key: object) -> int:
        return self.wanted - self.box[0]

    def on_complete(self) -> None:
        pass


def test_an_event_asks_only_those_that_it_may_make_ready(purgatory: Purgatory) -> None:
    box = [0]
    operations = [Hungry(box, 100 * number) for number in range(1, 101)]
    for operation in reversed(operations):
        purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
        operation.asked = 0
    for number in range(1, 1001):
        box[0] += 10
        assert purgatory.check_and_complete(KEY, 10) == (number % 10 == 0)
        assert sum(operation.completed for operation in operations) == number // 10
    assert [operation.asked for operation in operations] == [1] * 100
    assert not purgatory.watchers


def test_an_event_of_another_kind_asks_everybody(purgatory: Purgatory) -> None:
    operations = [Hungry([0], 100) for _ in range(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, [KEY], 100 * MS)
        operation.asked = 0
    purgatory.check_and_complete(KEY, 1)
    assert [operation.asked for operation in operations] == [0] * 5
    purgatory.check_and_complete(KEY)
    assert [operation.asked for operation in operations] == [1] * 5


def test_operations_that_come_and_go_leave_nothing_in_a_watch_list(purgatory: Purgatory) -> None:
    staying = Hungry([0], 100)
    purgatory.try_complete_else_watch(staying, [KEY], 100 * MS)
    for _ in range(1000):
        passing = Hungry([0], 100)
        purgatory.try_complete_else_watch(passing, [KEY], 100 * MS)
        assert passing.cancel()
    assert purgatory.size == 1
    assert len(purgatory._watchers[KEY]._queue) < 100


def test_no_arrival_is_lost_while_several_threads_bring_some() -> None:
    timer = Timer(ManualClock())
    purgatory = Purgatory("Arrivals", timer)
    for _ in range(100):
        box, lock = [0], threading.Lock()
        operations = [Hungry(box, wanted) for wanted in (1, 50, 100, 150, 200)]

        def bring(box: list[int] = box, lock: threading.Lock = lock) -> None:
            for _ in range(50):
                with lock:
                    box[0] += 1
                purgatory.check_and_complete(KEY, 1)

        threads = [threading.Thread(target=bring) for _ in range(4)]
        for thread in threads:
            thread.start()
        for operation in operations:
            purgatory.try_complete_else_watch(operation, [KEY], 1000 * MS)
        for thread in threads:
            thread.join(10)
        assert all(operation.completed for operation in operations)
    assert len(timer) == 0
