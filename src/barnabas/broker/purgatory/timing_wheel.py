"""A hierarchical timing wheel and the thread that turns it (RP-38).

Role:    every deadline of the broker that is not a socket's: delayed fetches and produces, ends of throttling.
Threads: `Timer.add` and `cancel` from any thread; `TimerThread` turns the wheel and runs what has expired.
Lock:    one in `Timer`; tasks run outside it. `TimerTask` fields `_bucket` and `deadline_ns` belong to that lock.

One wheel has 512 buckets. The lowest ticks in 1 ms, so it spans 0.5 s; what lies further away is put on the next wheel
(512 ticks of 512 ms, 4.4 minutes), and so on; when a bucket of an upper wheel comes up, its tasks move down::

    level 0   |1 ms|1 ms|1 ms| ...                       a task moves down when its bucket comes up
    level 1   |  512 ms  |  512 ms  | ...    ──────────►  (each task moves at most once per level)
    level 2   |      262 s      | ...

Adding and cancelling are O(1) (plus O(levels)); a heap holds only the buckets that are in use, so the thread sleeps until
the next of them is due and never ticks through empty ones. A task never runs before its deadline and at most one tick
after the turn that follows it: deadlines are rounded up to ticks, ticks are absolute, so nothing drifts.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from functools import partial

from barnabas.clock import Clock
from barnabas.threads import FatalHandler, ServerThread

log = logging.getLogger(__name__)

TICK_NS = 1_000_000
WHEEL_SIZE = 512
MAX_SLEEP_NS = 200_000_000
"""Longest sleep of the thread. A task further away than this never has to wake it, which spares the hot paths a switch."""


class TimerTask:
    """Something that expires. Subclasses override `expire`, which runs on the timer's thread, outside its lock."""

    __slots__ = ("_bucket", "deadline_ns")

    def __init__(self) -> None:
        self._bucket: _Bucket | None = None
        self.deadline_ns = 0

    def expire(self) -> None:
        raise AssertionError(f"{type(self).__name__} has no expire")


class CallbackTask(TimerTask):
    """A task that calls a function."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        super().__init__()
        self._callback = callback

    def expire(self) -> None:
        self._callback()


class _Bucket:
    """The tasks of one tick of one wheel. `due` is the tick at which it comes up, -1 while it is not in the heap."""

    __slots__ = ("due", "number", "tasks")

    def __init__(self, number: int) -> None:
        self.number = number
        self.due = -1
        self.tasks: dict[TimerTask, None] = {}


class TimingWheel:
    """One level of the hierarchy; upper levels are made when first needed. Guarded by the timer's lock."""

    __slots__ = ("_buckets", "_heap", "_interval", "_level", "_overflow", "_size", "_tick", "now_tick")

    def __init__(self, level: int, tick: int, now_tick: int, heap: list[tuple[int, int, _Bucket]], size: int) -> None:
        self._level = level
        self._tick = tick
        self._size = size
        self._interval = tick * size
        self._heap = heap
        self._buckets = [_Bucket(level * size + index) for index in range(size)]
        self._overflow: TimingWheel | None = None
        self.now_tick = now_tick - now_tick % tick

    def add(self, task: TimerTask, due_tick: int) -> bool:
        """Put the task into its bucket; False when it is due already."""
        if due_tick < self.now_tick + self._tick:
            return False
        if due_tick >= self.now_tick + self._interval:
            return self._upper().add(task, due_tick)
        slot = due_tick // self._tick
        bucket = self._buckets[slot % self._size]
        if bucket.due < 0:
            bucket.due = slot * self._tick
            heapq.heappush(self._heap, (bucket.due, bucket.number, bucket))
        bucket.tasks[task] = None
        task._bucket = bucket
        return True

    def advance(self, tick: int) -> None:
        """Turn to `tick`; every bucket that was due until then must have been taken out before."""
        if tick >= self.now_tick + self._tick:
            self.now_tick = tick - tick % self._tick
            if self._overflow is not None:
                self._overflow.advance(tick)

    def _upper(self) -> TimingWheel:
        if self._overflow is None:
            self._overflow = TimingWheel(self._level + 1, self._interval, self.now_tick, self._heap, self._size)
        return self._overflow


class Timer:
    """The wheels and their lock. Thread-safe."""

    def __init__(self, clock: Clock, *, tick_ns: int = TICK_NS, wheel_size: int = WHEEL_SIZE) -> None:
        self._clock = clock
        self._tick_ns = tick_ns
        self._lock = threading.Lock()
        self._wakeup = threading.Condition(self._lock)
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._wheel = TimingWheel(0, 1, clock.monotonic_ns() // tick_ns, self._heap, wheel_size)
        self._size = 0
        self._sleeping_until_tick = 0
        self._closed = False

    def __len__(self) -> int:
        """How many tasks wait."""
        return self._size

    def add(self, task: TimerTask, delay_ns: int) -> None:
        """Let `task.expire()` run once, `delay_ns` from now. A task may be added again after it has expired."""
        task.deadline_ns = deadline = self._clock.monotonic_ns() + max(delay_ns, 0)
        due_tick = -(-deadline // self._tick_ns)
        with self._lock:
            self._size += 1
            if not self._wheel.add(task, due_tick):
                # Due in the tick that has been turned to: the next one, so that it always runs on the timer's thread.
                self._wheel.add(task, self._wheel.now_tick + 1)
            if due_tick < self._sleeping_until_tick:
                self._wakeup.notify()

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Callable[[], bool]:
        """Call `callback` on the timer's thread in `delay_ms`; returns what cancels it."""
        task = CallbackTask(callback)
        self.add(task, delay_ms * 1_000_000)
        return partial(self.cancel, task)

    def cancel(self, task: TimerTask) -> bool:
        """True when the task was waiting and now never runs."""
        with self._lock:
            bucket = task._bucket
            if bucket is None:
                return False
            task._bucket = None
            del bucket.tasks[task]
            self._size -= 1
            return True

    def advance(self) -> int:
        """Run everything that is due now, in the order of the deadlines; returns how many."""
        now_tick = self._clock.monotonic_ns() // self._tick_ns
        with self._lock:
            expired = self._take_expired(now_tick)
        expired.sort(key=_deadline)
        for task in expired:
            self._run(task)
        return len(expired)

    def wait(self) -> None:
        """Sleep until the next bucket is due, a nearer task is added, or 200 ms have passed."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            wake_ns = now_ns + MAX_SLEEP_NS
            due = self._next_due()
            if due is not None:
                wake_ns = min(wake_ns, due * self._tick_ns)
            if wake_ns > now_ns and not self._closed:
                self._sleeping_until_tick = wake_ns // self._tick_ns
                self._wakeup.wait((wake_ns - now_ns) / 1e9)
                self._sleeping_until_tick = 0

    def next_deadline_ns(self) -> int | None:
        """When the next bucket comes up; None when nothing waits."""
        with self._lock:
            due = self._next_due()
            return None if due is None else due * self._tick_ns

    def close(self) -> None:
        """Wake the thread for good. What still waits is not run: its owners complete it."""
        with self._lock:
            self._closed = True
            self._wakeup.notify_all()

    # Under the lock.

    def _take_expired(self, now_tick: int) -> list[TimerTask]:
        expired: list[TimerTask] = []
        heap, wheel = self._heap, self._wheel
        while heap and heap[0][0] <= now_tick:
            due, _, bucket = heapq.heappop(heap)
            wheel.advance(due)
            tasks, bucket.tasks, bucket.due = bucket.tasks, {}, -1
            for task in tasks:
                task._bucket = None
                if not wheel.add(task, -(-task.deadline_ns // self._tick_ns)):
                    expired.append(task)
        wheel.advance(now_tick)
        self._size -= len(expired)
        return expired

    def _next_due(self) -> int | None:
        """The next bucket that still holds a task. Buckets whose tasks were all cancelled are dropped here, so that a
        stream of long polls that are answered early does not wake the thread for each of them."""
        heap = self._heap
        while heap:
            due, _, bucket = heap[0]
            if bucket.tasks:
                return due
            heapq.heappop(heap)
            bucket.due = -1
        return None

    def _run(self, task: TimerTask) -> None:
        try:
            task.expire()
        except Exception:
            log.exception("%r failed when it expired; the timer goes on", task)

    def __repr__(self) -> str:
        return f"<Timer {self._size} tasks, {len(self._heap)} buckets>"


def _deadline(task: TimerTask) -> int:
    return task.deadline_ns


class TimerThread(ServerThread):
    """Turns one timer. Named after Kafka's reaper."""

    def __init__(self, timer: Timer, broker_id: int, on_fatal: FatalHandler | None = None) -> None:
        super().__init__(f"ExpirationReaper-{broker_id}", on_fatal)
        self.timer = timer

    def run_once(self) -> None:
        self.timer.wait()
        self.timer.advance()

    def wakeup(self) -> None:
        self.timer.close()
