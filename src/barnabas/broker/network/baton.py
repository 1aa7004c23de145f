"""The baton: under the GIL, threads of the request path take turns by the batch instead of by the system call.

Role:    every `send`, `recv` and `write` lets go of the GIL; with several busy threads another one then grabs it, and the first
         waits to get it back: a thread switch, often between cores, for each system call (measured: it doubled the CPU time
         per request). Who holds the baton does a whole turn; the others wait on it, asleep, and not on the GIL.
         It is advice, not protection: nothing is guarded by it, and who has waited `PATIENCE_SECONDS` goes on without it, so
         that a thread that blocks while it holds the baton (a slow disk) delays nobody for longer.
Thread:  each thread has a `Turn` of its own. Lock: the baton is one.

Builds without the GIL have no baton: `NO_BATON` hands out turns that do nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns

from barnabas.net.poller import Poller

PATIENCE_SECONDS = 0.002
SPIN_NS = 50_000
SHORT_WAIT_NS = 200_000


class Turn:
    """One thread's way to hold the baton; `begin` and `end` may be called in any order, any number of times."""

    __slots__ = ("_lock", "held")

    def __init__(self, lock: threading.Lock | None) -> None:
        self._lock = lock
        self.held = False

    def begin(self) -> None:
        """Hold the baton, or have waited long enough for it."""
        if self._lock is not None and not self.held:
            self.held = self._lock.acquire(True, PATIENCE_SECONDS)

    def end(self) -> None:
        """Let go of it: before anything that may block."""
        if self.held:
            self.held = False
            self._lock.release()  # type: ignore[union-attr]  # held only if there is one


class Baton:
    """Shared by the threads of one plane. Thread-safe."""

    __slots__ = ("_lock",)

    def __init__(self, enabled: bool = True) -> None:
        self._lock = threading.Lock() if enabled else None

    def turn(self) -> Turn:
        return Turn(self._lock)


NO_BATON = Baton(enabled=False)


class TurnPoller:
    """A poller that ends its thread's turn while it waits, and is slow to fall asleep.

    Waking a sleeping thread costs tens of microseconds, on a virtual machine more than a request takes. So when the last wait was
    short, the next one is expected to be short too, and the thread asks again for `SPIN_NS` before it sleeps; not while a handler
    works, which needs the GIL. After a long wait it sleeps at once: a quiet broker costs nothing.
    """

    __slots__ = ("_before_sleep", "_inner", "_may_spin", "_short", "_turn", "close", "modify", "register", "unregister")

    def __init__(
        self, inner: Poller, turn: Turn, before_sleep: Callable[[], None], may_spin: Callable[[], bool] = lambda: True
    ) -> None:
        self._inner = inner
        self._turn = turn
        self._before_sleep = before_sleep
        self._may_spin = may_spin
        self._short = False  # whether the last wait was a short one
        self.register = inner.register
        self.modify = inner.modify
        self.unregister = inner.unregister
        self.close = inner.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Without waiting the turn goes on. `before_sleep` wakes others: after the end of the turn, or they would wake up only
        to wait for it."""
        if not timeout:
            self._before_sleep()
            return self._inner.poll(timeout, maxevents)
        turn = self._turn
        turn.end()
        self._before_sleep()
        events = self._wait(timeout, maxevents)
        turn.begin()
        return events

    def _wait(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        poll = self._inner.poll
        start = monotonic_ns()
        if self._short and self._may_spin():
            while monotonic_ns() - start < SPIN_NS:
                events = poll(0, maxevents)
                if events:
                    return events
        events = poll(timeout, maxevents)
        self._short = monotonic_ns() - start < SHORT_WAIT_NS
        return events
